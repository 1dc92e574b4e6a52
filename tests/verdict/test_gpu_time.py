"""In whose kernels the GPU's time went: names as the profiler gives them, and who is told off for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.protocol import RanKernel
from grader.report.model import GpuTime
from grader.verdict.gpu_time import decoy, gpu_time, percent, short_name, without_own
from grader.verdict.policy import cuda_kernels
from grader.verdict.sources import triton_kernels
from tests.conftest import ROOT

COPY = RanKernel("Memcpy DtoD (Device -> Device)", 1, 0.25e-3)
FILL = RanKernel(
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)", 2, 0.25e-3
)
CUBLAS = RanKernel("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", 1, 1e-3)
TRITON = RanKernel("softmax_kernel", 3, 0.5e-3)
CUDA = RanKernel("void (anonymous namespace)::gelu_kernel<4>(float const*, float*, long)", 1, 0.5e-3)


def found(*ran: RanKernel, own: tuple[str, ...] = ("softmax_kernel", "gelu_kernel")) -> GpuTime:
    result = gpu_time(ran, own)
    assert result is not None
    return result


def test_the_shares_of_a_call() -> None:
    result = found(TRITON, COPY, FILL)
    assert result.own_share == pytest.approx(0.5)
    assert result.library_share == 0  # what only fills and copies is plumbing
    assert found(TRITON, CUBLAS).library_share == pytest.approx(2 / 3)
    assert [(one.name, one.own, one.calls) for one in result.kernels] == [
        ("softmax_kernel", True, 3),
        ("Memcpy DtoD", False, 1),
        ("at::native::vectorized_elementwise_kernel", False, 2),
    ]
    assert sum(one.share for one in result.kernels) == pytest.approx(1)


def test_a_template_in_a_namespace_is_the_students_own() -> None:
    assert found(CUDA).own_share == pytest.approx(1)


def test_nobody_can_tell_without_a_kernel() -> None:
    assert gpu_time([], ["softmax_kernel"]) is None
    assert gpu_time([RanKernel("softmax_kernel", 1, 0.0)], ["softmax_kernel"]) is None


def test_a_kernel_for_show_is_named() -> None:
    show = RanKernel("softmax_kernel", 1, 0.02e-3)
    assert decoy(found(CUBLAS, show)) == f"2 % of the GPU's time went into kernels of your own, 98 % into {CUBLAS.name}"


@pytest.mark.parametrize(
    "ran",
    [
        (TRITON, COPY, FILL),
        (CUBLAS, TRITON),
        (COPY,),
        (RanKernel("kernel_made_by_a_macro", 1, 1.0),),
        (replace(FILL, time_s=1.0), TRITON),
    ],
    ids=["plumbing", "a third is one's own", "copies alone", "a kernel of unknown origin", "an autotuner's fills"],
)
def test_whoever_may_have_done_the_work_is_left_alone(ran: tuple[RanKernel, ...]) -> None:
    assert decoy(found(*ran)) == ""


def test_copies_alone_are_nobodys_kernel() -> None:
    """As from an answer that was computed on the host, or in an earlier call."""
    from_host = replace(COPY, name="Memcpy HtoD (Pageable -> Device)")
    words = "no kernel of your own ran on the GPU, only PyTorch's, such as Memcpy"
    assert without_own([from_host, FILL], ["softmax_kernel"]) == f"{words} HtoD"
    longer = replace(COPY, time_s=1e-3)
    told = without_own([longer, FILL], ["softmax_kernel"])
    assert told == f"{words} DtoD: none was launched, or a result was kept from an earlier call"
    assert without_own([longer, from_host], ["softmax_kernel"]) == f"{words} DtoD"
    assert without_own([CUBLAS, COPY], ["softmax_kernel"]).endswith(f"such as {CUBLAS.name}")


@pytest.mark.parametrize("ran", [(TRITON, CUBLAS), (COPY, RanKernel("kernel_made_by_a_macro", 1, 1.0)), ()])
def test_a_kernel_that_may_be_the_students_own_is_enough(ran: tuple[RanKernel, ...]) -> None:
    assert without_own(ran, ["softmax_kernel"]) == ""


@pytest.mark.parametrize(
    "library",
    [
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*)",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16>(cutlass_80_tensorop_bf16::Params)",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x64_4x1x1_cga1x1x1_kernel0_0",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(pytorch_flash::Flash_fwd_params)",
        "triton_per_fused__softmax_0",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNN",
        "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 8, false>(c10::Half*)",
        "void cub::CUB_200802_900_NS::DeviceReduceKernel<cub::Policy, float*>(float*)",
    ],
)
def test_kernels_of_libraries_are_known(library: str) -> None:
    assert found(RanKernel(library, 1, 1.0)).library_share == pytest.approx(1)


TUTORIAL = (
    "void gelu_kernel<float>(at::GenericPackedTensorAccessor<float, 1ul, at::RestrictPtrTraits, long>, "
    "at::GenericPackedTensorAccessor<float, 1ul, at::RestrictPtrTraits, long>)"
)


@pytest.mark.parametrize(
    "name", [TUTORIAL, "void gelu_kernel<c10::Half>(c10::Half const*)", "each<at::BFloat16>(long)"]
)
def test_types_of_a_library_make_no_kernel_a_librarys(name: str) -> None:
    ran = [RanKernel(name, 1, 1.0)]
    for own in ([], ["gelu_kernel", "each"]):  # where nobody knows the submission's kernels, and where they are known
        result = gpu_time(ran, own)
        assert result is not None
        assert (decoy(result), without_own(ran, own), result.library_share) == ("", "", 0)
        assert result.own_share == bool(own)


def test_a_librarys_kernel_is_not_ones_own_by_its_last_name() -> None:
    assert found(CUBLAS, replace(FILL, name=FILL.name.replace("FillFunctor", "AddFunctor"))).own_share == 0
    result = gpu_time([RanKernel("void at::native::elementwise_kernel<4>(int)", 1, 1.0)], ["elementwise_kernel"])
    assert result is not None
    assert decoy(result)


def test_kernels_of_a_cuda_source() -> None:
    code = """
__global__ void plain(const float* x) {}
template <typename T> __global__ void __launch_bounds__(256, f(2)) bounded(T* y);
static __global__
__attribute__((unused)) void attributed (int n) {}
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered() { plain<<<1, 1>>>(); helper(1); }
__device__ float helper(float v) { return v; }
"""
    assert cuda_kernels([code, "__global__", "x __global__; f(", "__global__ " * 20000]) == {
        "plain",
        "bounded",
        "attributed",
        "clustered",
    }


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("softmax_kernel", "softmax_kernel"),
        ("gelu(float const*, float*, long)", "gelu"),
        ("void lab::gelu<float, 4>(float const*)", "lab::gelu"),
        ("Memset (Device)", "Memset"),
        ("", ""),
        ("<lambda>", "<lambda>"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_a_workers_words_break_nothing() -> None:
    """Names as long as may be, and the library's kernel told last, behind more small ones than are kept."""
    many = [RanKernel(f"softmax_kernel_{index}", 1, 1e-6) for index in range(31)]
    result = gpu_time([*many, CUBLAS], [one.name for one in many])
    assert result is not None
    assert result.kernels[0].name == CUBLAS.name
    assert decoy(result).endswith(f"97 % into {CUBLAS.name}")
    for name in ("Memcpy" + 290 * "x", 300 * "x", "void " + 290 * "x" + "(int)"):
        assert len(short_name(name)) <= 200


def test_a_source_that_nobody_can_read_has_no_kernels() -> None:
    assert triton_kernels({"deep.py": "y = torch" + ".a" * 1500, "long.py": "y = " + "1+" * 1500 + "1"}) == frozenset()


def test_kernels_of_a_source() -> None:
    source = """
import triton
from triton import jit as J
import triton.language as tl

@triton.jit
def plain(x): ...

@triton.autotune(configs=[], key=[])
@triton.jit(do_not_specialize=["n"])
def tuned(x, n): ...

def launch(x):
    @J
    def inner(x): ...
    inner[(1,)](x)

def wrapped(x): ...
fast = triton.jit(wrapped)
def twice(x): ...
faster = triton.jit(do_not_specialize=["n"])(twice)

def no_kernel(x): ...
"""
    assert triton_kernels({"a.py": source, "broken.py": "def ("}) == {"plain", "tuned", "inner", "wrapped", "twice"}


def test_the_references_kernels_are_found() -> None:
    for name in ("softmax.py", "triton_gelu.py", "flash_attention.py"):
        assert triton_kernels({name: (ROOT / "reference" / name).read_text()}), name


@pytest.mark.parametrize(
    ("share", "words"), [(1.0, "100 %"), (0.999, "over 99 %"), (0.5, "50 %"), (0.001, "under 1 %"), (0.0, "0 %")]
)
def test_percent(share: float, words: str) -> None:
    assert percent(share) == words

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


MACRO = RanKernel("kernel_made_by_a_macro", 1, 1.0)
FROM_HOST = replace(COPY, name="Memcpy HtoD (Pageable -> Device)")
LONG_COPY = replace(COPY, time_s=1e-3)
FOR_SHOW = replace(TRITON, time_s=0.02e-3)
OWN = ("softmax_kernel", "gelu_kernel")
NO_OWN = "no kernel of your own ran on the GPU, only PyTorch's, such as "


def found(*ran: RanKernel, own: tuple[str, ...] = OWN) -> GpuTime:
    result = gpu_time(ran, own)
    assert result is not None
    return result


# What ran; the shares of one's own and of libraries' kernels; and what is told of kernels for show, and of none of one's own.
CALLS = {
    "own kernels beside what only fills and copies": ((TRITON, COPY, FILL), 0.5, 0, "", ""),
    "a template in a namespace": ((CUDA,), 1, 0, "", ""),
    "a third is one's own": ((CUBLAS, TRITON), 1 / 3, 2 / 3, "", ""),
    "an autotuner's fills": ((replace(FILL, time_s=1.0), TRITON), 0, 0, "", ""),
    "a kernel of unknown origin": ((MACRO,), 0, 0, "", ""),
    "a kernel of unknown origin and a copy": ((COPY, MACRO), 0, 0, "", ""),
    "a kernel for show": (
        (CUBLAS, FOR_SHOW), 0.02, 0.98, f"2 % of the GPU's time went into kernels of your own, 98 % into {CUBLAS.name}", "",
    ),
    # As from an answer that was computed on the host, or in an earlier call.
    "copies from the host": ((FROM_HOST, FILL), 0, 0, "", f"{NO_OWN}Memcpy HtoD"),
    "a copy of an earlier result": (
        (LONG_COPY, FILL), 0, 0, "", f"{NO_OWN}Memcpy DtoD: none was launched, or a result was kept from an earlier call",
    ),
    "copies from the GPU and from the host": ((LONG_COPY, FROM_HOST), 0, 0, "", f"{NO_OWN}Memcpy DtoD"),
    "a library's kernel": (
        (CUBLAS, COPY), 0, 0.8, "", f"{NO_OWN}{CUBLAS.name}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_whose_kernels_a_calls_time_went_into_and_what_is_told_of_it(name: str) -> None:
    ran, own, library, for_show, none = CALLS[name]
    result = found(*ran)
    assert (result.own_share, result.library_share) == pytest.approx((own, library), abs=0.005)
    assert (decoy(result), without_own(ran, OWN)) == (for_show, none)
    assert sum(one.share for one in result.kernels) == pytest.approx(1)


def test_kernels_are_told_by_their_short_names_the_longest_first() -> None:
    assert [(one.name, one.own, one.calls) for one in found(TRITON, COPY, FILL).kernels] == [
        ("softmax_kernel", True, 3),
        ("Memcpy DtoD", False, 1),
        ("at::native::vectorized_elementwise_kernel", False, 2),
    ]


def test_nobody_can_tell_without_a_kernel() -> None:
    assert gpu_time([], OWN) is None
    assert gpu_time([replace(TRITON, time_s=0.0)], OWN) is None
    assert without_own([], OWN) == ""


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

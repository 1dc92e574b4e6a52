"""A case's profile from its trace and the compiler's output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.profile.facts import NOTHING, case_profile, gpu_run, triton_in
from grader.profile.launches import launches
from grader.profile.model import CaseProfile
from grader.protocol import CompiledKernel, GpuTrace, RanLaunch, Trace
from tests.profile.test_compiled import packed
from tests.support.traces import H200, N, bare_case, elementwise, of_warps, ptxas, rows, tensor, triton_kernel

GELU = ptxas("_Z11gelu_kernelPKfPfl", 28, 12)


def profile(*traced: object, compiled: tuple[CompiledKernel, ...] = (GELU,), **fields: object) -> CaseProfile:
    return case_profile(bare_case(**fields), Trace(traced), compiled, H200, {"kernel.cu": "x\n" * 20})


def test_a_profile_has_the_numbers_of_its_case() -> None:
    found = profile(elementwise(width=16))
    assert (found.moved_bytes, found.needed_bytes) == (8 * N, 8 * N)
    (launch,) = found.launches
    assert launch.moved_bytes == 8 * N
    assert (launch.registers, launch.spilled_bytes) == (28, 12)
    assert launch.lines[0].source == "x"
    assert (found.unknown, found.remarks) == ("", ())


def test_each_launch_has_its_own_kernel_of_one_file() -> None:
    words = "\n".join(ptxas(name, registers).ptxas for name, registers in (("_Z1aPf", 20), ("_ZN1n1bEPf", 40)))
    several = (elementwise(kernel=name) for name in ("n::b<256>", "a", "c"))
    found = profile(*several, compiled=(CompiledKernel("all", 0, 0, words),))
    assert [one.registers for one in found.launches] == [40, 20, None]


def test_kernels_of_one_name_are_told_apart_by_warps_and_order() -> None:
    compiled = tuple(
        triton_kernel("softmax_kernel", warps, registers, shared=warps)
        for warps, registers in ((4, 40), (8, 80), (8, 88))
    )
    several = (rows(warps=8), rows(warps=4), rows(2, warps=8))
    found = profile(*several, compiled=compiled)
    assert [one.registers for one in found.launches] == [80, 40, 88]
    assert [one.shared_bytes for one in found.launches] == [8, 4, 8]


def test_a_kernel_has_the_warps_with_which_it_was_compiled() -> None:
    found = profile(rows(warps=8), compiled=(triton_kernel("softmax_kernel", 4, 40, shared=4),))
    (launch,) = found.launches
    assert (launch.threads, launch.registers) == (128, 40)
    assert [one.threads for one in profile(elementwise(threads=192)).launches] == [192]


def test_a_block_that_was_stopped_is_told() -> None:
    found = profile(elementwise(), replace(elementwise(), cut=True))
    assert found.is_cut
    assert found.unknown.startswith("a block made too many accesses")
    assert profile(replace(elementwise(), cut=True), unknown="there is no nvcc here").unknown.startswith(
        "there is no nvcc here; a block made too many accesses"
    )


def test_blocks_that_share_their_work_by_a_counter_count_by_what_they_wrote() -> None:
    """The first blocks to run took a tenth of the work, and would have been four of 264; one of them was stopped."""
    counter = of_warps("writes", "", 9, N // 2560, lanes=N // 2560, sectors=0, atomic=True)
    tensors = (tensor("x", 4 * N, reads=N / 10), tensor("y", 4 * N, writes=N / 10))  # each of the four
    plain = tuple(of_warps(verb, name, 10, N // 320) for verb, name in (("reads", "x"), ("writes", "y")))
    queue = elementwise(grid=(264, 1, 1), cut=True, accesses=(counter, *plain), tensors=tensors)
    found = profile(queue)
    assert found.moved_bytes == pytest.approx(8 * N, rel=0.02)
    assert found.unknown == ""
    by_atomics = replace(queue, accesses=(counter, *(replace(one, atomic=one.tensor == "y") for one in plain)))
    for other in (replace(queue, accesses=plain), by_atomics):
        assert max(one.bytes for one in profile(other).launches[0].lines) > 6 * 4 * N
        assert profile(other).unknown.startswith("a block made too many accesses")


def test_a_call_without_work_says_so() -> None:
    found = profile(unknown="there is no nvcc here")
    assert found.unknown == NOTHING
    assert (found.moved_bytes, found.remarks) == (0.0, ())


def test_lines_in_double_are_those_of_the_compilers_words() -> None:
    words = GELU.ptxas + "computed in double: kernel.cu:7: 0.5\n"
    found = profile(elementwise(), compiled=(CompiledKernel("all", 0, 0, words),))
    assert (found.remarks[0].cause, found.remarks[0].file, found.remarks[0].line) == ("doubles", "kernel.cu", 7)


def test_what_the_texts_of_a_kernel_say_counts() -> None:
    ttgir = """
%y = tt.extern_elementwise %x {symbol = "__nv_tanhf"} : (tensor<1024xf32, #b>) -> tensor<1024xf32, #b> loc(#loc1)
%z = ttng.warp_group_dot %x, %y : tensor<64x64xf32, #b> loc(#loc1)
#loc1 = loc("kernel.py":20:3)
"""
    ptx = "ld.global.b32 {%r1}, [%rd1];\nadd.f64 %fd1, %fd2, %fd3;\nret;\n"
    kernel = replace(triton_kernel("softmax_kernel", 8), texts=(packed("ttgir", ttgir), packed("ptx", ptx)))
    (launch,) = case_profile(bare_case(), Trace((rows(),)), (kernel,), H200, {}).launches
    assert launch.notes == ("line 20 calls tanhf",)
    (work,) = launches((rows(),), (kernel,), H200)
    texts = work.facts.texts
    assert (texts.instructions, texts.doubles, texts.lacks_tensor_cores) == (3, 1, True)


def test_the_triton_in_generated_code_is_without_the_code_around_it() -> None:
    kernel = "def triton_poi_fused_0(in_ptr0, out_ptr0):\n    x = tl.load(in_ptr0)\n"
    text = f"triton_poi_fused_0 = async_compile.triton('a', '''\nimport triton\n@triton.jit\n{kernel}''', device_str='cuda')\n"
    assert triton_in(text + text.replace("_0", "_1")) == f"{kernel}\n\n{kernel.replace('_0', '_1')}".strip()
    assert triton_in("import torch\n") == ""


def test_a_worker_that_counts_fewer_kernels_than_it_sends_has_none_missing() -> None:
    ran = RanLaunch("scale", (4, 1, 1), (128, 1, 1), 32, 0, 0.0, 1e-3)
    result = gpu_run(GpuTrace(ran=(ran, ran), ran_of_all=0), {"scale"}, H200, "NVIDIA H200")
    assert [(one.calls, one.own) for one in result.kernels] == [(2, True)]
    assert result.missing == 0

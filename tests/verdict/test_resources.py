"""What `ptxas -v` says becomes registers, spills and shared memory; anything else becomes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.gpu_table import GPUS
from grader.verdict.resources import MAX_KERNELS, kernel_name, kernel_resources, misfit

# As nvcc 13.0 printed it.
TOLD = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4tilePKfPfl' for 'sm_90'
ptxas info    : Function properties for _Z4tilePKfPfl
    2048 bytes stack frame, 132 bytes spill stores, 140 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 2048 bytes cumulative stack size, 4224 bytes smem
ptxas info    : Compile time = 19.035 ms
ptxas info    : Compiling entry function '_ZN35_GLOBAL__N__74b52007_7_gelu_cu_gelu11gelu_kernelEPKfPfl' for 'sm_90'
ptxas info    : Function properties for _ZN35_GLOBAL__N__74b52007_7_gelu_cu_gelu11gelu_kernelEPKfPfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
"""


def test_each_kernel_has_its_own_numbers() -> None:
    first, second = kernel_resources(TOLD)
    assert (first.name, first.arch, first.registers, first.shared_bytes) == ("tile", "sm_90", 255, 4224)
    assert (first.stack_bytes, first.spill_store_bytes, first.spill_load_bytes) == (2048, 132, 140)
    assert (second.name, second.registers, second.shared_bytes) == ("gelu_kernel", 32, 0)
    assert (second.stack_bytes, second.spill_store_bytes, second.spill_load_bytes) == (0, 0, 0), (
        "the first kernel's spills are not the second's"
    )


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_Z4geluPKfPfl", "gelu"),
        ("_Z4geluILi256EEvPKfPfl", "gelu"),
        ("_ZN7kernels4fast4geluEPKfPfl", "gelu"),
        ("_ZL11gelu_kernelPKfPfl", "gelu_kernel"),
        ("gelu", "gelu"),
        ("_Z", "_Z"),
        ("_Z999gelu", "gelu"),
    ],
)
def test_a_mangled_name_is_told_as_the_student_wrote_it(symbol: str, name: str) -> None:
    assert kernel_name(symbol) == name


@given(st.text())
def test_words_of_any_other_form_give_no_kernel(text: str) -> None:
    assert kernel_resources(text) == ()


def test_a_worker_cannot_fill_the_report() -> None:
    assert len(kernel_resources(TOLD * 1000)) == MAX_KERNELS
    (one,) = kernel_resources("Compiling entry function '" + "k" * 1999 + "' for 'sm_90'\nUsed 9999 registers")
    assert len(one.name) == 200


@pytest.mark.parametrize("name", GPUS)
def test_a_block_may_have_all_the_shared_memory_there_is_and_no_more(name: str) -> None:
    arch, limit = GPUS[name].arch, GPUS[name].shared_bytes
    assert misfit(arch, limit) == ""
    why = misfit(arch, limit + 1)
    assert why.startswith(f"needs {limit + 1} bytes of shared memory for a block, a")
    assert why.endswith(f" has {limit}")
    assert name in why


@pytest.mark.parametrize(
    ("arch", "who"), [("sm_90a", "an H100 or H200"), ("sm_100", "a B200"), ("sm_89", "an L4 or RTX 4090")]
)
def test_a_misfit_names_the_gpus_of_an_architecture(arch: str, who: str) -> None:
    assert f", {who} has " in misfit(arch, 1 << 20)


def test_of_a_gpu_that_nobody_knows_nothing_is_said() -> None:
    assert misfit("sm_70", 1 << 30) == ""

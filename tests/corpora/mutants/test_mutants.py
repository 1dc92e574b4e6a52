"""Wrong kernels, one mistake each: none earns full points, and each is told what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import Device
from grader.verdict.cells import is_telling
from tests.support.corpus import DEVICES, Entry, Found, entries
from tests.support.maps import contradictions

pytestmark = pytest.mark.grading

MUTANTS = entries("mutants")
# Mutants whose map on a CPU shows at a glance where they are wrong, by assignment.
SEEN_AT_A_GLANCE = {
    "cuda_gelu": (
        "capped_grid_without_loop",
        "float4_tail_from_the_start",
        "grid_rounded_down",
        "one_block_only",
        "product_overflows",
        "scratch_of_fixed_size",
        "static_blocks",
    ),
    "flash_attention": (
        "causal_by_blocks",
        "causal_ignored",
        "causal_mask_by_multiplication",
        "first_batch_for_all",
        "first_batch_of_the_logsumexp",
        "grid_of_queries_for_the_keys",
        "odd_key_blocks_start_late",
        "queries_rounded_down",
        "sum_not_rescaled",
        "transposed_output",
    ),
    "softmax": (
        "maximum_of_each_block",
        "rows_beyond_the_grid",
        "sum_rescaled_in_base_two",
    ),
    "triton_gelu": (
        "sign_not_restored",
        "tanh_by_exp_overflows",
    ),
}


@pytest.mark.parametrize("entry", [one for one in MUTANTS if "cpu" in one.expected], ids=lambda entry: entry.id)
def test_a_wrong_kernel_fails_and_is_told_why(entry: Entry, tmp_path: Path) -> None:
    """In the case that is the first to fail where all of them run, which mostly is the only one that runs here."""
    expected = entry.expected["cpu"]
    case = None if expected.after_others else expected.case
    is_told_why(entry, "cpu", entry.grade("cpu", tmp_path, stop_early=True, case=case))


@pytest.mark.everything
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", MUTANTS, ids=lambda entry: entry.id)
def test_a_wrong_kernel_passes_every_case_before(entry: Entry, device: Device, tmp_path: Path) -> None:
    if device not in entry.expected:
        pytest.skip(f"not wrong on {device}, or nobody can say what becomes of it")
    is_told_why(entry, device, entry.grade(device, tmp_path, stop_early=True))


def is_told_why(entry: Entry, device: Device, found: Found) -> None:
    assert entry.fault(device, found) == ""
    failed = [case for _, case in found.ran if case.outcome == "failed"]
    assert [words for case in failed for words in contradictions(case)] == [], (
        "the map shows another place than its words"
    )
    if device == "cpu" and entry.folder.name in SEEN_AT_A_GLANCE.get(entry.assignment, ()):
        assert is_telling(failed[0].map)


def test_only_a_crash_may_be_in_another_case() -> None:
    """The bytes behind a tensor, and so the case that crashes, are chance."""
    expected = {entry.id: entry.mutant.cpu for entry in MUTANTS if entry.mutant.cpu is not None}
    assert [one for one, cpu in expected.items() if cpu.case is None and cpu.outcome != "crashed"] == []


def test_every_mutant_that_is_seen_at_a_glance_is_there() -> None:
    named = {f"{assignment}-{name}" for assignment, names in SEEN_AT_A_GLANCE.items() for name in names}
    assert named <= {entry.id for entry in MUTANTS if entry.mutant.cpu is not None}


def test_every_change_fits_its_base(tmp_path: Path) -> None:
    """Of kernels that are wrong on a GPU alone too."""
    for entry in MUTANTS:
        entry.submission(tmp_path / entry.id)

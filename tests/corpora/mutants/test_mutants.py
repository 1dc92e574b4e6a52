"""Wrong kernels, one mistake each: none earns full points, and each is told what is wrong."""

from __future__ import annotations

from collections import Counter
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
KINDS = (
    "out of bounds",
    "race: ",
    "unwritten memory",
    "changed input",
)  # faults of `grader/worker/triton_cpu/checker.py`


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


def test_every_folder_has_its_toml() -> None:
    # Only a crash may be without a case: the bytes behind a tensor, and so the case that crashes, are chance.
    expected = {entry.id: entry.mutant.cpu for entry in MUTANTS if entry.mutant.cpu is not None}
    assert [one for one, cpu in expected.items() if cpu.case is None and cpu.outcome != "crashed"] == []


def test_every_mutant_that_is_seen_at_a_glance_is_there() -> None:
    named = {f"{assignment}-{name}" for assignment, names in SEEN_AT_A_GLANCE.items() for name in names}
    assert named <= {entry.id for entry in MUTANTS if entry.mutant.cpu is not None}
    assert len(named) >= 20


def test_the_interpreters_memory_sees_enough_of_them() -> None:
    """Nearly all of these pass every case, or end the worker without a word, where accesses are not checked."""
    said = [entry.mutant.cpu.says for entry in MUTANTS if entry.assignment != "cuda_gelu" and entry.mutant.cpu]
    kinds = Counter(kind for words in said for kind in KINDS if any(kind in one for one in words[:1]))
    assert kinds.total() >= 40, kinds
    assert min(kinds[kind] for kind in KINDS) >= 4, kinds


def test_no_mistake_is_there_twice() -> None:
    mistakes = Counter((entry.assignment, entry.mutant.part, entry.mutant.mistake) for entry in MUTANTS)
    assert [mistake for mistake, count in mistakes.items() if count > 1] == []


def test_a_changed_kernel_differs_in_a_few_lines(tmp_path: Path) -> None:
    for entry in MUTANTS:
        changes = entry.mutant.change
        entry.submission(tmp_path / entry.id)
        assert sum(len(change.new.splitlines()) for change in changes) <= 30, entry.id
        assert all(change.old != change.new for change in changes), entry.id


def test_there_are_enough_of_them() -> None:
    counts = Counter((entry.assignment, entry.mutant.part) for entry in MUTANTS)
    for assignment, part in (
        ("cuda_gelu", None),
        ("triton_gelu", None),
        ("softmax", None),
        ("flash_attention", "forward"),
        ("flash_attention", "backward"),
    ):
        assert counts[assignment, part] >= 20, counts

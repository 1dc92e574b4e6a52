"""Wrong kernels, one mistake each: none earns full points, and each is told what is wrong."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.corpus import DEVICES, Device, Entry, cases, entries, words

MUTANTS = entries("mutants")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", MUTANTS, ids=lambda entry: entry.id)
def test_a_wrong_kernel_fails_and_is_told_why(entry: Entry, device: Device, tmp_path: Path) -> None:
    expected = entry.mutant.cpu if device == "cpu" else entry.mutant.cuda
    report = entry.grade(device, tmp_path, stop_early=device == "cuda", hangs=expected.outcome == "timed_out")
    assert report.infra_errors == ()
    first = next((case for case in cases(report) if case.outcome not in ("passed", "skipped")), None)
    assert first is not None, "every case that ran passed"
    assert report.correctness.earned < report.correctness.possible
    assert first.outcome == expected.outcome, f"{first.name}: {words(first)}"
    assert expected.case in (None, first.name), words(first)
    for pattern in expected.says:
        assert re.search(pattern, words(first)), f"{pattern!r} is not in: {words(first)}"


def test_every_folder_has_its_toml() -> None:
    for entry in MUTANTS:
        assert entry.mutant.cpu.case is not None, entry.id


def test_no_mistake_is_there_twice() -> None:
    assert [mistake for mistake, count in Counter(entry.mutant.mistake for entry in MUTANTS).items() if count > 1] == []


def test_there_are_enough_of_them() -> None:
    counts = Counter(entry.assignment for entry in MUTANTS)
    assert counts
    assert all(count > 24 for count in counts.values()), counts

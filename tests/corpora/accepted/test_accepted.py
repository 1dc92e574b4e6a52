"""Right kernels, written in different ways: every case passes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grader.assignment import Device
from tests.support.corpus import DEVICES, Entry, entries

pytestmark = pytest.mark.grading

ACCEPTED = entries("accepted")


@pytest.mark.parametrize("entry", ACCEPTED, ids=lambda entry: entry.id)
def test_a_right_kernel_passes_a_sample_of_the_cases(entry: Entry, tmp_path: Path) -> None:
    assert entry.fault("cpu", entry.grade("cpu", tmp_path, only="a sample")) == ""


@pytest.mark.everything
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entry", ACCEPTED, ids=lambda entry: entry.id)
def test_a_right_kernel_passes(entry: Entry, device: Device, tmp_path: Path) -> None:
    if not entry.runs_on(device):
        pytest.skip(f"cannot run on {device}")
    assert entry.fault(device, entry.grade(device, tmp_path)) == ""


def test_every_folder_has_its_toml() -> None:
    assert all(entry.accepted.how for entry in ACCEPTED)


def test_there_are_enough_of_them() -> None:
    counts = Counter(entry.assignment for entry in ACCEPTED)
    for assignment, least in (("cuda_gelu", 25), ("triton_gelu", 6), ("softmax", 7), ("flash_attention", 8)):
        assert counts[assignment] >= least, counts

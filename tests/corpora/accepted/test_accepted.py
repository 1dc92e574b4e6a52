"""Right kernels, written in different ways: every case passes."""

from __future__ import annotations

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

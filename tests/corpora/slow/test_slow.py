"""Kernels that are slow for one cause: the profile names it first. Fast kernels are told nothing.

Of the kernels with one cause, one in each language runs in CI, and all by `make everything`: a profile takes seconds of a processor.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from grader.nvidia import find_ncu
from grader.profile.counters import NO_RIGHTS
from grader.profile.model import CaseProfile, Profile
from tests.conftest import IMPORTS, ROOT
from tests.support.corpus import Entry, entries
from tests.support.warm_judge import profile

SLOW = entries("slow")
# By cause and language. Triton GeLUs, which take least, come last.
OF_EACH_CAUSE = [*{(one.slow.cause, one.assignment == "cuda_gelu"): one for one in SLOW}.values()]
# Each within 7 % of the machine's limit, or of the best there is, as measured on a GPU.
FAST = [
    *(("reference", *one) for one in (("cuda_gelu", "large"), ("triton_gelu", "float32"), ("triton_gelu", "bfloat16"))),
    # Not "long": without a GPU the reference reads a long row twice, and is told so.
    *(("reference", "softmax", case) for case in ("wide", "narrow")),
    *(("reference", "flash_attention", case) for case in ("forward/causal", "backward/causal")),
    *(
        pytest.param(*one, marks=pytest.mark.everything)
        for one in (
            *((name, "cuda_gelu", "large") for name in ("float4_head_and_tail", "template_with_commas")),
            *((name, "triton_gelu", "float32") for name in ("plain", "constants_first", "block_pointers")),
            *(("two_kernels", "softmax", case) for case in ("wide", "narrow")),
        )
    ),
]
pytestmark = pytest.mark.grading


@pytest.mark.parametrize("entry", OF_EACH_CAUSE, ids=lambda entry: entry.id)
def test_the_cause_comes_first(entry: Entry, tmp_path: Path) -> None:
    has_cause_first(entry, profile(entry.submission(tmp_path), ROOT, entry.assignment, entry.slow.case))


@pytest.mark.everything
@pytest.mark.parametrize("entry", [one for one in SLOW if one not in OF_EACH_CAUSE], ids=lambda entry: entry.id)
def test_the_cause_comes_first_in_another_kernel(entry: Entry, tmp_path: Path) -> None:
    has_cause_first(entry, profile(entry.submission(tmp_path), ROOT, entry.assignment, entry.slow.case))


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("entry", SLOW, ids=lambda entry: entry.id)
def test_the_cause_comes_first_on_a_gpu(entry: Entry, tmp_path: Path) -> None:
    found = profiled(entry.submission(tmp_path), tmp_path / "out", entry.assignment, entry.slow.case)
    has_cause_first(entry, found)
    assert found.ran is not None, found.unknown
    assert any(one.own for one in found.ran.kernels), found.ran
    assert any(one.measured is not None or "stopped there" in one.unknown for one in found.timed), found.timed


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.skipif(not torch.cuda.is_available() or find_ncu() is None, reason="needs a GPU and Nsight Compute")
def test_a_gpu_counts_the_bytes_that_were_traced(tmp_path: Path) -> None:
    found = profiled(ROOT / "reference", tmp_path, "softmax", "wide", "--counters")
    if NO_RIGHTS in found.unknown:
        pytest.skip(NO_RIGHTS)
    (counted,) = found.counters
    assert (counted.name, counted.own, counted.grid) == ("softmax_kernel", True, found.launches[0].grid)
    moved = (counted.dram_read_bytes or 0) + (counted.dram_written_bytes or 0)
    assert moved == pytest.approx(found.launches[0].moved_bytes, rel=0.1)  # each byte once, so that L2 keeps none
    assert None not in (
        counted.occupancy,
        counted.dram_busy,
        counted.tensor_busy,
        counted.l2_hits,
        counted.load_sectors,
    )
    assert counted.stalls
    assert found.compiled is not None
    assert "tl.load(" in found.generated


def profiled(submission: Path, out: Path, assignment: str, case: str, *options: str) -> CaseProfile:
    """By the command, on this machine's GPU."""
    named = [str(submission), "-a", assignment, "--case", case, "-o", str(out)]
    command = [sys.executable, "-m", "grader", "profile", *named, "--sandbox", "host", *options]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": IMPORTS}, check=True)
    (found,) = Profile.model_validate_json((out / "profile.json").read_text(encoding="utf-8")).cases
    return found


def has_cause_first(entry: Entry, found: CaseProfile) -> None:
    assert found.remarks, found
    first = found.remarks[0]
    assert first.cause == entry.slow.cause, [one.sentence for one in found.remarks]
    for pattern in entry.slow.says:
        assert re.search(pattern, first.sentence), first.sentence


@pytest.mark.parametrize(("name", "assignment", "case"), FAST, ids=lambda one: str(one).replace("/", "-"))
def test_a_fast_kernel_is_told_nothing(name: str, assignment: str, case: str) -> None:
    folder = ROOT / "reference" if name == "reference" else ROOT / "tests/corpora/accepted" / assignment / name
    found = profile(folder, ROOT, assignment, case)
    assert found.launches, found.unknown
    assert [one.sentence for one in found.remarks] == []

"""Kernels with one cause of their time: the profile names it first. Fast kernels are told nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.corpus import Entry, entries
from tests.support.warm_judge import profile

SLOW = entries("slow")
# Each within 7 % of the machine's limit, or of the best there is (benchmarks/profile_record.json).
FAST = [
    *(("reference", *one) for one in (("cuda_gelu", "large"), ("triton_gelu", "float32"), ("triton_gelu", "bfloat16"))),
    *(("reference", "softmax", case) for case in ("wide", "narrow", "long")),
    *(("reference", "flash_attention", case) for case in ("forward/causal", "backward/causal")),
    *((name, "cuda_gelu", "large") for name in ("float4_head_and_tail", "template_with_commas")),
    *((name, "triton_gelu", "float32") for name in ("plain", "constants_first", "block_pointers")),
    *(("two_kernels", "softmax", case) for case in ("wide", "narrow")),
]
pytestmark = pytest.mark.grading


@pytest.mark.parametrize("entry", SLOW, ids=lambda entry: entry.id)
def test_the_cause_comes_first(entry: Entry, tmp_path: Path) -> None:
    found = profile(entry.submission(tmp_path), ROOT, entry.assignment, entry.slow.case)
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

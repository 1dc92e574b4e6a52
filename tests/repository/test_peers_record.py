"""The record of the reference beside the fastest public kernels: its page is made from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import peers_record
from tests.conftest import ROOT

RECORDS = sorted((ROOT / "benchmarks").glob("peers_*.json"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_the_page_has_the_records_numbers(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert peers_record.page(record) == path.with_suffix(".md").read_text(encoding="utf-8")
    assert [row["title"] for row in record["rows"]] == [row.title for row in peers_record.rows()]


def test_medians_are_compared_and_who_is_left_out_is_told() -> None:
    attention = {"reference": [1.0, 9.0, 2.0], "cudnn": [1.7, 1.8, 1.9], "gluon": [1.5, 1.5, 1.5]}
    rows = [
        {"title": "attention, x", "goals": {"cudnn": 0.95}, "times_ms": attention, "failed": {}},
        {
            "title": "softmax, y",
            "goals": {"copy": 0.95},
            "times_ms": {"reference": [2.0], "copy": [1.9]},
            "failed": {"liger": "RuntimeError: too long"},
        },
    ]
    environment = {"gpu": "NVIDIA H100", "torch": "2", "triton": "3", "driver": "5"}
    page = peers_record.page({"environment": environment, "packages": {}, "rounds": 3, "rows": rows})
    assert "| attention, x | 2.000 | 0.900 | 1.200 | ✗ 0.95 × cuDNN |" in page
    assert "| softmax, y | 2.000 | 0.950 | ✓ 0.95 × device copy |" in page
    assert "- softmax, y, Liger: RuntimeError: too long" in page

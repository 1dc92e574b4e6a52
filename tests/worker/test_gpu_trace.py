"""What PyTorch's profiler writes becomes a trace: kernels in order, and the time in which any of them ran."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from grader.protocol import MAX_RAN
from grader.worker.gpu_trace import trace_of
from tests.conftest import ROOT


def kernel(name: str, start_us: float, length_us: float, **facts: Any) -> dict[str, Any]:
    shape = {"grid": [2, 3, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": start_us, "dur": length_us, "args": shape | facts}


def chrome(*events: dict[str, Any]) -> str:
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "ts": 0, "dur": 9}
    return json.dumps({"traceEvents": [host, *events]})


def test_kernels_come_in_the_order_of_their_starts_with_their_shapes() -> None:
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD", "ts": 100.0, "dur": 5.0, "args": {"bytes": 8}}
    found = trace_of(chrome(kernel("late", 130.0, 10.0), copy), 0.5)
    assert [one.name for one in found.ran] == ["Memcpy DtoD", "late"]
    first, last = found.ran
    assert (first.grid, first.block, first.registers, first.shared_bytes) == ((0, 0, 0), (0, 0, 0), 0, 0)
    assert (last.grid, last.block, last.registers, last.shared_bytes) == ((2, 3, 1), (128, 1, 1), 40, 1024)
    assert (first.start_s, last.start_s) == pytest.approx((0, 30e-6))
    assert (found.device_s, found.busy_s) == pytest.approx((40e-6, 15e-6))
    assert (found.host_s, found.ran_of_all) == (0.5, 2)


def test_kernels_that_run_side_by_side_count_once_as_busy() -> None:
    found = trace_of(chrome(kernel("a", 0.0, 10.0), kernel("b", 2.0, 4.0), kernel("c", 8.0, 10.0)), 0.0)
    assert (found.device_s, found.busy_s) == pytest.approx((18e-6, 18e-6))


def test_of_many_kernels_the_first_are_told_and_all_are_counted() -> None:
    found = trace_of(chrome(*(kernel("k", 2.0 * number, 1.0) for number in range(MAX_RAN + 9))), 0.0)
    assert (len(found.ran), found.ran_of_all) == (MAX_RAN, MAX_RAN + 9)
    assert found.busy_s == pytest.approx((MAX_RAN + 9) * 1e-6)


def test_the_profilers_text_comes_along() -> None:
    text = chrome(kernel("k", 0.0, 1.0))
    found = trace_of(text, 0.0).chrome
    assert found is not None
    assert zlib.decompress(base64.b64decode(found.packed)).decode() == text


def test_a_profiler_that_saw_nothing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="saw no kernel"):
        trace_of(chrome(), 0.0)


GENERATED = """
from grader.worker.gpu_trace import generated
assert generated(["triton_a"]) == ""
from torch._inductor.codecache import PyCodeCache
for text in ("def triton_a(x): 1", "def triton_a(x): 2", "def triton_b(x): 3", "def other(x): 4"):
    PyCodeCache.load(text)
assert generated(["triton_a", "triton_b", "Memset"]) == "def triton_a(x): 2\\n\\ndef triton_b(x): 3"
assert generated(["Memset"]) == ""
"""


@pytest.mark.grading
def test_the_code_that_torch_compile_made_last_is_found_by_its_kernels(tmp_path: Path) -> None:
    """In a process of its own, for seconds: this imports all of torch.compile."""
    folder = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", GENERATED], cwd=ROOT, env=folder, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr

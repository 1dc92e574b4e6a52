"""What the worker's profiler costs. What it finds needs a GPU: tests/gpu/test_gpu_time.py."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

STARTED = """
import sys, warnings
import torch
from grader.worker.profiling import profiled
warnings.simplefilter("ignore")
with profiled(wanted=True) as kernels:
    torch.ones(3).sum()
assert kernels == []
print(*(name for name in sys.modules if name.startswith("torch._inductor")))
"""


def test_it_does_not_import_torch_compile() -> None:
    """Which takes 5 s of a processor, in each worker that profiles a call."""
    told = subprocess.run([sys.executable, "-c", STARTED], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""

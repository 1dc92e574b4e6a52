"""Threads of a judge import nothing and log nothing while lanes run, and the C library's environment stays as it is, on a GPU: with
all assignments, baselines and the reference.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from grader.assignment import load_course
from tests.conftest import ROOT

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)


def test_threads_import_nothing_and_log_nothing_while_lanes_run() -> None:
    command = [sys.executable, "-m", "tests.support.threads", "cuda", "0", *(one.name for one in load_course(ROOT))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert set(found["outcomes"].values()) == {"passed"}
    assert {"lane 0", "lane 1"} <= found["lanes"].keys()
    assert found["seen"] == []

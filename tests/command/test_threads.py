"""Threads of a judge import nothing and log nothing while lanes run: pytest, or another thread, may be looking at modules and loggers.
A judge changes nothing in the C library's environment, which CUDA's libraries read in other threads.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = [pytest.mark.grading, pytest.mark.timeout(600)]


def test_lanes_import_nothing_and_log_nothing() -> None:
    """Two lanes, on a case with gradients and on checks that Hypothesis draws inputs for."""
    command = [sys.executable, "-m", "tests.support.threads", "cpu", "2", "flash_attention"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["outcomes"] == {"flash_attention forward": "passed", "flash_attention backward": "passed"}
    assert {"lane 0", "lane 1"} <= found["lanes"].keys()
    assert found["seen"] == []

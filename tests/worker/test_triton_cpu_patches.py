"""A Triton without a name that the interpreter's checks replace is refused with that name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT

# In a process of its own, because what is changed stays so.
PROGRAM = """
import sys
from triton.runtime import interpreter
from grader.worker import triton_cpu
owner, name = sys.argv[1:]
delattr(getattr(interpreter, owner, interpreter), name)
triton_cpu.provide()
"""


@pytest.mark.parametrize(
    ("owner", "name"),
    [("InterpreterBuilder", "create_masked_load"), ("triton.runtime.interpreter", "_unwrap_tensor")],
    ids=["replaced", "called as it is"],
)
def test_a_triton_without_a_name_is_refused_by_its_name(owner: str, name: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, owner, name], capture_output=True, text=True, cwd=ROOT)
    assert f"has no {owner}.{name}" in run.stderr.splitlines()[-1]

"""The interpreter looks through the language once in a launch, however often its kernel calls functions, and computes as before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own: whether kernels are interpreted is decided when Triton is imported, and what is changed stays so.
PROGRAM = """
import inspect, os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from triton.runtime import interpreter
from grader.worker.triton_cpu import shortcuts

LOOKED = []
look = inspect.getmembers
inspect.getmembers = lambda *one: LOOKED.append(one) or look(*one)

@triton.jit
def halved(x, fails: tl.constexpr):
    if fails:
        tl.no_such_function(x)
    return x * 0.5

@triton.jit
def kernel(x_ptr, y_ptr, TIMES: tl.constexpr, fails: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    for _ in tl.static_range(TIMES):
        x = halved(x, fails) + tl.max(x, 0) * 0
    tl.store(y_ptr + tl.arange(0, 8), x)

def looks(times, fails=False):
    LOOKED.clear()
    x, y = torch.arange(8.0), torch.zeros(8)
    try:
        kernel[(3,)](x, y, times, fails)
        assert not fails and torch.equal(y, x / 2 ** times), (times, y)
    except interpreter.InterpreterError:
        assert fails
    assert tl.core.is_builtin(tl.load), "the language is left as it was found"
    return len(LOOKED)

looks(1)  # what Triton's own functions use stays replaced from the first launch on
before = looks(9)
shortcuts.provide()
once, often, failed, after = looks(1), looks(9), looks(1, True), looks(9)
assert before > 5 * often > 0, (before, often)
assert once == often == after, (once, often, after)
assert failed <= once
"""


def test_the_language_is_looked_through_once_in_a_launch(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

"""A function of the student's own combines blocks as it combines numbers, and is called on numbers where it has to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# In a process of its own: whether kernels are interpreted is decided when Triton is imported, and what is changed stays so.
PROGRAM = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from triton.runtime import interpreter
from grader.worker.triton_cpu import combining

CALLS = []

@triton.jit
def later(a, m, b, n):  # x -> a x + m, one after another: the order counts
    CALLS.append(0)
    return a * b, m * b + n

@triton.jit
def larger(a, b):
    CALLS.append(0)
    if a > b:
        return a
    else:
        return b

@triton.jit
def reduce_rows(a_ptr, m_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    a, m = tl.load(a_ptr + at), tl.load(m_ptr + at)
    y, z = tl.reduce((a, m), 1, later)
    tl.store(y_ptr + tl.arange(0, 4), y)
    tl.store(z_ptr + tl.arange(0, 4), z)

@triton.jit
def reduce_kept(a_ptr, m_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    y, z = tl.reduce((tl.load(a_ptr + at), tl.load(m_ptr + at)), 0, later, keep_dims=True)
    tl.store(y_ptr + tl.arange(0, N)[None, :], y)
    tl.store(z_ptr + tl.arange(0, N)[None, :], z)

@triton.jit
def scan_rows(a_ptr, m_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :]
    y, z = tl.associative_scan((tl.load(a_ptr + at), tl.load(m_ptr + at)), 1, later, reverse=True)
    tl.store(y_ptr + at, y)
    tl.store(z_ptr + at, z)

@triton.jit
def reduce_all(a_ptr, m_ptr, y_ptr, z_ptr, N: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :])
    tl.store(y_ptr, tl.reduce(a, None, larger))

def results(kernel):
    torch.manual_seed(0)
    a, m = torch.rand(4, 32) + 0.5, torch.randn(4, 32)
    y, z = torch.zeros(4, 32), torch.zeros(4, 32)
    CALLS.clear()
    kernel[(1,)](a, m, y, z, 32)
    return torch.stack([y, z]), len(CALLS)

kernels = [reduce_rows, reduce_kept, scan_rows, reduce_all]
before = [results(kernel) for kernel in kernels]
combining.PATCHES.provide()
after = [results(kernel) for kernel in kernels]
for (one, _), (other, _) in zip(before, after):
    assert one.any()
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
print([calls for _, calls in before], [calls for _, calls in after])
"""


def test_blocks_are_combined_as_numbers_are_in_fewer_calls(tmp_path: Path) -> None:
    file = tmp_path / "program.py"  # Triton reads the source of its functions
    file.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # One that branches is called once with blocks, in vain, and then with numbers.
    assert done.stdout.split("] [") == ["[124, 96, 124, 127", "5, 2, 5, 128]\n"]

"""Logs of compute-sanitizer, in the forms that its versions have, and what a student reads of them."""

from __future__ import annotations

import time

import pytest

from grader.verdict.sanitizer import findings

NEW = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at gelu_kernel(const float *, float *, long)+0x1c0 in gelu.cu:12
=========     by thread (31,0,0) in block (3,0,0)
=========     Access to 0x7f21a2a00ffc is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f21a2a00000 of size 4,092 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: launch [0x1f2c] in gelu.so
=========
========= Invalid __global__ write of size 4 bytes
=========     at gelu_kernel(const float *, float *, long)+0x1c0 in gelu.cu:12
=========     by thread (32,0,0) in block (3,0,0)
=========     Access to 0x7f21a2a01000 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f21a2a00000 of size 4,092 bytes
=========
========= ERROR SUMMARY: 2 errors
"""
OLD = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 16 bytes
=========     at 0xda0 in /tmp/run/submission/softmax.py:41:softmax_kernel
=========     by thread (96,0,0) in block (44,0,0)
=========     Address 0x763995f9f000 is out of bounds
=========     and is 1,241,911,296 bytes before the nearest allocation at 0x7639e0000000 of size 5,033,164,800 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2f26f0]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
========= ERROR SUMMARY: 1 error
"""
RACES = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sum_kernel(int *, int *)+0x160 in gelu.cu:27
=========     and Read access at sum_kernel(int *, int *)+0x1d0 in gelu.cu:33 [60 hazards]
=========
========= Error: Race reported between Write access at 0x000000c0 in /tmp/a/gelu.cu:27:sum_kernel(int*,int*)
=========     and Write access at 0x000000c0 in /tmp/a/gelu.cu:27:sum_kernel(int*,int*) [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
UNWRITTEN = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at gelu_kernel+0x70 in gelu.cu:9
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7f1a5a000000
========= Invalid __global__ read of size 16 bytes
=========     at gelu_kernel+0xb0 in gelu.cu:10
=========     by thread (1, 0, 0) in block (0, 0, 0)
=========     Access to 0x7f1a5a000004 is misaligned
========= Invalid __global__ read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<4>(int)+0x30 in CUDALoops.cuh:167
=========     by thread (0,0,0) in block (0,0,0)
"""


GELU_BEYOND = "gelu.cu:12, in gelu_kernel: a write of 4 bytes beyond every tensor"
FIRST = ", first by thread (31,0,0) of block (3,0,0)"
NO_BARRIER = ", with no barrier in between: which comes first is chance"
TOLD = {
    # The same mistake of many threads is told once, of the first.
    NEW: [("global", f"{GELU_BEYOND}: 1 bytes after one of 4,092 bytes{FIRST}")],
    NEW.replace("=========     and is 1 bytes", "=========     who knows where"): [("global", f"{GELU_BEYOND}{FIRST}")],
    NEW[: NEW.index("=========     by thread")]: [("global", GELU_BEYOND)],  # a log that breaks off after the line
    OLD: [
        (
            "global",
            "softmax.py:41, in softmax_kernel: a read of 16 bytes beyond every tensor: 1,241,911,296 bytes before one of "
            "5,033,164,800 bytes, first by thread (96,0,0) of block (44,0,0)",
        )
    ],
    RACES.replace(":27:", ":28:"): [
        (
            "shared",
            f"gelu.cu:27, in sum_kernel: threads of a block write shared memory here and read it in line 33{NO_BARRIER}",
        ),
        (
            "shared",
            f"gelu.cu:28, in sum_kernel: threads of a block write shared memory here and write it in the same line{NO_BARRIER}",
        ),
    ],
    # What happens in others' kernels is left out.
    UNWRITTEN: [
        (
            "global",
            "gelu.cu:9, in gelu_kernel: reads 4 bytes of global memory that nothing has written, first by thread (0,0,0) of block (0,0,0)",
        ),
        (
            "global",
            "gelu.cu:10, in gelu_kernel: a read of 16 bytes at an address that is no multiple of that, first by thread (1,0,0) of block "
            "(0,0,0)",
        ),
    ],
}


@pytest.mark.parametrize("log", TOLD)
def test_each_mistake_is_told_once_with_its_place_and_threads(log: str) -> None:
    found = findings(log, {"gelu.cu", "softmax.py"})
    assert [(one.space, one.sentence) for one in found] == TOLD[log]
    assert findings(log, {found[0].file}) == found
    assert findings(log, {"other.cu"}) == []


@pytest.mark.parametrize(
    "log",
    ["", "Invalid __global__ read of size 4", "========= Invalid __global__ read of size 4 bytes\n", "\x00" * 100],
)
def test_a_log_that_breaks_off_says_nothing(log: str) -> None:
    assert findings(log, {"gelu.cu"}) == []


@pytest.mark.parametrize(
    "line",
    [
        "=========     at 0xda0 in /tmp/gelu.cu:41:kernel" + " " * 900_000 + "x",
        "========= Invalid __global__ read of size " + "9" * 900_000,
        "========= Invalid __global__ read of size ,",
        "=========     at " + "k" * 900_000 + "+0x1 in gelu.cu:12",
        "=========     and Read access at k+0x1 in gelu.cu:3 [" + "," * 20 + " hazards]",
        "=" * 900_000,
    ],
)
def test_a_forged_log_takes_no_time_and_says_no_more_than_a_line(line: str) -> None:
    started = time.process_time()
    for log in (line, NEW + line, f"{line}\n" + NEW, RACES.splitlines()[1] + "\n" + line):
        assert all(len(one.sentence) < 500 for one in findings(log, {"gelu.cu"}))
    assert time.process_time() - started < 2

"""Logs of compute-sanitizer, in the forms that its versions have, and what a student reads of them."""

from __future__ import annotations

import time

import pytest

from grader.verdict.sanitizer import SanitizerFinding, findings

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


def test_the_same_mistake_of_many_threads_is_told_once() -> None:
    (found,) = findings(NEW, {"gelu.cu"})
    assert found == SanitizerFinding(
        "out of bounds", "write", "global", "gelu_kernel", "gelu.cu", 12, 4, "(31,0,0)", "(3,0,0)",
        "1 bytes after one of 4,092 bytes", times=2,
    )  # fmt: skip
    assert found.sentence == (
        "gelu.cu:12, in gelu_kernel: a write of 4 bytes beyond every tensor: 1 bytes after one of 4,092 bytes, "
        "first by thread (31,0,0) of block (3,0,0)"
    )


def test_the_older_form_is_read_too() -> None:
    (found,) = findings(OLD, {"softmax.py"})
    assert (found.kind, found.way, found.kernel, found.file, found.line) == (
        "out of bounds",
        "read",
        "softmax_kernel",
        "softmax.py",
        41,
    )
    assert found.detail.startswith("1,241,911,296 bytes before")


def test_races_have_two_sides() -> None:
    first, second = findings(RACES.replace(":27:", ":28:"), {"gelu.cu"})
    assert (first.line, first.way, first.detail, first.times) == (27, "write", "read it in line 33", 60)
    assert "threads of a block write shared memory here and read it in line 33, with no barrier" in first.sentence
    assert (second.line, second.detail, second.times) == (28, "write it in the same line", 4)


def test_unwritten_and_misaligned_memory() -> None:
    unwritten, misaligned = findings(UNWRITTEN, {"gelu.cu"})
    assert (unwritten.kind, unwritten.line) == ("uninitialised", 9)
    assert unwritten.sentence.startswith(
        "gelu.cu:9, in gelu_kernel: reads 4 bytes of global memory that nothing has written"
    )
    assert (misaligned.kind, misaligned.line, misaligned.thread) == ("misaligned", 10, "(1,0,0)")
    assert "no multiple" in misaligned.sentence


def test_what_happens_in_others_kernels_is_left_out() -> None:
    assert findings(NEW, {"softmax.py"}) == []
    assert all(one.file == "gelu.cu" for one in findings(UNWRITTEN, {"gelu.cu"}))


@pytest.mark.parametrize(
    "log",
    ["", "Invalid __global__ read of size 4", "========= Invalid __global__ read of size 4 bytes\n", "\x00" * 100],
)
def test_a_log_that_breaks_off_says_nothing(log: str) -> None:
    assert findings(log, {"gelu.cu"}) == []


def test_a_log_that_breaks_off_after_the_line_is_enough() -> None:
    cut = NEW[: NEW.index("=========     by thread")]
    (found,) = findings(cut, {"gelu.cu"})
    assert (found.line, found.thread) == (12, "")


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

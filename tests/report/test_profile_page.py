"""The page of a profile: what it says, and that no word of a student's becomes markup."""

from __future__ import annotations

import re

import pytest

from grader.protocol import Trace
from grader.report.model import Interval
from grader.report.profile import CaseProfile, GpuRun, Profile, TimedSize
from grader.report.profile_page import MAX_LINES, lines_plot, page, times_plot
from grader.verdict.profile import case_profile
from tests.report.test_page import HOSTILE, Parsed
from tests.report.test_profiling import COUNTED, three_passes
from tests.report.test_speed import measured
from tests.support.traces import H200, bare_case, elementwise
from tests.support.validator import mistakes, needs_tidy


def profile(*cases: CaseProfile, submission: str = "/home/ada/mine") -> Profile:
    return Profile(submission=submission, grader_version="1.0", cases=cases)


def in_sizes() -> CaseProfile:
    """Three sizes, the largest first; at the smallest one PyTorch is missing."""
    found = []
    for factor in (100, 10, 1):
        small = measured()
        contenders = [
            one.model_copy(update={"time_s": Interval(median=one.time_s.median * factor, low=0, high=1)})
            for one in small.contenders
            if factor > 1 or one.name != "eager"
        ]
        now = small.model_copy(update={"contenders": tuple(contenders)})
        found.append(TimedSize(size=f"shape {factor}", bytes_moved=1e6 * factor, flops=1e6, measured=now))
    compiled = GpuRun(gpu="NVIDIA H100", kernels=(), host_ms=0.2, device_ms=0.7, busy_ms=0.7, allocated_bytes=0)
    more = {"counters": (COUNTED,), "compiled": compiled, "generated": "def triton_red_fused(in_ptr0):\n    pass"}
    return bare_case(case="timed", timed=tuple(found), **more)


def full() -> Profile:
    unseen = case_profile(bare_case(unknown="there is no nvcc here"), Trace((elementwise(32),)), (), H200, {})
    return profile(three_passes(), unseen, bare_case(case="small", unknown="it crashed"), in_sizes())


def test_everything_of_the_profile_is_there() -> None:
    text = Parsed(page(full())).text
    for said in (
        "mine",
        "shown, never graded",
        "softmax: wide",
        "DRAM 6.44 GB, needed 2.15 GB: 3.0 ×",
        "each block reads its part of x_ptr three times",
        "kernel.py:20",
        "softmax_kernel",
        "40+16B",
        "registers",
        "What each line moves",
        "x = tl.load(x_ptr + columns",
        "kernel.py:60",
        "there is no nvcc here",
        "blocks of 32 threads",
        "it crashed",
        "Time against size",
        "Counted on the GPU",
        "2.12 GB",
        "a warp waits for data from memory",
        "What torch.compile runs",
        "def triton_red_fused(",
        "your code, for each byte that was counted",
        "The roofline of this machine",
    ):
        assert said in text, said


def test_bars_are_as_long_as_what_is_moved() -> None:
    (case,) = profile(three_passes()).cases
    lines = case.launches[0].lines
    wasteful = lines[1].model_copy(update={"bytes": lines[0].bytes / 2, "sectors_ratio": 8.0, "line": 99})
    plot = lines_plot(
        case.model_copy(update={"launches": (case.launches[0].model_copy(update={"lines": (lines[0], wasteful)}),)}),
        "p",
    )
    assert plot is not None
    bars = [
        (mark.attributes["class"], float(str(mark.attributes["width"]))) for mark in plot.marks if mark.tag == "rect"
    ]
    (whole, widest), (asked, half), (other, quarter) = bars
    assert (whole, asked, other) == ("bar so-far", "bar", "bar")
    assert (round(widest / half, 1), round(widest / quarter, 1)) == (8.0, 4.0)
    assert [row[1] for row in plot.rows] == ["kernel.py:99", "kernel.py:20"]


def test_a_plot_has_not_more_lines_than_there_is_room_for() -> None:
    case = three_passes()
    line = case.launches[0].lines[0]
    many = tuple(line.model_copy(update={"line": number}) for number in range(100))
    plot = lines_plot(case.model_copy(update={"launches": (case.launches[0].model_copy(update={"lines": many}),)}), "p")
    assert plot is not None
    assert len(plot.rows) == MAX_LINES
    assert lines_plot(bare_case(), "p") is None


def test_time_against_size_is_a_line_for_each_contender() -> None:
    """Ten times the bytes in ten times the time is a straight line between logarithmic scales."""
    case = in_sizes()
    plot = times_plot(case, "p")
    assert plot is not None
    lines = {
        one.attributes["class"]: str(one.attributes["d"])[1:].split("L") for one in plot.marks if one.tag == "path"
    }
    assert {look: len(places) for look, places in lines.items()} == {
        "trace own": 3,
        "trace eager": 2,
        "trace others": 3,
    }
    (x0, y0), (x1, y1), (x2, y2) = (map(float, one.split()) for one in lines["trace own"])
    assert (x0 < x1 < x2, y0 > y1 > y2) == (True, True)
    assert (x1 - x0, y1 - y0) == pytest.approx((x2 - x1, y2 - y1), abs=0.2)
    assert [row[:2] for row in plot.rows] == [("shape 1", "1"), ("shape 10", "10"), ("shape 100", "100")]
    assert [row[plot.head.index("PyTorch")] == "" for row in plot.rows] == [True, False, False]
    assert times_plot(case.model_copy(update={"timed": case.timed[:1]}), "p") is None
    assert times_plot(bare_case(), "p") is None


def hostile() -> Profile:
    case = three_passes()
    launch = case.launches[0]
    line = launch.lines[0].model_copy(update={"source": HOSTILE, "tensor": HOSTILE, "file": HOSTILE})
    own = launch.model_copy(update={"kernel": HOSTILE, "lines": (line,), "notes": (HOSTILE,)})
    operator = case.operators[0].model_copy(update={"name": HOSTILE, "place": HOSTILE})
    remark = case.remarks[0].model_copy(update={"sentence": HOSTILE, "file": HOSTILE})
    update = {"launches": (own,), "operators": (operator,), "remarks": (remark,), "unknown": HOSTILE}
    return profile(case.model_copy(update=update), submission=f"/home/{HOSTILE}")


def test_a_students_words_stay_words() -> None:
    found = page(hostile())
    parsed = Parsed(found)
    assert parsed.foreign == set()
    assert parsed.text.count("<script>alert(1)</script>") >= 6
    assert not re.search("[\u202e\u2066\x1b\x9b\x07\x85\ufeff]", found)


def test_the_page_loads_nothing() -> None:
    found = page(full())
    (policy,) = (
        one["content"] for one in Parsed(found).all("meta") if "content" in one and "default-src" in one["content"]
    )
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert not re.search(r"(?:src|href)=|url\(|@import", found)


@needs_tidy
def test_the_page_is_valid() -> None:
    assert mistakes(page(full())) == []
    assert mistakes(page(hostile())) == []

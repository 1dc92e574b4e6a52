"""The page of a profile: what it says, and that no word of a student's becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace

from grader.profile.facts import case_profile
from grader.profile.model import CaseProfile, GpuRun, Profile, TimedSize
from grader.profile.page import page
from grader.protocol import Trace
from grader.report.model import Interval
from tests.profile.test_views import COUNTED, three_passes
from tests.report.building import measured
from tests.report.test_page import HOSTILE, Parsed
from tests.support.traces import H200, bare_case, elementwise
from tests.support.validator import mistakes, needs_tidy


def profile(*cases: CaseProfile, submission: str = "/home/ada/mine") -> Profile:
    return Profile(submission=submission, grader_version="1.0", cases=cases)


def in_sizes() -> CaseProfile:
    """Three sizes, the largest first; at the smallest one PyTorch is missing."""
    found = []
    for factor in (100, 10, 1):
        small = measured()
        entrants = [
            one.model_copy(update={"time_s": Interval(median=one.time_s.median * factor, low=0, high=1)})
            for one in small.entrants
            if factor > 1 or one.name != "eager"
        ]
        now = small.model_copy(update={"entrants": tuple(entrants)})
        found.append(TimedSize(size=f"shape {factor}", measured=now))
    compiled = GpuRun(gpu="NVIDIA H100", kernels=(), host_ms=0.2, device_ms=0.7, busy_ms=0.7)
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
        "moves 6.44 GB through L2, needed 2.15 GB: 3.0 ×",
        "each block reads its part of x_ptr three times",
        "kernel.py:20",
        "softmax_kernel",
        "40+16B",
        "grid × block",
        "What each line moves",
        "x = tl.load(x_ptr + columns",
        "kernel.py:60",
        "there is no nvcc here",
        "blocks of 32 threads",
        "it crashed",
        "shape 100: ",
        "Counted on the GPU",
        "2.12 GB",
        "a warp waits for data from memory",
        "What torch.compile runs",
        "def triton_red_fused(",
        "your code, for each byte that was counted",
        "The roofline of this machine",
    ):
        assert said in text, said


def hostile() -> Profile:
    case = three_passes()
    launch = case.launches[0]
    line = launch.lines[0].model_copy(update={"source": HOSTILE, "tensor": HOSTILE, "file": HOSTILE})
    own = launch.model_copy(update={"kernel": HOSTILE, "lines": (line,), "notes": (HOSTILE,)})
    operator = replace(case.operators[0], name=HOSTILE, place=HOSTILE)
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

"""A profile on a terminal, as files in `golden/`: one screen a case, and no word of a student's steers it.

python -m tests.profile.test_views    write the files anew, to be read before they are committed
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from grader.messages import CaseNote, CaseStarted, Profiled
from grader.profile.facts import case_profile
from grader.profile.model import (
    CaseProfile,
    GpuRun,
    KernelCounters,
    LineTraffic,
    Profile,
    RanLine,
    TimedSize,
    Waves,
    bytes_words,
)
from grader.profile.views import ProfileProgress, ms_words, praise, print_profile
from grader.protocol import Trace, TracedOperator
from tests.report.building import fields_told, hostile, measured, replaced
from tests.support.traces import H200, N, bare_case, elementwise, rows, triton_kernel

GOLDEN = Path(__file__).parent / "golden"
SOURCE = "\n" * 19 + "    x = tl.load(x_ptr + columns, mask=columns < n_columns)\n" * 20
COPY = TracedOperator("clone", "kernel.py:60", 1, 4 * N, 4 * N)
KERNEL = triton_kernel("softmax_kernel", 4, registers=40, spilled=16)
RAN = RanLine(
    name="softmax_kernel",
    own=True,
    calls=2,
    time_ms=0.9,
    share=0.9,
    grid=(4, 1, 1),
    threads=128,
    registers=40,
    shared_bytes=0,
)
FILLED = RAN.model_copy(update={"name": "Memset", "own": False, "share": 0.1, "time_ms": 0.1, "threads": 0})
FUSED = RAN.model_copy(update={"name": "triton_red_fused", "own": False, "calls": 1, "time_ms": 0.7, "share": 1.0})
COUNTED = KernelCounters(
    name="softmax_kernel",
    own=True,
    time_ms=0.725,
    grid=(16384, 1, 1),
    dram_read_bytes=1.07e9,
    dram_written_bytes=1.05e9,
    load_sectors=16,
    store_sectors=0,
    l2_hits=0.5,
    occupancy=0.913,
    dram_busy=0.9,
    tensor_busy=0.0,
    stalls=(("data from memory", 0.6), ("its turn", 0.25)),
)


def three_passes(**fields: object) -> CaseProfile:
    blank = bare_case(assignment="softmax", part="softmax", case="wide", size="shape 16384 × 16384", gpu="NVIDIA H200")
    found = case_profile(blank, Trace((rows(3, warps=4),), (COPY,)), (KERNEL,), H200, {"kernel.py": SOURCE})
    return found.model_copy(update=fields)


def fast() -> CaseProfile:
    """A kernel without a known cause, and products of tiles."""
    found = case_profile(bare_case(), Trace((rows(1),)), (triton_kernel("softmax_kernel", 8),), H200, {})
    launch = found.launches[0].model_copy(update={"flops": 206e9, "notes": ("line 7 calls tanhf",)})
    return found.model_copy(update={"launches": (launch,), "needed_flops": 103e9})


def without_a_compiler() -> CaseProfile:
    return case_profile(bare_case(unknown="there is no nvcc here"), Trace((elementwise(32),)), (), H200, {})


def of_many_lines() -> CaseProfile:
    """Lines of every kind, the costliest last; more than have room. Waves, and a grid of three axes."""
    launch = three_passes().launches[0]
    line = launch.lines[0]
    odd: tuple[LineTraffic, ...] = (
        line.model_copy(update={"line": 90, "idle_share": 0.69, "atomic": True, "space": "shared", "conflicts": 40.0}),
        line.model_copy(update={"line": 91, "tensor": "", "sectors_ratio": 8.0, "verb": "writes"}),
        line.model_copy(update={"line": 0, "bytes": 4e9}),
    )
    many = (line.model_copy(update={"line": number, "bytes": 1e9 / number}) for number in range(20, 30))
    waves = Waves(slots=264, waves=3971.88, last=4)
    update = {"lines": (*many, *odd), "grid": (64, 1, 48), "waves": waves, "launches": 3}
    return three_passes(launches=(launch.model_copy(update=update),), operators=(), remarks=(), is_cut=True)


def on_a_gpu() -> CaseProfile:
    """Run, counted, compiled and timed; its sizes the largest first, and at the smallest PyTorch is missing."""
    ran = GpuRun(gpu="NVIDIA H100", kernels=(RAN, FILLED), host_ms=3.0, device_ms=1.0, busy_ms=0.95, missing=4)
    compiled = GpuRun(gpu="NVIDIA H100", kernels=(FUSED,), host_ms=0.2, device_ms=0.7, busy_ms=0.7)
    other = COUNTED.model_copy(update={"name": "other", "stalls": (), "dram_busy": None, "tensor_busy": None})
    submission, eager = (
        next(one for one in measured().entrants if one.name == name) for name in ("submission", "eager")
    )
    return bare_case(
        case="timed",
        ran=ran,
        counters=(COUNTED, other),
        compiled=compiled,
        generated="def triton_red_fused(in_ptr0):\n    pass",
        timed=(
            TimedSize(size="shape 100", measured=measured()),
            TimedSize(size="shape 10", measured=measured(submission, eager)),
            TimedSize(size="shape 1", measured=measured(submission)),
            TimedSize(size="shape 8", unknown="no memory"),
        ),
    )


def absent() -> list[CaseProfile]:
    """Two cases without a profile for one reason, one for another."""
    words = ("there is no gelu.cu in the submission",) * 2 + ("it could not be traced: it crashed",)
    return [bare_case(case=f"case {at}", unknown=one) for at, one in enumerate(words)]


def profile(*cases: CaseProfile, submission: str = "/home/ada/mine") -> Profile:
    return Profile(submission=submission, grader_version="1.0", cases=cases)


def everything() -> Profile:
    return profile(three_passes(), fast(), without_a_compiler(), of_many_lines(), on_a_gpu(), *absent())


def shown(found: Profile, width: int = 80, is_terminal: bool = False) -> str:
    out = io.StringIO()
    print_profile(found, Console(file=out, width=width, color_system=None, force_terminal=is_terminal))
    return out.getvalue()


VIEWS: dict[str, Callable[[], str]] = {
    "slow": lambda: shown(profile(three_passes())),
    "fast": lambda: shown(profile(fast())),
    "without-a-compiler": lambda: shown(profile(without_a_compiler())),
    "many-lines": lambda: shown(profile(of_many_lines()), 100),
    "on-a-gpu": lambda: shown(profile(on_a_gpu()), 120),
    "absent": lambda: shown(profile(*absent())),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_as_it_was_read(name: str) -> None:
    assert VIEWS[name]() == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8"), "python -m tests.profile.test_views"


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1024, "1.02 KB"), (2.147e9, "2.15 GB"), (3.2e15, "3200 TB"), (1e300, "1e+300 B")],
)
def test_bytes_are_in_units_of_a_thousand(size: float, said: str) -> None:
    assert bytes_words(size) == said


@pytest.mark.parametrize(("ms", "said"), [(0.5163, "0.516"), (327.68, "328"), (1e300, "1e+300")])
def test_milliseconds_have_three_digits(ms: float, said: str) -> None:
    assert ms_words(ms) == said


def test_a_case_has_room_on_one_screen() -> None:
    for case in everything().cases:
        assert len(shown(profile(case)).splitlines()) <= 45


def test_hostile_words_in_any_field_stay_words() -> None:
    spoilt, _ = replaced(everything(), str, hostile)
    told = "unknown sentence file notes source tensor kernel name place stalls assignment part case size dtype gpu"
    assert fields_told(shown(spoilt, width=9000, is_terminal=True)) == set(told.split())


def test_a_kernel_is_praised_whose_registers_and_counts_are_known() -> None:
    assert praise(fast()) != ""
    assert praise(fast().model_copy(update={"unknown": "Nsight Compute counted nothing"})) != ""
    for other in (three_passes(), without_a_compiler(), fast().model_copy(update={"is_cut": True})):
        assert praise(other) == ""


def test_progress_names_the_case_on_a_plain_terminal() -> None:
    out = io.StringIO()
    with ProfileProgress(Console(file=out, width=80)) as progress:
        progress(CaseStarted(assignment="softmax", part="softmax", case="wide"))
        progress(CaseNote(text="is being compiled"))
        progress(Profiled(profile=three_passes()))
        progress(Profiled(profile=bare_case(unknown="it crashed")))
    assert out.getvalue() == "softmax: wide: profiled\ncuda_gelu gelu: large: no profile\n"


def test_progress_on_a_terminal_says_what_is_done() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    with ProfileProgress(console) as progress:
        progress(Profiled(profile=three_passes()))
        progress(CaseStarted(assignment="softmax", part="softmax", case="wide"))
        progress(CaseNote(text="is being compiled [red]"))
        console.print("")
    assert "1 case profiled; softmax softmax wide is being compiled [red]" in out.getvalue()


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, view in VIEWS.items():
        (GOLDEN / f"{name}.txt").write_text(view(), encoding="utf-8")

"""A speed case in a terminal: who took how long, which bands that is and what is odd about it; and the summary's words on speed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from grader.job import Planned, PlannedPart, SpeedDone
from grader.report.model import (
    NEEDS_GPU,
    BandResult,
    ContenderTime,
    Interval,
    Isolation,
    Points,
    Round,
    SpeedCaseResult,
    SpeedMeasurement,
    SpeedResult,
)
from grader.report.speed import speed_case
from grader.report.terminal import Progress, print_report
from tests.report.building import make_case, make_part, make_report

NOTHING = Points(earned=0, graded=0, possible=6)
BANDS = (
    BandResult(vs="eager", speedup=0.5, points=1, reached=True),
    BandResult(vs="compile", speedup=1.1, points=2.5, reached=True, undecided=True),
    BandResult(vs="eager", speedup=3, points=2.5, reached=False),
)


def interval(median: float, low: float | None = None, high: float | None = None) -> Interval:
    return Interval(median=median, low=median if low is None else low, high=median if high is None else high)


def took(name: str, ms: float, share: float = 0.5, speedup: Interval | None = None, **rates: float) -> ContenderTime:
    given = {"bytes_per_s": 2.345e12, "flops_per_s": 432.1e12} | rates
    return ContenderTime(name=name, time_s=interval(ms / 1e3), calls=16, roofline_share=share, speedup=speedup, **given)


COPYING = (
    took("copy", 0.1, 1.0, interval(0.25)),
    took("submission", 0.4, 0.253, bytes_per_s=1.5e12),
    took("eager", 0.81234, 0.123, interval(2.0309, 1.9, 2.15)),
)


def measured(*contenders: ContenderTime, roofline: str = "copy", flags: tuple[str, ...] = ()) -> SpeedMeasurement:
    times = contenders or COPYING
    medians_s = {one.name: one.time_s.median for one in times}
    one_round = Round(order=("copy", "submission"), times_s=medians_s, batch_s=16 * 4e-4, nothing_s=0.0)
    return SpeedMeasurement(
        roofline=roofline,
        contenders=times,
        claimed_s=interval(4e-4),
        judged_s=interval(4e-4),
        corroborated=True,
        flags=flags,
        rounds=(one_round,),
    )


def timed(outcome: Any = "passed", **fields: Any) -> SpeedCaseResult:
    """A speed case that was timed; what did not pass has no times."""
    good = {"bands": BANDS, "measured": measured(), "points": Points(earned=3.5, graded=6, possible=6)}
    bad = {"bands": (), "message": "it went wrong", "points": Points(earned=0, graded=6, possible=6)}
    size = {"name": "wide", "size": "shape 4096 × 16384"}
    return SpeedCaseResult(outcome=outcome, **size | (good if outcome == "passed" else bad) | fields)


def shown(result: SpeedCaseResult, *, width: int = 120, terminal: bool = False) -> str:
    """What is printed; with `terminal` as to a colour terminal, control sequences and all."""
    out = io.StringIO()
    Console(
        file=out, width=width, highlight=False, force_terminal=terminal, color_system="truecolor" if terminal else None
    ).print(speed_case(result))
    return out.getvalue()


def rows(text: str) -> list[list[str]]:
    """The words of each line, split where there are at least two blanks."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


# Times ----------------------------------------------------------------------------------------------------------------


def test_a_timed_case_is_a_headline_times_and_bands() -> None:
    assert rows(shown(timed(), width=140)) == [
        ["✓ speed: wide", "shape 4096 × 16384", "3.5/6"],
        ["device copy", "0.1 ms", "2.35 TB/s", "100%", "you are 0.25 × as fast", "(0.25 to 0.25)"],
        ["your code", "0.4 ms", "1.50 TB/s", "25%", "of a device copy"],
        ["PyTorch", "0.8123 ms", "2.35 TB/s", "12%", "you are 2.03 × as fast", "(1.9 to 2.15)"],
        ["✓ 0.5 × PyTorch: 1 p.", "✓ 1.1 × torch.compile: 2.5 p., in doubt", "✗ 3 × PyTorch: 2.5 p."],
    ]


def test_contenders_stand_in_the_order_of_the_report() -> None:
    order = [took("eager", 3), took("submission", 1), took("compile", 2)]
    for times in (order, order[::-1]):
        names = [row[0] for row in rows(shown(timed(measured=measured(*times))))[1:4]]
        assert names == [
            {"eager": "PyTorch", "submission": "your code", "compile": "torch.compile"}[one.name] for one in times
        ]


def test_what_bytes_bound_has_terabytes_and_what_flops_bound_has_teraflops() -> None:
    copying, multiplying = shown(timed()), shown(timed(measured=measured(took("submission", 1), roofline="matmul")))
    assert "TB/s" in copying
    assert "FLOP" not in copying
    assert ["your code", "1 ms", "432 TFLOP/s", "50%", "of a matrix product"] in rows(multiplying)
    assert "TB/s" not in multiplying


def test_a_matrix_products_own_time_is_not_shown() -> None:
    """It is another problem's: beside the case's times it would say nothing."""
    times = (took("matmul", 1.5, 1.0), took("submission", 7), took("sdpa_flash", 8, speedup=interval(1.14)))
    found = rows(shown(timed(measured=measured(*times, roofline="matmul"))))
    assert [row[0] for row in found[1:3]] == ["your code", "FlashAttention-2 in PyTorch"]
    assert "1.5 ms" not in str(found)


def test_a_contender_without_a_name_of_its_own_is_shown_as_it_is_called() -> None:
    found = rows(shown(timed(measured=measured(took("submission", 1), took("liger", 2)))))
    assert found[2][0] == "liger"
    assert found[2][-1] == "50%", "no speed-up was measured, so none is told"


def test_a_passed_case_does_not_say_so_twice() -> None:
    assert "passed" not in shown(timed())


# Bands and flags ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reached", "undecided", "words"),
    [
        (True, False, "✓ 0.9 × PyTorch: 2 p."),
        (True, True, "✓ 0.9 × PyTorch: 2 p., in doubt"),
        (False, False, "✗ 0.9 × PyTorch: 2 p."),
    ],
)
def test_a_band_has_a_tick_or_a_cross_and_its_doubt(reached: bool, undecided: bool, words: str) -> None:
    band = BandResult(vs="eager", speedup=0.9, points=2, reached=reached, undecided=undecided)
    assert rows(shown(timed(bands=(band,))))[-1] == [words]


def test_every_flag_is_a_line_at_the_end() -> None:
    flags = ("not corroborated: the worker says 0.1 ms", "beyond the roofline: 125%")
    assert rows(shown(timed(measured=measured(flags=flags))))[-2:] == [[f"! {flag}"] for flag in flags]
    assert "!" not in shown(timed())


def test_points_are_told_as_everywhere() -> None:
    assert rows(shown(timed()))[0][-1] == "3.5/6"
    assert rows(shown(timed("infra_error", points=NOTHING)))[0][-1] == "not graded (6)"


# What was not timed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "mark"),
    [("failed", "✗"), ("timed_out", "✗"), ("not_implemented", "○"), ("skipped", "–"), ("infra_error", "!")],
)
def test_a_case_without_times_says_how_it_ended_and_why(outcome: str, mark: str) -> None:
    result = timed(outcome, message="in call 3 of 16 in a timed batch: y[7] is wrong")
    found = rows(shown(result))
    assert found[0][:-1] == [f"{mark} speed: wide", "shape 4096 × 16384", outcome.replace("_", " ")]
    assert found[1:] == [["in call 3 of 16 in a timed batch: y[7] is wrong"]]


def test_a_failure_under_timing_is_told_with_everything_that_helps() -> None:
    result = timed("crashed", diagnosis=("first clue", "second clue"), traceback='  File "softmax.py", line 7\n\n')
    assert rows(shown(result))[1:] == [
        ["it went wrong"],
        ["first clue"],
        ["second clue"],
        ['File "softmax.py", line 7'],
    ]


def test_a_case_that_was_stopped_says_so_and_shows_its_bands() -> None:
    lost = tuple(band.model_copy(update={"reached": False, "undecided": False}) for band in BANDS)
    result = timed(message="one call takes 900 ms: stopped there", measured=None, bands=lost)
    text = shown(result)
    assert "one call takes 900 ms: stopped there" in text
    assert text.count("✗") == 3
    assert "ms" not in text.replace("900 ms", "")


@pytest.mark.parametrize("width", [30, 60, 80])
def test_a_narrow_terminal_loses_no_flag(width: int) -> None:
    text = shown(timed(measured=measured(flags=("alpha beta gamma delta epsilon",))), width=width)
    assert "alpha beta gamma delta epsilon" in " ".join(text.split())
    assert all(len(line) <= width for line in text.splitlines())


# Nothing a student wrote steers the terminal --------------------------------------------------------------------------

PLACES: dict[str, Callable[[str], SpeedCaseResult]] = {
    "message": lambda text: timed("failed", message=text),
    "words of a passed case": lambda text: timed(message=text),
    "diagnosis": lambda text: timed("failed", diagnosis=(text,)),
    "traceback": lambda text: timed("failed", traceback=text),
    "flag": lambda text: timed(measured=measured(flags=(text,))),
    "contender": lambda text: timed(measured=measured(took("submission", 1), took(text, 2))),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["[red]angry[/red]", "[/]", "[link=http://x]y[/link]", "a[bold", ":boom:", "\\[x]"])
def test_markup_is_shown_as_it_was_written(place: str, text: str) -> None:
    assert text in shown(PLACES[place](text), terminal=True, width=160)


@pytest.mark.parametrize("place", ["name", "size"])
@pytest.mark.parametrize("text", ["[red]wide[/red]", "[/]", "[x"])
def test_markup_in_a_name_or_a_size_is_shown_as_it_was_written(place: str, text: str) -> None:
    assert text in shown(timed(**{place: text}), terminal=True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("control", ["\x1b[2J", "\x1b]0;A+\x07", "\x9b31m", "\x00", "\x7f", "\r", "\b", "\u202e"])
def test_control_characters_do_not_reach_the_terminal(place: str, control: str) -> None:
    text = shown(PLACES[place](f"⟦{control}⟧ and on"), terminal=True, width=160)
    (where,) = [position for position, letter in enumerate(text) if letter == "⟦"]
    assert text[where + 1] != control[0]
    assert "⟧ and on" in text


# In the whole report --------------------------------------------------------------------------------------------------


def report_with(*cases: SpeedCaseResult, outcome: Any = "passed", **fields: Any) -> str:
    """The text of a report whose one part has these speed cases."""
    points = Points.total(case.points for case in cases) if cases else NOTHING
    part = make_part(make_case("n-1"), make_case("n-2", outcome))
    part = part.model_copy(update={"speed": SpeedResult(points=points, cases=cases)})
    out = io.StringIO()
    print_report(make_report(part, **fields), Console(file=out, width=200, highlight=False))
    return "\n".join(line.strip("│╭╮╰╯─ ") for line in out.getvalue().splitlines())


def test_a_part_shows_its_speed_beside_its_correctness() -> None:
    text = report_with(timed())
    assert "correctness 4/4   speed 3.5/6" in text
    assert "✓ speed: wide  shape 4096 × 16384" in text
    assert "✓ 1.1 × torch.compile: 2.5 p., in doubt" in text
    assert "Score  7.5 of 10 points graded in this run  (of 10 in all)" in text
    assert "points of speed" not in text


def test_speed_that_was_not_asked_for_is_not_lost() -> None:
    text = report_with()
    assert "6 points of speed are not graded (speed was not asked for); they are not lost" in text
    assert "Score  4 of 4 points graded in this run  (of 10 in all)" in text


def test_without_a_gpu_one_line_says_so() -> None:
    skipped = [timed("skipped", name=name, message=NEEDS_GPU, points=NOTHING) for name in ("wide", "narrow")]
    text = report_with(*skipped)
    assert f"12 points of speed are not graded ({NEEDS_GPU}); they are not lost" in text
    assert text.count(NEEDS_GPU) == 1


def test_each_reason_that_speed_was_not_timed_for_is_told_once() -> None:
    text = report_with(
        timed(),
        timed("skipped", name="long", message="needs 36 GiB of GPU memory, 7 GiB are free", points=NOTHING),
        timed("skipped", name="huge", message="needs 36 GiB of GPU memory, 7 GiB are free", points=NOTHING),
        timed("infra_error", name="narrow", message="another program is using this GPU", points=NOTHING),
    )
    assert (
        "18 points of speed are not graded (another program is using this GPU; needs 36 GiB of GPU memory, 7 GiB are free); "
        "they are not lost"
    ) in text
    assert text.count("– speed: needs 36 GiB of GPU memory, 7 GiB are free") == 1
    assert "! speed: narrow" in text
    assert "speed: long" not in text


def test_speed_that_failed_is_lost_and_not_called_ungraded() -> None:
    text = report_with(timed("failed", message="y[7] is wrong"))
    assert "correctness 4/4   speed 0/6" in text
    assert "✗ speed: wide  shape 4096 × 16384  failed" in text
    assert "y[7] is wrong" in text
    assert "points of speed" not in text


def test_a_case_whose_bands_are_worth_nothing_is_no_reason() -> None:
    free = timed(name="fun", points=Points(earned=0, graded=0, possible=0))
    text = report_with(free, timed("skipped", message=NEEDS_GPU, points=NOTHING))
    assert f"6 points of speed are not graded ({NEEDS_GPU}); they are not lost" in text


def test_an_incomplete_report_says_so() -> None:
    words = "incomplete: the run was interrupted before everything was graded"
    assert words in report_with(timed(), incomplete=True)
    assert words not in report_with(timed())


def test_a_quick_look_says_what_a_full_run_adds() -> None:
    words = "a quick look: a full run tries more and larger cases, and times more rounds"
    assert words in report_with(timed(), effort="quick")
    assert words not in report_with(timed())


def test_a_fault_that_is_told_over_several_lines_stays_inert_in_the_summary() -> None:
    text = report_with(timed("infra_error", message="the baseline failed [/]\x1b[2J", points=NOTHING))
    assert (
        "6 points of speed are not graded (the baseline failed [/]\N{REPLACEMENT CHARACTER}[2J); they are not lost"
        in text
    )


def test_a_timed_case_counts_in_the_progress_of_its_part() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=120, highlight=False)) as progress:
        part = PlannedPart(assignment="a", part="p", file="f.py", title="t", cases=2)
        progress(Planned(device="cuda", isolation=Isolation(jail="bubblewrap"), parts=(part,)))
        progress(SpeedDone(assignment="a", part="p", result=timed()))
        progress(SpeedDone(assignment="a", part="p", result=timed("failed", name="long")))
    assert out.getvalue() == "t: 1 passed, 1 failed\n"


# The models -----------------------------------------------------------------------------------------------------------


def test_a_speed_case_that_did_not_pass_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="speed case 'wide' is failed without a message"):
        timed("failed", message="")


def test_a_speed_case_that_passed_needs_times_or_a_reason_for_none() -> None:
    with pytest.raises(ValueError, match="passed without a measurement"):
        timed(measured=None)
    assert timed(measured=None, message="stopped").measured is None


def test_a_measurement_survives_the_report_file() -> None:
    result = timed()
    assert SpeedCaseResult.model_validate_json(result.model_dump_json()) == result

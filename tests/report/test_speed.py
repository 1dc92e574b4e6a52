"""A speed case: on a terminal nothing that a student wrote steers it (golden/speedy.txt has what is told), and its plots on a page."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from grader.report.model import BandResult, SpeedCaseResult
from grader.report.speed import roofline, speed_case, speedups, timed_cases
from tests.report.building import interval, measured, timed, took
from tests.report.test_page import sample


def shown(result: SpeedCaseResult, *, width: int = 120, terminal: bool = False) -> str:
    """What is printed; with `terminal` as to a colour terminal, control sequences and all."""
    out = io.StringIO()
    Console(
        file=out, width=width, highlight=False, force_terminal=terminal, color_system="truecolor" if terminal else None
    ).print(speed_case(result))
    return out.getvalue()


@pytest.mark.parametrize("width", [30, 60, 80])
def test_a_narrow_terminal_loses_no_flag(width: int) -> None:
    text = shown(timed(measured=measured(flags=("alpha beta gamma delta epsilon",))), width=width)
    assert "alpha beta gamma delta epsilon" in " ".join(text.split())
    assert all(len(line) <= width for line in text.splitlines())


# The models -----------------------------------------------------------------------------------------------------------


def test_a_speed_case_that_did_not_pass_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="'wide' is failed without a message"):
        timed("failed", message="")


def test_a_speed_case_that_passed_needs_times_or_a_reason_for_none() -> None:
    with pytest.raises(ValueError, match="passed without a measurement"):
        timed(measured=None)
    assert timed(measured=None, message="stopped").measured is None


def test_a_measurement_survives_the_report_file() -> None:
    result = timed()
    assert SpeedCaseResult.model_validate_json(result.model_dump_json()) == result


# On a page ------------------------------------------------------------------------------------------------------------


def test_a_band_says_by_how_much_it_is_reached() -> None:
    entrant = took("eager", 1.0, speedup=interval(1.045, 1.04, 1.05))
    bands = (
        BandResult(vs="eager", speedup=0.95, points=1, reached=True),
        BandResult(vs="eager", speedup=1.1, points=1, reached=False),
        BandResult(vs="eager", speedup=1.05, points=1, reached=True, undecided=True),
    )
    (one, *_) = timed_cases(sample("gpu"))
    plot = speedups([type(one)(one.title, measured(took("submission", 0.9), entrant), bands)])
    assert plot is not None
    assert [row[-1] for row in plot.rows] == ["yes, by 10.0%", "no, by 5.0%", "in doubt, and paid: 0.5% under"]
    looks = [mark.attributes["class"] for mark in plot.marks if "edge" in str(mark.attributes["class"])]
    assert looks == ["edge good", "edge bad", "edge odd"]
    assert "5.0% short of 1.1 ×" in [mark.text for mark in plot.marks]


def test_entrants_lie_under_the_measured_roofs() -> None:
    cases = timed_cases(sample("gpu"))
    plot = roofline(cases)
    assert plot is not None
    roofs = [mark.attributes for mark in plot.marks if mark.attributes.get("class") == "roof"]
    assert len(roofs) == 2
    slope, level = roofs
    assert (slope["x2"], slope["y2"]) == (level["x1"], level["y1"])
    own = [mark.attributes for mark in plot.marks if mark.attributes.get("class") == "own"]
    assert len(own) == len(cases) == 8
    assert all(float(str(one["cy"])) >= float(str(level["y1"])) for one in own)
    alone = roofline([one for one in cases if one.measured.roofline == "matmul"])
    assert alone is not None
    assert [m.attributes["y1"] == m.attributes["y2"] for m in alone.marks if m.attributes.get("class") == "roof"] == [
        True
    ]

"""The plots of speed cases on a page; golden/speedy.txt has what a terminal shows."""

from __future__ import annotations

from grader.report.model import BandResult
from grader.report.speed import roofline, speedups, timed_cases
from tests.report.building import interval, measured, took
from tests.report.test_page import sample


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

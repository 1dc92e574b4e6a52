"""A profile as a page, `profile.html`, made as `grader/report/page.py` makes the report's: no script, every word escaped."""

from __future__ import annotations

from grader.profile import views
from grader.profile.model import CaseProfile, Profile
from grader.report.model import EntrantTime, SpeedMeasurement
from grader.report.page import rendered
from grader.report.speed import Timed, roofline

SUBMISSION, COUNTED_BYTES = "submission", "your code, for each byte that was counted"


def page(profile: Profile) -> str:
    """The page of a profile as HTML."""
    return rendered("profile.html", profile=profile, views=views, roofline=roofline(timed(profile)))


def timed(profile: Profile) -> list[Timed]:
    """Every size of every case that was timed. Where bytes were counted, the case's first size has your code again, with them."""
    found = []
    for case in profile.cases:
        measured = [(size.size, size.measured) for size in case.timed if size.measured is not None]
        for number, (size, one) in enumerate(measured):
            counted = () if number else _as_counted(case, one)
            entrants = (*one.entrants, *counted)
            found.append(Timed(f"{views.title(case)}, {size}", one.model_copy(update={"entrants": entrants})))
    return found


def _as_counted(case: CaseProfile, measured: SpeedMeasurement) -> tuple[EntrantTime, ...]:
    moved = sum((one.dram_read_bytes or 0.0) + (one.dram_written_bytes or 0.0) for one in case.counters)
    own = [one for one in measured.entrants if one.name == SUBMISSION]
    return tuple(
        one.model_copy(update={"name": COUNTED_BYTES, "bytes_per_s": moved / one.time_s.median}) for one in own if moved
    )

"""`grader profile`: profiles the speed cases of a submission, and writes the profile, its page and the compilers' texts.

The page is made as `grader/report/page.py` makes the report's: no script, every word escaped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import grader
from grader.assignment import CourseError, load_course
from grader.grading import grade
from grader.messages import Event, Profiled, Request
from grader.profile import views
from grader.profile.model import CaseProfile, Profile
from grader.report.json_file import replacing
from grader.report.page import rendered
from grader.report.speed import Timed, roofline

JSON, PAGE, TEXTS = "profile.json", "profile.html", "kernels"
SUBMISSION, COUNTED_BYTES = "submission", "your code, for each byte that was counted"


def check_names(request: Request) -> None:
    """Raise CourseError if the request names a speed case that none of its assignments has."""
    assignments = load_course(request.course, request.assignments)
    known = [(part.name, case.name) for one in assignments for part in one.spec.parts for case in part.speed]
    allowed = [name for part, case in known for name in (case, f"{part}/{case}")]
    if unknown := [name for name in request.profiled if name not in allowed]:
        there = ", ".join(sorted({f"{part}/{case}" for part, case in known}))
        raise CourseError(f"--case {unknown[0]}: there is no such speed case; there are {there}")


def profile(request: Request, on_event: Callable[[Event], None]) -> tuple[Profile, dict[str, str]]:
    """The profile of a submission, and the compilers' texts of its kernels by path. Raises as `grader.grading.grade`."""
    cases: list[CaseProfile] = []
    texts: dict[str, str] = {}

    def note(event: Event) -> None:
        if isinstance(event, Profiled):
            one = event.profile
            cases.append(one)
            texts.update({f"{one.assignment}-{one.part}-{one.case}/{name}": text for name, text in event.texts.items()})
        on_event(event)

    report = grade(request, note)
    found = Profile(submission=report.submission.path, grader_version=grader.__version__, cases=tuple(cases))
    return found, texts


def write(found: Profile, texts: Mapping[str, str], folder: Path) -> Path:
    """Write profile.json, its page and the texts; an earlier profile's are removed. Returns the page's path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {JSON: found.model_dump_json(indent=2) + "\n", PAGE: page(found)}
    with replacing(made | {f"{TEXTS}/{name}": text for name, text in texts.items()}, folder):
        shutil.rmtree(folder / TEXTS, ignore_errors=True)
    return folder / PAGE


def page(profile: Profile) -> str:
    """The page of a profile as HTML."""
    return rendered("profile.html", profile=profile, views=views, roofline=roofline(_timed(profile)))


def _timed(profile: Profile) -> list[Timed]:
    """Every size of every case that was timed. Where bytes were counted, the case's first size has your code again, with them."""
    found = []
    for case in profile.cases:
        moved = sum((one.dram_read_bytes or 0.0) + (one.dram_written_bytes or 0.0) for one in case.counters)
        for size in case.timed:
            if size.measured is None:
                continue
            entrants = list(size.measured.entrants)
            if moved:
                entrants += [
                    one.model_copy(update={"name": COUNTED_BYTES, "bytes_per_s": moved / one.time_s.median})
                    for one in entrants
                    if one.name == SUBMISSION
                ]
                moved = 0.0
            measured = size.measured.model_copy(update={"entrants": tuple(entrants)})
            found.append(Timed(f"{views.title(case)}, {size.size}", measured))
    return found

"""`grader profile`: profiles the speed cases of a submission, and writes the profile with the compilers' texts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import grader
from grader.assignment import CourseError, load_course
from grader.grading import grade
from grader.messages import Event, Profiled, Request
from grader.profile.model import CaseProfile, Profile
from grader.profile.page import page
from grader.report.json_file import replacing

JSON, PAGE, TEXTS = "profile.json", "profile.html", "kernels"


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

"""The verbs of `grader class`: from what a learning platform hands out to grades in its gradebook."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import grader
from grader.assignment import load_course
from grader.classroom.folder import RunFolder
from grader.classroom.intake import Order, add_to_class, new_class
from grader.classroom.model import Run
from grader.console import (
    Course,
    Device,
    Image,
    Names,
    Quick,
    RequireIsolation,
    Sandbox,
    Speed,
    WantedDevice,
    WantedSandbox,
    catch_signals,
    console,
    default_course,
    failures,
)
from grader.course import own_course
from grader.fingerprint import fingerprint
from grader.report.style import plain
from grader.sandbox.place import DEFAULT_IMAGE

classes = typer.Typer(no_args_is_help=True, help="Grade a class: its hand-ins, its grades, its complaints.")


class Platform(StrEnum):
    auto = "auto"
    gradescope = "gradescope"
    moodle = "moodle"
    canvas = "canvas"
    github = "github"
    folders = "folders"


RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of the class")]
From = Annotated[
    Path,
    typer.Option("--from", metavar="PATH", help="a learning platform's zip, or the folder that it was unpacked into"),
]
WantedPlatform = Annotated[
    Platform,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help=f"what PATH is, of {', '.join(list(Platform)[1:])} (default: recognised by its contents)",
    ),
]


@classes.command("new")
def new_(
    run: RunPath,
    source: From,
    roster: Annotated[
        Path | None, typer.Option(metavar="CSV", help="all students, with columns as name, email, sid, login, alias")
    ] = None,
    platform: WantedPlatform = Platform.auto,
    assignment: Names = None,
    device: WantedDevice = Device.auto,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, metavar="N", help="the inputs for all hand-ins (default: drawn)")
    ] = None,
    speed: Speed = True,
    quick: Quick = False,
    sandbox: WantedSandbox = Sandbox.auto,
    require_isolation: RequireIsolation = False,
    image: Image = DEFAULT_IMAGE,
    course: Course = None,
) -> None:
    """Make the folder of a class from a learning platform's export."""
    catch_signals()
    course = course or default_course()
    with failures("interrupted: no class was made, nothing is left behind"):
        order = _order(source, platform, course, assignment or ())
        facts = Run(
            made=datetime.now(UTC),
            grader=grader.__version__,
            fingerprint=fingerprint(course),
            course="" if _is_own(course) else str(course.resolve()),
            assignments=tuple(assignment or ()),
            seed=secrets.randbits(53) if seed is None else seed,
            device=device.value,
            sandbox=sandbox.value,
            image=image,
            require_isolation=require_isolation,
            speed=speed,
            effort="quick" if quick else "full",
        )
        with console.status("reading ..."):
            told = new_class(run, facts, order, roster)
        _tell([*told, f"made: {run}"])


@classes.command("add")
def add_(run: RunPath, source: From, platform: WantedPlatform = Platform.auto) -> None:
    """Take a later export: newer hand-ins count from then on.

    The hand-ins before, and all that was graded, stay in the folder.
    """
    catch_signals()
    with failures("interrupted: the class is as it was"):
        facts = RunFolder(run).run()
        course = Path(facts.course) if facts.course else own_course() or default_course()
        order = _order(source, platform, course, facts.assignments)
        with console.status("reading ..."):
            told = add_to_class(run, order)
        _tell(told)


def _order(source: Path, platform: Platform, course: Path, names: Sequence[str]) -> Order:
    """Raises CourseError."""
    wanted = tuple(one.spec.file for one in load_course(course, names))
    stubs = course / "starter"
    known = tuple(path.name for path in stubs.iterdir() if path.is_file()) if stubs.is_dir() else ()
    return Order(source, "" if platform is Platform.auto else platform.value, wanted, known)


def _is_own(course: Path) -> bool:
    own = own_course()
    return own is not None and course.resolve() == own.resolve()


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        console.print(plain(line), soft_wrap=True)

"""The verbs of `grader class`: from what a learning platform hands out to grades in its gradebook."""

from __future__ import annotations

import itertools
import secrets
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.table import Table

import grader
from grader.assignment import load_course, stub_names
from grader.classroom import changes, decisions, leaderboard
from grader.classroom.differences import course_of
from grader.classroom.folder import ClassError, RunFolder
from grader.classroom.gradebook import Format, Wanted, export
from grader.classroom.grades import Basis, Grades
from grader.classroom.grading import why_not_here
from grader.classroom.intake import Order, add_to_class, new_class
from grader.classroom.model import ClassRun
from grader.classroom.record import show, told_grade
from grader.classroom.roster import find, find_all
from grader.classroom.roster import shown as named
from grader.console import (
    EXIT_INFRA,
    Course,
    Image,
    Names,
    Quick,
    RequireIsolation,
    Speed,
    WantedDevice,
    WantedSandbox,
    catch_signals,
    complaints,
    console,
    failures,
    note,
)
from grader.course import own_course
from grader.fingerprint import fingerprint
from grader.job import DEFAULT_IMAGE
from grader.report.style import counted, plain

classes = typer.Typer(no_args_is_help=True, help="Grade a class: its hand-ins, its grades, its complaints.")

ClassFolder = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of the class")]
Who = Annotated[str, typer.Argument(metavar="WHO", help="a student's key, name, email or another id")]
Reason = Annotated[str, typer.Option("--reason", metavar="WORDS", help="why; kept with the decision")]
By = Annotated[str, typer.Option("--by", metavar="NAME", help="who decides (default: this user)")]


Platform = Literal["auto", "gradescope", "moodle", "canvas", "github", "folders"]
FROM = typer.Option("--from", metavar="PATH", help="a learning platform's zip, or the folder that it was unpacked into")
WantedPlatform = Annotated[
    Platform,
    typer.Option(
        metavar="NAME",
        show_default=False,
        help=f"what PATH is, of {', '.join(get_args(Platform)[1:])} (default: recognised by its contents)",
    ),
]


@classes.command("new")
def new_(
    run: ClassFolder,
    source: Annotated[Path, FROM],
    roster: Annotated[
        Path | None, typer.Option(metavar="CSV", help="all students, with columns as name, email, sid, login, alias")
    ] = None,
    platform: WantedPlatform = "auto",
    assignment: Names = None,
    device: WantedDevice = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, metavar="N", help="the inputs for all hand-ins (default: drawn)")
    ] = None,
    speed: Speed = True,
    quick: Quick = False,
    sandbox: WantedSandbox = "auto",
    require_isolation: RequireIsolation = False,
    image: Image = DEFAULT_IMAGE,
    *,
    course: Course,
) -> None:
    """Make the folder of a class from a learning platform's export."""
    catch_signals()
    with failures("interrupted: no class was made, nothing is left behind"):
        order = _order(source, platform, course, assignment or ())
        facts = ClassRun(
            made=datetime.now(UTC),
            grader=grader.__version__,
            fingerprint=fingerprint(course),
            course="" if _is_own(course) else str(course.resolve()),
            assignments=tuple(assignment or ()),
            seed=secrets.randbits(53) if seed is None else seed,
            device=device,
            sandbox=sandbox,
            image=image,
            require_isolation=require_isolation,
            speed=speed,
            effort="quick" if quick else "full",
        )
        with console.status("trying the course ..."):
            fault = why_not_here(facts, course)
        with console.status("reading ..."):
            told = new_class(run, facts, order, roster)
        if fault:
            note(f"this machine cannot grade it as it is: {fault}")
        _tell([*told, f"made: {run}; `grader class run {shlex.quote(str(run))}` grades it"])


@classes.command("add")
def add_(
    run: ClassFolder,
    source: Annotated[Path | None, FROM] = None,
    roster: Annotated[
        Path | None, typer.Option(metavar="CSV", help="a later roster: new students, and names and ids of the others")
    ] = None,
    platform: WantedPlatform = "auto",
) -> None:
    """Take a later export, or roster: newer hand-ins count.

    The hand-ins before, all that was graded, and students who left the roster stay.
    """
    catch_signals()
    with failures("interrupted: the class is as it was"):
        facts = RunFolder(run).run()
        course = course_of(facts)
        order = _order(source, platform, course, facts.assignments)
        with console.status("reading ..."):
            told = add_to_class(run, order, roster)
        _tell(told)


def _order(source: Path | None, platform: Platform, course: Path, names: Sequence[str]) -> Order:
    """Raises CourseError."""
    wanted = tuple(one.spec.file for one in load_course(course, names))
    return Order(source, "" if platform == "auto" else platform, wanted, tuple(stub_names(course)))


def _is_own(course: Path) -> bool:
    own = own_course()
    return own is not None and course.resolve() == own.resolve()


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        console.print(plain(line), soft_wrap=True)


@classes.command("run")
def run_(
    run: ClassFolder,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", metavar="UUID", help="only this GPU, as `nvidia-smi -L` lists it; may be repeated"),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="WHO", help="only this hand-in, or this student's; may be repeated"),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="start at most N gradings")] = None,
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="with another grader, course or GPU model than before, or without file locks"),
    ] = False,
) -> None:
    """Grade what is left, on all GPUs of this machine.

    Start it again after whatever ended it.
    """
    from grader.classroom.dispatch import Options
    from grader.classroom.running import grade_class

    catch_signals()
    with failures(f"interrupted: what is graded stays; `grader class run {run}` goes on"):
        if not grade_class(RunFolder(run), console, Options(tuple(gpu or ()), tuple(only or ()), limit, anyway)):
            raise typer.Exit(EXIT_INFRA)


@classes.command("status")
def status_(run: ClassFolder) -> None:
    """Say how far a class is, from its files alone.

    Also while it is graded, and on any machine.
    """
    from grader.classroom.view import print_status

    with failures("interrupted"):
        print_status(RunFolder(run), console)


@classes.command("submit", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def submit_(
    run: ClassFolder,
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION ...]", help="options of sbatch, as --partition=gpu --time=30"),
    ] = None,
    each: Annotated[int, typer.Option(min=1, metavar="N", help="hand-ins of one array task")] = 1,
    at_once: Annotated[int | None, typer.Option(min=1, metavar="N", help="array tasks that run at a time")] = None,
    only_write: Annotated[
        bool, typer.Option("--only-write", help="write the job's script and submit nothing: for another scheduler")
    ] = False,
) -> None:
    """Have Slurm grade what is left, a GPU for each hand-in.

    Submit again what is missing afterwards.
    """
    from grader.classroom.slurm import submit

    with failures("interrupted: jobs that were submitted go on"):
        done = submit(RunFolder(run), options or (), each, at_once, only_write)
    if done.waiting:
        console.print(f"{done.waiting} in the queue already")
    if done.batch is None:
        console.print("nothing else is left to submit")
    elif done.job:
        console.print(
            f"job {done.job}: {counted(done.handins, 'hand-in')}; `grader class status {run}` says how far it is",
            soft_wrap=True,
        )
    else:
        console.print(f"{done.batch}: {counted(done.handins, 'hand-in')}, not submitted", soft_wrap=True)


@classes.command("show")
def show_(
    run: ClassFolder,
    who: Who,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="every case that went wrong")] = False,
) -> None:
    """Show a student's report, attempts and decisions."""
    with failures("interrupted"):
        grades = Grades(RunFolder(run))
        show(grades, find(grades.students, who), console, verbose)


@classes.command("decide")
def decide_(
    run: ClassFolder,
    who: Who,
    reason: Reason,
    points: Annotated[float | None, typer.Option(metavar="N", help="the points, instead of the graded ones")] = None,
    counts: Annotated[
        str | None, typer.Option(metavar="WHICH", help="the attempt that counts: latest, best, or its number")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="take an override of the points back")] = False,
    by: By = "",
) -> None:
    """Decide on a student's points, or attempt.

    Earlier decisions stay on record.
    """
    folder = RunFolder(run)
    with failures("interrupted: nothing was decided"):
        if [points is not None, counts is not None, withdraw].count(True) != 1:
            raise ClassError("one of --points, --counts and --withdraw is wanted")
        student = find(folder.students().students, who)
        if counts is not None:
            made = decisions.decide_attempt(folder, student, _which(counts), reason, by)
        else:
            made = decisions.decide_points(folder, student, points, reason, by)
        console.print(plain(f"{named(student)}: {decisions.told(made)}"), soft_wrap=True)
        grades = Grades(folder)
        console.print(plain(f"grade: {told_grade(grades.of(student))}"), soft_wrap=True)
        known = (one.points.possible for one in itertools.chain([grades.of(student)], grades) if one.points)
        if points is not None and points > (possible := next(known, points)):
            note(f"there are {possible:g} points in all")


def _which(counts: str) -> Literal["latest", "best"] | int:
    if counts == "latest":
        return "latest"
    if counts == "best":
        return "best"
    if not (counts.isascii() and counts.isdecimal() and int(counts) > 0):
        raise ClassError(f"--counts {counts}: latest, best or an attempt's number is wanted")
    return int(counts)


@classes.command("regrade")
def regrade_(
    run: ClassFolder,
    reason: Reason,
    who: Annotated[list[str] | None, typer.Argument(metavar="[WHO]...", help="students")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="the whole class, as after a change of the course")] = False,
    by: By = "",
) -> None:
    """Ask `grader class run` for one attempt more."""
    folder = RunFolder(run)
    with failures("interrupted: the decisions that were made stay"):
        if bool(who) == everyone:
            raise ClassError("name students, or the whole class by --all")
        students = folder.students().students
        chosen = list(students) if everyone else find_all(students, who or ())
        made = decisions.ask_again(folder, chosen, reason, by)
        shared = sum(bool(one.handin) for one in chosen) - len(made)
        words = f"; {counted(shared, 'more student')} handed in the same" if shared else ""
        console.print(
            plain(f"one attempt more of {counted(len(made), 'hand-in')}{words}: grader class run {run}"), soft_wrap=True
        )
        if nothing := [named(one) for one in chosen if not one.handin]:
            note(f"nothing was handed in by {len(nothing)}: {', '.join(nothing[:5])}")


@classes.command("diff")
def diff_(
    run: ClassFolder,
    start: Annotated[
        int | None, typer.Option("--from", min=1, metavar="N", help="an attempt (default: the one that counted before)")
    ] = None,
    to: Annotated[
        int | None, typer.Option("--to", min=1, metavar="N", help="another one (default: the one that counts now)")
    ] = None,
) -> None:
    """Say whose points changed, and by which case."""
    with failures("interrupted"):
        found = changes.differences(Grades(RunFolder(run)), start, to)
        for words in changes.told(found):
            console.print(plain(words), soft_wrap=True)
        for words in found.notes:
            note(words)


@classes.command("export")
def export_(
    run: ClassFolder,
    form: Annotated[
        Format, typer.Argument(metavar="FORMAT", show_choices=False, help="gradescope, canvas, moodle or csv")
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            "--into", "-o", metavar="PATH", help="a file, of gradescope a folder (default: a place in RUN/exports)"
        ),
    ] = None,
    template: Annotated[
        Path | None, typer.Option(metavar="CSV", help="the file that Canvas or Moodle gave, which is filled in")
    ] = None,
    column: Annotated[
        str, typer.Option(metavar="NAME", help="the template's column for the grades (default: the only one that fits)")
    ] = "",
    points: Annotated[Basis, typer.Option(help="correctness: without speed, where the class has no GPU")] = "all",
    without_open: Annotated[
        bool, typer.Option("--without-open", help="leave out students whose points are not all graded")
    ] = False,
) -> None:
    """Write the grades for a gradebook.

    Points that were not graded are never written as 0.
    """
    folder = RunFolder(run)
    with failures("interrupted: nothing was exported"):
        wanted = Wanted(form, into, template, column, without_open, points)
        written, notes = export(folder, wanted, course_of(folder.run()))
        console.print(plain(f"{written}: {notes[0]}"), soft_wrap=True)
        for words in notes[1:]:
            note(words)


@classes.command("leaderboard")
def leaderboard_(
    run: ClassFolder,
    markdown: Annotated[bool, typer.Option("--markdown", help="as Markdown")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="as CSV")] = False,
) -> None:
    """Rank right answers by speed, under aliases."""
    with failures("interrupted"):
        if markdown and csv:
            raise ClassError("one of --markdown and --csv is wanted")
        grades = Grades(RunFolder(run))
        boards = leaderboard.leaderboard(grades)
        if markdown or csv:
            typer.echo(leaderboard.markdown(boards) if markdown else leaderboard.table(boards), nl=False)
        for board in [] if markdown or csv else boards:
            table = Table(*leaderboard.HEAD, box=None, pad_edge=False)
            for entry in board.entries:
                table.add_row(*map(plain, leaderboard.cells(entry)))
            console.print(plain(leaderboard.heading(board), "bold"), soft_wrap=True)
            console.print(table)
        if not boards:
            complaints.print(plain("note: no report has a measured speed: speed needs a GPU", "yellow"))
        elif not any(one.alias for one in grades.students):
            words = "no student has an alias: the roster's column `alias` says who is listed, and under which name"
            complaints.print(plain(f"note: {words}", "yellow"), soft_wrap=True)

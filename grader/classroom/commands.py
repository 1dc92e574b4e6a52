"""The verbs of `grader class`: from what a learning platform hands out to grades in its gradebook."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer
from rich.table import Table

import grader
from grader.classroom import grades as decisions
from grader.classroom import leaderboard
from grader.classroom.changes import differences
from grader.classroom.folder import ClassError, ClassRun, RunFolder, file_names
from grader.classroom.gradebook import Format, export
from grader.classroom.grades import Basis, Grades
from grader.classroom.grading import why_not_here
from grader.classroom.intake import add_to_class, new_class
from grader.classroom.record import show, told_grade
from grader.classroom.roster import find
from grader.classroom.roster import shown as named
from grader.classroom.run import Options, grade_class
from grader.classroom.slurm import submit
from grader.classroom.tasks import print_status
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
from grader.messages import DEFAULT_IMAGE
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
        own = own_course()
        facts = ClassRun(
            made=datetime.now(UTC),
            grader=grader.__version__,
            fingerprint=fingerprint(course),
            course="" if own and course.resolve() == own.resolve() else str(course.resolve()),
            assignments=tuple(assignment or ()),
            seed=secrets.randbits(53) if seed is None else seed,
            device=device,
            sandbox=sandbox,
            image=image,
            require_isolation=require_isolation,
            speed=speed,
            effort="quick" if quick else "full",
        )
        file_names(facts)  # says that an assignment is not there
        with console.status("trying the course ..."):
            fault = why_not_here(facts)
        with console.status("reading ..."):
            told = new_class(run, facts, source, "" if platform == "auto" else platform, roster)
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
        with console.status("reading ..."):
            told = add_to_class(run, source, "" if platform == "auto" else platform, roster)
        _tell(told)


def _tell(lines: Iterable[str]) -> None:
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
    catch_signals()
    with failures(f"interrupted: what is graded stays; `grader class run {run}` goes on"):
        if not grade_class(RunFolder(run), console, Options(tuple(gpu or ()), tuple(only or ()), limit, anyway)):
            raise typer.Exit(EXIT_INFRA)


@classes.command("status")
def status_(run: ClassFolder) -> None:
    """Say how far a class is, from its files alone.

    Also while it is graded, and on any machine.
    """
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
    with failures("interrupted: jobs that were submitted go on"):
        _tell(submit(RunFolder(run), options or (), each, at_once, only_write))


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
            made = decisions.decide_attempt(folder, student, counts, reason, by)
        else:
            made = decisions.decide_points(folder, student, points, reason, by)
        grades = Grades(folder)
        grade = grades.of(student)
        _tell([f"{named(student)}: {decisions.told(made)}", f"grade: {told_grade(grade)}"])
        known = (one.points.possible for one in (grade, *grades) if one.points)
        if points is not None and points > (possible := next(known, points)):
            note(f"there are {possible:g} points in all")


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
        asked = {one.key: one for one in (find(students, each) for each in who or ())}
        chosen = list(students if everyone else asked.values())
        made = decisions.ask_again(folder, chosen, reason, by)
        shared = sum(bool(one.handin) for one in chosen) - len(made)
        words = f"; {counted(shared, 'more student')} handed in the same" if shared else ""
        _tell([f"one attempt more of {counted(len(made), 'hand-in')}{words}: grader class run {run}"])
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
        lines, notes = differences(Grades(RunFolder(run)), start, to)
        _tell(lines)
        for words in notes:
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
    with failures("interrupted: nothing was exported"):
        written, notes = export(RunFolder(run), form, into, template, column, points, without_open)
        _tell([f"{written}: {notes[0]}"])
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
                table.add_row(*map(plain, entry.cells))
            console.print(plain(board.heading, "bold"), soft_wrap=True)
            console.print(table)
        if not boards:
            complaints.print(plain("note: no report has a measured speed: speed needs a GPU", "yellow"))
        elif not any(one.alias for one in grades.students):
            words = "no student has an alias: the roster's column `alias` says who is listed, and under which name"
            complaints.print(plain(f"note: {words}", "yellow"), soft_wrap=True)

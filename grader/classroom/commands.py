"""The verbs of `grader class`: from what a learning platform hands out to grades in its gradebook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grader.classroom.folder import RunFolder
from grader.console import EXIT_INFRA, catch_signals, console, failures

classes = typer.Typer(no_args_is_help=True, help="Grade a class: its hand-ins, its grades, its complaints.")

ClassFolder = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of the class")]


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
    """Grade every hand-in that is left, on all GPUs of this machine. Start it again after whatever ended it."""
    from grader.classroom.running import Options, grade_class

    catch_signals()
    with failures(f"interrupted: what is graded stays; `grader class run {run}` goes on"):
        if not grade_class(RunFolder(run), console, Options(tuple(gpu or ()), tuple(only or ()), limit, anyway)):
            raise typer.Exit(EXIT_INFRA)


@classes.command("status")
def status_(run: ClassFolder) -> None:
    """Say how far the class is, from its files alone."""
    from grader.classroom.view import print_status

    with failures("interrupted"):
        print_status(RunFolder(run), console)

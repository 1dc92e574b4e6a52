"""The command line: its verbs and their exit codes.

Exit codes of `grader run`: 0 graded, whatever the score; 1 the score is under --fail-under; 2 the command or the
submission is unusable; 3 the machine or the grader failed; 130 interrupted, with a report of what was graded by then.
"""

from __future__ import annotations

import json
import math
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

import grader
from grader.assignment import load_course
from grader.classroom.commands import classes
from grader.console import (
    EXIT_INFRA,
    EXIT_INTERRUPTED,
    EXIT_UNDER,
    EXIT_USAGE,
    Course,
    Folder,
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
    stop_with,
)
from grader.grading import graded, started
from grader.messages import DEFAULT_IMAGE, Benchmarked, CaseNote, Event, Place, Request
from grader.profile.views import ProfileProgress, print_profile
from grader.report.checking import CheckView
from grader.report.json_file import PAGE, REPORT, check_writable, read_report, write_report
from grader.report.model import Points, Report
from grader.report.style import counted, plain
from grader.report.terminal import Progress, print_report
from grader.runfolder import alone_in
from grader.workfolder import make_folder

SAME_SIGNAL_S = 0.1  # `timeout`, and programs that pass Ctrl-C on, signal a process and its group: twice at once

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Grade GPU lab assignments: CUDA and Triton kernels.",
)
images = typer.Typer(no_args_is_help=True, help="The grading image.")
app.add_typer(images, name="image")
app.add_typer(classes, name="class")


@app.command()
def run(
    submission: Folder,
    assignment: Names = None,
    device: WantedDevice = "auto",
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, metavar="N", help="the inputs of an earlier run: the seed in its report"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="where report.json goes (default: grader-report)"),
    ] = None,
    fail_under: Annotated[
        float | None, typer.Option(metavar="SCORE", help="exit with 1 when fewer points are earned")
    ] = None,
    speed: Speed = True,
    compilation: Annotated[
        bool,
        typer.Option(
            "--compile/--no-compile", show_default=False, help="compile Triton kernels for GPUs where there is none"
        ),
    ] = True,
    quick: Quick = False,
    table: Annotated[
        bool,
        typer.Option("--table", help="time the reference and other kernels too, into a table"),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="tell of every case that went wrong, with all that is known of it")
    ] = False,
    sandbox: WantedSandbox = "auto",
    require_isolation: RequireIsolation = False,
    image: Image = DEFAULT_IMAGE,
    gpu: Annotated[
        str | None,
        typer.Option(
            envvar="GRADER_GPU", metavar="UUID", help="the GPU, as `nvidia-smi -L` lists it (default: the first)"
        ),
    ] = None,
    memory_gib: Annotated[
        float | None, typer.Option(min=1, metavar="N", help="the container's memory (default: 80 % of the machine's)")
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="N", help="the container's cores (default: all that this command has)"),
    ] = None,
    *,
    course: Course,
) -> None:
    """Grade a folder: correctness and speed, into a report."""
    catch_signals()
    if gpu and device == "auto":
        device = "cuda"
    request = Request(
        submission=submission,
        course=course,
        assignments=tuple(assignment or ()),
        place=Place(
            sandbox=sandbox,
            device=device,
            require_isolation=require_isolation,
            image=image,
            gpu=gpu or None,
            memory_gib=memory_gib,
            cpus=cpus,
        ),
        seed=seed,
        speed=speed,
        compilation=compilation,
        effort="quick" if quick else "full",
        entrants="all" if table else "needed",
    )
    folder = _writable(output, "report", submission)
    benchmarks: list[str] = []
    with failures("interrupted: there is no report, nothing is left behind"), Progress(console) as progress:

        def on_event(event: Event) -> None:
            if isinstance(event, Benchmarked):
                benchmarks.append(event.json_text)
            progress(event)

        with started(request) as (run_folder, running), _at_the_first_signal(running.stop, progress):
            report = graded(request, run_folder, running, on_event)
        if report.infra_errors and not report.incomplete:
            from grader import doctor

            told = doctor.faults(request.course, image)
            report = report.model_copy(update={"infra_errors": (*report.infra_errors, *told)})
    print_report(report, console, verbose)
    if table:
        _print_table(benchmarks)
    try:
        with alone_in(folder):
            path = write_report(report, folder, benchmarks[-1] if benchmarks else None, note)
            _write_page(report, path.with_name(PAGE))
        console.print(f"report: {path}", soft_wrap=True, markup=False)
    except OSError as error:
        stop_with(f"infra_error: the report could not be written: {error}", EXIT_INFRA)
    if report.incomplete:
        stop_with("interrupted: the report has what was graded by then, nothing else is left behind", EXIT_INTERRUPTED)
    if report.infra_errors:
        raise typer.Exit(EXIT_INFRA)
    if fail_under is not None and not report.score.earned >= fail_under:
        stop_with(words_under(report.score, fail_under), EXIT_UNDER)


@app.command("check")
def check_(
    submission: Folder = Path(),
    assignment: Names = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="again whenever a file is saved, until Ctrl-C")] = False,
    device: WantedDevice = "auto",
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, metavar="N", help="the inputs of an earlier check")
    ] = None,
    form: Annotated[
        Literal["text", "gcc"],
        typer.Option("--format", show_default=False, help="gcc: mistakes as `file:line: error: ...`, for an editor"),
    ] = "text",
    *,
    course: Course,
) -> None:
    """Find the first mistake in each file, while you write. Needs no GPU."""
    from grader import check

    catch_signals()
    names, place = tuple(assignment or ()), Place(device=device)
    request = Request(submission=submission, course=course, assignments=names, place=place, seed=seed)

    def new_view(looks: Sequence[check.Look], saved: set[Path]) -> CheckView:
        if saved:
            console.rule(plain(f"{', '.join(sorted(map(str, saved)))} saved at {datetime.now():%H:%M:%S}"), style="dim")
        folder = [str(submission)] if submission != Path() else []
        place = check.place_of(looks) if form == "gcc" else None
        return CheckView(console, shlex.join(["grader", "check", *folder]), place)

    with failures("interrupted"):
        if watch:
            with suppress(KeyboardInterrupt):  # the usual end of watching
                check.check_and_watch(
                    request,
                    new_view,
                    complain=lambda words: complaints.print(words, markup=False),
                    waiting=lambda: console.print(
                        plain("waiting for the next save of a file; Ctrl-C ends this", "dim")
                    ),
                )
            raise typer.Exit
        looks = check.look(request)
        with new_view(looks, set()) as view:
            check.check(request, view, looks)
    if view.infra_errors:
        raise typer.Exit(EXIT_INFRA)
    if view.mistakes or view.unchecked:
        raise typer.Exit(EXIT_UNDER)


@app.command("profile")
def profile_(
    submission: Folder = Path(),
    assignment: Names = None,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", metavar="NAME", help="only this speed case, as causal, or forward/causal; may be repeated"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="where profile.json goes (default: grader-profile)"),
    ] = None,
    gpu: Annotated[
        bool, typer.Option("--gpu/--no-gpu", show_default=False, help="run and time them on a GPU too, if there is one")
    ] = True,
    counters: Annotated[
        bool,
        typer.Option("--counters", help="have Nsight Compute read the GPU's counters too, where that is allowed"),
    ] = False,
    sandbox: WantedSandbox = "auto",
    image: Image = DEFAULT_IMAGE,
    *,
    course: Course,
) -> None:
    """Say why your kernels are slow, in numbers. Needs no GPU."""
    from grader.profile import command

    catch_signals()
    request = Request(
        submission=submission,
        course=course,
        assignments=tuple(assignment or ()),
        place=Place(sandbox=sandbox, device="auto" if gpu else "cpu", image=image),
        profile="count" if counters else "trace",
        profiled=tuple(case or ()),
        compilation=False,
        entrants="all",
        effort="quick",
    )
    folder = _writable(output, "profile", submission)
    with failures("interrupted: no profile was written"):
        command.check_names(request)
        with ProfileProgress(console) as progress:
            profile, texts = command.profile(request, progress)
        print_profile(profile, console)
        with alone_in(folder):
            path = command.write(profile, texts, folder)
    console.print(plain(f"page: {path}"), soft_wrap=True)


@app.command()
def show(
    report: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="a report of `grader run`, or a folder with many of them at any depth"),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="where the pages go (default: beside the reports)"),
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="pages that students may see: nothing of others or of the machine")
    ] = False,
) -> None:
    """Write a report as a page, or a folder of them with an index. Pages open in any browser, and from a mail."""
    whole = report.is_dir()
    folder = report if whole else report.parent
    if redact and (output is None or output.resolve() == folder.resolve() or any(output.rglob(REPORT))):
        stop_with(
            "--redact: name a folder without reports by --output, or these pages would replace your own", EXIT_USAGE
        )
    with failures("interrupted: not every page was written"):
        if whole:
            return _show_folder(folder, output or folder, redact)
        found = read_report(report)
        (output or folder).mkdir(parents=True, exist_ok=True)
        return _write_page(found, (output or folder) / report.with_suffix(".html").name, redact)


@app.command("init")
def init_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a new folder")] = Path("gpu-labs"),
    assignment: Names = None,
    *,
    course: Course,
) -> None:
    """Make a folder to work in: the starters, their handouts, a README. Nothing is overwritten."""
    with failures("interrupted"):
        made = make_folder(course, load_course(course, assignment or ()), folder)
    for path in made:
        console.print(plain(f"  {folder / path}"))
    console.print(
        plain(f"Ready. Read {folder / 'README.md'}, then: cd {folder} && grader check --watch"), soft_wrap=True
    )


@app.command("list")
def list_(course: Course) -> None:
    """List the assignments, their files and their points."""
    with failures("interrupted"):
        assignments = load_course(course)
    table = Table(box=None, pad_edge=False)
    for heading in ("assignment", "file", "part", "cases", "correctness", "speed"):
        table.add_column(heading, justify="right" if heading in ("cases", "correctness", "speed") else "left")
    for one in assignments:
        for part in one.spec.parts:
            points = f"{part.correctness_points:g}", f"{part.speed_points:g}"
            table.add_row(one.name, one.spec.file, part.name, str(len(part.cases)), *points)
    console.print(table)
    console.print(f"{sum(one.points for one in assignments):g} points in all")


@images.command("build")
def build_image(
    tag: Annotated[
        str, typer.Option("--tag", "-t", envvar="GRADER_IMAGE", metavar="NAME", help="the image's name")
    ] = DEFAULT_IMAGE,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="cpu: smaller, grades correctness alone")] = "cuda",
    base_image: Annotated[
        str | None, typer.Option(metavar="NAME", help="a Debian or Ubuntu with Python >= 3.11, venv and pip")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="another ARG of the Dockerfile; may be repeated")
    ] = None,
    network: Annotated[str | None, typer.Option(metavar="NAME", help="network of the build, as `host`")] = None,
    *,
    course: Course,
) -> None:
    """Build the grading image from the Dockerfile beside the course. `grader run --sandbox docker` grades in it."""
    from grader.sandbox.engine import build

    catch_signals()
    arguments: dict[str, str] = {"DEVICE": device} | ({"BASE_IMAGE": base_image} if base_image else {})
    for pair in build_arg or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            stop_with(f"--build-arg {pair}: expected NAME=VALUE", EXIT_USAGE)
        arguments[name] = value
    with failures("interrupted: no image was made"):
        digest = build(course, tag, arguments, network, lambda words: console.print(plain(words)))
    console.print(plain(f"{tag} {digest}"), soft_wrap=True)


@app.command("doctor")
def doctor_(
    quick: Annotated[bool, typer.Option("--quick", help="without the small gradings at the end")] = False,
    image: Image = DEFAULT_IMAGE,
    *,
    course: Course,
) -> None:
    """Say what this machine has, lacks, and how to mend that. Then try small gradings."""
    from grader import doctor
    from grader.doctor.finding import show

    catch_signals()
    with failures("interrupted"), console.status("looking at this machine ..."):
        findings = doctor.examine(course, image, self_test=not quick, on_finding=lambda one: show(one, console))
    console.print(doctor.verdict(findings))
    if doctor.has_fault(findings):
        raise typer.Exit(EXIT_INFRA)


@app.command("cleanup")
def cleanup_() -> None:
    """Remove what killed runs left: containers, processes, folders. Runs that still go on are left alone."""
    from grader.cleanup import cleanup

    removed = 0
    with failures("interrupted"):
        for words in cleanup():
            removed += 1
            console.print(plain(f"removed {words}"), soft_wrap=True)
    if not removed:
        console.print("nothing was left behind")


@app.command()
def schema() -> None:
    """Print the JSON Schema of report.json."""
    print(json.dumps(Report.model_json_schema(mode="serialization"), indent=2))


def _writable(output: Path | None, what: str, submission: Path) -> Path:
    """The writable folder for a `report` or a `profile`: never in the submission, where nothing is ever written, but beside it then."""
    folder, inside = output or Path(f"grader-{what}"), submission.resolve()
    if folder.resolve().is_relative_to(inside) and inside.is_dir():
        if output is not None:
            words = "lies inside the submission, where nothing is ever written; choose another --output"
            stop_with(f"{folder}: {words}", EXIT_USAGE)
        folder = inside.parent / folder
    try:
        check_writable(folder, f"{what}.json")
    except OSError as error:
        words = f"the {what} cannot be written there ({error.strerror}); choose another --output"
        stop_with(f"{folder}: {words}", EXIT_USAGE)
    return folder


def _write_page(report: Report, path: Path, redact: bool = False) -> None:
    from grader.report.page import page, write_page

    console.print(f"page: {write_page(page(report, redact), path)}", soft_wrap=True, markup=False)


def _show_folder(folder: Path, output: Path, redact: bool) -> None:
    from grader.classroom.folder import RunFolder
    from grader.classroom.record import is_class, show_class
    from grader.report.folder import show_folder

    told = []

    def tell(words: str) -> None:
        told.append(words)
        complaints.print(plain(words))

    with console.status("making pages ..."):
        if is_class(folder):
            path, count = show_class(RunFolder(folder), output, redact, tell)
        else:
            path, count = show_folder(folder, output, redact, tell)
    console.print(plain(f"index of {counted(count, 'submission')}: {path}"), soft_wrap=True)
    if told:
        raise typer.Exit(EXIT_UNDER)


def _print_table(records: list[str]) -> None:
    if not records:
        console.print("no table: nothing was timed in this run")
        return
    with tempfile.TemporaryDirectory() as folder:  # pytest-benchmark makes a folder in the current one
        Path(folder, "benchmark.json").write_text(records[-1], encoding="utf-8")
        command = [sys.executable, "-P", "-m", "pytest_benchmark", "compare", "benchmark.json", "--name", "short"]
        command += ["--columns", "min,median,max,iqr,rounds", "--sort", "name"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    console.print(plain(done.stdout if done.returncode == 0 else done.stderr), soft_wrap=True)


def words_under(score: Points, limit: float) -> str:
    """The message of a run that `--fail-under` ends with 1."""
    left = score.possible - score.graded
    words = f"--fail-under: {score.earned:.10g} < {limit:.10g}"
    return f"{words}; {left:.10g} point{'s' if left != 1 else ''} could not be graded here" if left > 1e-9 else words


def _version(wanted: bool) -> None:
    if wanted:
        print(f"grader {grader.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Options before the verb."""


@contextmanager
def _at_the_first_signal(stop: Callable[[], None], progress: Progress) -> Iterator[None]:
    """A context in which the first Ctrl-C or SIGTERM calls `stop`, and the next signal ends the run as usual.

    After a context that `stop` has ended, signals are ignored, so that the report is written.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stopped_at = math.inf

    def first(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_at
        if stopped_at == math.inf:
            stopped_at = time.monotonic()
            progress(CaseNote(text="is being interrupted; Ctrl-C again ends it at once"))
            stop()
        elif time.monotonic() > stopped_at + SAME_SIGNAL_S:
            set_to(before)
            raise KeyboardInterrupt

    def set_to(handlers: Mapping[signal.Signals, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    set_to(dict.fromkeys(before, first))
    try:
        yield
    except BaseException:
        set_to(before)
        raise
    set_to(before if stopped_at == math.inf else dict.fromkeys(before, signal.SIG_IGN))

"""`grader check`: shows the first mistake of each assignment, as soon as it is known.

A first look finds mistakes that need no run. Then the assignments are graded, the last saved file's first,
each up to its first case that does not pass.
"""

from __future__ import annotations

import ast
import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from watchfiles import Change, DefaultFilter, watch

from grader.assignment import Assignment, load_course
from grader.grading import graded, started, survey_for
from grader.messages import Event, Request
from grader.protocol import missing_function
from grader.report.checking import CheckView
from grader.report.model import CaseResult
from grader.sandbox.base import InfraError, Sandbox
from grader.submission import SOURCE_SUFFIXES, SubmissionError, Survey, kernel_elsewhere
from grader.verdict import text
from grader.verdict.blame import blamed
from grader.verdict.sources import PythonFile, names_in, uses_of

MAX_SOURCE_BYTES = 1 << 20
BINDS_UNSEEN = {"*", "globals", "exec", "setattr", "vars", "__getattr__"}
_failed = partial(CaseResult, name="file", tries="", outcome="failed", of_file=True)
_absent = partial(CaseResult, tries="", outcome="not_implemented")


@dataclass(frozen=True)
class Look:
    """A first look at an assignment's file.

    Attributes:
        result: the mistake that was found without running the file; None if none was.
        hint: the first line that uses what the student should write, with words; "" if there is none.
    """

    assignment: Assignment
    path: Path
    result: CaseResult | None
    hint: str = ""


class Saved(Exception):
    """A file was saved during a check, which is therefore outdated."""


def look(request: Request) -> list[Look]:
    """A first look at every file that the request asks for. Raises CourseError, SubmissionError."""
    assignments = load_course(request.course, request.assignments)
    found = survey_for(request, assignments)
    folder = request.submission / found.inside
    looks = []
    for one in assignments:
        path = folder / one.spec.file
        result = _look(path, one, request.course, found)
        looks.append(Look(one, path, result, "" if result is not None else _hint(path, one)))
    return looks


def _hint(path: Path, assignment: Assignment) -> str:
    policy, source = assignment.spec.policy, b""
    with contextlib.suppress(OSError):
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES:
            source = path.read_bytes()
    first = next(uses_of([PythonFile(path.name, source)], () if policy is None else policy.forbidden), None)
    if first is None:
        return ""
    named = first.words.removeprefix("uses ")
    return (
        f"{first.file}, line {first.line}: {named} here: the course wants your own; a call that runs this is forbidden"
    )


def _look(path: Path, assignment: Assignment, course: Path, found: Survey) -> CaseResult | None:
    name, entry = assignment.spec.file, assignment.spec.entry
    stub = course / "starter" / name
    if name in found.misnamed:
        return _failed(message=found.misnamed[name])
    if path.exists() and not path.is_file():
        return None  # staging reports the reason
    try:
        with path.open("rb") as file:
            source = file.read(MAX_SOURCE_BYTES + 1)
    except OSError:
        if path.exists():
            return None
        if told := kernel_elsewhere(stub, entry, path.parent):
            return _failed(message=told)
        where = "here" if path.parent == Path() else f"in {path.parent}"
        return _absent(name=name, message=f"there is no {name} {where}")
    if stub.is_file() and stub.read_bytes() == source:
        if told := kernel_elsewhere(stub, entry, path.parent):
            return _failed(message=told)
        return _absent(name=name, message=f"{name} is still the starter's stub")
    if not name.endswith(".py") or len(source) > MAX_SOURCE_BYTES:
        return None
    if told := text.fault(name, source):
        return _failed(message=told)
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source, name)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        shown = f'  File "{name}", line {error.lineno}\n    {(error.text or "").rstrip()[:200]}\n' if where else ""
        told = f"{type(error).__name__}{where}: {error.msg}"
        return _failed(message=told, traceback=shown)
    except (ValueError, RecursionError, MemoryError):
        return None  # the worker reports the reason
    names = names_in(tree)  # those that are only used too, so that no bound name is missed
    if entry not in names and not names & BINDS_UNSEEN:
        functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef) and not one.decorator_list]
        return _failed(message=missing_function(name, entry, functions))
    return None


def place_of(looks: Sequence[Look]) -> Callable[[CaseResult, str], str]:
    """A function for `CheckView`: the path and line that a result of an assignment's file blames; of none, the file's first line."""
    folder = looks[0].path.parent
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES]

    def place(result: CaseResult, file: str) -> str:
        at, line = next(iter(blamed(result, file, files)), (file, 1))
        return f"{folder / at}:{line}"

    return place


def check(
    request: Request,
    view: CheckView,
    looks: Sequence[Look],
    judge: tuple[Path, Sandbox] | None = None,
    outdated: Callable[[], bool] = bool,
) -> bool:
    """Show the results of `looks`, grade the assignments without one, and show everything on `view`. Returns whether any were graded.

    Args:
        judge: a judge that has been started; None starts one if it is needed.
        outdated: called after each event; True ends the check.

    Raises:
        Saved: `outdated` returned True.
        CourseError, SubmissionError, UsageError, InfraError: as `grader.grading.grade`.
    """
    for one in looks:
        if one.result is not None:
            view.seen(one.assignment, one.result)
        if one.hint:
            view.hint(one.hint)
    unseen = [one for one in looks if one.result is None]
    unseen.sort(key=lambda one: -_minute_saved(one.path))  # files saved in the same minute keep the course's order
    runnable = [one.assignment for one in unseen]
    if not runnable:
        view.finish(None)
        return False

    def on_event(event: Event) -> None:
        view(event)
        if outdated():
            raise Saved

    names = tuple(one.name for one in runnable)
    wanted = {"assignments": names, "stop_early": True, "speed": False, "compilation": False}
    with contextlib.nullcontext(judge) if judge else started(request) as (folder, sandbox):
        view.finish(graded(request.model_copy(update=wanted), folder, sandbox, on_event))
    return True


def _minute_saved(path: Path) -> int:
    with contextlib.suppress(OSError):
        return int(path.stat().st_mtime // 60)
    return 0


@contextlib.contextmanager
def saved_files(folder: Path) -> Iterator[SimpleQueue[set[Path]]]:
    """A context with a queue of the files that are saved in a folder, relative to it: those that can belong to a submission."""
    folder, saves, stop, usual = folder.resolve(), SimpleQueue[set[Path]](), threading.Event(), DefaultFilter()

    def is_source(change: Change, path: str) -> bool:
        return Path(path).suffix in SOURCE_SUFFIXES and usual(change, path)

    def look() -> None:
        for changes in watch(folder, watch_filter=is_source, stop_event=stop, debounce=200, step=20):
            saves.put({Path(path).relative_to(folder) for _, path in changes})

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield saves
    finally:
        stop.set()
        thread.join(timeout=5)


def check_and_watch(
    request: Request,
    new_view: Callable[[Sequence[Look], set[Path]], CheckView],
    complain: Callable[[str], None],
    waiting: Callable[[], None],
) -> None:
    """Check all assignments, then after each save the assignments of the saved files, until interrupted.

    A save during a check ends the check. The next check's judge gets ready before the next save: an import is most of the
    time that a student would wait. A judge grades once, and a check that grades nothing leaves it to the next one.

    Args:
        new_view: makes the view of one check. Takes its first looks, and the saved files that led to the check.
        complain: takes the error message of a check that failed; the next save starts another.
        waiting: called before the wait for a save.

    Raises:
        CourseError, SubmissionError: the first look at the files failed.
    """
    files = {one.path.relative_to(request.submission).as_posix(): one.assignment.name for one in look(request)}
    todo, saved = set(files.values()), set[Path]()

    def wait() -> set[Path]:
        """Wait for a save, whose assignments are then to do; a file of no assignment concerns all."""
        if saves.empty():
            waiting()
        paths = saves.get()
        while not saves.empty():
            paths |= saves.get()
        names = {files.get(path.as_posix(), "") for path in paths}
        todo.update(files.values() if "" in names else names)
        return paths

    with saved_files(request.submission) as saves:
        while True:
            try:
                with started(request) as judge:
                    judge_is_used = False
                    while not judge_is_used:
                        if not todo:
                            saved = wait()
                        looks = [one for one in look(request) if one.assignment.name in todo]
                        with new_view(looks, saved) as view:
                            judge_is_used = check(request, view, looks, judge, outdated=lambda: not saves.empty())
                        todo.clear()
                continue
            except Saved:
                pass
            except (InfraError, SubmissionError, OSError) as error:
                complain(str(error))
            saved = wait()

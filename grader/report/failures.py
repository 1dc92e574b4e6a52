"""The terminal view of a part's failures: each cause once, with one worked example and the names of the other cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from grader.report.map_view import LINES, MapView, rows_in
from grader.report.model import CaseResult, PartResult
from grader.report.style import STYLE, counted, first_of, indented, plain
from grader.verdict.causes import Cause, causes
from grader.verdict.cells import is_telling
from grader.verdict.prints import LOG_LINES

EVERYTHING = 10**9
LINE = 60  # A line of source is cut to this many letters.
MARKS = re.compile(r"\s*[~^]+\s*")  # Python marks the place of an error so, below the line of source.


class Frames:
    """Lines of a traceback; marks below a line are left out where the line has no room on one row, for they would point elsewhere."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        kept = [
            line
            for before, line in zip(["", *self._lines], self._lines, strict=False)
            if not MARKS.fullmatch(line) or max(map(cell_len, (before, line))) <= options.max_width
        ]
        yield plain("\n".join(kept), "dim")


@dataclass(frozen=True)
class Detail:
    """The amount of detail about an assignment.

    causes: of a part, with an example.
    sentences: of an example, beside its message and the sentence that names the cause, or else the first.
    map_lines: of the map of a part's first cause.
    traceback_lines, log_lines, names: at most.
    letters: of a line of a message or a traceback, at most; a message has a line for each LINE of them.
    others: every other case of a cause is told in full as well.
    asides: whether compilers' findings, reasons of skipped cases, and libraries' prints are shown at length.
    right: whether groups without a failure have lines of their own, and skipped cases one.
    """

    causes: int = EVERYTHING
    sentences: int = EVERYTHING
    map_lines: int = LINES
    traceback_lines: int = EVERYTHING
    log_lines: int = LOG_LINES
    names: int = EVERYTHING
    letters: int = EVERYTHING
    others: bool = False
    asides: bool = True
    right: bool = True


USUAL = Detail()
VERBOSE = Detail(log_lines=EVERYTHING, others=True)


def failures(part: PartResult, detail: Detail, told: Collection[tuple[str, str]] = ()) -> list[RenderableType]:
    """The failures of a part by cause.

    Args:
        told: the keys of causes that an earlier part of the assignment has told.
    """
    blocks: list[RenderableType] = []
    found = causes(part.cases)
    again = [] if detail.others else [cause for cause in found if cause.key in told]
    for cause in again:
        names = _names([cause.example, *cause.others], detail.names)
        blocks.append(_line(f"✗ {names}: {'the same cause' if cause.sentence else 'the same'} as above", "bold red"))
    new = [cause for cause in found if cause not in again]
    for number, cause in enumerate(new[: detail.causes]):
        blocks.append(indented(_cause(cause, detail, with_map=number == 0)))
    if left := new[detail.causes :]:
        cases = [case for cause in left for case in (cause.example, *cause.others)]
        words = [f"{named(case)} ({case.outcome.replace('_', ' ')})" for case in cases]
        blocks.append(_line(f"and more: {first_of(words, detail.names)}", "dim"))
    return blocks


def _cause(cause: Cause, detail: Detail, with_map: bool) -> RenderableType:
    alike = [case for case in cause.others if case.message == cause.example.message] if not detail.others else []
    names = _names([cause.example, *alike], detail.names) if alike else ""
    blocks = [case_view(cause.example, detail, names, cause.sentence, with_map)]
    rest = [case for case in cause.others if not any(case is one for one in alike)]
    if detail.others:
        blocks += [case_view(case, detail) for case in rest]
    elif rest:
        more = f"{counted(len(rest), 'more case')}, the same way: {_names(rest, detail.names)}"
        blocks.append(indented(plain(more, "dim")))
    return Group(*blocks)


def has_more(cause: Cause) -> bool:
    """Whether a case other than the example has words of its own."""
    return any(
        (case.message, case.diagnosis) != (cause.example.message, cause.example.diagnosis) for case in cause.others
    )


def case_view(
    case: CaseResult, detail: Detail, name: str = "", cause: str = "", with_map: bool = False, file: str = ""
) -> RenderableType:
    """One case: name and outcome, message, cause, map, further sentences, the student's frames.

    Args:
        name: of several cases, in place of this one's.
        file: of all cases of a part; its name and fault stand for them, if the fault is the file's.
    """
    mark, style = STYLE[case.outcome]
    if file and case.of_file:
        head = Text(f"{mark} {file} {case.fault_of_file}", style)
    else:
        head = Text.assemble((f"{mark} {name or case.title}", style), (f"  {case.outcome.replace('_', ' ')}", style))
    if not name and case.tries not in ("", case.title):
        head.append(f"  ({case.tries})", style="dim")
    cause = cause or next(iter(case.diagnosis), "")  # of an error, the first sentence is the hint
    others = [at for at, line in enumerate(case.diagnosis) if line != cause][: detail.sentences]
    kept = [line for at, line in enumerate(case.diagnosis) if line == cause or at in others]
    lines: list[RenderableType] = [plain(within(case.message, detail.letters)), *map(plain, kept)]
    if with_map and case.map is not None and is_telling(case.map, rows_in(detail.map_lines)):
        lines.append(MapView(case.map, detail.map_lines))
    if case.traceback:
        frames = case.traceback.rstrip().splitlines()
        left_out = (
            [f"  ... {len(frames) - detail.traceback_lines} lines before"]
            if len(frames) > detail.traceback_lines
            else []
        )
        frames = [shortened(line, detail.letters) for line in frames[-detail.traceback_lines :]]
        lines.append(Frames([*left_out, *frames]))
    return Group(head, *map(indented, lines))


def within(message: str, letters: int) -> str:
    """The first lines of a message and the last one, where Triton gives its reason; and the first letters of each."""
    lines, most = message.splitlines(), letters // LINE
    if len(lines) > most:
        lines = [*lines[: most - 1], f"... {len(lines) - most} more lines", lines[-1]]
    return "\n".join(shortened(line, letters) for line in lines)


def is_cut(case: CaseResult, detail: Detail) -> bool:
    """Whether a case's message or traceback is cut."""
    lines = case.traceback.splitlines()
    long = len(lines) > detail.traceback_lines or any(len(line) > detail.letters for line in lines)
    return long or within(case.message, detail.letters) != "\n".join(case.message.splitlines())


def shortened(line: str, letters: int) -> str:
    """The first letters of a line, with the number of further ones."""
    return line if len(line) <= letters else f"{line[:letters]}... {len(line) - letters} more characters"


def named(case: CaseResult) -> str:
    """A case in a list of several: a check's title is a sentence."""
    return case.name if case.title == case.name else f'"{case.title}"'


def _names(cases: Sequence[CaseResult], most: int) -> str:
    return first_of([named(case) for case in cases], most)


def _line(words: str, style: str) -> RenderableType:
    return indented(plain(words, style))

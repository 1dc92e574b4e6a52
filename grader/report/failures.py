"""A cause as every view of a report shows it: `failures` groups an assignment's failures once, a page renders them, `failure_view`
prints them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from grader.report.maps import LINES, MapView, rows_in
from grader.report.model import AssignmentResult, CaseResult, PartResult
from grader.report.style import STYLE, counted, first_of, indented, plain
from grader.verdict.causes import Cause, alike, causes
from grader.verdict.cells import is_telling
from grader.verdict.prints import LOG_LINES

EVERYTHING = 10**9
LINE = 60  # A cut message has a line for each so many letters of its room.
MARKS = re.compile(r"\s*[~^]+\s*")  # A line of these marks stands below a line of source, as Python puts it.


@dataclass(frozen=True)
class Failure:
    """Failures of a part with one cause.

    file: of the assignment.
    example: the case whose message, sentences, map and frames are shown.
    sentence: of the example, names the cause; "" if none does.
    same: the other cases with the example's words.
    others: the cases with words of their own.
    is_every: every case of the part ended so.
    is_again: an earlier part of the assignment has the same cause.
    """

    file: str
    example: CaseResult
    sentence: str = ""
    same: tuple[CaseResult, ...] = ()
    others: tuple[CaseResult, ...] = ()
    is_every: bool = False
    is_again: bool = False

    def name(self, most: int = EVERYTHING) -> str:
        """Who failed: the file, every case, or the cases with the example's words, of which `most` are named."""
        if self.is_every:
            return self.file if self.example.of_file else "every case"
        return names([self.example, *self.same], most) if self.same else self.example.title

    @property
    def ended(self) -> str:
        """How it ended: the outcome, or the fault of the file."""
        if self.is_every and self.example.of_file:
            return self.example.fault_of_file
        return self.example.outcome.replace("_", " ")

    @property
    def tries(self) -> str:
        """What the example tries, where its name does not say that; "" of several cases."""
        example = self.example
        return "" if self.is_every or self.same or example.tries == example.title else example.tries


def failures(result: AssignmentResult) -> list[tuple[PartResult, list[Failure]]]:
    """The parts of an assignment, each with its failures by cause, the cause of the most cases first. Cases that were all skipped for one
    reason are a failure too.
    """

    def words(case: CaseResult) -> tuple[object, ...]:
        return case.outcome, case.message, case.diagnosis, case.traceback

    found: list[tuple[PartResult, list[Failure]]] = []
    told: set[tuple[str, str]] = set()
    for part in result.parts:
        ones = []
        if (every := alike(part.cases)) is not None:
            grouped = [Cause((every.outcome, every.message), every, "", ())]
            ran = [case for case in part.cases if case.outcome == every.outcome]
            others = tuple(case for case in ran if words(case) != words(every))
            ones.append(Failure(result.file, every, others=others, is_every=True, is_again=grouped[0].key in told))
        else:
            grouped = causes(part.cases)
            for one in grouped:
                same = tuple(case for case in one.others if words(case) == words(one.example))
                others = tuple(case for case in one.others if words(case) != words(one.example))
                ones.append(Failure(result.file, one.example, one.sentence, same, others, is_again=one.key in told))
        told.update(one.key for one in grouped)
        found.append((part, ones))
    return found


def names(cases: Sequence[CaseResult], most: int) -> str:
    """The names of cases in a list; a check's name is a sentence, and stands in quotation marks."""
    return first_of([case.name if case.title == case.name else f'"{case.title}"' for case in cases], most)


# On a terminal --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Detail:
    """The amount of detail about an assignment.

    causes: how many causes of a part are told with an example; the cases of further ones are only named.
    sentences: how many sentences of an example are told beside its message and the sentence that names the cause (else its first).
    map_lines: how many lines the map of a part's first cause may take.
    traceback_lines, log_lines, names: how many of each are shown at most.
    letters: how many letters of a line of a message or traceback are shown; of a message, a line for each LINE of these letters.
    others: whether every other case of a cause is told in full as well.
    is_brief: whether compilers' findings are left out, and groups without a failure, reasons of skipped cases and libraries' prints
        take a line each.
    """

    causes: int = EVERYTHING
    sentences: int = EVERYTHING
    map_lines: int = LINES
    traceback_lines: int = EVERYTHING
    log_lines: int = LOG_LINES
    names: int = EVERYTHING
    letters: int = EVERYTHING
    others: bool = False
    is_brief: bool = False


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


def failures_view(ones: Sequence[Failure], detail: Detail) -> list[RenderableType]:
    """The failures of a part: those that an earlier part has told in a line, the first others in full, the rest by name."""
    blocks: list[RenderableType] = []
    again = [one for one in ones if one.is_again and not detail.others]
    for one in again:
        cases = one.name() if one.is_every else names([one.example, *one.same, *one.others], detail.names)
        mark, style = STYLE[one.example.outcome]
        blocks.append(indented(plain(f"{mark} {cases}: the same {'cause ' * bool(one.sentence)}as above", style)))
    new = [one for one in ones if one not in again]
    for number, one in enumerate(new[: detail.causes]):
        blocks.append(indented(failure_view(one, detail, with_map=number == 0)))
    if left := [case for one in new[detail.causes :] for case in (one.example, *one.same, *one.others)]:
        words = [f"{names([case], 1)} ({case.outcome.replace('_', ' ')})" for case in left]
        blocks.append(indented(plain(f"and more: {first_of(words, detail.names)}", "dim")))
    return blocks


def failure_view(one: Failure, detail: Detail, with_map: bool = False) -> RenderableType:
    """A failure: who and how, the example's words, and the other cases by name, or with `detail.others` in full."""
    mark, style = STYLE[one.example.outcome]
    tries = plain(f"  ({one.tries})" if one.tries else "", "dim")
    head = Text.assemble(plain(f"{mark} {one.name(detail.names)}  {one.ended}", style), tries)
    blocks: list[RenderableType] = [head, *map(indented, case_view(one.example, detail, one.sentence, with_map))]
    if detail.others:
        blocks += [failure_view(Failure(one.file, case), detail) for case in one.others]
    elif one.others and not one.is_every:
        more = f"{counted(len(one.others), 'more case')}, the same way: {names(one.others, detail.names)}"
        blocks.append(indented(plain(more, "dim")))
    return Group(*blocks)


def case_view(case: CaseResult, detail: Detail, cause: str = "", with_map: bool = True) -> list[RenderableType]:
    """The words of a case: message, sentences, map, the student's frames. `cause`: the sentence that is never left out."""
    cause = cause or next(iter(case.diagnosis), "")  # of an error, the first sentence is the hint
    others = [at for at, line in enumerate(case.diagnosis) if line != cause][: detail.sentences]
    kept = [line for at, line in enumerate(case.diagnosis) if line == cause or at in others]
    lines: list[RenderableType] = [plain(within(case.message, detail.letters)), *map(plain, kept)]
    if with_map and case.map is not None and is_telling(case.map, rows_in(detail.map_lines)):
        lines.append(MapView(case.map, detail.map_lines))
    if case.traceback:
        frames, most = case.traceback.rstrip().splitlines(), detail.traceback_lines
        left_out = [f"  ... {len(frames) - most} lines before"] if len(frames) > most else []
        lines.append(Frames(left_out + [_shortened(line, detail.letters) for line in frames[-most:]]))
    return lines


def within(message: str, letters: int) -> str:
    """The first lines of a message and the last one, where Triton gives its reason; and the first letters of each."""
    lines, most = message.splitlines(), letters // LINE
    if len(lines) > most:
        lines = [*lines[: most - 1], f"... {len(lines) - most} more lines", lines[-1]]
    return "\n".join(_shortened(line, letters) for line in lines)


def is_cut(case: CaseResult, detail: Detail) -> bool:
    """Whether a case's message or traceback is cut."""
    lines = case.traceback.splitlines()
    long = len(lines) > detail.traceback_lines or any(len(line) > detail.letters for line in lines)
    return long or within(case.message, detail.letters) != "\n".join(case.message.splitlines())


def _shortened(line: str, letters: int) -> str:
    return line if len(line) <= letters else f"{line[:letters]}... {len(line) - letters} more characters"

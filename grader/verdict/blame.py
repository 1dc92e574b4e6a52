"""The lines of a student's files that results name, and the source around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from grader.report.model import (
    MAX_SOURCE_LINES,
    MAX_SOURCE_WIDTH,
    MAX_SOURCES,
    AssignmentResult,
    CaseResult,
    SourceLines,
    SpeedCaseResult,
)
from grader.verdict.text import decoded, lines

AROUND = 4  # So many lines of source are shown before and after a named one.
OF_A_RESULT = 3  # A result names at most this many places.
# As in `"a.py", line 7`, `a.py:7`, `a.cu(7)`, `a.cu, line 7`, `line 7 of a.cuh`, and `line 7`, which is the assignment's own file.
PLACE = re.compile(
    r'(?<![\w./+-])(?:(?P<file>[\w./+ -]{1,200}?\.\w{1,4})"?(?:, line |:|\()|lines? )(?P<line>\d{1,7})\b'
    r"(?: of (?P<after>[\w./+-]{1,200}\.\w{1,4}))?"
)


def blamed(result: CaseResult | SpeedCaseResult, main: str, files: Collection[str]) -> list[tuple[str, int]]:
    """Files and lines that a result names, in their order; of a traceback the innermost first.

    Args:
        main: the assignment's file, which a line without a file belongs to.
        files: the submission's files, by path. A line of another file is left out.
    """
    told = [_places(text, main) for text in (result.message, *result.diagnosis)]
    told.append(_places(result.traceback, main)[::-1])
    found = dict.fromkeys(place for places in told for place in places if place[0] in files)
    return list(found)[:OF_A_RESULT]


def _places(text: str, main: str) -> list[tuple[str, int]]:
    return [((one["after"] or one["file"] or main).strip(), int(one["line"])) for one in PLACE.finditer(text)]


def with_sources(result: AssignmentResult, files: Collection[str], read: Callable[[str], bytes]) -> AssignmentResult:
    """The result with the source around each line that one of its cases names, at most MAX_SOURCES excerpts.

    Args:
        files: the submission's files, by path.
        read: the bytes of one of them; raises OSError.
    """
    cases: list[CaseResult | SpeedCaseResult] = []
    for part in result.parts:
        cases += [*part.cases, *part.speed.cases]
    wanted: dict[str, dict[int, None]] = {}
    for file, line in dict.fromkeys(place for case in cases for place in blamed(case, result.file, files)):
        wanted.setdefault(file, {})[line] = None
    found = [one for file, numbers in wanted.items() for one in _excerpts(file, numbers, read)]
    return result.model_copy(update={"sources": tuple(found[:MAX_SOURCES])}) if found else result


def _excerpts(file: str, numbers: Iterable[int], read: Callable[[str], bytes]) -> list[SourceLines]:
    """The source around lines of a file; excerpts that would touch are one, as long as MAX_SOURCE_LINES allows."""
    try:
        source = lines(decoded(read(file)))
    except OSError:  # gone, or replaced by something else: code that is not isolated can do that
        return []
    spans: list[list[int]] = []
    for number in sorted(one for one in numbers if 1 <= one <= len(source)):
        first = max(1, number - AROUND)
        if spans and first <= spans[-1][-1] + AROUND + 1 and number + AROUND - spans[-1][0] < MAX_SOURCE_LINES:
            spans[-1].append(number)
        else:
            spans.append([first, number])
    return [
        SourceLines(
            file=file,
            first=first,
            lines=tuple(one[:MAX_SOURCE_WIDTH] for one in source[first - 1 : found[-1] + AROUND]),
            blamed=tuple(found),
        )
        for first, *found in spans
    ]

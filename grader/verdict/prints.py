"""Sorts a worker's output: the student's own lines are kept; warnings of libraries and of Python are folded and counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

# The stack of a process that crashed (faulthandler) or whose time was up (worker/late.py): the case's result has the
# student's frames.
DUMP = re.compile(
    r"^(?:Fatal Python error: (?P<fatal>[^\n]*)\n\n?|Timeout \([\d.e+-]+ s\)!\n)"
    r"(?:(?:(?:Current thread|Thread) 0x[^\n]*|  File [^\n]*|  \.\.\.|  <no Python frame>|Extension modules: [^\n]*|<[^\n>]*>)\n|\n)*",
    re.MULTILINE,
)
# A warning with its source line. A library's path on this machine is left out.
WARNING = re.compile(r"^(?P<file>[^\n:]++):(?:\d+:)? (?P<words>\w*Warning: [^\n]*)\n(?:  [^\n]*\n)?", re.MULTILINE)
LIBRARY = re.compile(
    r".*/(?:(?:site|dist)-packages/(?P<package>\w+)|python\d[\d.]*/|runtime/(?P<grader>grader)/)|<frozen |<string>$|sys$"
)
# The folders of the grader, Python and its packages on this machine, before the part of a path that a student knows.
PLACES = re.compile(
    r"(?<![^\s\"'<>:,()])([^\s\"'<>:,()/]*+)(?:/[^\s\"'<>:,()]*)?/(?:grader-run-[^/\s]+/(?:scratch/[^/\s]+|runtime|submission)|(?:site|dist)-packages|lib/python\d[\d.]*)/"
)

IMPORT = "import"  # Prints before the first case stand under this heading.
LOG_LINES = 12  # At most this many lines of prints are shown.
CASE_LINES = 4  # Where several cases have more, each shows this many lines.
MAX_WORDS = 200  # A printed line is cut to this many characters.


def sort_out(text: str) -> tuple[str, Counter[str]]:
    """The student's own lines, and the other lines as sentences, each with the number of times that it was printed."""
    others: Counter[str] = Counter()

    def fold_dump(found: re.Match[str]) -> str:
        if found["fatal"]:
            others[f"Python: {found['fatal']}"] += 1
        return ""

    def fold_warning(found: re.Match[str]) -> str:
        library = LIBRARY.match(found["file"]) if found["file"].endswith((".py", ".pyx", ">", "sys")) else None
        if library is None:
            return found[0]
        others[f"{library['package'] or library['grader'] or 'Python'}: {found['words'][:300]}"] += 1
        return ""

    text = text if text.endswith("\n") else f"{text}\n"
    return WARNING.sub(fold_warning, DUMP.sub(fold_dump, text)), others


def without_places(text: str) -> str:
    """The text with paths cut to the part that is equal on every machine: `torch/nn/functional.py`, `threading.py`, the
    student's file.
    """
    return PLACES.sub(r"\1", text)


def heading(title: str, part: str, parts: int) -> str:
    """The heading of a case's prints: its title, after its part's name if the assignment has several parts."""
    return f"{part} {title}" if parts > 1 else title


def with_case(case: str, text: str) -> list[str]:
    """Each line that is not empty, after the heading of its case; "import" before the first case."""
    return [f"[{case or IMPORT}] {line}" for line in text.splitlines() if line.strip()]


def first_lines(
    lines: Iterable[str], cases: Sequence[str], wrong: Sequence[str], most: int = LOG_LINES
) -> tuple[list[str], int]:
    """The lines to show of a longer log, and the number of lines that they stand for.

    The first lines of the first cases; of wrong cases only, if these have any. Equal lines stand once.

    Args:
        lines: as `with_case` makes them.
        cases, wrong: headings, in the report's order.
        most: lines to show.
    """
    of_case: dict[str, Counter[str]] = {}
    for line in lines:
        case, closed, words = line.removeprefix("[").partition("] ")
        if line.startswith("[") and closed:
            of_case.setdefault(case, Counter())[words] += 1
    order = [case for case in wrong if case in of_case] or [case for case in (IMPORT, *cases) if case in of_case]
    order = order or list(of_case)
    each = max(CASE_LINES, most // max(1, len(order)))
    shown: dict[str, str] = {}
    stand_for = 0
    for case in order:
        for words in [one for one in of_case[case] if one not in shown][: min(each, most - len(shown))]:
            counts = [other[words] for other in of_case.values() if words in other]
            elsewhere = f"in {len(counts) - 1} more case{'s' if len(counts) > 2 else ''}" if len(counts) > 1 else ""
            times = f"{of_case[case][words]} times" if of_case[case][words] > 1 else ""
            more = (
                f"{times}, and {elsewhere}" if times and elsewhere else times or (elsewhere and f"the same {elsewhere}")
            )
            shown[words] = f"[{case}] {words[:MAX_WORDS]}{f'  ({more})' if more else ''}"
            stand_for += sum(counts)
    return list(shown.values()), stand_for


def counted(others: Counter[str]) -> tuple[str, ...]:
    """Each sentence once, the most frequent first."""
    return tuple(f"{words} ({count} times)" if count > 1 else words for words, count in others.most_common())


def shortened(lines: Iterable[str], most: int) -> str:
    """The first and the last lines, of at most so many characters together."""
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[-(most // 2) :]
    head, tail = head.rpartition("\n")[0] or head, tail.partition("\n")[2] or tail
    return f"{head}\n... {len(text) - len(head) - len(tail)} characters left out ...\n{tail}"


def all_shortened(sections: Sequence[Iterable[str]], most: int) -> str:
    """The lines of all sections in at most so many characters, each section in its share or less."""
    texts, share = ["\n".join(lines) for lines in sections], most
    while sum(min(len(text), share) for text in texts) > most:
        share //= 2
    return "\n".join(shortened(text.splitlines(), share) for text in texts)

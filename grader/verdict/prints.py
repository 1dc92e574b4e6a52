"""Sorts a worker's output: the student's own lines are kept; warnings of libraries and of Python are folded and counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

# Where a process was that crashed (faulthandler), or whose time was up (worker/late.py): the case's result has the student's frames.
DUMP = re.compile(
    r"^(?:Fatal Python error: (?P<fatal>[^\n]*)\n\n?|Timeout \([\d.e+-]+ s\)!\n)"
    r"(?:(?:(?:Current thread|Thread) 0x[^\n]*|  File [^\n]*|  \.\.\.|  <no Python frame>|Extension modules: [^\n]*|<[^\n>]*>)\n|\n)*",
    re.MULTILINE,
)
# A warning of a library, with the line that it stands for: where it lies on this machine is nobody's matter.
WARNING = re.compile(
    r"^(?:[^\n]*/(?:site|dist)-packages/(?P<package>\w+)[^\n]*?\.pyx?|[^\n]*/python\d[\d.]*/[^\n]*?\.py"
    r"|[^\n]*/runtime/(?P<grader>grader)/[^\n]*?\.py|<frozen [^\n>]*>|<string>|sys):(?:\d+:)? (?P<words>\w*Warning: [^\n]*)\n"
    r"(?:  [^\n]*\n)?",
    re.MULTILINE,
)


def sort_out(text: str) -> tuple[str, Counter[str]]:
    """The student's own lines, and the other lines as sentences, each with the number of times that it was printed."""
    others: Counter[str] = Counter()

    def fold_dump(found: re.Match[str]) -> str:
        if found["fatal"]:
            others[f"Python: {found['fatal']}"] += 1
        return ""

    def fold_warning(found: re.Match[str]) -> str:
        others[f"{found['package'] or found['grader'] or 'Python'}: {found['words'][:300]}"] += 1
        return ""

    text = text if text.endswith("\n") else f"{text}\n"
    return WARNING.sub(fold_warning, DUMP.sub(fold_dump, text)), others


def with_case(case: str, text: str) -> list[str]:
    """Each line that is not empty, with the case in which it was printed; "import" before the first."""
    return [f"[{case or 'import'}] {line}" for line in text.splitlines() if line.strip()]


def counted(others: Counter[str]) -> tuple[str, ...]:
    """Each sentence once, the most frequent first."""
    return tuple(f"{words} ({count} times)" if count > 1 else words for words, count in others.most_common())


def shortened(lines: Iterable[str], most: int) -> str:
    """The beginning and the end of lines, of at most so many characters together."""
    text = "\n".join(lines)
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... {len(text) - most} characters left out ...\n{text[-(most // 2) :]}"

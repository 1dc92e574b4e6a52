"""Makes `combinations.csv`: few cases of a part in which each level of a factor meets each level of every other one;
and the tables of factors in the handouts.

    python -m grader.combinations [FOLDER OF A COURSE]

Most faults of a program show with one level, or with two that meet (Kuhn, Wallace & Gallo 2004, "Software Fault
Interactions"). The table is a function of problem.toml alone, and is kept beside it, so that a grading neither draws
nor computes it.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from covertable import make

from grader.assignment import COMBINATIONS, Part, read_spec


def rows_of(part: Part) -> list[dict[str, str]]:
    """A covering array of all pairs of levels that may go together, the base levels as often as possible."""
    factors = {factor.name: [level.name for level in factor.levels] for factor in part.factors}
    constraints = [
        {"operator": "fn", "requires": list(one.levels), "evaluate": lambda row, one=one: not one.holds(row)}
        for one in part.excluded
    ]
    found = [dict(row) for row in make(factors, salt=str(part.array_seed), constraints=constraints)]
    return [{name: row[name] for name in factors} for row in found]


def missing_pairs(part: Part, rows: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """The pairs of levels that may go together and are in no row."""
    for one, other in combinations(part.factors, 2):
        there = {(row[one.name], row[other.name]) for row in rows}
        for first in one.levels:
            for second in other.levels:
                pair = {one.name: first.name, other.name: second.name}
                if not any(excluded.holds(pair) for excluded in part.excluded) and tuple(pair.values()) not in there:
                    yield pair


def text_of(parts: Mapping[str, Part]) -> str:
    """The file for these parts by name."""
    names = dict.fromkeys(factor.name for part in parts.values() for factor in part.factors)
    out = io.StringIO()
    table = csv.DictWriter(out, ["part", *names], restval="", lineterminator="\n")
    table.writeheader()
    for name, part in parts.items():
        table.writerows({"part": name, **row} for row in rows_of(part))
    return out.getvalue()


def contract_of(part: Part) -> str:
    """The factors of a part as a handout tells them, a table in Markdown."""
    rows = (f"| {one.title} | {'; '.join(level.words for level in one.levels)} |" for one in part.factors)
    return "\n".join([f"| {part.title}: what varies | how, the ordinary first |", "|---|---|", *rows]) + "\n"


def main() -> None:
    course = Path(sys.argv[1]) if sys.argv[1:] else Path()
    for problem in sorted(course.glob("assignments/*/problem.toml")):
        parts = {part.name: part for part in read_spec(problem.parent).parts if part.factors}
        if parts:
            problem.with_name(COMBINATIONS).write_text(text_of(parts), encoding="utf-8")
        handout = problem.with_name("README.md")
        for part in parts.values():
            text, table = handout.read_text(encoding="utf-8"), contract_of(part)
            there = re.compile(rf"^{re.escape(table.splitlines()[0])}\n(?:\|.*\n)*", re.MULTILINE)
            handout.write_text(there.sub(table.replace("\\", r"\\"), text), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Mutants made by machine: right kernels of the corpus with one operator, constant, mask, stride or dtype changed.

    python -m tests.support.machine_mutants                     grade those that docs/machine_mutants.json does not have
    python -m tests.support.machine_mutants --again --only softmax    grade these once more
    python -m tests.support.machine_mutants --list              print the sample and grade nothing

The sample is fixed: of each assignment the first `PER_ASSIGNMENT` changes in the order of their hashes, taken from the kinds
of change in turn. Some pass every case on a CPU: `survivors` in the JSON says why.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.support.corpus import Entry, entries, impatient_course
from tests.support.warm_judge import judge

PER_ASSIGNMENT = 30
FOUND = ROOT / "docs" / "machine_mutants.json"
OPERATORS = {"+": "-", "-": "+", "*": "/", "/": "*", "//": "%", "%": "//", "&": "|", "&&": "||"}
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!="}
NAMES = {
    "max": "min",
    "maximum": "minimum",
    "exp": "exp2",
    "exp2": "exp",
    "log": "log2",
    "float32": "float16",
    "int64": "int32",
    "fmaxf": "fminf",
    "expf": "exp2f",
    "tanhf": "sinf",
    "float4": "float2",
    "blockDim": "gridDim",
    "threadIdx": "blockIdx",
    "size_t": "int",
}
DTYPES = {"float32", "int64", "float4", "size_t"}
SYNTAX = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
}  # fmt: skip
CUDA_TOKENS = re.compile(
    r"(?P<skip>//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|^[ \t]*\#[^\n]*|<<<.*?>>>|template\s*<[^>]*>)"
    r"|(?<=\s)(?P<operator>\+|-|\*|/|%|&&)(?=\s)|(?<=\s)(?P<comparison><=|>=|==|<|>)(?=\s)"
    r"|(?<![\w.])(?P<constant>\d+\.\d*f?|\d+)(?![\w.])|\b(?P<name>[a-zA-Z_]\w*)\b",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Change:
    """`old` at this offset (in characters) of a right kernel's file, and what stands there instead."""

    entry: Entry
    file: str
    offset: int
    line: int
    kind: str
    old: str
    new: str

    @property
    def id(self) -> str:
        return f"{self.entry.id} {self.file}:{self.line} {self.old} -> {self.new} @{self.offset}"

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.id.encode()).hexdigest()

    def submission(self, scratch: Path) -> Path:
        """The folder to grade, in `scratch`."""
        target = scratch / "changed"
        shutil.copytree(self.entry.folder, target, ignore=shutil.ignore_patterns("*.toml", "__pycache__"))
        text = (target / self.file).read_text(encoding="utf-8")
        assert text[self.offset :].startswith(self.old)
        text = text[: self.offset] + self.new + text[self.offset + len(self.old) :]
        (target / self.file).write_text(text, encoding="utf-8")
        return target


def sample() -> list[Change]:
    """The changes that are graded, of each assignment in the order of its hashes."""
    by_assignment: dict[str, dict[str, list[Change]]] = {}
    for entry in entries("accepted"):
        if entry.accepted.base is None:
            for path in sorted(entry.folder.glob("*")):
                for one in _changes(entry, path):
                    by_assignment.setdefault(entry.assignment, {}).setdefault(one.kind, []).append(one)
    found = []
    for kinds in by_assignment.values():
        columns = [sorted(kinds[kind], key=lambda one: one.hash) for kind in sorted(kinds)]
        in_turn = [one for row in zip_longest(*columns) for one in row if one is not None]
        found += in_turn[:PER_ASSIGNMENT]
    return found


def _changes(entry: Entry, path: Path) -> Iterator[Change]:
    if path.suffix not in (".py", ".cu", ".cuh"):
        return
    text = path.read_text(encoding="utf-8")
    for offset, kind, old, new in _in_python(text) if path.suffix == ".py" else _in_cuda(text):
        yield Change(entry, path.name, offset, text.count("\n", 0, offset) + 1, kind, old, new)


def _in_python(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Each change of Python source: its offset, its kind, the old and the new text."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(node: ast.expr, *, end: bool = False) -> int:
        line, column = (node.end_lineno, node.end_col_offset) if end else (node.lineno, node.col_offset)
        assert line is not None
        assert column is not None
        return starts[line - 1] + column

    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    nodes = {node for function in functions for statement in function.body for node in ast.walk(statement)}
    for node in nodes:
        if isinstance(node, ast.BinOp | ast.Compare):
            right = node.right if isinstance(node, ast.BinOp) else node.comparators[0]
            left, operator = (node.left, node.op) if isinstance(node, ast.BinOp) else (node.left, node.ops[0])
            sign = SYNTAX.get(type(operator), "")
            between = text[at(left, end=True) : at(right)]
            if sign and between.strip(" ()") == sign:
                kind = "operator" if isinstance(node, ast.BinOp) else "comparison"
                table = OPERATORS if isinstance(node, ast.BinOp) else COMPARISONS
                yield at(left, end=True) + between.index(sign), kind, sign, table[sign]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            old = text[at(node) : at(node, end=True)]
            yield at(node), "constant", old, _another(old)
        elif isinstance(node, ast.Attribute) and node.attr in NAMES:
            start = at(node, end=True) - len(node.attr)
            yield start, "dtype" if node.attr in DTYPES else "function", node.attr, NAMES[node.attr]
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "mask":
                    old = text[at(keyword.value) : at(keyword.value, end=True)]
                    yield at(keyword.value), "mask", old, "None"
            if isinstance(node.func, ast.Attribute) and node.func.attr == "stride" and node.args:
                first = node.args[0]
                old = text[at(first) : at(first, end=True)]
                if old.lstrip("-").isdigit():
                    yield at(first), "stride", old, str(int(old) - 1 if int(old) > 0 else int(old) + 1)


def _in_cuda(text: str) -> Iterator[tuple[int, str, str, str]]:
    """The same of CUDA source, by its tokens."""
    for token in CUDA_TOKENS.finditer(text):
        kind, old = token.lastgroup or "skip", token.group()
        if kind == "operator":
            yield token.start(), kind, old, OPERATORS[old]
        elif kind == "comparison":
            yield token.start(), kind, old, COMPARISONS[old]
        elif kind == "constant":
            yield token.start(), kind, old, _another(old)
        elif kind == "name" and old in NAMES:
            yield token.start(), "dtype" if old in DTYPES else "function", old, NAMES[old]


def _another(number: str) -> str:
    """A number beside this one: an integer and one, a decimal number and a hundredth of it."""
    if re.fullmatch(r"\d+", number):
        return str(int(number) + 1)
    digits = number.rstrip("f")
    value = float(digits)
    return repr(value * 1.01 if value else 1.0) + ("f" if number.endswith("f") else "")


def graded(change: Change) -> dict[str, Any]:
    """A row of the JSON: where the change is, and how the first case that does not pass ends."""
    with tempfile.TemporaryDirectory() as scratch:
        course = impatient_course(Path(scratch), change.entry.assignment, "cpu")
        report = judge(change.submission(Path(scratch)), course, change.entry.assignment, "cpu", stop_early=True)
    ended = [case for one in report.assignments for part in one.parts for case in part.cases]
    first = next((case for case in ended if case.outcome not in ("passed", "skipped")), None)
    row = {"kind": change.kind, "outcome": first.outcome if first else "passed", "case": first.name if first else ""}
    return row | ({"infra_errors": list(report.infra_errors)} if report.infra_errors else {})


def section(stored: dict[str, Any]) -> list[str]:
    """The lines of docs/GRADER_QUALITY.md about these mutants."""
    rows, reasons = stored["mutants"], stored["survivors"]
    lines = [
        "## Changes made by a machine",
        "",
        "Beside the mistakes that somebody thought of: right kernels in which a program has changed one operator, comparison,",
        "constant, mask, stride, dtype or function, a fixed sample on a CPU (`python -m tests.support.machine_mutants`).",
        "",
        "| assignment | changed kernels | how their first case ends | passed every case |",
        "|---|---:|---|---:|",
    ]
    for assignment in sorted({name.split("-")[0] for name in rows}):
        counts = Counter(row["outcome"] for name, row in rows.items() if name.split("-")[0] == assignment)
        passed = counts.pop("passed", 0)
        ends = ", ".join(f"{outcome.replace('_', ' ')} {count}" for outcome, count in counts.most_common())
        lines.append(f"| {assignment} | {passed + counts.total()} | {ends} | {passed} |")
    lines += ["", "Those that passed, and why:", ""]
    lines += [f"- `{name}`: {reasons[name]}" for name, row in sorted(rows.items()) if row["outcome"] == "passed"]
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    stored = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.is_file() else {"mutants": {}, "survivors": {}}
    wanted = {one.id: one for one in sample() if arguments.only in one.id}
    if arguments.list:
        print("\n".join(f"{one.kind:<11}{name}" for name, one in wanted.items()))
        return 0
    rows = stored["mutants"]
    started = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        todo = {name: one for name, one in wanted.items() if arguments.again or name not in rows}
        futures = {pool.submit(graded, one): name for name, one in todo.items()}
        for number, future in enumerate(as_completed(futures), 1):
            name = futures[future]
            rows[name] = future.result()
            told = f"{rows[name]['outcome']} {rows[name]['case']}"
            print(f"{time.monotonic() - started:5.0f} s  {number} of {len(futures)}  {name}: {told}", flush=True)
            FOUND.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

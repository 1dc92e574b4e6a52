"""Holds the reference kernels against what a GPU can do and against the best there is, on the sizes they were made for.

    python benchmarks/reference_record.py [--row NAME ...] [--again] [--submission FOLDER] [--readme] [--output benchmarks/reference_record]
    python benchmarks/reference_record.py --render [--readme] [--output NAME]    write the pages again from the record, measure nothing

Writes NAME.json, everything that was measured, and NAME.md, the table made from it; with --readme also the table in docs/KERNELS.md,
three rows of which stand in README.md. Every row
is a race as grading has it (`grader/judge/race.py`): interleaved rounds, each entrant in a worker of its own, new inputs for every timed
call, every answer checked. A goal is a ratio, such as "at least 0.99 times as fast as a device copy".
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import math
import re
import shlex
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.records import text_of  # noqa: E402
from benchmarks.speed_record import MATMUL, entrants_table, environment, repetition, session  # noqa: E402
from grader.assignment import Assignment, Band, Case, DType, SpeedCase, load_course  # noqa: E402
from grader.judge.cases import BoundSpeedCase  # noqa: E402
from grader.judge.speed.benchmark import Benchmarks  # noqa: E402
from grader.pool.fault import Fault  # noqa: E402
from grader.pool.pool import WorkerPool  # noqa: E402
from grader.problem import bind_params, load_problem  # noqa: E402

ROUNDS = 9
BATCH_S = 0.012  # longer than the course's, for the sake of the shortest calls
MAX_CALLS = 250  # more do not fit into the GPU's queue, which is full before the gate opens
FAR = 1.01  # times the claim: in all other rows it is within 0.3 %
REFERENCE = ROOT / "reference"
OUTDATED = "‡ Measured before the kernel was changed for the last time."
TOO_SHORT = "† By the worker's clock: a batch is too short for the judge's, which is told to a millisecond or so."
BEGIN, END = "<!-- reference_record.py writes from here", "<!-- to here -->"
README, KERNELS = ROOT / "README.md", ROOT / "docs" / "KERNELS.md"
README_ROWS = (
    "CUDA GeLU float32 2²⁸",
    "softmax float32 16384 × 16384",
    "attention, forward, causal bfloat16 (48, 4096, 64)",
)
NAMES = {
    "sdpa_flash": "flash",
    "sdpa_cudnn": "cuDNN",
    "compile": "torch.compile",
    "eager": "PyTorch",
    "copy": "device copy",
}


@dataclass(frozen=True)
class Row:
    """One size, and what the reference should reach there.

    part: of the assignment; `params` are keys of its problem.py.
    goals: by entrant, how many times as fast as it the reference should be.
    beside: entrants that are measured too.
    """

    title: str
    assignment: str
    part: str
    dtype: DType
    params: dict[str, Any]
    goals: dict[str, float]
    beside: tuple[str, ...] = ()

    @property
    def entrants(self) -> list[str]:
        roofline = "matmul" if self.assignment == "flash_attention" else "copy"
        return list(dict.fromkeys([*self.goals, *self.beside, roofline]))


def _attention() -> Iterator[Row]:
    """Naive PyTorch keeps all scores, at 16384 tokens 8.6 GB of them in 16 bits: it takes part only where the goal is to beat it.

    Where it does not even fit, forward + backward in float32 at 16384 tokens, there is nothing to beat.
    """
    sizes = (48, 4096, 64), (16, 16384, 64), (64, 4096, 128)
    both = ("forward", 0.85), ("backward", 0.75)
    for part, of_cudnn in both:
        for size in sizes:
            naive = ("eager", "compile") if size[1] <= 4096 else ()
            yield _attention_row(part, "bfloat16", True, size, {"sdpa_flash": 1.0, "sdpa_cudnn": of_cudnn}, naive)
    others: tuple[tuple[DType, bool], ...] = (("bfloat16", False), ("float32", True), ("float32", False))
    for size in (sizes[0], sizes[2], sizes[1]):
        for part, _ in both:
            for dtype, causal in others:
                vendors = ("sdpa_flash", "sdpa_cudnn") if dtype == "bfloat16" else ()
                fits = size[1] <= 4096 or part == "forward" or dtype == "bfloat16"
                naive = {"eager": 1.0, "compile": 1.0} if fits else {}
                yield _attention_row(part, dtype, causal, size, naive, vendors)


def _attention_row(
    part: str, dtype: DType, causal: bool, size: tuple[int, int, int], goals: dict[str, float], beside: tuple[str, ...]
) -> Row:
    words = "forward" if part == "forward" else "forward + backward"
    batch, n, d = size
    title = f"attention, {words}, {'causal' if causal else 'not causal'} {dtype} ({batch}, {n}, {d})"
    return Row(title, "flash_attention", part, dtype, {"batch": batch, "n": n, "d": d, "causal": causal}, goals, beside)


def _softmax(rows: int, columns: int, dtype: DType, goals: dict[str, float]) -> Row:
    beside = tuple(name for name in ("copy", "eager", "compile") if name not in goals)
    return Row(
        f"softmax {dtype} {rows} × {columns}", "softmax", "softmax", dtype, {"shape": [rows, columns]}, goals, beside
    )


def _gelu(assignment: str, dtype: DType, goal: float) -> Row:
    title = f"{'CUDA' if assignment == 'cuda_gelu' else 'Triton'} GeLU {dtype} 2²⁸"
    return Row(title, assignment, "gelu", dtype, {"shape": [1 << 28]}, {"copy": goal}, ("eager", "compile"))


ROWS = [
    _gelu("cuda_gelu", "float32", 0.99),
    _gelu("triton_gelu", "float32", 0.99),
    _gelu("triton_gelu", "bfloat16", 0.97),
    _gelu("triton_gelu", "float16", 0.97),
    _softmax(16384, 16384, "float32", {"copy": 0.97}),
    _softmax(65536, 4096, "bfloat16", {"copy": 0.97}),
    _softmax(32768, 781, "float32", {"copy": 0.97}),
    _softmax(4096, 131072, "bfloat16", {"copy": 0.90}),
    _softmax(4096, 1024, "float32", {"eager": 1.0, "compile": 1.0}),
    _softmax(1 << 20, 64, "bfloat16", {"eager": 1.0, "compile": 1.0}),
    *_attention(),
]


@dataclass(frozen=True)
class Contest(BoundSpeedCase):
    """A speed case without bands, whose entrants are its row's."""

    row: Row

    @property
    def opponents(self) -> list[str]:
        return self.row.entrants

    def entrants(self, everyone: bool) -> list[str]:  # noqa: ARG002
        return self.row.entrants


def contest(row: Row, assignment: Assignment) -> Contest:
    """The row as a race takes it. Raises CourseError."""
    problem, model = load_problem(assignment)
    part = next(part for part in assignment.spec.parts if part.name == row.part)
    name = re.sub(r"[^a-z0-9]+", "-", row.title.lower().replace("²⁸", "-28").replace("×", "x")).strip("-")[:60]
    speed = SpeedCase(
        name=name,
        dtype=row.dtype,
        bands=(Band(vs="eager", speedup=1.0, points=0.0),),
        roofline="matmul" if row.assignment == "flash_attention" else "copy",
        **row.params,
    )
    params = bind_params(assignment, part, speed, model, speed.params)
    changes = {"rounds": ROUNDS, "max_calls": MAX_CALLS, "batch_s": BATCH_S, "slow_limit": math.inf}
    timing = assignment.spec.timing.model_copy(update=changes)
    longer = replace(assignment, spec=assignment.spec.model_copy(update={"timing": timing}))
    case = Case(name=name, tries=row.title, dtype=speed.dtype)
    return Contest(longer, problem, part, case, params, speed.model_copy(update={"bands": ()}), row)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the reference kernels against vendors' and a device copy.")
    parser.add_argument("--row", action="append", default=[], help="a part of a row's title; may be repeated")
    parser.add_argument("--again", action="store_true", help="keep the record there is, but for the rows measured now")
    parser.add_argument("--submission", default=str(ROOT / "reference"))
    parser.add_argument("--readme", action="store_true", help="write the tables into README.md and docs/KERNELS.md")
    parser.add_argument("--render", action="store_true", help="write the pages again from the record")
    parser.add_argument("--output", default=str(ROOT / "benchmarks" / "reference_record"))
    arguments = parser.parse_args()
    chosen = [row for row in ROWS if not arguments.row or any(part in row.title for part in arguments.row)]
    if not chosen:
        parser.error(f"no row is called {' or '.join(arguments.row)}")
    if arguments.readme and arguments.row and not arguments.again:
        parser.error("--readme with --row needs --again, or the table would lose the other rows")
    output = Path(arguments.output)
    if arguments.readme:
        documents([])  # or say at once that one of them has no place for a table
    if arguments.render:
        write_pages(json.loads(output.with_suffix(".json").read_text(encoding="utf-8")), output, arguments.readme)
        return
    folder = Path(arguments.submission).resolve()
    command = shlex.join(["python", "benchmarks/reference_record.py", *sys.argv[1:]])
    record: dict[str, Any] = {"environment": environment(), "rows": []}
    if arguments.again:
        record = continued(json.loads(output.with_suffix(".json").read_text(encoding="utf-8")), record)
    found = {row["title"]: row for row in record["rows"]}
    with session(folder) as (judge, pool):
        for row in chosen:
            found[row.title] = {
                "title": row.title,
                "goals": row.goals,
                "command": command,
                "version": version_of(row.title, folder),
                **measure(row, folder, judge, pool),
            }
            print("\n".join(details(found[row.title])), flush=True)
            # After each, so that what was measured is kept if a later one ends badly.
            record["rows"] = [found[one.title] for one in ROWS if one.title in found]
            output.with_suffix(".json").write_text(text_of(record, "reference_record"), encoding="utf-8")
            write_pages(record, output, readme=False)
    print("\n".join(table(record["rows"])))
    write_pages(record, output, arguments.readme)


def write_pages(record: dict[str, Any], output: Path, readme: bool) -> None:
    """NAME.md from the record, and with `readme` the tables in the documents."""
    output.with_suffix(".md").write_text(page(record), encoding="utf-8")
    for path, text in documents(record["rows"]).items() if readme else ():
        path.write_text(text, encoding="utf-8")


def documents(rows: Sequence[dict[str, Any]]) -> dict[Path, str]:
    """The text of each document with a table of these rows, README.md with three of them. Raises AssertionError."""
    few = [row for row in rows if row["title"] in README_ROWS]
    return {
        path: with_table(path.read_text(encoding="utf-8"), table(chosen))
        for path, chosen in ((README, few), (KERNELS, rows))
    }


def continued(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """An older record's rows in a new one. Raises SystemExit if it is of another machine: one table has one."""
    for key in ("gpu", "torch", "triton", "driver"):
        if kept["environment"][key] != new["environment"][key]:
            raise SystemExit(f"the record is of {key} {kept['environment'][key]}, this is {new['environment'][key]}")
    return {**new, "rows": kept["rows"]}


def measure(row: Row, folder: Path, benchmarks: Benchmarks, pool: WorkerPool) -> dict[str, Any]:
    """One benchmark run, or why there was none."""
    case = contest(row, load_course(ROOT, [row.assignment])[0])
    try:
        return repetition(benchmarks, pool, case, folder)
    except (Fault, MemoryError, torch.OutOfMemoryError) as error:
        return {"failed": str(error) or type(error).__name__}


def page(record: dict[str, Any]) -> str:
    environment = record["environment"]
    missing = [row.title for row in ROWS if row.title not in {one["title"] for one in record["rows"]}]
    head = [
        f"# The reference kernels on one {environment['gpu']}",
        "",
        f"torch {environment['torch']}, triton {environment['triton']}, driver {environment['driver']}. Made by",
        "",
        *(f"    {command}" for command in dict.fromkeys(row["command"] for row in record["rows"])),
        "",
    ]
    if missing:
        head += [f"Not measured: {'; '.join(missing)}.", ""]
    rows = [line for row in record["rows"] for line in details(row)]
    return "\n".join([*head, *table(record["rows"]), "", MATMUL, "", *rows]).rstrip() + "\n"


def version_of(title: str, folder: Path = REFERENCE) -> str:
    """Of the kernel that the row of this title measures: a sum over its source, without comments and docstrings.

    Nothing for no row of today's.
    """
    row = next((row for row in ROWS if row.title == title), None)
    return "" if row is None else _version_of_answer(row.assignment, folder)


@functools.cache
def _version_of_answer(assignment: str, folder: Path) -> str:
    path = folder / load_course(ROOT, [assignment])[0].spec.file
    text = path.read_text(encoding="utf-8")
    return hashlib.sha256((code_of(text) if path.suffix == ".py" else cpp_code_of(text)).encode()).hexdigest()[:16]


def cpp_code_of(text: str) -> str:
    """C++ source without what only people read. No string of the reference has // in it."""
    lines = (re.sub(r"//.*", "", line).rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def code_of(text: str) -> str:
    """Python's source without what only people read."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(node) is not None:
            node.body[:1] = []
    return ast.unparse(tree)


def too_short(measured: dict[str, Any]) -> bool:
    """Whether what the judge's clock counted is far above the claim, which nobody doubts here: its batches were too short for it."""
    own = next(one for one in measured["entrants"] if one["name"] == "submission")
    return own["time_s"]["median"] > FAR * measured["claimed_s"]["median"]


def by_the_workers_clock(measured: dict[str, Any]) -> dict[str, Any]:
    """The same race with the submission's times as its worker took them, as all others' are."""
    claimed = measured["claimed_s"]["median"]
    found = []
    for one in measured["entrants"]:
        name = one["name"]
        if name == "submission":
            rates = {key: one[key] * one["time_s"]["median"] / claimed for key in ("bytes_per_s", "flops_per_s")}
            found.append({**one, **rates, "time_s": measured["claimed_s"]})
        else:
            ratios = [
                one_round["times_s"][name] / one_round["times_s"]["submission"] for one_round in measured["rounds"]
            ]
            found.append({**one, "speedup": {"median": statistics.median(ratios)}})
    return {**measured, "entrants": found}


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each row: time, rate, how many times as fast as each entrant, and the goals."""
    shown = ("copy", "eager", "compile", "sdpa_flash", "sdpa_cudnn")
    lines = [
        f"| | ms | | {' | '.join(f'× {NAMES[name]}' for name in shown)} | goal |",
        f"|{'---|' * (len(shown) + 4)}",
    ]
    for row in rows:
        if "measured" not in row:
            why = row.get("failed") or row["stopped"]
            why = " ".join(why.replace("|", "/").split())
            lines.append(f"| {row['title']} | {why} |{' |' * (len(shown) + 2)}")
            continue
        short, outdated = too_short(row["measured"]), row.get("version", "") != version_of(row["title"])
        measured = by_the_workers_clock(row["measured"]) if short else row["measured"]
        found = {one["name"]: one for one in measured["entrants"]}
        own = found["submission"]
        rate = (
            f"{own['flops_per_s'] / 1e12:.0f} TFLOP/s" if "matmul" in found else f"{own['bytes_per_s'] / 1e12:.2f} TB/s"
        )
        ratios = [f"{found[name]['speedup']['median']:#.3g}" if name in found else "" for name in shown]
        goals = ", ".join(
            f"{'✓' if found[name]['speedup']['median'] >= least else '✗'} {least:g} × {NAMES[name]}"
            for name, least in row["goals"].items()
        )
        title = f"{row['title']}{' †' if short else ''}{' ‡' if outdated else ''}"
        lines.append(f"| {title} | {own['time_s']['median'] * 1e3:#.4g} | {rate} | {' | '.join(ratios)} | {goals} |")
    notes = [note for note in (TOO_SHORT, OUTDATED) if any(f" {note[0]}" in line for line in lines)]
    return lines + [line for note in notes for line in ("", note)]


def details(row: dict[str, Any]) -> list[str]:
    """Every entrant of a row."""
    if "measured" not in row:
        return [f"## {row['title']}", "", row.get("failed") or "stopped early", ""]
    lines = [f"## {row['title']}", "", *entrants_table(row["measured"]), ""]
    return [*lines, *([f"{TOO_SHORT} The table here is by the judge's.", ""] if too_short(row["measured"]) else [])]


def with_table(text: str, lines: Sequence[str]) -> str:
    """A document's text with these lines between its two marks. Raises AssertionError."""
    before, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert begin, "the document has lost its marks"
    assert end, "the document has lost its marks"
    comment = inside.partition("\n")[0]
    return "\n".join([before + begin + comment, *lines, END]) + after


if __name__ == "__main__":
    main()

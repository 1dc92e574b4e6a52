"""How long `grader check` lets a student wait on this machine: seconds to its first answer and to its last.

    python benchmarks/check_times.py [--rounds 3] [--output FILE.json]

Each row is the median over the rounds; rounds go through all rows in turn, so that a slow minute of the machine does not
fall on one of them alone. Nothing else should run meanwhile. `--output` keeps the single times too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
ANSWER = ("✓", "✗", "○", "╭")

WRONG_SOFTMAX = (ROOT / "reference/softmax.py").read_text().replace("tl.exp", "tl.exp2", 1)
WRONG_GELU = (ROOT / "reference/gelu.cu").read_text().replace("0.044715f", "0.04f")


class Check:
    """A `grader check` in progress; lines are kept with the time when they came."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "grader", "check", str(folder), "--device", "cpu", *arguments]
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, cwd=folder.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def answers(self) -> list[float]:
        """Seconds from the start to each answer, until the process ends."""
        assert self.process.stdout is not None
        times = []
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                times.append(time.perf_counter() - self.started)
        self.process.wait()
        assert times, "the check gave no answer"
        return times

    def next_answer(self, since: float) -> float:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                return time.perf_counter() - since
        raise SystemExit("the check ended without an answer")


def folder_with(parent: Path, **files: str) -> Path:
    """The starter, with some files replaced."""
    folder = parent / f"folder-{time.monotonic_ns()}"
    shutil.copytree(ROOT / "starter", folder)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def once(parent: Path, **files: str) -> tuple[float, float]:
    times = Check(folder_with(parent, **files), *arguments_for(files)).answers()
    return times[0], times[-1]


def arguments_for(files: dict[str, str]) -> list[str]:
    """Only the assignments of the files that were replaced: a stub's answer is no measure."""
    names = {
        "gelu__cu": "cuda_gelu",
        "triton_gelu__py": "triton_gelu",
        "softmax__py": "softmax",
        "flash_attention__py": "flash_attention",
    }
    return [part for file in files for part in ("-a", names[file])]


def after_a_save(parent: Path, name: str, text: str) -> tuple[float, float]:
    """With --watch: from the save to the answer."""
    folder = folder_with(parent)
    check = Check(folder, "--watch")
    try:
        for _ in range(4):
            check.next_answer(0)
        time.sleep(8)  # the next judge gets ready while a student types
        saved = time.perf_counter()
        (folder / name).write_text(text)
        waited = check.next_answer(saved)
        return waited, waited
    finally:
        check.process.terminate()
        check.process.wait()


def scenarios(parent: Path) -> dict[str, Callable[[], tuple[float, float]]]:
    def source(name: str) -> str:
        return (ROOT / "reference" / name).read_text()

    every = {
        "gelu__cu": source("gelu.cu"),
        "triton_gelu__py": source("triton_gelu.py"),
        "softmax__py": source("softmax.py"),
        "flash_attention__py": source("flash_attention.py"),
    }
    return {
        "softmax.py with a syntax error": lambda: once(parent, softmax__py="def softmax(x:\n"),
        "softmax.py wrong": lambda: once(parent, softmax__py=WRONG_SOFTMAX),
        "gelu.cu wrong": lambda: once(parent, gelu__cu=WRONG_GELU),
        "gelu.cu right: build and all cases": lambda: once(parent, gelu__cu=source("gelu.cu")),
        "all four right": lambda: once(parent, **every),
        "--watch: softmax.py saved, wrong": lambda: after_a_save(parent, "softmax.py", WRONG_SOFTMAX),
        "--watch: gelu.cu saved, wrong": lambda: after_a_save(parent, "gelu.cu", WRONG_GELU),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        todo = scenarios(Path(temporary))
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in todo}
        next(iter(todo.values()))()  # not counted: files come from the disk for the first time
        for _ in range(chosen.rounds):
            for name, run in todo.items():
                times[name].append(run())
    table = Table("check of", "first answer, s", "last answer, s", box=None)
    for name, pairs in times.items():
        first, last = (statistics.median(pair[at] for pair in pairs) for at in (0, 1))
        table.add_row(name, f"{first:.1f}", f"{last:.1f}")
    Console().print(table)
    if chosen.output:
        record = {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "times_s": times,
        }
        chosen.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""How long `grader check` and `grader run` let a student wait on this machine: seconds to the first answer and to the
last, also in units of one `import torch, triton`.

    python benchmarks/check_times.py [--rounds 3] [--beside CHECKOUT] [--device cpu] [--only WORDS] [--output FILE.json]

Each row is the median over the rounds; rounds go through all rows in turn, so that a slow minute of the machine does not
fall on one of them alone. `--beside` takes turns with another checkout, which has a .venv of its own. Nothing else should
run meanwhile. `--output` keeps the single times too.
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
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
ANSWER = ("✓", "✗", "○", "╭")

IMPORT = "python -c 'import torch, triton'"

WRONG_SOFTMAX = (ROOT / "reference/softmax.py").read_text().replace("tl.exp", "tl.exp2", 1)
WRONG_GELU = (ROOT / "reference/gelu.cu").read_text().replace("0.044715f", "0.04f")


@dataclass(frozen=True)
class House:
    """A checkout of the grader, and the device on which it grades."""

    root: Path
    device: str

    @property
    def python(self) -> str:
        return sys.executable if self.root == ROOT else str(self.root / ".venv/bin/python")

    def start(self, *words: str, cwd: Path) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(self.root)}
        return subprocess.Popen(
            [self.python, *words],
            cwd=cwd,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def takes(self, *words: str) -> tuple[float, float]:
        """Seconds until a program has ended."""
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            self.start(*words, cwd=Path(folder)).communicate()
        return (took := time.perf_counter() - started), took


class Check:
    """A `grader check` in progress; lines are kept with the time when they came."""

    def __init__(self, house: House, folder: Path, *arguments: str) -> None:
        self.started = time.perf_counter()
        command = ("-m", "grader", "check", str(folder), "--device", house.device, *arguments)
        self.process = house.start(*command, cwd=folder.parent)

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


def once(house: House, parent: Path, **files: str) -> tuple[float, float]:
    times = Check(house, folder_with(parent, **files), *arguments_for(files)).answers()
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


def after_a_save(house: House, parent: Path, name: str, text: str) -> tuple[float, float]:
    """With --watch: from the save to the answer."""
    folder = folder_with(parent)
    check = Check(house, folder, "--watch")
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


def scenarios(house: House, parent: Path) -> dict[str, Callable[[], tuple[float, float]]]:
    def source(name: str) -> str:
        return (ROOT / "reference" / name).read_text()

    every = {
        "gelu__cu": source("gelu.cu"),
        "triton_gelu__py": source("triton_gelu.py"),
        "softmax__py": source("softmax.py"),
        "flash_attention__py": source("flash_attention.py"),
    }
    run = ("-m", "grader", "run", str(ROOT / "reference"), "--device", house.device, "--output", "report")
    return {
        IMPORT: lambda: house.takes("-c", "import torch, triton"),
        "softmax.py with a syntax error": lambda: once(house, parent, softmax__py="def softmax(x:\n"),
        "softmax.py wrong": lambda: once(house, parent, softmax__py=WRONG_SOFTMAX),
        "gelu.cu wrong": lambda: once(house, parent, gelu__cu=WRONG_GELU),
        "gelu.cu right: build and all cases": lambda: once(house, parent, gelu__cu=source("gelu.cu")),
        "all four right": lambda: once(house, parent, **every),
        "run: softmax.py, no speed": lambda: house.takes(*run, "-a", "softmax", "--no-speed"),
        "run: softmax.py": lambda: house.takes(*run, "-a", "softmax"),
        "run: the reference": lambda: house.takes(*run),
        "--watch: softmax.py saved, wrong": lambda: after_a_save(house, parent, "softmax.py", WRONG_SOFTMAX),
        "--watch: gelu.cu saved, wrong": lambda: after_a_save(house, parent, "gelu.cu", WRONG_GELU),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    houses = [House(one.resolve(), chosen.device) for one in (ROOT, chosen.beside) if one is not None]
    times: dict[tuple[str, Path], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        todo = {one: scenarios(one, Path(temporary)) for one in houses}
        names = [name for name in todo[houses[0]] if name == IMPORT or chosen.only in name]
        for scenario in todo.values():  # not counted: files come from the disk for the first time
            scenario[names[-1]]()
        for _ in range(chosen.rounds):
            for name in names:
                for house in houses:
                    times.setdefault((name, house.root), []).append(todo[house][name]())
    medians = {one: [statistics.median(pair[at] for pair in pairs) for at in (0, 1)] for one, pairs in times.items()}
    table = Table("check of", "first answer, s", "last answer, s", "in imports", "in", box=None)
    for (name, root), (first, last) in medians.items():
        unit = medians[IMPORT, root][1]
        place = "" if len(houses) == 1 else "here" if root == ROOT else str(root)
        table.add_row(name, f"{first:.1f}", f"{last:.1f}", f"{first / unit:.1f}, {last / unit:.1f}", place)
    Console(width=140).print(table)
    if chosen.output:
        record = {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "times_s": [{"of": name, "in": str(root), "times": pairs} for (name, root), pairs in times.items()],
        }
        chosen.output.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

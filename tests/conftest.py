"""Fixtures for all tests: small courses, and runs of the real command line with a watch on what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from grader.report.model import CaseResult, Report

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
SHARED = Path("/dev/shm")

PROBLEM = '''
"""y = 2 x, for tests."""

import torch

from grader.problem import Call, Cost, Params


class DoubleParams(Params):
    n: int
    columns: int = 0


def make_inputs(params, dtype, generator):
    shape = (params.n, params.columns) if params.columns else (params.n,)
    return Call(args={"x": torch.randn(shape, generator=generator, device=generator.device).to(dtype)})


def outputs(call):
    return {"y": tuple(call.args["x"].shape)}


def oracle(call):
    return {"y": 2 * call.args["x"].double()}


def baseline(call):
    return {"y": 2 * call.args["x"]}


def cost(params, dtype):
    return Cost(8 * params.n, params.n)
'''


def problem_toml(file: str, cases: Sequence[str], *, limit_s: float = 5, memory_gib: float = 4, extra: str = "") -> str:
    listed = "\n".join(
        f'  {{ name = "{name}", tries = "{name}", n = {10 + index} }},' for index, name in enumerate(cases)
    )
    return textwrap.dedent(
        """
        title = "Doubling"
        file = "{file}"
        entry = "double"
        language = "triton"

        [limits]
        time_limit_s = {{ cpu = {limit_s}, cuda = {limit_s} }}
        memory_gib = {memory_gib}
        import_limit_s = 4

        [tolerance]
        k = 6
        scale = {{ y = "element" }}
        floor = {{ float32 = 1e-6, float16 = 1e-3 }}
        floor_rms = {{ float32 = 1e-6, float16 = 1e-3 }}

        [[part]]
        name = "double"
        title = "y = 2 x"

        [[part.group]]
        name = "all"
        title = "All"
        points = 4
        cases = [
        {listed}
        ]
        {extra}
        """
    ).format(file=file, limit_s=limit_s, memory_gib=memory_gib, listed=listed, extra=textwrap.dedent(extra))


@dataclass
class Course:
    """A course folder of doubling assignments, one for each file name."""

    folder: Path

    def add(
        self, name: str, cases: Sequence[str] = ("plain",), *, toml: str = "", problem: str = PROBLEM, **options: object
    ) -> None:
        folder = self.folder / "assignments" / name
        folder.mkdir(parents=True)
        (folder / "problem.toml").write_text(toml or problem_toml(f"{name}.py", cases, **options))  # type: ignore[arg-type]
        (folder / "problem.py").write_text(problem)
        for room in ("reference", "starter"):
            (self.folder / room).mkdir(exist_ok=True)
        (self.folder / "reference" / f"{name}.py").write_text("def double(x):\n    return x * 2\n")
        (self.folder / "starter" / f"{name}.py").write_text(
            "def double(x):\n    raise NotImplementedError('double: to do')\n"
        )


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return Course(tmp_path / "course")


@dataclass
class Ran:
    """A finished `grader run`: exit code, what it printed, its report, and what it left behind."""

    code: int
    output: str
    errors: str
    report: Report | None
    left: list[str]

    def case(self, assignment: str, name: str) -> CaseResult:
        assert self.report is not None, self.errors
        found = [
            case
            for one in self.report.assignments
            if one.name == assignment
            for part in one.parts
            for case in part.cases
            if case.name == name
        ]
        assert len(found) == 1, f"{assignment} has no single case {name}"
        return found[0]


def broken_jails(folder: Path) -> Path:
    """A folder with a bwrap and a setpriv that do not work."""
    folder.mkdir()
    for name in ("bwrap", "setpriv"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


class Running:
    """A `grader run` in progress, in temporary folders of its own.

    Args:
        folder: for those folders.
        arguments: of `grader run`.
        jailed: False hides from the run what it could confine its workers with.
    """

    def __init__(self, folder: Path, arguments: Sequence[str], *, jailed: bool = True) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.output = folder / "out"
        command = [sys.executable, "-m", "grader", "run", *arguments, "--output", str(self.output)]
        environment = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": IMPORTS, "COLUMNS": "200"}
        if not jailed:
            environment["PATH"] = os.pathsep.join([str(broken_jails(folder / "broken")), environment["PATH"]])
        self.shared_before = {path.name for path in SHARED.iterdir()}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self) -> list[psutil.Process]:
        """Every process of this run: they all have its temporary folder in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid != self.process.pid and str(self.temporary) in " ".join(process.environ().values()):
                    found.append(process)
            except psutil.Error:
                continue
        return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def wait_for(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "the run did not come so far"
            assert self.process.poll() is None, f"the run ended early: {self.process.communicate()}"
            time.sleep(0.05)

    def worker_runs(self, marker: str) -> bool:
        """Whether the student's code has made the file `marker` in its scratch folder."""
        return any(self.temporary.rglob(marker))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, limit_s: float = 240) -> Ran:
        output, errors = self.process.communicate(timeout=limit_s)
        path = self.output / "report.json"
        report = Report.model_validate_json(path.read_bytes()) if path.exists() else None
        return Ran(self.process.returncode, output, errors, report, self._left())

    def _left(self, patience_s: float = 5.0) -> list[str]:
        """Processes, files and shared memory that outlive the run."""
        deadline = time.monotonic() + patience_s
        while (left := [f"process {process.pid} {' '.join(process.cmdline())}" for process in self.processes()]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        left += [f"file {path}" for path in self.temporary.iterdir()]
        return left + [
            f"shared memory {name}" for name in {path.name for path in SHARED.iterdir()} - self.shared_before
        ]


StartRun = Callable[..., Running]


@pytest.fixture
def start_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRun]:
    """Starts `grader run` with the given arguments, in folders of its own."""
    started: list[Running] = []

    def start(*arguments: object, jailed: bool = True) -> Running:
        running = Running(tmp_path_factory.mktemp("run"), [str(argument) for argument in arguments], jailed=jailed)
        started.append(running)
        return running

    yield start
    for running in started:
        for process in running.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        running.process.kill()
        running.process.communicate()

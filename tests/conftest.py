"""Fixtures for all tests: small courses, and runs of the real command line with a watch on what they leave behind."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest
from hypothesis import settings

from grader.report.model import CaseResult, Report
from tests.support import containers

# One folder for the temporary files of each pytest: it closes the one that all share to other users whenever one starts, and the uid
# jail's worker of a test that runs beside it could not import the grader's copy in there.
if "PYTEST_XDIST_WORKER" not in os.environ:  # whose processes use the folder of the pytest that started them
    os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp(prefix="pytest-grader-")
    atexit.register(shutil.rmtree, os.environ["PYTEST_DEBUG_TEMPROOT"], ignore_errors=True)
# Whatever the environment says: without bytecode each process of pytest, each judge and each worker compiles all modules anew, which
# is a fifth of the quick suite.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
TEMPORARY = Path(os.environ["PYTEST_DEBUG_TEMPROOT"])
TEMPORARY.chmod(0o711)
os.environ["XDG_STATE_HOME"] = str(TEMPORARY / "state")  # not this user's: what an image was once is remembered there
os.environ["GRADER_SANDBOX"] = "host"  # whatever this machine's daemon has to offer: tests of Docker ask for it
ROOT = Path(__file__).resolve().parent.parent
IMPORTS = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
SHARED = Path("/dev/shm")
# On this host with each jail, `host` being the strongest; in a container.
PlaceName = Literal["host", "bubblewrap", "uid", "none", "docker"]
QUICK = "not grading and not docker and not gpu and not alone"
MARKS = ("grading", "docker", "gpu", "alone", "everything")
OF_THE_WHOLE_FILE = re.compile(rf"^pytestmark = \[?\s*pytest\.mark\.({'|'.join(MARKS)})\b", re.MULTILINE)
IN_DOCKER = pytest.param("docker", marks=pytest.mark.docker)
IN_DOCKER_TOO = pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.everything])


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would the graders that tests interrupt. A program takes over that a
    # signal is ignored, and not that it is handled.
    signal.signal(signal.SIGINT, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    """A bare `pytest` is the quick suite; a folder, a file or `-m` on the command line says what else to run."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.markexpr:
        config.option.markexpr = QUICK
    # Without a clock or a memory of earlier runs. Here, because the process that judges are forked from imports this file too.
    settings.register_profile("tests", deadline=None, derandomize=True, database=None, max_examples=60)
    settings.load_profile("tests")
    gc.disable()  # modules and the list of tests are no garbage, and looking for some takes a third of the collection


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """No file is imported of which `-m` would leave out every test, for importing takes most of the collection.

    A test has the marks of its file, and may have those that the file names; two come with what a file imports, as
    `corpus.DEVICES` and `jails.ONE_OF_JAILS`.
    """
    wanted = config.option.markexpr
    if collection_path.suffix != ".py" or not {"and", "or", "not", *MARKS} >= {*re.findall(r"\w+", wanted)} > set():
        return None
    text = collection_path.read_text(encoding="utf-8")
    always = OF_THE_WHOLE_FILE.findall(text)
    others = {"gpu", "everything", *(mark for mark in MARKS if f"mark.{mark}" in text or f"IN_{mark.upper()}" in text)}
    possible = ([*always, *some] for count in range(len(others) + 1) for some in itertools.combinations(others, count))
    return not any(eval(wanted, {mark: mark in marks for mark in MARKS}) for marks in possible) or None


def pytest_collection_finish() -> None:
    gc.freeze()  # so that no test looks through them, nor pytest at its end
    gc.enable()
    if torch := sys.modules.get("torch"):  # of the tests that were found
        torch.set_num_threads(1)  # tensors here are small: more threads only wait for each other


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: two more than there are processors, for many tests wait.

    Files that are named run in this process, where a debugger and `-s` work.
    """
    return 0 if all(".py" in one for one in config.args) else min((os.cpu_count() or 1) + 2, 9)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file that makes something once for all of them run in one process, or each process would grade, or build, what
    all of them look at. Every other test goes to the process that is free.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if makes_something_once(ROOT / file) else nodeid

    return Scheduling(config, log)


@functools.cache
def makes_something_once(file: Path) -> bool:
    """By a fixture for the whole module, or by a function that remembers what it has returned."""
    return (
        re.search(r'scope="module"|^@(functools\.)?cache$', file.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the minutes go: each file's tests together."""
    seconds: Counter[str] = Counter()
    for one in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(one, pytest.TestReport):
            seconds[one.nodeid.partition("::")[0]] += one.duration
    if seconds.total() > 60:
        terminalreporter.section("minutes of each file's tests")
        for file, taken in [*seconds.most_common(), ("in all", seconds.total())]:
            if taken >= 6:
                terminalreporter.line(f"{taken / 60:6.1f}  {file}")


def open_to_workers(folder: Path) -> None:
    """Let a worker with another user reach this folder, which pytest makes for its own user alone."""
    for path in (folder, *folder.parents):
        if TEMPORARY in path.parents:
            path.chmod(path.stat().st_mode | 0o111)


# The beginning of a submission: `twice` is a kernel of its own, of one program.
TWICE = """
import torch
import triton
import triton.language as tl

@triton.jit
def twice(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)
"""
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


def in_cuda(toml: str) -> str:
    """The same assignment in CUDA C++, for `extern "C" void double_it`."""
    own = """language = "cuda"\nsignature = ["const float* x", "float* y", "int64_t n = x.numel()", "cudaStream_t stream"]"""
    return toml.replace('language = "triton"', own).replace('entry = "double"', 'entry = "double_it"')


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


def broken_jails(folder: Path, names: Sequence[str] = ("bwrap", "setpriv")) -> Path:
    """A folder with a bwrap and a setpriv that do not work."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class Running:
    """A `grader run` in progress, in temporary folders of its own.

    Args:
        folder: for those folders.
        arguments: of `grader run`.
        jailed: False hides from the run what it could confine its workers with.
        place: where it runs (see `PLACES`); in a container the course must be an argument, and is put into an image.
    """

    def __init__(
        self, folder: Path, arguments: Sequence[str], *, jailed: bool = True, place: PlaceName = "host"
    ) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        open_to_workers(folder)
        self.output = folder / "out"
        command = [sys.executable, "-m", "grader", "run", *arguments, "--output", str(self.output)]
        environment = os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": IMPORTS, "COLUMNS": "200"}
        hidden = ("bwrap", "setpriv") if not jailed or place == "none" else ("bwrap",) if place == "uid" else ()
        if hidden:
            environment["PATH"] = os.pathsep.join([str(broken_jails(folder / "broken", hidden)), environment["PATH"]])
        self.in_container = place == "docker"
        if self.in_container:
            course = Path(arguments[arguments.index("--course") + 1])
            environment |= {"GRADER_SANDBOX": "docker", "GRADER_IMAGE": containers.image_with(course)}
        self.shared_before = {path.name for path in SHARED.iterdir()}
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
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
        return [process for process in found if _lives(process)]

    def wait_for(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "the run did not come so far"
            assert self.process.poll() is None, f"the run ended early: {self.process.communicate()}"
            time.sleep(0.05)

    def worker_runs(self, marker: str) -> bool:
        """Whether the student's code has made the file `marker` in its scratch folder."""
        if self.in_container:
            return any(containers.has_file(one, marker) for one in self.containers())
        # Not with rglob: folders come and go meanwhile, and only walk() takes that as it is.
        return any(marker in folders or marker in files for _, folders, files in os.walk(self.temporary))

    def containers(self) -> list[str]:
        """The names of the containers of this run."""
        return containers.of(self.process.pid) if self.in_container else []

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def finish(self, limit_s: float | None = None) -> Ran:
        """Waits for its end, by default as long as pytest lets the test; a run that takes longer is killed."""
        try:
            output, errors = self.process.communicate(timeout=limit_s)
        except BaseException:
            self.kill()
            raise
        path = self.output / "report.json"
        report = Report.model_validate_json(path.read_bytes()) if path.exists() else None
        return Ran(self.process.returncode, output, errors, report, self.left())

    def kill(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.kill()
        self.process.communicate()

    def left(self, patience_s: float = 5.0) -> list[str]:
        """Processes, files and shared memory that outlive the run."""
        deadline = time.monotonic() + patience_s
        while (left := [f"process {process.pid} {' '.join(process.cmdline())}" for process in self.processes()]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        left += [f"file {path}" for path in self.temporary.iterdir()]
        left += [f"container {name}" for name in self.containers()]
        return left + [
            f"shared memory {name}" for name in {path.name for path in SHARED.iterdir()} - self.shared_before
        ]


StartRun = Callable[..., Running]


@pytest.fixture
def start_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRun]:
    """Starts `grader run` with the given arguments, in folders of its own."""
    started: list[Running] = []

    def start(*arguments: object, jailed: bool = True, place: PlaceName = "host") -> Running:
        folder = tmp_path_factory.mktemp("run")
        running = Running(folder, [str(argument) for argument in arguments], jailed=jailed, place=place)
        started.append(running)
        return running

    yield start
    for running in started:
        running.kill()

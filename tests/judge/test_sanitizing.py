"""A worker that a tool runs and watches: it answers as ever, each tensor lies by itself, and the tool's words are read at the end."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader import protocol
from grader.judge import sanitizing
from grader.judge.cases import ReportPlace
from grader.judge.evidence import Evidence
from grader.judge.files import Files, Hangs
from grader.pool import tools
from grader.pool import worker as worker_module
from grader.pool.arena import Arena
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool
from grader.pool.watch import CallLimits
from grader.pool.worker import TOOL_LOG, Worker
from grader.problem import Call
from grader.protocol import Reply, Returned
from grader.worker.memory import mapped, tensor_at
from tests.verdict.test_sanitizer import NEW, UNWRITTEN

pytestmark = pytest.mark.grading

LIMITS = CallLimits(time_s=60, memory_gib=4)
# What is expected of compute-sanitizer: it starts the program as its child, with all that is open, and writes when that has ended.
TOOL = f"""\
#!{sys.executable}
import subprocess, sys
options, at = {{}}, 1
while sys.argv[at].startswith("--"):
    options[sys.argv[at]] = sys.argv[at + 1]
    at += 2
subprocess.run(sys.argv[at:], close_fds=False)
open(options["--log-file"], "w").write(WORDS)
"""
STUDENT = """
import os
import torch

def double(x):
    assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    assert x.untyped_storage().nbytes() == ((x.shape[0] - 1) * x.stride(0) + (x.shape[1] - 1) * x.stride(1) + 1) * 4
    return x * 2
"""


def fake(folder: Path, words: str = NEW, start: str = TOOL) -> Path:
    path = folder / "compute-sanitizer"
    path.write_text(start.replace("WORDS", repr(words)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / "double.py").write_text(STUDENT)
    pool = WorkerPool("cpu", tmp_path / "run")
    yield pool
    pool.close()


def started(pool: WorkerPool, tool: Path, submission: Path) -> Worker:
    worker = pool.start(tool=[str(tool), "--log-file", TOOL_LOG])
    worker.load(submission / "double.py", "double", None, LIMITS)
    return worker


def test_a_watched_worker_answers_and_its_tool_has_the_last_word(pool: WorkerPool, tmp_path: Path) -> None:
    worker = started(pool, fake(tmp_path), tmp_path / "submission")
    wide = torch.arange(40.0).view(4, 10)
    views = [wide[:, ::2], wide.t()[1:7], wide[1:3]]
    for view in views:
        with Arena({"x": view}, {"y": tuple(view.shape)}, torch.float32, torch.device("cpu")) as arena:
            worker.do(arena.request([(["x"], None)], (), 60.0, apart=True), LIMITS, arena.files)
            assert torch.equal(arena.output("y"), view * 2)
    worker.kill()
    assert worker.tool_log == NEW
    assert not worker.lives()


@pytest.mark.parametrize(
    "ending",
    ["os._exit(3)", "os.kill(os.getpid(), 11)", "raise SystemExit", "run.context_is_lost = lambda: True; 1 / 0"],
)
def test_the_tool_is_heard_where_its_worker_has_ended_badly(pool: WorkerPool, tmp_path: Path, ending: str) -> None:
    """As after an access out of bounds: the context is lost, and so is the worker, but not what the tool has seen."""
    (tmp_path / "submission" / "double.py").write_text(
        f"import os\nfrom grader.worker import run\ndef double(x): {ending}\n"
    )
    worker = started(pool, fake(tmp_path), tmp_path / "submission")
    with (
        Arena({"x": torch.ones(3)}, {"y": (3,)}, torch.float32, torch.device("cpu")) as arena,
        pytest.raises(Fault),
    ):
        worker.do(arena.request([(["x"], None)], (), 60.0, apart=True), LIMITS, arena.files)
    worker.kill()
    assert worker.tool_log == NEW


def test_a_worker_that_does_not_end_is_ended(pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "TOOL_LIMIT_S", 1.0)
    (tmp_path / "submission" / "double.py").write_text(
        STUDENT + "import threading, time\nthreading._register_atexit = None\nos._exit = lambda _: time.sleep(60)\n"
    )
    worker = started(pool, fake(tmp_path), tmp_path / "submission")
    worker.kill()
    assert worker.tool_log == ""
    assert not worker.lives()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large"])
def test_a_log_that_is_something_else_is_not_followed(pool: WorkerPool, tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("secret")
    make = {
        "link": f"os.symlink({str(tmp_path / 'secret')!r}, path)",
        "pipe": "os.mkfifo(path)",
        "folder": "os.mkdir(path)",
        "large": "open(path, 'w').write('x' * 50_000_000)",
    }[kind]
    tool = TOOL.replace(
        'open(options["--log-file"], "w").write(WORDS)', f"import os\npath = options['--log-file']\n{make}"
    )
    worker = started(pool, fake(tmp_path, start=tool), tmp_path / "submission")
    worker.kill()
    text = worker.tool_log
    assert set(text) == ({"x"} if kind == "large" else set())
    assert len(text) <= 1 << 20


# The judge's part
# ----------------------------------------------------------------------------------------------------------------------


class StubWorker:
    """Answers, or not, and leaves a log."""

    def __init__(self, log: str, fault: Fault | None, answer: torch.Tensor | None) -> None:
        self.tool_log, self.fault, self.answer = log, fault, answer
        self.killed = False
        self.log = SimpleNamespace(mark=lambda _name: None)

    def __enter__(self) -> StubWorker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.killed

    def do(self, request: protocol.MakeCalls, _limits: CallLimits, files: tuple[int, ...]) -> Reply:
        assert request.apart
        if self.fault is not None:
            raise self.fault
        if self.answer is None:
            return Reply(returned=(Returned("other", "NoneType"),))
        with mapped(request.arena, [*files], "cpu") as memory:
            tensor_at(memory, request.calls[0].outputs[0]).copy_(self.answer)
        return Reply(returned=(Returned("written"),))

    def kill(self) -> None:
        self.killed = True


def place(name: str = "memcheck") -> ReportPlace:
    assignment: Any = SimpleNamespace(name="gelu", spec=SimpleNamespace(parts=[None]))
    part: Any = SimpleNamespace(name="part")
    return ReportPlace(assignment, part, name)


CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"


def run(
    monkeypatch: pytest.MonkeyPatch,
    log: str,
    fault: Fault | None = None,
    language: str = "cuda",
    answer: torch.Tensor | None = torch.ones(3),  # noqa: B008
    load_fault: Fault | None = None,
    of_file: Fault | None = None,
    given_up: bool = False,
) -> list[dict[str, torch.Tensor]]:
    """The answers that were compared."""
    monkeypatch.setattr(sanitizing, "find_sanitizer", lambda: "/bin/compute-sanitizer")
    worker = StubWorker(log, fault, answer)
    compared: list[dict[str, torch.Tensor]] = []

    def watched_worker(_assignment: Any, command: list[str]) -> StubWorker:
        assert command[command.index("/bin/compute-sanitizer") + 1 :][:2] == ["--tool", "memcheck"]
        if fault is not None and fault.of_start:
            raise fault
        return worker

    def load(*_: Any) -> None:
        if load_fault is not None:
            raise load_fault

    monkeypatch.setattr(sanitizing, "load_file", load)
    monkeypatch.setattr(sanitizing, "check_operators", lambda *_: None)
    file = "gelu.cu" if language == "cuda" else "softmax.py"
    call = Call(args={"x": torch.zeros(3)}, options={})
    hangs = Hangs()
    for name in ("one", "two") if given_up else ():
        hangs.note(place(name), Fault("timed_out", "no answer within 20 s: stopped"))
    case: Any = SimpleNamespace(
        place=place(),
        case=SimpleNamespace(tool="memcheck"),
        inputs=lambda *_: call,
        problem=SimpleNamespace(outputs=lambda _: {"y": (3,)}),
        dtype=torch.float32,
        assignment=SimpleNamespace(name="gelu", spec=SimpleNamespace(file=file, language=language)),
    )
    copied = SimpleNamespace(info=SimpleNamespace(files=(file, "helpers/tiles.py")), folder=Path("/s"))
    run: Any = SimpleNamespace(device=torch.device("cpu"), seed=1, request=SimpleNamespace(copied=copied))
    files: Any = SimpleNamespace(fault_of_file=lambda _assignment, _fault: of_file, hangs=hangs)
    workers: Any = SimpleNamespace(watched=watched_worker)
    comparison: Any = SimpleNamespace(compare=lambda _case, _call, got, _evidence: compared.append(got))
    sanitizing.run_watched(run, files, workers, comparison, case, Evidence())
    assert worker.killed
    return compared


SHARED = NEW.replace("__global__", "__shared__")


@pytest.mark.parametrize(
    ("log", "language"),
    [(CLEAN, "cuda"), (SHARED.replace("gelu.cu", "softmax.py"), "triton")],
    ids=["nothing is found", "operands of tensor cores in Triton"],
)
def test_a_right_answer_without_a_finding_is_passed(monkeypatch: pytest.MonkeyPatch, log: str, language: str) -> None:
    (compared,) = run(monkeypatch, log, language=language)
    assert torch.equal(compared["y"], torch.ones(3))


CRASH = Fault("crashed", "an illegal memory access")
REFUSED = Fault("build_failed", "gelu.cu(9): error")
NO_VERDICT = "compute-sanitizer gave no verdict here: "
PLACE = "memcheck: gelu.cu:12, in gelu_kernel: a write of 4 bytes beyond every tensor"
# By what it shows: the tool's log, what else happens, and the outcome and beginning of what is said.
ENDS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "doing nothing is no way to pass": (CLEAN, {"answer": None}, "failed", "returned None"),
    "an empty log is no verdict": ("", {}, "skipped", f"{NO_VERDICT}it wrote no summary"),
    "a log without its end is none": ("========= COMPUTE-SANITIZER\n", {}, "skipped", f"{NO_VERDICT}it wrote no"),
    "an import may take longer there": (CLEAN, {"load_fault": Fault("timed_out", "20 s")}, "skipped", NO_VERDICT),
    "a file that does not build": (CLEAN, {"load_fault": REFUSED, "of_file": REFUSED}, "build_failed", "gelu.cu(9)"),
    "a call fails, not the file": (CLEAN, {"fault": CRASH, "of_file": REFUSED}, "skipped", NO_VERDICT),
    "a finding": (NEW, {}, "failed", PLACE),
    "a finding explains a crash": (NEW, {"fault": CRASH}, "failed", PLACE),
    "shared memory of CUDA C++": (SHARED, {}, "failed", "memcheck: "),
    "the tool is too slow": ("", {"fault": Fault("timed_out", "no answer within 150 s")}, "skipped", NO_VERDICT),
    "the tool does not start": ("", {"fault": Fault.no_worker("not supported")}, "skipped", f"{NO_VERDICT}not supp"),
    "the part was given up": ("", {"given_up": True}, "timed_out", "not run: one and two of this part"),
    "and something was found": (NEW, {"given_up": True}, "failed", PLACE),
}


@pytest.mark.parametrize("what", ENDS)
def test_how_a_case_under_a_tool_ends(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    log, how, outcome, begins = ENDS[what]
    with pytest.raises(Fault) as ended:
        run(monkeypatch, log, **how)
    assert ended.value.outcome == outcome
    assert ended.value.message.startswith(begins)


def test_further_findings_are_told_and_many_are_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    many = "".join(NEW.replace("gelu.cu:12", f"gelu.cu:{line}") for line in range(10, 30))
    for log, number, last in ((UNWRITTEN, 1, ""), (many, 6, "... and in 14 more places")):
        with pytest.raises(Fault) as failed:
            run(monkeypatch, log)
        assert len(failed.value.details) == number
        assert failed.value.details[-1].endswith(last)


@pytest.mark.parametrize(
    ("loadable", "unloadable", "outcome", "expected"),
    [
        (False, None, "build_failed", "now"),
        (False, None, "timed_out", None),  # everything takes longer there
        (False, "before", "timed_out", "before"),
        (False, "before", "build_failed", "before"),
        (True, None, "failed", None),
    ],
)
def test_whose_fault_it_is_that_a_file_is_not_loaded_under_a_tool(
    loadable: bool, unloadable: str | None, outcome: Any, expected: str | None
) -> None:
    nobody: Any = None
    limits = SimpleNamespace(total_limit_s=60.0)
    assignment: Any = SimpleNamespace(name="gelu", spec=SimpleNamespace(limits=limits))
    files = Files(nobody)
    if unloadable is not None:
        files.note_unloadable(assignment, Fault("failed", unloadable))
    if loadable:
        files.note_loaded(assignment)
    told = files.fault_of_file(assignment, Fault(outcome, "now"))
    assert (told.message if told is not None else None) == expected


def test_the_command_ends_with_whoever_started_it() -> None:
    words = tools.sanitizer("/opt/compute-sanitizer", "racecheck")
    at = words.index("/opt/compute-sanitizer")
    assert words[at + 1 : at + 3] == ["--tool", "racecheck"]
    assert words[:at] in ([], [os.fspath(words[0]), "--pdeathsig", "KILL"])
    assert len(words[at + 1 :]) % 2 == 0

"""What a worker says of itself decides which words a student reads, never whether a case counts."""

from __future__ import annotations

import difflib
import errno
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn, get_args

import pytest
import torch

from grader import protocol
from grader.assignment import Device
from grader.pool import last_words, processes, usage
from grader.pool import worker as worker_module
from grader.pool.arena import Arena
from grader.pool.fault import Fault
from grader.pool.jail import NO_JAIL
from grader.pool.log import LOG_HEAD_BYTES, LOG_TAIL_BYTES, Log
from grader.pool.pool import WorkerPool, stage_runtime
from grader.pool.replies import build_fault, decode
from grader.pool.watch import Allowance, CallLimits, Watch
from grader.pool.worker import Worker
from grader.protocol import ProtocolError, Reply, Time
from grader.report.model import UNDECIDED
from grader.worker.errors import LoadError, describe
from tests.conftest import ROOT
from tests.support.open_files import open_files

LIMITS = CallLimits(time_s=1, memory_gib=1)
LONGER = CallLimits(time_s=60, memory_gib=8)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    """One for CUDA C++ on the CPU, which is there at once."""
    with Worker("cuda_cpu", stage_runtime(tmp_path / "runtime"), tmp_path / "scratch") as worker:
        yield worker


def hearing(worker: Worker, monkeypatch: pytest.MonkeyPatch, frame: dict[str, Any], device: Device = "cuda") -> Worker:
    """The worker, answering everything with the same frame."""
    reply = read(frame)
    monkeypatch.setattr(worker, "ask", lambda *_, **__: reply)
    worker.device = device
    return worker


def read(frame: dict[str, Any]) -> Reply:
    """What the judge makes of a worker's frame. Raises ProtocolError."""
    return decode(json.dumps(frame).encode())


def error_frame(**error: str) -> dict[str, Any]:
    return {"error": {"type": "", "message": "", "traceback": ""} | error}


KINDS: tuple[str, ...] = get_args(protocol.ErrorKind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_gave_no_answer_is_lost_whatever_the_worker_calls_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What is skipped or a fault of the grader is never counted as lost: only the judge may say that of a case."""
    worker = hearing(worker, monkeypatch, error_frame(kind=kind))
    with (
        Arena({"x": torch.zeros(1)}, {"y": (1,)}, torch.float32, torch.device("cpu")) as arena,
        pytest.raises(Fault) as fault,
    ):
        worker.do(arena.request([(["x"], None)], (), LIMITS.time_s), LIMITS, arena.files)
    assert fault.value.outcome not in UNDECIDED | {"passed"}


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_cpu_a_worker_may_say_that_a_gpu_is_needed_and_nothing_else_leaves_points_open(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It earns nothing by that: the judge leaves all points of the part open then, of cases that passed too."""
    with pytest.raises(Fault) as fault:
        hearing(worker, monkeypatch, error_frame(kind=kind), "cpu").load(Path("/s/x.py"), "f", None, LIMITS)
    assert (fault.value.outcome == "skipped") == (kind == "unsupported")
    assert fault.value.outcome not in {"infra_error", "passed"}


@pytest.mark.parametrize("kind", ["skipped", "infra_error", "passed", "no_compiler"])
def test_an_error_that_names_an_outcome_itself_is_no_reply(kind: str) -> None:
    """`raise grader.worker.load.LoadError("skipped", "")` is two lines in a student's function."""
    with pytest.raises(ProtocolError):
        raised(LoadError(kind, "please"))  # type: ignore[arg-type]


NVCC = """\
gelu.cu(12): warning #177-D: variable "i" was declared but never referenced

gelu.cu(20): error: identifier "tanhff" is undefined
      return tanhff(x);
             ^

gelu.cu(31): error: expected a ";"

2 errors detected in the compilation of "gelu.cu".
"""
AFTER = NVCC[NVCC.index("      return") :].strip("\n")
BY_TORCH = """\
Error building extension 'submission_gelu': [1/3] /usr/local/cuda/bin/nvcc -I/opt/torch/include -c gelu.cu -o gelu.o
FAILED: [code=2] gelu.o
/usr/local/cuda/bin/nvcc -I/opt/torch/include -c gelu.cu -o gelu.o
gelu.cu(12): error: namespace "torch" has no member "Tensor"
"""
NO_TENSOR = 'gelu.cu(12): error: namespace "torch" has no member "Tensor"'
(ERROR_LINE,) = [line for line in (ROOT / "starter/gelu.cu").read_text().splitlines() if line.startswith("#error")]
NOT_BUILT = "gelu.cu still has the starter's #error line: nothing was built"


@pytest.mark.parametrize(
    ("output", "message", "told"),
    [
        (NVCC, 'gelu.cu(20): error: identifier "tanhff" is undefined', AFTER),
        ("gelu.cu(6): error: one\n\ngelu.cu(7): error: two\n\n", "gelu.cu(6): error: one", "gelu.cu(7): error: two"),
        (BY_TORCH, NO_TENSOR, ""),  # whose own words come before the compiler's
        ("", "the build failed", ""),
        ("cc1plus was killed\nno more memory", "the build failed", "cc1plus was killed\nno more memory"),
        (f"gelu.cu:24:2: error: {ERROR_LINE}\n   24 | {ERROR_LINE}\n", NOT_BUILT, ""),
        (f"/tmp/scratch/gelu.cu:24:2: error: {ERROR_LINE}\n", NOT_BUILT, ""),
        (f"gelu.cu(24): error: {ERROR_LINE}\n", NOT_BUILT, ""),
    ],
    ids=lambda value: value[:30],
)
def test_a_build_that_failed_is_told_by_its_first_error(output: str, message: str, told: str) -> None:
    fault = build_fault(output)
    assert fault.outcome == ("not_implemented" if message == NOT_BUILT else "build_failed")
    assert (fault.message, fault.traceback) == (message, told)


def raised(error: BaseException) -> Reply:
    """The reply that a worker makes of a student's exception, as the judge reads it."""
    return decode(protocol.encode(Reply(error=describe(error)))[4:])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotImplementedError("to do"), "not_implemented"),
        (MemoryError(), "out_of_memory"),
        (torch.cuda.OutOfMemoryError("16 GiB"), "out_of_memory"),
        (SystemExit(3), "crashed"),
        (KeyboardInterrupt(), "crashed"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "crashed"),
        (RuntimeError("shape mismatch"), "failed"),
        (AssertionError(), "failed"),
        (type("LoadError", (Exception,), {"kind": "passed"})("x"), "failed"),
        (OSError(os.fsdecode(b"no such file: caf\xe9")), "failed"),
        (type("E" * 300, (Exception,), {})("é" * 10**6), "failed"),
    ],
)
def test_an_exception_has_the_kind_it_deserves(error: BaseException, kind: str) -> None:
    reply = raised(error)
    assert reply.error is not None
    assert reply.error.kind == kind


@pytest.fixture
def dripping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something arrives at every look, and never a whole frame."""
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: 0.01 * next(clock))
    monkeypatch.setattr(worker_module.select, "select", lambda readers, *_: (readers, [], []))
    monkeypatch.setattr(protocol.Reader, "next", lambda _: None)
    monkeypatch.setattr(protocol.Reader, "read_some", lambda _: True)


@pytest.mark.usefixtures("dripping")
def test_a_worker_that_keeps_sending_is_watched_all_the_same(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[CallLimits] = []
    monkeypatch.setattr(Watch, "look_if_due", lambda _watch, limits, _left_s: watched.append(limits))
    limits = CallLimits(time_s=10, memory_gib=1)
    with pytest.raises(Fault, match="no answer within 10 s"):
        worker.reply(limits, is_timed=False)
    assert watched[10:]
    assert set(watched) == {limits}


@pytest.mark.usefixtures("dripping")
def test_a_worker_that_cannot_be_looked_at_is_stopped_and_told_why(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would go on, and use what it likes."""

    def tree(*_: object) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(processes, "tree", tree)
    with pytest.raises(Fault, match=r"could not be told \(Too many open files\): stopped"):
        worker.reply(CallLimits(time_s=10, memory_gib=1), is_timed=False)
    assert not worker.alive


@pytest.mark.parametrize(
    ("nap_s", "time_s", "words"),
    [(0.01, 1, "no answer within 1 s: stopped"), (0, 600, "what they hold cannot be told in time: stopped")],
    ids=["waiting", "computing"],
)
def test_a_look_that_does_not_end_keeps_no_deadline_waiting(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, nap_s: float, time_s: float, words: str
) -> None:
    def without_end(look: usage.Look, _limit: int) -> NoReturn:
        while True:
            look.go_on()
            time.sleep(nap_s)

    worker.ready()
    monkeypatch.setattr(usage.Look, "hold_more_than", without_end)
    with pytest.raises(Fault, match=words):
        worker.reply(CallLimits(time_s=time_s, memory_gib=1), is_timed=False)


# What a worker prints ---------------------------------------------------------------------------------------------------


def logged(*pieces: bytes) -> Log:
    return marked([("", piece) for piece in pieces])


def marked(texts: Sequence[tuple[str, str | bytes]]) -> Log:
    """A log of these texts, each under a mark."""
    read_end, write_end = os.pipe()
    log = Log(read_end)
    for name, text in texts:
        log.mark(name)
        data = text if isinstance(text, bytes) else text.encode()
        for start in range(0, len(data), 60_000):
            os.write(write_end, data[start : start + 60_000])
    os.close(write_end)
    return log


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((b"hello ", b"world\n", "é".encode()), "hello world\né"),
        ((b"\xff\x00a\xc3",), "\N{REPLACEMENT CHARACTER}a\N{REPLACEMENT CHARACTER}"),
        ((b"x" * LOG_HEAD_BYTES, b"y" * LOG_TAIL_BYTES), "x" * LOG_HEAD_BYTES + "y" * LOG_TAIL_BYTES),
    ],
    ids=["short", "no text", "just what is kept"],
)
def test_a_log_is_kept_whole(pieces: tuple[bytes, ...], text: str) -> None:
    log = logged(*pieces)
    assert log.text() == text
    assert log.total_bytes == sum(map(len, pieces))


def test_a_long_log_keeps_its_beginning_and_its_end() -> None:
    data = b"".join(b"%09d\n" % number for number in range(20_000))
    log = logged(data[:60_000], data[60_000:61_000], data[61_000:])
    assert log.total_bytes == len(data)
    left_out = len(data) - LOG_HEAD_BYTES - LOG_TAIL_BYTES
    middle = f"\n... {left_out} bytes left out ...\n".encode()
    assert log.text().encode() == data[:LOG_HEAD_BYTES] + middle + data[-LOG_TAIL_BYTES:]


def test_a_log_is_told_by_the_marks_in_it() -> None:
    """Also what is still in the pipe when a mark is set belongs before it."""
    log = marked([("", "import\n"), ("one", "1\n" * 40_000), ("two", "2\n"), ("none", ""), ("two", "2\n")])
    (_, first), (_, one), *rest = log.sections()
    assert first == "import\n"
    assert set(one.splitlines()) - {""} == {
        "1",
        f"... {80_000 + 4 - LOG_HEAD_BYTES - LOG_TAIL_BYTES} bytes left out ...",
    }
    assert rest == [("two", "2\n"), ("two", "2\n")]
    log.mark("after its end")


def test_a_log_has_all_that_was_written_before_it_is_read() -> None:
    """Also where its thread has not run since."""
    read_end, write_end = os.pipe()
    log = Log(read_end)
    for number in range(200):
        log.mark(f"case {number}")
        os.write(write_end, b"%03d\n" % number)
        assert log.sections()[-1] == (f"case {number}", f"{number:03d}\n")
        assert log.total_bytes == 4 * (number + 1)
    os.close(write_end)


def test_each_section_of_a_log_keeps_its_beginning() -> None:
    """However much is printed before and after it."""
    lines = {number: [f"{number} {line} {'x' * 1000}\n" for line in range(100)] for number in range(5)}
    sections = dict(marked([(f"case {number}", "".join(of)) for number, of in lines.items()]).sections())
    assert list(sections) == [f"case {number}" for number in range(5)]
    for number in range(5):
        assert sections[f"case {number}"].startswith(f"{number} 0 xx")
        assert f"\n{number} 6 xx" in sections[f"case {number}"]
    assert sections["case 4"].endswith(f"4 99 {'x' * 1000}\n")
    assert "bytes left out" in sections["case 1"]


def test_an_exception_that_is_its_own_cause_is_told_at_once() -> None:
    error = ValueError("boom")
    error.__cause__ = error
    assert describe(error).message == "boom"


@pytest.mark.parametrize(
    ("name", "meant"), [("get_close_match", ". Did you mean: 'get_close_matches'?"), ("arrange", ""), ("__nam__", "")]
)
def test_a_name_that_a_module_has_almost_is_told(name: str, meant: str) -> None:
    with pytest.raises(AttributeError) as error:
        getattr(difflib, name)
    assert describe(error.value).message == f"module 'difflib' has no attribute {name!r}{meant}"
    with pytest.raises(AttributeError) as error:
        getattr(Path(), name)
    assert "Did you mean" not in describe(error.value).message


def test_an_error_has_no_path_of_the_machines_packages() -> None:
    with pytest.raises(ImportError) as error:
        exec("from psutil import no_such_name")
    assert describe(error.value).message == "cannot import name 'no_such_name' from 'psutil' (psutil/__init__.py)"


def test_who_says_that_calls_are_queued_is_waited_for_no_longer(worker: Worker) -> None:
    worker.ready()
    started = time.monotonic()
    worker.wait_until_queued(0.05)
    assert time.monotonic() - started >= 0.05
    worker.send(Time(1, 1, watched=False, gate=0))  # it times nothing, and says so
    worker.wait_until_queued(60.0)
    assert time.monotonic() - started < 30.0


@pytest.mark.parametrize(("starved_s", "answers"), [(0.0, False), (100.0, True)], ids=["an idle machine", "a busy one"])
def test_what_a_worker_waits_for_a_core_is_given_back_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, starved_s: float, answers: bool
) -> None:
    waited = itertools.chain([0.0], itertools.repeat(starved_s))
    monkeypatch.setattr(usage, "waited_s", lambda _pids: next(waited))
    pool = WorkerPool("cpu", tmp_path)
    (tmp_path / "late.py").write_text("import time\ntime.sleep(1.5)\ndef f(): pass\n")
    with closing(pool), pool.start("cpu") as worker:
        worker.ready()
        limits = CallLimits(time_s=1.0, memory_gib=16)
        waited = itertools.chain([0.0], itertools.repeat(starved_s))
        if answers:
            worker.load(tmp_path / "late.py", "f", None, limits)
            return
        with pytest.raises(Fault, match="no answer within 1 s"):
            worker.load(tmp_path / "late.py", "f", None, limits)


def test_a_worker_tells_once_that_the_calls_of_a_batch_are_queued(tmp_path: Path) -> None:
    pool = WorkerPool("cpu", tmp_path)
    inputs = {"x of call 0": torch.zeros(3), "x of call 1": torch.zeros(3)}
    with closing(pool), Arena(inputs, {}, torch.float32, torch.device("cpu")) as arena, pool.start("cpu") as worker:
        worker.ready()
        worker.do(protocol.Yardstick("null"), LONGER)
        sets = tuple(arena.operands([name], None, []) for name in inputs)
        worker.do(protocol.Prepare(arena.address, sets, (), None), LONGER, arena.files)
        worker.send(Time(2, 2, watched=False, gate=1))
        assert decode(worker.reader.receive() or b"") == Reply()
        assert len(worker.finish(2, LONGER).times_s) == 2
        worker.send(Time(2, 2, watched=False, gate=2))  # nobody has to take it for an answer
        assert len(worker.finish(2, LONGER).times_s) == 2
        worker.send(Time(2, 2, watched=False, gate=0))
        assert len(decode(worker.reader.receive() or b"").times_s) == 2


ENDLESS = b"""Timeout (10 s)!
Thread 0x00007f865f0b1b80 (most recent call first):
  File "/s/softmax.py", line 5 in combine
  File "/opt/triton/runtime/interpreter.py", line 961 in generic_reduce
  File "/s/softmax.py", line 12 in kernel
"""


@pytest.mark.parametrize("on_cpu", [True, False])
def test_whose_time_is_up_reads_where_and_what_only_a_cpu_is_slow_at(on_cpu: bool) -> None:
    fault = last_words.late(1.0, Allowance(60.0), logged(ENDLESS), Path("/s"), on_cpu)
    assert (fault.outcome, fault.message) == ("timed_out", "no answer within 1 s: stopped")
    assert fault.traceback == '  File "softmax.py", line 12, in kernel\n  File "softmax.py", line 5, in combine'
    assert [detail[:19] for detail in fault.details] == (["it was in tl.reduce"] if on_cpu else [])


def test_frames_have_their_lines_and_no_file_of_others(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "softmax.py").write_text("first\n    second\n")
    (tmp_path / "secret.py").write_text("secret\n")
    (own / "link.py").symlink_to(tmp_path / "secret.py")
    files = ("softmax.py", "softmax.py", "../secret.py", "link.py", "absent.py")
    lines = (2, 9, 1, 1, 1)
    text = "".join(f'  File "{own}/{file}", line {line} in f\n' for file, line in zip(files, lines, strict=True))
    *most, last = last_words.student_frames(text, own).splitlines()
    assert most[-1:] == ['  File "softmax.py", line 2, in f']
    assert last == "    second"
    assert not any("secret" in line for line in most if "File" not in line)
    assert len(most) == 5


def test_whose_time_for_the_assignment_is_up_reads_that() -> None:
    fault = last_words.late(1.0, Allowance(0.0), logged(ENDLESS), Path("/s"), True)
    assert fault.outcome == "timed_out"
    assert fault.message == "what your code did for this assignment has taken 0 s in all, as long as it may: stopped"


def test_how_long_a_worker_takes_to_end_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(WorkerPool("cpu", tmp_path)) as pool:
        worker = pool.start("cpu")
        worker.ready()
        worker.allowance = Allowance(60.0)
        monkeypatch.setattr(type(NO_JAIL), "empty", lambda *_: time.sleep(0.3))
        worker.kill()
        assert worker.allowance.left_s <= 59.7


@pytest.mark.parametrize(
    ("count", "raised", "words"),
    [(2, Fault, "could not be made to stand still"), (1, Fault, "this machine is too busy")],
    ids=["with a child", "alone"],
)
def test_who_does_not_stand_still_is_to_blame_only_for_what_it_started(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, count: int, raised: type[Exception], words: str
) -> None:
    tries: list[object] = []
    monkeypatch.setattr(processes, "freeze", lambda process: tries.append(process) and False)
    monkeypatch.setattr(Watch, "has_started_more", lambda _: count > 1)
    with pytest.raises(raised, match=words):
        worker.freeze()
    assert len(tries) > 1, "a busy machine is given another chance"


def test_who_ends_a_worker_that_somebody_else_is_ending_waits_until_that_is_done(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a pool would be closed while a thread still cleans up behind a worker."""
    begun, done = threading.Event(), threading.Event()
    order: list[str] = []
    end = processes.end

    def end_slowly(*what: Any, **how: Any) -> None:
        begun.set()
        done.wait(10)
        end(*what, **how)
        order.append("cleaned up")

    monkeypatch.setattr(processes, "end", end_slowly)
    first = threading.Thread(target=worker.kill)
    first.start()
    assert begun.wait(10)
    second = threading.Thread(target=lambda: (worker.kill(), order.append("returned")))
    second.start()
    second.join(0.1)
    done.set()
    first.join(10)
    second.join(10)
    assert order == ["cleaned up", "returned"]


THROWING = b"terminate called after throwing an instance of "
THROWN = "^the process ended: an exception of C\\+\\+ was thrown and not caught"


@pytest.mark.parametrize(
    ("bubblewrap", "said", "words"),
    [
        (False, b"CUDA error: invalid\n", r"SIGABRT.*by abort\(\), as an error check .* or by the allocator.*overwritten"),
        (True, b"", r"SIGABRT.*by abort\(\), as an error check .* or by the allocator.*overwritten"),
        (False, THROWING + b"'std::runtime_error'\n  what():  empty\n", THROWN + ": std::runtime_error: empty$"),
        (False, THROWING + b"'int'\nFatal Python error: Aborted\n", THROWN + ": int$"),
    ],
)  # fmt: skip
def test_an_abort_may_be_the_files_own(bubblewrap: bool, said: bytes, words: str) -> None:
    code = 128 + signal.SIGABRT if bubblewrap else -signal.SIGABRT
    fault = last_words.ended(code, bubblewrap, logged(said), Path("/s"))
    assert (fault.outcome, fault.traceback) == ("crashed", "")
    assert re.search(words, fault.message)


def test_a_worker_that_cannot_be_started_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = stage_runtime(tmp_path / "runtime")

    def fail(*_: object, **__: object) -> NoReturn:
        raise BlockingIOError(errno.EAGAIN, "no process is left")

    monkeypatch.setattr(processes, "start", fail)
    before = open_files(first=True)
    with pytest.raises(BlockingIOError) as raised:  # which keeps the frames alive, and what is open in them
        Worker("cpu", runtime, tmp_path / "scratch")
    assert open_files() == before, raised

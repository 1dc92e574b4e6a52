"""Fork servers and their workers: each worker by itself, all ended together where one leaves something behind; and what a
worker tries against its server gains nothing.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.pool import server as module
from grader.pool.fault import Fault
from grader.pool.jail import Jail
from grader.pool.pool import WorkerPool, end_all
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import Tidy
from grader.worker import landlock
from tests.conftest import ROOT, open_to_workers
from tests.support.jails import ONE_OF_JAILS, ROOT_HERE, jail_or_skip

pytestmark = pytest.mark.grading

LIMITS = CallLimits(time_s=20, memory_gib=8)
NUMBERS = count(1)
LEAVE = """
import ctypes, json, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)

def leave(mark):
    '''Start a process in a session of its own, and end its parent. Returns its pid when it runs.'''
    ready, held = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(held, b"%d" % os.getpid())
            os.execvp("sleep", ["sleep", mark])
        os._exit(0)
    os.close(held)
    with open(ready) as told:
        return int(told.read())
"""


class Room:
    """A pool in a jail, and the submission of its workers."""

    def __init__(self, jail: Jail, folder: Path) -> None:
        self.jail, self.submission = jail, folder / "submission"
        self.submission.mkdir()
        self.pool = WorkerPool("cpu", folder, jail, self.submission)

    def load(self, worker: Worker, code: str, limits: CallLimits = LIMITS) -> None:
        file = self.submission / f"file{next(NUMBERS)}.py"
        file.write_text(f"{LEAVE}{code}\ndef f(): ...\n")
        worker.load(file, "f", None, limits)

    def fault(self, worker: Worker, code: str, limits: CallLimits = LIMITS) -> Fault:
        with pytest.raises(Fault) as fault:
            self.load(worker, code, limits)
        return fault.value

    def told(self, worker: Worker, code: str) -> Any:
        """What the code gives the name `told`."""
        fault = self.fault(worker, f"{code}\nraise RuntimeError(json.dumps(told))")
        return json.loads(fault.message.removeprefix("RuntimeError: "))


@pytest.fixture(scope="module", params=ONE_OF_JAILS)
def room(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("room")
    open_to_workers(folder)
    room = Room(jail_or_skip(request.param), folder)
    yield room
    room.pool.close()


@pytest.fixture
def start(room: Room) -> Iterator[Callable[..., Worker]]:
    """Starts workers that end with the test."""
    started: list[Worker] = []

    def start(kind: Any = "cpu", **options: Any) -> Worker:
        started.append(room.pool.start(kind, **options))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_LIMIT_S", 1.0)


Start = Callable[..., Worker]


def server_of(worker: Worker) -> psutil.Process:
    return psutil.Process(psutil.Process(worker.pid).ppid())


def answers(worker: Worker) -> bool:
    """A worker without torch answers a request that it does not know with an error."""
    return worker.ask(Tidy(), LIMITS).error is not None


def sleepers(mark: str) -> list[psutil.Process]:
    return [one for one in psutil.process_iter(["cmdline", "status"]) if one.info["cmdline"] == ["sleep", mark]]


def wait_for(condition: Callable[[], bool], limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def mark() -> str:
    """The seconds that a process sleeps by which it is found."""
    return f"{600 + next(NUMBERS)}.{os.getpid()}"


# Each worker by itself -----------------------------------------------------------------------------------------------


def test_a_fork_has_a_session_a_folder_and_a_log_of_its_own(room: Room, start: Start) -> None:
    workers = [start(), start()]
    for number, one in enumerate(workers):
        room.load(one, f"print('words of', {number})\nopen('own', 'x').close()\ntime.sleep(0.1)")
    assert server_of(workers[0]) == server_of(workers[1])
    assert len({one.pid for one in workers}) == 2
    for number, one in enumerate(workers):
        assert os.getsid(one.pid) == os.getpgid(one.pid) == one.pid
        assert one.log.text() == f"words of {number}\n"
    folders = {os.readlink(f"/proc/{one.pid}/cwd") for one in workers}  # noqa: PTH115
    assert len(folders) == 2
    for one in workers:
        one.kill()
    assert not any(Path(one).exists() for one in folders) or not any(list(Path(one).iterdir()) for one in folders)


def test_a_worker_that_dies_leaves_the_others_alone(start: Start) -> None:
    first, other = start("cuda_cpu"), start("cuda_cpu")
    server = server_of(first)
    os.kill(first.pid, signal.SIGKILL)
    with pytest.raises(Fault, match="SIGKILL"):
        answers(first)
    assert answers(other)
    assert server_of(start("cuda_cpu")) == server


def test_one_stands_still_with_its_children_while_another_goes_on(room: Room, start: Start) -> None:
    frozen, other, seconds = start(), start(), mark()
    room.load(frozen, f"leave('{seconds}')")
    (child,) = sleepers(seconds)
    with ThreadPoolExecutor(1) as thread:
        going = thread.submit(room.load, other, "for _ in range(100):\n    sum(range(10000)); time.sleep(0.005)")
        states = set()
        while not going.done():
            states.add((psutil.Process(frozen.pid).status(), child.status()))
            time.sleep(0.01)
        going.result()
    assert states == {(psutil.STATUS_STOPPED, psutil.STATUS_STOPPED)}
    room.load(frozen, "os.getpid()")
    frozen.kill()
    assert has_ended(child)
    room.load(other, "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("kept = bytearray(b'x') * (1 << 30)\ntime.sleep(60)", "of host memory: stopped"),
        (
            "for _ in range(300): os.posix_spawnp('sleep', ['sleep', '60'], {})\ntime.sleep(60)",
            "more than 256 processes: stopped",
        ),
    ],
    ids=["memory", "processes"],
)
def test_a_limit_ends_one_worker_and_not_the_other(room: Room, start: Start, code: str, words: str) -> None:
    beyond, within = start(), start()
    server = server_of(beyond)
    limits = CallLimits(time_s=20, memory_gib=0.9)
    with ThreadPoolExecutor(1) as thread:
        going = thread.submit(room.load, within, "time.sleep(3)", limits)
        assert words in room.fault(beyond, code, limits).message
        going.result()
    assert server_of(start()) == server


@pytest.mark.parametrize("end", [Worker.kill, lambda worker: end_all([worker])], ids=["kill", "end_all"])
def test_a_worker_that_the_judge_ends_takes_its_children_along_and_nobody_else(
    room: Room, start: Start, end: Callable[[Worker], None]
) -> None:
    ended, other, seconds = start(), start(), mark()
    server = server_of(ended)
    room.load(ended, f"for _ in range(5): leave('{seconds}')\nfor _ in range(60): os.fork() or time.sleep(60)")
    assert len(sleepers(seconds)) == 5
    end(ended)
    assert not sleepers(seconds)
    room.load(other, "")
    assert server_of(start()) == server


# All of them together ------------------------------------------------------------------------------------------------

# What a worker does before it ends itself, to leave something behind.
LEFTOVERS = {
    "a process": "leave(mark)",
    "a process that stands still": "os.kill(leave(mark), signal.SIGSTOP)",
    "processes": "for _ in range(20): leave(mark)",
    "a child": "os.fork() or os.execvp('sleep', ['sleep', mark])\ntime.sleep(0.5)",
}


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_what_a_crashed_worker_leaves_behind_ends_the_server_and_the_next_one_starts_anew(
    room: Room, start: Start, leftover: str
) -> None:
    worker, seconds = start(), mark()
    server = server_of(worker)
    fault = room.fault(worker, f"mark = '{seconds}'\n{LEFTOVERS[leftover]}\nos._exit(7)")
    assert "exit code 7" in fault.message
    assert not sleepers(seconds)
    assert has_ended(server)
    room.load(start(), "")


def test_a_process_that_never_keeps_a_number_is_found(room: Room, start: Start) -> None:
    """It is forked anew all the time, and each parent ends: one look at the table may miss it."""
    for _ in range(2):
        worker, name = start(), f"runs{next(NUMBERS)}"
        # 15: PR_SET_NAME. The fork gives back the worker's connection, or the worker's end would not be seen.
        runs = f"""
if os.fork() == 0:
    os.closerange(3, 64)
    libc.prctl(15, b"{name}")
    while True:
        if os.fork(): os._exit(0)
time.sleep(0.2)
os._exit(7)
"""
        assert "exit code 7" in room.fault(worker, runs).message
        for _ in range(20):
            alive = [one for one in psutil.process_iter(["name", "status"]) if one.info["name"] == name]
            assert not [one for one in alive if one.info["status"] != psutil.STATUS_ZOMBIE]
            time.sleep(0.01)
    room.pool.evict()


def test_the_dead_that_a_worker_leaves_take_no_place_of_a_later_one(room: Room, start: Start) -> None:
    """Its user may have about 500 processes, and the dead count until somebody collects them."""
    dead = "for _ in range(400): os.posix_spawnp('true', ['true'], {})\nos._exit(7)"
    try:
        for _ in range(2):
            assert "exit code 7" in room.fault(start(), dead).message
        below = server_of(start()).children()
        assert len(below) == 1, f"{len(below)} with the new worker"
    finally:
        room.pool.evict()


def test_who_is_cut_off_by_what_another_left_is_told_apart(room: Room, start: Start) -> None:
    dirty, innocent, seconds = start(), start(), mark()
    with ThreadPoolExecutor(1) as thread:
        going = thread.submit(room.load, innocent, "time.sleep(15)")
        wait_for(lambda: psutil.Process(innocent.pid).status() != psutil.STATUS_STOPPED)
        assert "exit code 7" in room.fault(dirty, f"leave('{seconds}')\nos._exit(7)").message
        with pytest.raises(Fault, match="ended together with other processes"):
            going.result()
    assert not sleepers(seconds)
    room.load(start(), "")


def test_a_worker_ends_with_its_server_and_a_new_one_starts(room: Room, start: Start) -> None:
    worker = start()
    server = server_of(worker)
    with ThreadPoolExecutor(1) as thread:
        going = thread.submit(room.fault, worker, "time.sleep(60)")
        wait_for(lambda: psutil.Process(worker.pid).status() != psutil.STATUS_STOPPED)
        server.kill()
        assert going.result().outcome == "crashed"
    room.load(start(), "")
    assert has_ended(server)


def test_who_is_cut_off_by_the_end_of_the_server_is_told_apart(room: Room, start: Start) -> None:
    workers = [start(), start()]
    with ThreadPoolExecutor(2) as threads:
        going = [threads.submit(room.load, one, "time.sleep(15)") for one in workers]
        time.sleep(0.5)
        server_of(workers[0]).kill()
        for one in going:
            with pytest.raises(Fault, match="ended together with other processes"):
                one.result()
    room.load(start(), "")


def test_a_worker_that_outlives_its_server_ends_before_a_new_one_starts(room: Room, start: Start) -> None:
    survivor, seconds = start(), mark()
    server = server_of(survivor)
    # 1: PR_SET_PDEATHSIG
    survive = f"server = os.getppid()\nlibc.prctl(1, 0)\nleave('{seconds}')\n"
    with ThreadPoolExecutor(1) as thread:
        waits = "while os.getppid() == server: time.sleep(0.01)\nraise RuntimeError('here')"
        going = thread.submit(room.fault, survivor, f"{survive}{waits}")
        wait_for(lambda: bool(sleepers(seconds)))
        server.kill()
        assert "here" in going.result().message or room.jail.name == "bubblewrap"
    process = psutil.Process(survivor.pid) if psutil.pid_exists(survivor.pid) else None
    room.load(start(), "")
    assert process is None or has_ended(process)
    assert not sleepers(seconds)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_stands_still_is_ended_and_a_new_one_starts(room: Room, start: Start) -> None:
    worker = start()
    server = server_of(worker)
    room.load(worker, "")
    server.suspend()
    room.load(start(), "")
    assert has_ended(server)
    assert not worker.lives()


@pytest.mark.usefixtures("impatient")
def test_a_dead_worker_that_its_child_traces_does_not_keep_the_judge_waiting(room: Room, start: Start) -> None:
    """Its parent cannot collect it meanwhile."""
    worker = start()
    traced = """
r, w = os.pipe()
if os.fork() == 0:
    libc.ptrace(0x4206, os.getppid(), 0, 0)  # PTRACE_SEIZE
    os.write(w, b"x")
    os.closerange(3, 64)
    time.sleep(60)
os.read(r, 1)
os._exit(7)
"""
    assert room.fault(worker, traced).outcome == "crashed"
    room.load(start(), "")


def test_nothing_outlives_the_judge(room: Room, tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom grader.pool.jail import Jail\n"
        "from grader.pool.pool import WorkerPool\n"
        f"pool = WorkerPool('cpu', Path({str(tmp_path)!r}), Jail({room.jail.name!r}, {room.jail.programs!r}))\n"
        "own = pool.start('cuda_cpu', 'course')\nfirst, second = pool.start('cuda_cpu'), pool.start('cuda_cpu')\n"
        "canary = pool.start('cuda_cpu', 'canary', folder=pool.runtime)\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    open_to_workers(tmp_path)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as judge:
        assert judge.stdout is not None
        assert judge.stdout.readline() == "ready\n"
        below = psutil.Process(judge.pid).children(recursive=True)
        assert len([one for one in below if "grader.worker" in one.cmdline()]) >= 6
        judge.kill()
    wait_for(lambda: all(map(has_ended, below)))


# Attacks on the server -----------------------------------------------------------------------------------------------

# Each gives `told` the names of errors, or "done".
TRY = """
import errno

mq_open = {"x86_64": 240, "aarch64": 180}[os.uname().machine]
server = os.getppid()

def tried(function, *arguments):
    ctypes.set_errno(0)
    return "done" if function(*arguments) != -1 else errno.errorcode[ctypes.get_errno()]

def opened(name, flags):
    try:
        os.close(os.open(f"/proc/{server}/{name}", flags))
        return "done"
    except OSError as error:
        return errno.errorcode[error.errno]

class Piece(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))

own = ctypes.create_string_buffer(8)
here = Piece(ctypes.addressof(own), 8)  # a fork's memory lies where the server's does
"""
AGAINST_THE_SERVER = {
    "trace": ("[tried(libc.ptrace, 16, server, 0, 0), tried(libc.ptrace, 0x4206, server, 0, 0)]", "EPERM"),
    "write its memory": (
        "[tried(call, server, *2 * (ctypes.byref(here), 1), 0) for call in (libc.process_vm_writev, libc.process_vm_readv)]",
        "EPERM",
    ),
    "open its memory": ("[opened('mem', flags) for flags in (os.O_RDWR, os.O_RDONLY)]", "EACCES"),
    "open its files": ("[opened(f'fd/{number}', os.O_RDWR) for number in range(3, 8)]", "EACCES"),
    "take its files": (
        "[tried(libc.syscall, 438, os.pidfd_open(server), number, 0) for number in range(3, 8)]",
        "EPERM",
    ),
    "have it spared": ("[opened('oom_score_adj', os.O_WRONLY)]", "EACCES"),
    "stop it": ("[tried(libc.kill, server, signal.SIGSTOP), tried(libc.kill, server, signal.SIGKILL)]", "EPERM"),
    "stop all": ("[tried(libc.kill, -1, signal.SIGSTOP)]", "done"),  # Linux tells this of -1 where it stops nobody
    "read its variables": ("[opened('environ', os.O_RDONLY)]", "EACCES"),
}
OF_ITS_OWN = {
    "be no reaper of its children": "[tried(libc.prctl, 36, 0, 0, 0, 0)]",
    "leave messages in a queue": "[tried(libc.syscall, mq_open, b'left', os.O_CREAT | os.O_RDWR, 0o600, None)]",
}


@pytest.mark.parametrize("attack", AGAINST_THE_SERVER)
def test_nobody_reaches_into_the_server(room: Room, start: Start, attack: str) -> None:
    if room.jail.name == "none" and ROOT_HERE:
        pytest.skip("root without a jail may do all that the judge may")
    if "stop" in attack and (landlock.version() < landlock.KNOWS_SIGNALS or room.jail.name == "none"):
        pytest.skip("needs a jail, and a kernel whose Landlock knows of signals")
    code, refused = AGAINST_THE_SERVER[attack]
    worker = start()
    server = server_of(worker)
    assert set(room.told(worker, f"{TRY}\ntold = {code}")) == {refused}
    worker.kill()
    assert server_of(start()) == server


def test_a_worker_changes_files_in_its_own_folder_alone(room: Room, start: Start) -> None:
    if landlock.version() < landlock.KNOWS_TRUNCATE or room.jail.name == "none":
        pytest.skip("needs a jail, and a kernel whose Landlock knows of truncation")
    other = start()
    folder = os.readlink(f"/proc/{other.pid}/cwd")  # noqa: PTH115
    told = room.told(
        start(),
        f"""
def written(path):
    try:
        open(path, "w").close()
        os.rename(path, path + "-moved")
        os.mkdir(path)
        return "done"
    except OSError as error:
        return error.errno
told = [written(path) for path in ("file", {f"{folder}/file"!r}, "../file", "/tmp/{mark()}", __file__)]
""",
    )
    assert told.pop(0) == "done"
    assert {*told} <= {errno.EACCES, errno.EROFS, errno.EPERM}


@pytest.mark.parametrize("attack", OF_ITS_OWN)
def test_a_worker_may_not(room: Room, start: Start, attack: str) -> None:
    assert room.told(start(), f"{TRY}\ntold = {OF_ITS_OWN[attack]}") == ["EPERM"]


def test_a_worker_finds_open_its_own_socket_pipe_and_streams_and_nothing_else(room: Room, start: Start) -> None:
    start()  # another one's files are no business of it
    names = room.told(
        start(),
        "told = {}\nfor one in os.listdir('/proc/self/fd'):\n"
        "    try: told[int(one)] = os.readlink(f'/proc/self/fd/{one}').partition(':')[0]\n"
        "    except OSError: pass",
    )
    assert {names.pop(number) for number in "012"} == {"/dev/null", "pipe"}
    assert sorted(names.values()) == ["pipe", "socket"]


def test_what_a_worker_changes_in_its_modules_and_files_reaches_no_later_one(room: Room, start: Start) -> None:
    name = f"planted{next(NUMBERS)}"
    room.load(
        start(),
        f"""
import builtins, types
builtins.{name} = True
sys.modules["{name}"] = types.ModuleType("{name}")
sys.modules["json"].{name} = True
os.environ["{name}"] = "x"
for folder in (".", "..", os.environ["HOME"], os.environ["TMPDIR"]):
    sys.path.insert(0, os.path.abspath(folder))
    for file in ("{name}.py", "sitecustomize.py", "usercustomize.py"):
        try: open(os.path.join(folder, file), "w").write("import builtins; builtins.{name} = True")
        except OSError: pass
""",
    )
    found = room.told(
        start(imports=(name,)),
        f"""
import builtins
told = [hasattr(builtins, "{name}"), "{name}" in sys.modules, hasattr(sys.modules["json"], "{name}"), "{name}" in os.environ]
told.append([one for one in sys.path if os.path.isabs(one) and os.access(one, os.W_OK) and os.getuid()])
""",
    )
    assert found == [False, False, False, False, []]


def test_what_a_worker_takes_from_its_server_is_missing_to_no_later_one(room: Room, start: Start) -> None:
    """A process may lower the limits of others of its user."""
    room.load(
        start(),
        "import resource\nfor limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS):\n    resource.prlimit(os.getppid(), limit, (3, 3))",
    )
    room.load(start(alone=True), "open('file', 'w').close()")

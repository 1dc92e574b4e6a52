"""The container itself, and the daemon's own faults: each is the machine's, with a sentence saying what to do, and never a zero."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.doctor import containers as doctor
from grader.sandbox import engine
from grader.sandbox.base import ASK_S, InfraError
from grader.sandbox.docker import RUN_LABEL, STOP_LIMIT_S
from tests.conftest import Course, Running, StartRun
from tests.support import containers

pytestmark = [pytest.mark.grading, pytest.mark.docker]

HANGS = "import pathlib, time\npathlib.Path('student-runs').touch()\ndef double(x):\n    time.sleep(600)\n"
RIGHT = "def double(x):\n    return x * 2\n"


CLOSED = {
    "NetworkMode": "none",
    "ReadonlyRootfs": True,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges"],
    "Privileged": False,
    "PidsLimit": 1024 + 16 * (os.cpu_count() or 1),
    "Memory": 3 * 2**30,
    "MemorySwap": 3 * 2**30,
    "NanoCpus": 1_500_000_000,
    "IpcMode": "private",
    "AutoRemove": False,
}
Start = Callable[..., Running]


@pytest.fixture(autouse=True)
def needed() -> None:
    containers.need()


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    course = Course(tmp_path_factory.mktemp("docker") / "course")
    course.add("task", limit_s=60)
    return course


@pytest.fixture
def start(course: Course, start_run: StartRun, tmp_path: Path) -> Start:
    """Start a grading of this source in a container; one that hangs is waited for."""

    def start(source: str, *arguments: str, course: Course = course) -> Running:
        made = tmp_path / "submission"
        made.mkdir(exist_ok=True)
        (made / "task.py").write_text(source)
        running = start_run(made, "--course", course.folder, "--device", "cpu", *arguments, place="docker")
        if "student-runs" in source:
            running.wait_for(lambda: running.worker_runs("student-runs"))
        return running

    return start


def test_the_container_is_as_closed_as_it_can_be(start: Start) -> None:
    running = start(HANGS, "--memory-gib", "3", "--cpus", "1.5")
    (name,) = running.containers()
    found = containers.client().api.inspect_container(name)
    host = found["HostConfig"]
    assert {key: host[key] for key in CLOSED} == CLOSED
    assert sorted(one.removeprefix("CAP_") for one in host["CapAdd"]) == ["KILL", "SETGID", "SETUID"]
    assert {limit["Name"] for limit in host["Ulimits"]} == {"fsize", "core", "nofile"}
    assert host["LogConfig"]["Type"] == "none"
    assert all("noexec" not in options and "exec" in options for options in host["Tmpfs"].values())
    assert all("nr_inodes=200000" in options and "size=" in options for options in host["Tmpfs"].values())
    assert not host["Binds"]
    assert not host["Devices"]
    assert found["Mounts"] == [] or all(mount["Type"] == "tmpfs" for mount in found["Mounts"])
    assert {"gpu-lab-grader.run", "gpu-lab-grader.deadline", "gpu-lab-grader.owner"} <= set(found["Config"]["Labels"])
    _, listed = containers.client().containers.get(name).exec_run(["cat", "/proc/1/status", "/proc/1/cmdline"])
    assert b"NoNewPrivs:\t1" in listed
    assert b"Seccomp:\t2" in listed
    running.signal(2)
    assert running.finish(limit_s=30).left == []


def test_a_container_has_the_cores_of_whoever_starts_it(start: Start) -> None:
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(own)})
    try:
        running = start(HANGS)
    finally:
        os.sched_setaffinity(0, own)
    (name,) = running.containers()
    host = containers.client().api.inspect_container(name)["HostConfig"]
    assert (host["CpusetCpus"], host["NanoCpus"]) == (str(max(own)), 1_000_000_000)
    _, seen = containers.client().containers.get(name).exec_run(["nproc"])
    assert seen.strip() == b"1"
    running.signal(2)
    assert running.finish(limit_s=30).left == []


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("its course", ["made of other files", "grader image build"]),
        ("its image", ["No such image: no-such-image", "grader image build"]),
        ("its daemon", ["no Docker daemon answers at unix:///nowhere/docker.sock", "grader doctor"]),
    ],
)
def test_a_container_that_cannot_be_had_is_told_of(
    course: Course, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str, words: list[str]
) -> None:
    arguments = (
        ["--image", "no-such-image"] if lacks == "its image" else ["--image", containers.image_with(course.folder)]
    )
    if lacks == "its course":
        course = Course(tmp_path / "other")
        course.add("task", limit_s=59)
    elif lacks == "its daemon":
        monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    ran = start(RIGHT, *arguments, course=course).finish()
    assert (ran.code, ran.report, ran.left) == (3, None, [])
    assert all(one in ran.errors for one in words), ran.errors


def test_the_doctor_tries_the_image_in_a_container_and_removes_it(course: Course) -> None:
    image = containers.image_with(course.folder)
    daemon, tried, _ = doctor.findings(image, course.folder, "none", confined=False)
    assert (daemon.state, tried.state) == ("fine", "fine"), (daemon, tried)
    with pytest.raises(InfraError, match=r"^OSError: libcuda\.so\.1$"):
        doctor.answer_of(containers.client(), image, "raise OSError('libcuda.so.1')")
    ours = {"label": f"{RUN_LABEL}=doctor"}
    assert containers.client().containers.list(all=True, filters=ours) == []


FILLS = """
import subprocess, sys, time

HOARD = "import time; hoard = [bytes(b'z' * (10 << 20)) for _ in range(12) if not time.sleep(0.02)]; time.sleep(60)"

def double(x):
    for _ in range(40):  # each smaller than the judge, and 5 GB together
        subprocess.Popen([sys.executable, "-S", "-E", "-c", HOARD])
    time.sleep(60)
"""


FILLS_BETWEEN_ANSWERS = """
import os, pathlib, threading, time

held = []

def used():
    for most, now in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        if (group := pathlib.Path("/sys/fs/cgroup", most)).exists():
            return int(group.with_name(pathlib.Path(now).name).read_text()) / int(group.read_text())

def fill(share):
    while used() < share:
        held.append(os.memfd_create("hoard"))
        os.posix_fallocate(held[-1], 0, 16 << 20)

def fill_the_rest():
    time.sleep(0.1)  # until the answer is there
    pathlib.Path("/proc/self/oom_score_adj").write_text("0")  # somebody else is to go first
    while True:
        try:
            fill(2)
        except OSError:
            time.sleep(0.01)

def double(x):
    fill(0.82)  # more is seen
    threading.Thread(target=fill_the_rest, daemon=True).start()
    return x * 0
"""


@pytest.mark.parametrize(
    ("source", "gib", "outcome"), [(FILLS, "2", "out_of_memory"), (FILLS_BETWEEN_ANSWERS, "3", "failed")]
)
def test_a_container_that_a_submission_fills_is_no_infra_error(
    start: Start, source: str, gib: str, outcome: str
) -> None:
    """The kernel would end the largest of its processes, which is the judge. Of the two the second fills it while the judge computes: its
    answer is wrong, so the reference is asked, whose worker finds no memory to start; or the kernel ends the judge.
    """
    ran = start(source, "--memory-gib", gib).finish(limit_s=120)
    assert (ran.code, ran.left) == (0, []), ran.errors
    assert ran.case("task", "plain").outcome == outcome


def test_a_container_that_is_killed_is_an_infra_error(start: Start) -> None:
    running = start(HANGS)
    containers.client().api.kill(running.containers()[0])
    ran = running.finish(limit_s=60)
    assert (ran.code, ran.report, ran.left) == (3, None, [])
    assert "the judge ended without a report (exit code 137)" in ran.errors


def test_a_container_that_is_stopped_reports_what_was_graded(
    start: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    two = Course(tmp_path_factory.mktemp("two") / "course")
    two.add("task", ["first", "second"], limit_s=60)
    runs = "pathlib.Path('student-runs').touch()"
    source = HANGS.replace(f"{runs}\n", "\n")
    source = source.replace("time.sleep", f"if x.numel() == 10: return x * 2\n    {runs}; time.sleep")
    running = start(source, course=two)
    containers.client().containers.get(running.containers()[0]).stop()
    ran = running.finish(limit_s=60)
    assert (ran.code, ran.left) == (130, []), ran.errors
    assert ran.report is not None
    assert ran.report.incomplete
    assert [ran.case("task", name).outcome for name in ("first", "second")] == ["passed", "skipped"]


class Proxy:
    """Stands between the grader and the daemon, until it is cut."""

    def __init__(self, path: Path, target: str) -> None:
        self._target = target
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._open = [self._listener]
        self._passes = threading.Event()
        self._passes.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._open += [client, server]
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                for one in select.select([client, server], [], [])[0]:
                    data = one.recv(65536)
                    self._passes.wait()
                    (server if one is client else client).sendall(data)
                    if not data:
                        (server if one is client else client).shutdown(socket.SHUT_WR)
                        return

    def hold(self) -> None:
        """Take what is said, and pass nothing on."""
        self._passes.clear()

    def cut(self) -> None:
        self._passes.set()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    target = engine.address().removeprefix("unix://")
    proxy = Proxy(tmp_path / "proxy.sock", target)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'proxy.sock'}")
    yield proxy
    proxy.cut()


def test_a_daemon_that_goes_away_in_the_middle_is_an_infra_error(start: Start, proxy: Proxy) -> None:
    running = start(HANGS)
    name = running.containers()[0]
    proxy.cut()
    ran = running.finish(limit_s=60)
    assert (ran.code, ran.report) == (3, None)
    assert "no Docker daemon answers" in ran.errors or "connection" in ran.errors
    containers.remove_left(name)


@pytest.mark.everything
def test_a_daemon_that_says_nothing_more_is_not_waited_for_long(start: Start, proxy: Proxy) -> None:
    """With the limits of a real grading, for a minute and more; tests/sandbox/test_engine.py shortens them."""
    running = start(HANGS)
    name = running.containers()[0]
    proxy.hold()
    ran = running.finish(limit_s=ASK_S + 2 * engine.PULSE_TIMEOUT_S + STOP_LIMIT_S + 60)
    proxy.cut()  # its judge has nobody any more
    assert (ran.code, ran.report) == (3, None)
    assert "does not answer; restart it" in ran.errors
    assert "`grader cleanup` then removes the container" in ran.errors
    containers.remove_left(name)


def test_who_interrupts_a_grading_does_not_wait_for_a_daemon_that_hangs(start: Start, proxy: Proxy) -> None:
    running = start(HANGS)
    name = running.containers()[0]
    proxy.hold()
    started = time.monotonic()
    running.signal(signal.SIGINT)
    ran = running.finish(limit_s=engine.TIMEOUT_S)
    assert time.monotonic() - started < engine.TIMEOUT_S
    proxy.cut()
    assert ran.code == 130
    containers.remove_left(name)

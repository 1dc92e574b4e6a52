"""Trees of processes: what a worker starts can be stopped, and a worker that is being started belongs to nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.pool import processes, usage
from grader.pool.pool import WorkerPool
from grader.pool.table import state_of

COUNTS = """
import sys, time
for number in range(10**9):
    open(sys.argv[1], "w").write(str(number))
    time.sleep(0.005)
"""
# A worker with a child in its group, and one in a session of its own.
PARENT = """
import subprocess, sys, time
for name, session in (("group", False), ("session", True)):
    subprocess.Popen([sys.executable, "-c", sys.argv[1], f"{sys.argv[2]}/{name}"], start_new_session=session)
exec(sys.argv[1].replace("sys.argv[1]", f"{sys.argv[2] + '/own'!r}"))
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = processes.start([sys.executable, "-c", PARENT, COUNTS, str(tmp_path)], start_new_session=True)
    deadline = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process
    processes.end(process)


def goes_on(path: Path, within_s: float = 5.0) -> bool:
    before, deadline = path.read_text(), time.monotonic() + within_s
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if path.read_text() != before:
            return True
    return False


def test_a_frozen_worker_stands_still_with_all_it_started(family: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert all(goes_on(tmp_path / name) for name in ("own", "group", "session"))
    processes.freeze(family)
    assert psutil.Process(family.pid).status() == psutil.STATUS_STOPPED
    processes.freeze_tree(family)
    assert not any(goes_on(tmp_path / name, within_s=0.2) for name in ("own", "group", "session"))
    processes.thaw(family)
    assert all(goes_on(tmp_path / name) for name in ("own", "group", "session"))


def test_freezing_again_or_after_its_end_does_not_wait_and_the_frozen_can_be_ended(
    family: subprocess.Popen[bytes],
) -> None:
    processes.freeze(family)
    processes.freeze(family)
    processes.end(family)
    assert family.poll() is not None
    processes.freeze(family)
    processes.thaw(family)


def test_a_worker_is_ended_though_nobody_can_look(
    family: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And all that it started, once somebody can."""
    look, looks = processes.descendants, []

    def refuse_at_first() -> list[Any]:
        looks.append(None)
        if len(looks) < 3:
            raise OSError(23, "too many open files in system")
        return look()

    monkeypatch.setattr(processes, "descendants", refuse_at_first)
    below = psutil.Process(family.pid).children(recursive=True)
    assert below
    processes.end(family)
    assert family.poll() is not None
    assert not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in below)


def test_a_worker_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """The kernel kills a fork server with the thread that started it, so that none outlives the judge."""
    with closing(WorkerPool("cpu", tmp_path)) as pool:
        with ThreadPoolExecutor(1) as thread:
            worker = thread.submit(pool.start, "cuda_cpu").result()
        time.sleep(0.3)
        assert worker.lives()
        assert pool.start("cuda_cpu").lives()


def test_precedence_is_given_back_by_a_user_who_may_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not root may set the flag "reset on fork", and not take it away again (sched(7))."""
    policies = [os.SCHED_OTHER]

    def kernel(pid: int, policy: int, parameter: os.sched_param) -> None:
        assert (pid, parameter.sched_priority) in [(0, 0), (0, 1)]
        if policies[-1] & os.SCHED_RESET_ON_FORK and not policy & os.SCHED_RESET_ON_FORK:
            raise PermissionError
        policies.append(policy)

    monkeypatch.setattr(os, "sched_setscheduler", kernel)
    with processes.precedence():
        assert policies[-1] & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
    assert policies[-1] & ~os.SCHED_RESET_ON_FORK == os.SCHED_OTHER


def test_a_program_that_a_library_starts_is_no_workers_process(family: subprocess.Popen[bytes]) -> None:
    """As `ctypes.util.find_library` does: once its `ldconfig` was taken for a worker's that had asked the kernel to spare it."""
    own = subprocess.Popen(["sleep", "60"])
    try:
        assert own.pid not in [one.pid for one in processes.tree(family.pid)]
        processes.end(family)
        assert own.poll() is None, "it was ended with the worker"
    finally:
        own.kill()
        own.wait()


def test_ending_a_worker_leaves_alone_what_the_judge_runs_for_itself() -> None:
    """`du` and `rm` are children of the judge that no worker has started."""
    with ThreadPoolExecutor(1) as threads:
        own = threads.submit(processes.output_of, ["sh", "-c", "sleep 1.5; echo done"], 20)
        time.sleep(0.5)
        worker = processes.start([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        processes.end(worker)
        assert own.result() == b"done\n"
    with pytest.raises(subprocess.TimeoutExpired):
        processes.output_of(["sleep", "60"], 0.2)


@pytest.fixture
def hoarder() -> Iterator[subprocess.Popen[bytes]]:
    """A process with 32 MiB in an anonymous file that it does not map."""
    code = "import os, time; os.write(os.memfd_create('hoard'), bytes(32 << 20)); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_memory_in_files_counts(hoarder: subprocess.Popen[bytes]) -> None:
    held = usage.held_bytes([hoarder.pid], 1 << 40)
    assert 32 << 20 < held < 64 << 20


def test_nobody_looks_for_files_where_all_that_there_are_come_to_less(
    hoarder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr(usage, "memory_files", lambda pid: looked.append(pid) or iter(()))
    monkeypatch.setattr(usage, "shared_by_anyone", lambda: 40 << 20)
    assert not usage.hold_more_than(80 << 20, [hoarder.pid])
    assert not looked
    usage.hold_more_than(40 << 20, [hoarder.pid])
    assert hoarder.pid in looked


# 32 MiB each, of which no process has a page, and no open file.
HOARDS = {
    "mapped and never touched": "file = filled(); map_(file, SIZE, mmap.MAP_SHARED); os.close(file)",
    "mapped by one page": "file = filled(); map_(file, 4096, mmap.MAP_PRIVATE); os.close(file)",
    "without a name": "kept = mmap.mmap(-1, SIZE); kept.write(bytes(SIZE)); kept.madvise(mmap.MADV_DONTNEED)",
}
SPARSE = (
    "file = os.memfd_create(''); os.ftruncate(file, 64 << 30); map_(file, 64 << 30, mmap.MAP_SHARED); os.close(file)"
)
# What counts once: passed by pages alone, or only by these and files together. Then what counts twice: an own copy of a file is not that
# file; and who shares pages hides no file behind them, though the quick sum passes the limit and the fair one alone would not.
OTHERS = {
    "open and touched": ("kept = mmap.mmap(filled(), SIZE); bytes(kept)", 16, 50, 32),
    "touched": ("kept = mmap.mmap(-1, SIZE); kept.write(bytes(SIZE))", 16, 50, 32),
    "touched by two": ("kept = mmap.mmap(-1, SIZE); pid = os.fork(); kept.write(bytes(SIZE)); pid or time.sleep(60)", 16, 50, 32),
    "tables of pages": ("kept = mmap.mmap(-1, 16 << 30, mmap.MAP_PRIVATE | 0x4000); any(kept[:: 2 << 20])", 16, 50, 32),
    "own copy": ("file = filled(); kept = mmap.mmap(file, SIZE, mmap.MAP_PRIVATE); kept.write(bytes(SIZE))", 16, 50, 64),
    "shared pages": (f"{HOARDS['mapped and never touched']}; kept = b'x' * SIZE; os.fork() or time.sleep(60)", 70, 70, 64),
}  # fmt: skip
MAPPER = """
import ctypes, mmap, os, time
SIZE = 32 << 20
libc = ctypes.CDLL(None)
def filled():
    file = os.memfd_create("hoard")
    os.write(file, bytes(SIZE))
    return file
def map_(file, size, flags):
    arguments = None, size, mmap.PROT_READ, flags, file, 0
    libc.mmap(*(ctypes.c_long(one) if one is not None else None for one in arguments))
{hoard}
print("ready", flush=True)
time.sleep(60)
"""


def held_by(hoard: str, limit: int) -> int:
    """What counts for a process that does this, and for its children."""
    code = MAPPER.format(hoard=hoard)
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = [process.pid, *(one.pid for one in psutil.Process(process.pid).children())]
        try:
            held = usage.held_bytes(found, limit)
            assert usage.hold_more_than(limit, found) == (held > limit)
            return held
        finally:
            for pid in found:
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("hoard", HOARDS)
def test_memory_in_files_that_are_only_mapped_counts(hoard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if hoard == "mapped by one page" and os.geteuid() != 0:
        pytest.skip("how large a file is of which one page is mapped is told to root alone")
    assert 32 << 20 < held_by(HOARDS[hoard], 32 << 20) < 64 << 20
    monkeypatch.setattr(usage, "shared_on_machine", lambda: 1 << 20)  # so it cannot be there: nobody looks
    assert held_by(HOARDS[hoard], 32 << 20) < 32 << 20


@pytest.mark.parametrize("hoard", OTHERS)
def test_memory_in_files_counts_once_and_beside_pages(hoard: str) -> None:
    code, *limits, mib = OTHERS[hoard]
    for limit in set(limits):
        assert mib << 20 < held_by(code, limit << 20) < (mib + 28) << 20


def test_whoever_is_not_root_counts_what_is_seen_of_a_mapped_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """But never more than the machine has of shared memory: much may be mapped where little lies."""

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if "map_files" in str(path):
            raise PermissionError(1, "Operation not permitted")
        return os_stat(path, **options)

    os_stat = os.stat
    monkeypatch.setattr(usage.os, "stat", refuse)
    assert 32 << 20 < held_by(HOARDS["mapped and never touched"], 32 << 20) < 64 << 20
    for name in ("shared_on_machine", "shared_by_anyone"):
        monkeypatch.setattr(usage, name, lambda: 48 << 20)
    assert 48 << 20 < held_by(SPARSE, 32 << 20) < 64 << 20


def test_the_arena_is_not_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process has open is its own, whoever maps it."""
    monkeypatch.setattr(usage, "shared_on_machine", lambda: 1 << 40)  # others' too: it is looked for
    arena = os.memfd_create("arena")
    try:
        os.write(arena, bytes(32 << 20))
        code = f"file = os.open('/proc/{os.getpid()}/fd/{arena}', os.O_RDWR); map_(file, SIZE, mmap.MAP_SHARED); os.close(file)"
        assert held_by(code, 20 << 20) < 32 << 20
    finally:
        os.close(arena)


V1 = "cache 5\nrss 100\nshmem 7\ntotal_cache 9\ntotal_rss 200\ntotal_shmem {shmem}\n"
V2 = "anon 200\nfile 999\nshmem {shmem}\nshmem_thp 5\n"


@pytest.mark.parametrize(("file", "text"), [("memory.stat", V2), ("memory/memory.stat", V1)])
def test_where_files_of_others_cannot_be_seen_those_of_the_container_count(
    hoarder: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    """As in a container, whose root may not look into other users' processes."""

    def list_files(path: str) -> list[os.DirEntry[str]]:
        if path == f"/proc/{hoarder.pid}/fd":
            raise PermissionError(13, "Permission denied")
        return list(os_scandir(path))

    os_scandir = os.scandir
    monkeypatch.setattr(usage.os, "scandir", list_files)
    monkeypatch.setattr(usage, "CGROUP", tmp_path)
    monkeypatch.setattr(usage.os, "geteuid", lambda: 0)
    found = [hoarder.pid]
    without = usage.held_bytes(found, 1 << 40)
    assert without < 32 << 20  # nobody tells: its pages alone
    (tmp_path / file).parent.mkdir(exist_ok=True)
    ours = os.memfd_create("arena")  # this process's own files are not the worker's
    os.write(ours, bytes(4 << 20))
    (tmp_path / file).write_text(text.format(shmem=36 << 20))
    try:
        held = usage.held_bytes(found, 1 << 40)
    finally:
        os.close(ours)
    assert held == pytest.approx(without + (32 << 20), abs=1 << 20)
    monkeypatch.setattr(usage.os, "geteuid", lambda: 1000)  # on a machine of many, whose files these may be
    assert usage.held_bytes(found, 1 << 40) == pytest.approx(without, abs=1 << 20)


FILES = {
    2: ("memory.max", "memory.current", "memory.stat", "file {file}\nshmem {shmem}\n"),
    1: (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "cache 7\ntotal_cache {file}\ntotal_shmem {shmem}\n",
    ),
}


@pytest.mark.parametrize("version", FILES)
def test_a_container_is_full_when_others_than_the_judge_have_nearly_all_of_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    limit, current, stat, text = FILES[version]
    monkeypatch.setattr(usage, "CGROUP", tmp_path)
    monkeypatch.setattr(usage, "own_bytes", lambda: 1 << 30)
    assert not usage.container_is_full()  # nobody tells
    (tmp_path / limit).parent.mkdir(exist_ok=True)

    def full(used_gib: float, file_gib: float = 0, shmem_gib: float = 0) -> bool:
        (tmp_path / current).write_text(f"{int(used_gib * 2**30)}\n")
        (tmp_path / stat).write_text(text.format(file=int(file_gib * 2**30), shmem=int(shmem_gib * 2**30)))
        return usage.container_is_full()

    (tmp_path / limit).write_text(f"{8 << 30}\n")
    assert full(7.9)
    assert not full(6.5)
    assert not full(7.9, file_gib=2), "the kernel drops what is on a disk as well"
    assert full(7.9, file_gib=2, shmem_gib=2), "what lies in memory alone it keeps"
    monkeypatch.setattr(usage, "own_bytes", lambda: 5 << 30)
    assert not full(7.9), "it is the judge's"
    (tmp_path / limit).write_text("max\n")
    assert not full(7.9)


def test_a_process_that_has_just_ended_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder in /proc belongs to root then, and others may not look into it."""

    def refuse(_path: str) -> list[os.DirEntry[str]]:
        raise PermissionError(13, "Permission denied")

    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        while state_of(ended.pid) != "Z":
            time.sleep(0.01)
        monkeypatch.setattr(usage.os, "scandir", refuse)
        assert list(usage.memory_files(ended.pid)) == []

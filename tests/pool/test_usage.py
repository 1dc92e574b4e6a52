"""What a worker's processes hold: every way to hold memory counts, once, and a look at it takes no longer than it may."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from grader.pool import usage
from grader.pool.table import state_of
from grader.pool.usage import Look, LookCutShort, LookTooLong

MIB = 1 << 20
HOARDER = """
import ctypes, mmap, os, time
SIZE = 32 << 20
libc = ctypes.CDLL(None)
def filled():
    file = os.memfd_create("hoard")
    os.write(file, bytes(SIZE))
    return file
def map_(file, size, flags, offset=0):
    arguments = None, size, mmap.PROT_READ, flags, file, offset
    libc.mmap(*(ctypes.c_long(one) if one is not None else None for one in arguments))
{hoard}
print("ready", flush=True)
time.sleep(60)
"""


@contextmanager
def hoarding(hoard: str) -> Iterator[list[int]]:
    """The ids of a process that does this, and of its children."""
    code = HOARDER.format(hoard=hoard)
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = [process.pid, *(one.pid for one in psutil.Process(process.pid).children())]
        try:
            yield found
        finally:
            for pid in found:
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _no_arenas_of_other_tests() -> None:
    """Memory that this process has open counts as the judge's."""
    gc.collect()


def held_by(pids: Sequence[int], limit: int) -> int:
    held = Look(pids).held_bytes(limit)
    assert Look(pids).hold_more_than(limit) == (held > limit)
    return held


OPEN = "kept = filled()"
MAPPED = "file = filled(); map_(file, SIZE, mmap.MAP_SHARED); os.close(file)"
ONE_PAGE = "file = filled(); map_(file, 4096, mmap.MAP_PRIVATE); os.close(file)"
# MiB that count for each, whether the limit is passed or not. Several hold memory of which no process has a page, nor an
# open file; several have what must not count twice.
HOARDS = {
    "open": (OPEN, 32),
    "mapped and never touched": (MAPPED, 32),
    "mapped by one page": (ONE_PAGE, 32),
    "given back": ("kept = mmap.mmap(-1, SIZE); kept.write(bytes(SIZE)); kept.madvise(mmap.MADV_DONTNEED)", 32),
    "open and touched": ("kept = mmap.mmap(filled(), SIZE); bytes(kept)", 32),
    "touched": ("kept = mmap.mmap(-1, SIZE); kept.write(bytes(SIZE))", 32),
    "touched by two": ("kept = mmap.mmap(-1, SIZE); pid = os.fork(); kept.write(bytes(SIZE)); pid or time.sleep(60)", 32),
    "tables of pages": ("kept = mmap.mmap(-1, 16 << 30, mmap.MAP_PRIVATE | 0x4000); any(kept[:: 2 << 20])", 32),
    "own copy of a file": ("file = filled(); kept = mmap.mmap(file, SIZE, mmap.MAP_PRIVATE); kept.write(bytes(SIZE))", 64),
}  # fmt: skip
SHARED_PAGES = f"{MAPPED}; kept = b'x' * SIZE; os.fork() or time.sleep(60)"
SPARSE = (
    "file = os.memfd_create(''); os.ftruncate(file, 64 << 30); map_(file, 64 << 30, mmap.MAP_SHARED); os.close(file)"
)


@pytest.mark.parametrize("hoard", HOARDS)
def test_memory_counts_however_it_is_held(hoard: str) -> None:
    if hoard == "mapped by one page" and os.geteuid() != 0:
        pytest.skip("only root may read the size of a file of which one page is mapped")
    code, mib = HOARDS[hoard]
    with hoarding(code) as pids:
        for limit in (16 * MIB, 1 << 40):
            assert mib * MIB < Look(pids).held_bytes(limit) < (mib + 28) * MIB
        assert Look(pids).hold_more_than(16 * MIB)
        assert not Look(pids).hold_more_than((mib + 28) * MIB)


def test_pages_that_forks_share_count_in_shares_once_the_sum_is_too_much() -> None:
    """And files count beside them."""
    with hoarding(SHARED_PAGES) as pids:
        assert 64 * MIB < held_by(pids, 70 * MIB) < 92 * MIB
        assert held_by(pids, 1 << 40) > 96 * MIB


def test_without_root_the_mapped_length_counts_up_to_the_machines_shared_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Much may be mapped where little lies."""

    def refuse(path: Any, **options: Any) -> os.stat_result:
        if "map_files" in str(path):
            raise PermissionError(1, "Operation not permitted")
        return os_stat(path, **options)

    os_stat = os.stat
    monkeypatch.setattr(usage.os, "stat", refuse)
    with hoarding(MAPPED) as pids:
        assert 32 * MIB < held_by(pids, 32 * MIB) < 64 * MIB
    monkeypatch.setattr(usage, "_shared_on_machine", lambda: 48 * MIB)
    with hoarding(SPARSE) as pids:
        assert 48 * MIB < held_by(pids, 32 * MIB) < 64 * MIB


def test_an_arena_is_not_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever maps and touches it: the judge has it open."""
    monkeypatch.setattr(usage, "_shared_on_machine", lambda: 1 << 40)
    arena = os.memfd_create("arena")
    try:
        os.write(arena, bytes(32 * MIB))
        opened = f"file = os.open('/proc/{os.getpid()}/fd/{arena}', os.O_RDWR)"
        with hoarding(f"{opened}; kept = mmap.mmap(file, SIZE); bytes(kept); os.close(file)") as pids:
            assert held_by(pids, 20 * MIB) < 32 * MIB
    finally:
        os.close(arena)


V1 = "cache 5\nrss 100\nshmem 7\ntotal_cache 9\ntotal_rss 200\ntotal_shmem {shmem}\n"
V2 = "anon 200\nfile 999\nshmem {shmem}\nshmem_thp 5\n"


@pytest.mark.parametrize(("file", "text"), [("memory.stat", V2), ("memory/memory.stat", V1)])
def test_where_open_files_cannot_be_seen_all_files_in_memory_of_the_container_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    """As in a container, whose root may not look into other users' processes."""

    def list_files(path: str) -> list[str]:
        if str(path).endswith("/fd") and path != f"/proc/{os.getpid()}/fd":
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    listdir = os.listdir
    monkeypatch.setattr(usage.os, "listdir", list_files)
    monkeypatch.setattr(usage, "CGROUP", tmp_path)
    monkeypatch.setattr(usage.os, "geteuid", lambda: 0)
    with hoarding(OPEN) as pids:
        without = Look(pids).held_bytes(1 << 40)
        assert without < 32 * MIB  # nobody tells: its pages alone
        (tmp_path / file).parent.mkdir(exist_ok=True)
        ours = os.memfd_create("arena")
        os.write(ours, bytes(4 * MIB))
        (tmp_path / file).write_text(text.format(shmem=36 * MIB))
        try:
            held = Look(pids).held_bytes(1 << 40)
        finally:
            os.close(ours)
        assert held == pytest.approx(without + 32 * MIB, abs=MIB)
        assert Look(pids).bytes_on_disk() == 0
        monkeypatch.setattr(usage.os, "geteuid", lambda: 1000)  # on a machine of many, whose files these may be
        assert Look(pids).held_bytes(1 << 40) == pytest.approx(without, abs=MIB)


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
    monkeypatch.setattr(usage, "_own_pages", lambda: 1 << 30)
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
    monkeypatch.setattr(usage, "_own_pages", lambda: 5 << 30)
    assert not full(7.9), "it is the judge's"
    (tmp_path / limit).write_text("max\n")
    assert not full(7.9)


def test_a_process_that_has_just_ended_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder in /proc belongs to root then, and others may not look into it."""

    def refuse(path: str) -> list[str]:
        if str(ended.pid) in str(path):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    listdir = os.listdir
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        while state_of(ended.pid) != "Z":
            time.sleep(0.01)
        monkeypatch.setattr(usage.os, "listdir", refuse)
        assert Look([ended.pid]).held_bytes(0) == 0


def test_a_look_at_a_maze_of_mappings_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """After its time of a processor, or with the call: whichever is first."""
    monkeypatch.setattr(usage, "LOOK_LIMIT_S", 0.05)
    maze = "file = filled(); [map_(file, 4096, mmap.MAP_SHARED, 8192 * (number % 2)) for number in range(20_000)]"
    with hoarding(f"{maze}; [os.fork() or time.sleep(60) for _ in range(6)]") as pids:
        assert len(pids) == 7
        with pytest.raises(LookTooLong):
            Look(pids).hold_more_than(0)
        with pytest.raises(LookCutShort):
            Look(pids, limit_s=0.0).hold_more_than(0)

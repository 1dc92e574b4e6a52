"""Usage of a worker's processes: memory, files in memory, deleted files, and waits for a core. Read from /proc and
cgroups.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import stat
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from grader.pool.table import DEAD, record, state_of

A_LOT = 1 << 62  # bytes, for an unknown number
FULL = 7 / 8  # of a container's memory
CGROUP = Path("/sys/fs/cgroup")  # as seen in a container: version 2, or version 1 in subfolders
# A deleted file that is mapped, in proc(5)'s maps. Files in memory, whose names begin like IN_MEMORY_NAMES, are counted
# elsewhere.
IN_MEMORY_NAMES = "/memfd:|/dev/zero|/SYSV"
DELETED = re.compile(rf"(?m)^(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) ([1-9]\d*) +(?!{IN_MEMORY_NAMES})/.* \(deleted\)$")
# A mapping of a file in memory, in proc(5)'s maps and smaps; `{device}` is the device of such files.
IN_MEMORY = r"^(\w+)-(\w+) ...(.) (\w+) {device} (\d+) "

LOOK_LIMIT_S = 1.0  # of a processor: on a busy machine a look takes longer
PIECE_BYTES = 1 << 18

MemoryFile: TypeAlias = tuple[int, int]  # device and inode
_look = threading.local()


class LookTooLong(Exception):
    """The processes have so many mappings, or are so many, that looking at them would take too long."""


@contextlib.contextmanager
def bounded_look() -> Iterator[None]:
    """A block in which this thread may spend LOOK_LIMIT_S on files of /proc. Raises LookTooLong."""
    _look.end = time.thread_time() + LOOK_LIMIT_S
    try:
        yield
    finally:
        del _look.end


def _go_on() -> None:
    if time.thread_time() > getattr(_look, "end", math.inf):
        raise LookTooLong


def waited_s(pids: Iterable[int]) -> float:
    """The most seconds that one of these threads has waited for a core; 0 if the kernel does not tell."""
    waited = [0.0]
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            waited.append(int(record(f"/proc/{pid}/schedstat").split()[1]) / 1e9)
    return max(waited)


def spared(pids: Iterable[int]) -> list[int]:
    """The processes of these that the kernel would not end first when memory runs out."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if record(f"/proc/{pid}/oom_score_adj").strip() != b"1000":
                found.append(pid)
    return found


def hold_more_than(limit: int, pids: Sequence[int]) -> bool:
    """Whether processes hold more than `limit` bytes of memory (see `held_bytes`).

    Mostly their own pages and all files in memory of the machine together are less. Then no file is looked at: that
    would take one question for each open file, many times a second.
    """
    pages = 1024 * sum(_kilobytes(pid, "status", r"(?:Rss(?:Anon|Shmem)|VmPTE):\s+(\d+) kB") for pid in pids)
    if pages + shared_by_anyone() <= limit:
        return False
    return held_bytes(pids, limit) > limit


def held_bytes(pids: Sequence[int], limit: int) -> int:
    """Bytes of memory that processes hold: own pages, shared memory, page tables, and files in memory that they keep
    open or mapped.

    Pages of libraries do not count. In a container whose processes' open files cannot be seen, all its files in memory
    count, also in `/tmp`.

    The quick sum counts pages that forked processes share once for each process, and pages of files in memory twice.
    The kernel's fair shares are read only if the quick sum exceeds `limit`. Mapped files are looked for only if the
    machine has enough shared memory to matter.
    """
    files: dict[MemoryFile, int] = {}
    hidden, pages = 0, "Anon|Shmem"
    try:
        files = _files_in_memory(pids)
    except PermissionError:  # another user's process, and this root has no right to look, as in a container
        if os.geteuid() == 0:
            hidden, pages = _shared_in_container()
    counted = rf"(?:Rss(?:{pages})|VmPTE):\s+(\d+) kB"
    quick = hidden + sum(files.values()) + 1024 * sum(_kilobytes(one, "status", counted) for one in pids)
    if pages == "Anon|Shmem" and quick > limit - shared_on_machine():
        with contextlib.suppress(PermissionError):
            mapped = _files_only_mapped(pids, files)
            files |= mapped
            quick += sum(mapped.values())
    if quick <= limit:
        return quick
    try:
        fair = 1024 * sum(_kilobytes(one, "smaps_rollup", r"Pss_(?:Anon|Shmem):\s+(\d+) kB") for one in pids)
        tables = 1024 * sum(_kilobytes(one, "status", r"VmPTE:\s+(\d+) kB") for one in pids)
        touched = _touched(pids) if files else {}
    except PermissionError:
        return min(quick, _bytes_of_container("anon|rss|shmem", A_LOT) - own_bytes())
    return hidden + fair + tables + sum(max(0, size - touched.get(file, 0)) for file, size in files.items())


def _files_in_memory(pids: Iterable[int]) -> dict[MemoryFile, int]:
    """Bytes of anonymous files (memfd_create) that these processes have open, without this process's. Raises
    PermissionError.
    """
    ours = _own_memory_files()
    theirs = {(status.st_dev, status.st_ino): status for pid in pids for status in memory_files(pid)}
    return {key: 512 * status.st_blocks for key, status in theirs.items() if key not in ours}


def _files_only_mapped(pids: Iterable[int], known: Container[MemoryFile]) -> dict[MemoryFile, int]:
    """Bytes of other files in memory that these processes have mapped, without this process's; touched pages or not.

    Anonymous shared memory and System V's are such files. Only root can read the size of a file that is open nowhere.
    For other users the mapped length counts, and the sum is at most the machine's shared memory.
    """
    ours, device = _own_memory_files(), _device_of_memory_files()
    exact: dict[MemoryFile, int] = {}
    seen: dict[MemoryFile, int] = {}
    for pid in pids:
        for start, end, _, offset, inode in re.findall(_in_memory(device), _text(pid, "maps"), re.MULTILINE):
            key = device, int(inode)
            if key in known or key in ours or key in exact:
                continue
            try:
                status = os.stat(f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}")  # noqa: PTH116
                exact[key] = 512 * status.st_blocks
            except PermissionError:
                seen[key] = max(seen.get(key, 0), int(offset, 16) + int(end, 16) - int(start, 16))
            except OSError:  # unmapped meanwhile, or the process has ended
                pass
    if sum(seen.values()) > (most := shared_on_machine()):
        seen = dict.fromkeys(seen, most // len(seen))
    return seen | exact


def _touched(pids: Iterable[int]) -> dict[MemoryFile, int]:
    """Bytes of files in memory among these processes' pages, in fair shares; `held_bytes` has counted them
    already.
    """
    device = _device_of_memory_files()
    pattern = rf"{_in_memory(device)}.*\n(?:[A-Z].*\n)*?Pss:\s+(\d+) kB"
    sizes: dict[MemoryFile, int] = {}
    for pid in pids:
        for _, _, shared, _, inode, kilobytes in re.findall(pattern, _text(pid, "smaps"), re.MULTILINE):
            if shared == "s":  # a private mapping's pages may be copies
                sizes[device, int(inode)] = sizes.get((device, int(inode)), 0) + 1024 * int(kilobytes)
    return sizes


def _in_memory(device: int) -> str:
    return IN_MEMORY.format(device=f"{os.major(device):02x}:{os.minor(device):02x}")


@functools.cache
def _device_of_memory_files() -> int:
    """The device of the kernel's file system for memfd_create, anonymous shared memory and System V's."""
    file = os.memfd_create("grader-look", os.MFD_CLOEXEC)
    try:
        return os.fstat(file).st_dev
    finally:
        os.close(file)


def _own_memory_files() -> set[MemoryFile]:
    return {(status.st_dev, status.st_ino) for status in memory_files(os.getpid())}


def shared_on_machine() -> int:
    """Bytes of shared memory and files in memory on this machine, swapped out or not, without this process's files."""
    return max(0, shared_by_anyone() - _own_files())


def shared_by_anyone() -> int:
    """Bytes of shared memory and files in memory on this machine, swapped out or not, this process's included."""
    sizes = dict(re.findall(rb"^(\w+):\s+(\d+) kB$", record("/proc/meminfo"), re.MULTILINE))
    if not sizes.keys() >= {b"Shmem", b"SwapTotal", b"SwapFree"}:
        return A_LOT
    huge = int(sizes.get(b"Hugetlb", 0))  # files of huge pages count apart
    return 1024 * (int(sizes[b"Shmem"]) + huge + int(sizes[b"SwapTotal"]) - int(sizes[b"SwapFree"]))


def _text(pid: int, file: str) -> str:
    """A file of /proc with a line or more for each mapping, of which a process may have 65530. Raises LookTooLong."""
    pieces = []
    try:
        with open(f"/proc/{pid}/{file}", "rb", buffering=0) as stream:  # noqa: PTH123
            while piece := stream.read(PIECE_BYTES):
                _go_on()
                pieces.append(piece)
        return b"".join(pieces).decode("utf-8", "replace")
    except PermissionError:
        if state_of(pid) in DEAD:
            return ""
        raise
    except OSError:
        return ""


def _open_files(pid: int) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The open files of a process, as link target and folder entry. Raises PermissionError."""
    try:
        entries = list(os.scandir(f"/proc/{pid}/fd"))
    except PermissionError:
        if state_of(pid) in DEAD:
            return
        raise
    except OSError:  # the process has ended
        return
    for entry in entries:
        with contextlib.suppress(OSError):
            yield os.readlink(entry.path), entry  # noqa: PTH115


def memory_files(pid: int) -> Iterator[os.stat_result]:
    """Anonymous files (memfd_create) that a process has open. Raises PermissionError."""
    for target, entry in _open_files(pid):
        with contextlib.suppress(OSError):
            if target.startswith("/memfd:"):
                yield entry.stat()


def nameless_bytes(pids: Iterable[int]) -> int:
    """Bytes on disks of deleted files that these processes still have open or mapped.

    In a container whose processes' open files cannot be seen, that is 0: files there lie in memory and count there.
    """
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for target, entry in _open_files(pid):
                if target.endswith(" (deleted)") and not target.startswith("/memfd:"):
                    with contextlib.suppress(OSError):  # closed meanwhile
                        status = entry.stat()
                        if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                            sizes[status.st_dev, status.st_ino] = 512 * status.st_blocks
        with contextlib.suppress(OSError):
            for start, end, offset, major, minor, inode in DELETED.findall(_text(pid, "maps")):
                key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
                sizes[key] = max(sizes.get(key, 0), int(offset, 16) + int(end, 16) - int(start, 16))
    return sum(sizes.values())


def _shared_in_container() -> tuple[int, str]:
    """Bytes of shared memory and files in memory of this container without this process's, and the kinds of pages to
    count beside.
    """
    shared = _bytes_of_container("shmem", -1)
    return (0, "Anon|Shmem") if shared < 0 else (max(0, shared - _own_files()), "Anon")


def _bytes_of_container(what: str, unknown: int) -> int:
    """Bytes that the kernel counts for this container under names such as `anon|shmem`; `unknown` if it does not
    tell.
    """
    for file, prefix in (("memory.stat", ""), ("memory/memory.stat", "total_")):
        with contextlib.suppress(OSError):
            text = (CGROUP / file).read_text(encoding="ascii")
            if counts := re.findall(rf"^{prefix}(?:{what}) (\d+)$", text, re.MULTILINE):
                return sum(map(int, counts))
    return unknown


def container_is_full() -> bool:
    """Whether nearly all memory of this container is in use, most of it not by this process.

    The kernel would soon end the largest process, perhaps this one. Memory that no process holds counts too, as bytes
    in sockets.
    """
    version_1 = "memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"
    for limit, current in (("memory.max", "memory.current"), version_1):
        with contextlib.suppress(OSError, ValueError):  # not this version of cgroups, or no limit
            most, used = (int((CGROUP / name).read_text(encoding="ascii")) for name in (limit, current))
            if used <= most * FULL:
                return False
            # Page cache, which the kernel can drop
            used -= _bytes_of_container("file|cache", 0) - _bytes_of_container("shmem", 0)
            return used > most * FULL and used - own_bytes() > most / 2
    return False


def own_bytes() -> int:
    return _own_files() + 1024 * _kilobytes(os.getpid(), "status", r"RssAnon:\s+(\d+) kB")


def _own_files() -> int:
    return sum(512 * status.st_blocks for status in memory_files(os.getpid()))


def _kilobytes(pid: int, file: str, pattern: str) -> int:
    """The sum of all matches of `pattern` in a file of /proc; 0 if the process is gone. Raises PermissionError, LookTooLong."""
    _go_on()
    try:
        return sum(map(int, re.findall(pattern.encode(), record(f"/proc/{pid}/{file}"))))
    except PermissionError:
        raise
    except OSError:
        return 0

"""What a worker's processes use: memory, files in memory, deleted files, and waits for a core. Read from /proc and
cgroups.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import psutil

from grader.pool.table import DEAD, record, state_of

LOOK_LIMIT_S = 1.0
FULL = 7 / 8  # of a container's memory
CGROUP = Path("/sys/fs/cgroup")  # as seen in a container: version 2, or version 1 in subfolders
PIECE_BYTES = 1 << 18
DELETED = " (deleted)"  # ends the name that /proc shows for a file without one
IN_MEMORY = ("/memfd:", "/dev/zero", "/SYSV", "/dev/shm/")  # the names of such files in memory begin like these
# A mapping of a file without a name, in proc(5)'s maps: begin, end, offset, device, inode and name
MAPPED = re.compile(r"(?m)^(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) ([1-9]\d*) +(/.*) \(deleted\)$")

FileKey: TypeAlias = tuple[int, int]  # device and inode


class LookTooLong(Exception):
    """A look has taken LOOK_LIMIT_S of a processor."""


class LookCutShort(Exception):
    """A look's wall time is over."""


class Nameless(NamedTuple):
    """A file that ends with the processes that keep it open or mapped: an anonymous file in memory (memfd_create, shared
    memory), or a deleted one. `size` in bytes.
    """

    in_memory: bool
    size: int


class Look:
    """A look at what processes hold. Methods raise LookTooLong and LookCutShort.

    A process may have 65530 mappings and thousands of open files, and a tree hundreds of processes, so a look takes at
    most LOOK_LIMIT_S of a processor.

    Args:
        pids: a thread of each process.
        limit_s: wall time of the look.
    """

    def __init__(self, pids: Iterable[int], limit_s: float = math.inf) -> None:
        self._pids = list(pids)
        self._until = time.monotonic() + limit_s
        self._processor_until = time.thread_time() + LOOK_LIMIT_S

    @property
    def left_s(self) -> float:
        """Seconds of wall time that are left."""
        return self._until - time.monotonic()

    def go_on(self) -> None:
        """Raise LookTooLong or LookCutShort if no time is left."""
        if time.thread_time() > self._processor_until:
            raise LookTooLong
        if self.left_s <= 0:
            raise LookCutShort

    def hold_more_than(self, limit: int) -> bool:
        """Whether the processes hold more than `limit` bytes of memory (see `held_bytes`).

        Mostly their own pages and all files in memory of the machine together are less. Then no file is looked at: that
        would take a question for each open file, many times a second.
        """
        if self._bytes("status", "RssAnon|VmPTE") + _shared_on_machine() <= limit:
            return False
        return self.held_bytes(limit) > limit

    def held_bytes(self, limit: int) -> int:
        """Bytes of memory that the processes hold: own pages, page tables, and files in memory that they keep open or
        mapped, but for files of this process; of files at most the machine's shared memory. In a container whose
        processes' open files cannot be seen, all its files in memory count, also in `/tmp`.

        Pages of libraries do not count. Pages that forked processes share count once for each process, and by the
        kernel's fair shares only if that sum exceeds `limit`.
        """
        ours, pages = _own_files(), self._bytes("status", "RssAnon|VmPTE")
        try:
            theirs = sum(file.size for key, file in self._nameless().items() if file.in_memory and key not in ours)
            files = min(theirs, max(0, _shared_on_machine() - sum(ours.values())))
        except PermissionError:
            shared = _bytes_of_container("shmem")
            files = self._bytes("status", "RssShmem") if shared is None else max(0, shared - sum(ours.values()))
        if files + pages > limit:
            try:
                pages = self._bytes("smaps_rollup", "Pss_Anon") + self._bytes("status", "VmPTE")
            except PermissionError:
                if (of_all := _bytes_of_container("anon|rss")) is not None:
                    pages = min(pages, of_all - _own_pages())
        return files + pages

    def bytes_on_disk(self) -> int:
        """Bytes of deleted files on disks that the processes keep open or mapped.

        In a container whose processes' open files cannot be seen, that is 0: files there lie in memory and count there.
        """
        with contextlib.suppress(PermissionError):
            return sum(file.size for file in self._nameless().values() if not file.in_memory)
        return 0

    def _nameless(self) -> dict[FileKey, Nameless]:
        """Raises PermissionError if this is root without the right to look into another user's process, as in a
        container.
        """
        exact: dict[FileKey, Nameless] = {}
        mapped: dict[FileKey, Nameless] = {}
        for pid in self._pids:
            try:
                for key, file in _open_nameless(pid):
                    self.go_on()
                    exact[key] = file
                pieces = []
                with open(f"/proc/{pid}/maps", "rb", buffering=0) as stream:  # noqa: PTH123
                    while piece := stream.read(PIECE_BYTES):
                        self.go_on()
                        pieces.append(piece)
                for begin, end, offset, major, minor, inode, name in MAPPED.findall(b"".join(pieces).decode("latin-1")):
                    self.go_on()
                    key = os.makedev(int(major, 16), int(minor, 16)), int(inode)
                    if key in exact:
                        continue
                    in_memory, first, last = name.startswith(IN_MEMORY), int(begin, 16), int(end, 16)
                    try:
                        status = os.stat(f"/proc/{pid}/map_files/{first:x}-{last:x}")  # noqa: PTH116
                        exact[key] = Nameless(in_memory, 512 * status.st_blocks)
                    except PermissionError:  # only root may ask for the size: the mapped length counts
                        size = int(offset, 16) + last - first
                        mapped[key] = max(Nameless(in_memory, size), mapped.get(key, Nameless(in_memory, 0)))
                    except OSError:  # unmapped meanwhile
                        pass
            except PermissionError:
                if os.geteuid() == 0 and state_of(pid) not in DEAD:
                    raise
            except (FileNotFoundError, ProcessLookupError):  # the process has ended
                pass
        return mapped | exact

    def _bytes(self, file: str, names: str) -> int:
        """The sum of lines, as `VmPTE:  12 kB`, of a file of /proc over all processes. Raises PermissionError."""
        found, pattern = 0, rf"(?m)^(?:{names}):\s+(\d+) kB$".encode()
        for pid in self._pids:
            self.go_on()
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has ended
                found += 1024 * sum(map(int, re.findall(pattern, record(f"/proc/{pid}/{file}"))))
        return found


def _open_nameless(pid: int) -> Iterator[tuple[FileKey, Nameless]]:
    """The files without a name that a process has open. Raises OSError."""
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            target = os.readlink(f"{folder}/{number}")  # noqa: PTH115
            if target.endswith(DELETED):
                status = os.stat(f"{folder}/{number}")  # noqa: PTH116
                if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                    file = Nameless(target.startswith(IN_MEMORY), 512 * status.st_blocks)
                    yield (status.st_dev, status.st_ino), file


def _own_files() -> dict[FileKey, int]:
    """Bytes of this process's files in memory, as the arenas."""
    return {key: file.size for key, file in _open_nameless(os.getpid()) if file.in_memory}


def _own_pages() -> int:
    pages = psutil.Process().memory_info()
    return pages.rss - pages.shared


def _shared_on_machine() -> int:
    """Bytes of shared memory and files in memory on this machine, swapped out or not."""
    kilobytes = dict(re.findall(rb"(?m)^(\w+):\s+(\d+) kB$", record("/proc/meminfo")))
    return 1024 * (int(kilobytes[b"Shmem"]) + int(kilobytes[b"SwapTotal"]) - int(kilobytes[b"SwapFree"]))


def _bytes_of_container(names: str) -> int | None:
    """Bytes that the kernel counts for this container under names such as `anon|rss`; None if it does not tell."""
    for file, prefix in (("memory.stat", ""), ("memory/memory.stat", "total_")):
        with contextlib.suppress(OSError):
            text = (CGROUP / file).read_text(encoding="ascii")
            if counts := re.findall(rf"^{prefix}(?:{names}) (\d+)$", text, re.MULTILINE):
                return sum(map(int, counts))
    return None


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
            used -= (_bytes_of_container("file|cache") or 0) - (_bytes_of_container("shmem") or 0)
            return used > most * FULL and used - _own_pages() - sum(_own_files().values()) > most / 2
    return False


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

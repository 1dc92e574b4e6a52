"""Keeps the output of a worker, in sections by case."""

from __future__ import annotations

import os
import select
import threading
from dataclasses import dataclass, field
from itertools import pairwise

LOG_HEAD_BYTES = 8 * 1024  # kept of each section
LOG_TAIL_BYTES = 24 * 1024
READ_BYTES = 1 << 20  # at once: all that a pipe holds


@dataclass
class _Section:
    """Output from byte `start` up to the next section. `head` is its beginning."""

    name: str
    start: int
    head: bytearray = field(default_factory=bytearray)


class Log:
    """A process's output in sections. Keeps the beginning of each section, the end of the whole, and the total
    length.

    A thread empties the pipe, so that the process never waits. On a busy machine the thread may be late, so every method reads
    what is in the pipe first.
    """

    def __init__(self, stream: int) -> None:
        """Begin to read. `stream` is the read end of a pipe, which the log closes."""
        os.set_blocking(stream, False)
        self._stream = stream
        self._sections = [_Section("", 0)]
        self._tail = bytearray()
        self._total_bytes = 0
        self._lock = threading.Lock()
        self._open = True
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        while self._open:
            select.select([self._stream], [], [])
            with self._lock:
                self._open = self._read()
        os.close(self._stream)

    def _read(self) -> bool:
        """Keep what is in the pipe. Returns False at its end."""
        if not self._open:
            return False
        try:
            data = os.read(self._stream, READ_BYTES)
        except OSError as error:
            return isinstance(error, BlockingIOError)  # there is nothing now
        last = self._sections[-1]
        last.head += data[: LOG_HEAD_BYTES - len(last.head)]
        self._tail = (self._tail + data)[-LOG_TAIL_BYTES:]
        self._total_bytes += len(data)
        return bool(data)

    def mark(self, name: str) -> None:
        """Begin a section: output from now on gets this name."""
        with self._lock:
            self._read()
            if name != self._sections[-1].name:
                self._sections.append(_Section(name, self._total_bytes))

    @property
    def total_bytes(self) -> int:
        """The length of the output so far, kept or not."""
        with self._lock:
            self._read()
            return self._total_bytes

    def sections(self) -> list[tuple[str, str]]:
        """The kept output in order, each section with its name; "" before the first mark."""
        return [(name, text) for name, text in self._texts() if text.strip()]

    def text(self) -> str:
        """The kept output, with a line at each gap."""
        return "".join(text for _, text in self._texts())

    def _texts(self) -> list[tuple[str, str]]:
        with self._lock:
            self._read()
            sections = [*self._sections, _Section("", self._total_bytes)]
            return [(section.name, self._text(section, following.start)) for section, following in pairwise(sections)]

    def _text(self, section: _Section, end: int) -> str:
        start = section.start + len(section.head)
        kept_from = self._total_bytes - len(self._tail)
        head, tail = bytes(section.head), bytes(self._tail[max(0, start - kept_from) : max(0, end - kept_from)])
        dropped = max(0, end - start) - len(tail)
        middle = f"\n... {dropped} bytes left out ...\n".encode() if dropped > 0 else b""
        return (head + middle + tail).decode(errors="replace").replace("\0", "")

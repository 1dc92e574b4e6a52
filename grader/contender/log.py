"""Keeps the output of a worker, in sections by case."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import termios
import threading
from dataclasses import dataclass, field
from itertools import pairwise

LOG_HEAD_BYTES = 8 * 1024  # kept of each section
LOG_TAIL_BYTES = 24 * 1024


@dataclass
class _Section:
    """Output from byte `start` up to the next section. `head` is its beginning."""

    name: str
    start: int
    head: bytearray = field(default_factory=bytearray)


class Log:
    """A process's output in sections. Keeps the beginning of each section, the end of the whole, and the total
    length.
    """

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._sections = [_Section("", 0)]
        self._tail = bytearray()
        self._reading = threading.Lock()
        self._open = True
        self.total_bytes = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                select.select([self._stream], [], [])
                with self._reading:
                    data = os.read(self._stream, 1 << 20)
                    if not data:
                        break
                    self._keep(data)
        with self._reading:
            self._open = False
            os.close(self._stream)

    def _keep(self, data: bytes) -> None:
        before, self.total_bytes = self.total_bytes, self.total_bytes + len(data)
        self._tail = (self._tail + data)[-LOG_TAIL_BYTES:]
        end = self.total_bytes
        for section in reversed(self._sections):  # a mark may precede data that was in the pipe when the mark was set
            piece = data[max(0, section.start - before) : max(0, end - before)]
            section.head += piece[: LOG_HEAD_BYTES - len(section.head)]
            end = min(end, section.start)
            if end <= before:
                break

    def mark(self, name: str) -> None:
        """Begin a section: output from now on gets this name."""
        with self._reading:
            if name == self._sections[-1].name:
                return
            waiting = array.array("i", [0])
            if self._open:
                fcntl.ioctl(self._stream, termios.FIONREAD, waiting)
            self._sections.append(_Section(name, self.total_bytes + waiting[0]))

    def sections(self) -> list[tuple[str, str]]:
        """The kept output in order, each section with its name; "" before the first mark."""
        parts = [(section.name, self._text(section, end)) for section, end in self._with_ends()]
        return [(name, text) for name, text in parts if text.strip()]

    def _with_ends(self) -> list[tuple[_Section, int]]:
        sections = [*self._sections, _Section("", self.total_bytes)]
        return [(section, following.start) for section, following in pairwise(sections)]

    def _text(self, section: _Section, end: int) -> str:
        start = section.start + len(section.head)
        kept_from = self.total_bytes - len(self._tail)
        head, tail = bytes(section.head), bytes(self._tail[max(0, start - kept_from) : max(0, end - kept_from)])
        dropped = max(0, end - start) - len(tail)
        middle = f"\n... {dropped} bytes left out ...\n".encode() if dropped > 0 else b""
        return (head + middle + tail).decode(errors="replace").replace("\0", "")

    def finish(self) -> None:
        """Wait a moment for output that is still in the pipe."""
        self._thread.join(timeout=1.0)

    def text(self) -> str:
        """The kept output, with a line at each gap."""
        return "".join(self._text(section, end) for section, end in self._with_ends())

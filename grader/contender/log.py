"""What a worker prints."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import termios
import threading
from itertools import pairwise

LOG_HEAD_BYTES = 24 * 1024
LOG_TAIL_BYTES = 24 * 1024


class Log:
    """What a process prints: the beginning and the end of it, and how much there was."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._head = bytearray()
        self._tail = bytearray()
        self._marks = [(0, "")]
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
                    self.total_bytes += len(data)
                    room = LOG_HEAD_BYTES - len(self._head)
                    if room > 0:
                        self._head += data[:room]
                        data = data[room:]
                    self._tail = (self._tail + data)[-LOG_TAIL_BYTES:]
        with self._reading:
            self._open = False
            os.close(self._stream)

    def mark(self, name: str) -> None:
        """Have what is printed from now on be told under this name (see `sections`)."""
        with self._reading:
            if name == self._marks[-1][1]:
                return
            waiting = array.array("i", [0])
            if self._open:
                fcntl.ioctl(self._stream, termios.FIONREAD, waiting)
            self._marks.append((self.total_bytes + waiting[0], name))

    def sections(self) -> list[tuple[str, str]]:
        """The kept output in the order in which it was printed, each part with the name of the mark before it; "" before the first."""
        ends = [*self._marks, (self.total_bytes, "")]
        parts = [(name, self._between(start, end)) for (start, name), (end, _) in pairwise(ends)]
        return [(name, text) for name, text in parts if text.strip()]

    def _between(self, start: int, end: int) -> str:
        left_out = self.total_bytes - len(self._tail)  # what lies before is in the head, or nowhere
        head, tail = bytes(self._head[start:end]), bytes(self._tail[max(0, start - left_out) : max(0, end - left_out)])
        dropped = max(0, end - start) - len(head) - len(tail)
        middle = f"\n... {dropped} bytes left out ...\n".encode() if dropped > 0 else b""
        return (head + middle + tail).decode(errors="replace").replace("\0", "")

    def finish(self) -> None:
        """Wait a moment for what is still in the pipe."""
        self._thread.join(timeout=1.0)

    def text(self) -> str:
        """The kept output, with a line where some of it was left out."""
        return self._between(0, self.total_bytes)

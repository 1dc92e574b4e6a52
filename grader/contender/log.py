"""What a worker prints."""

from __future__ import annotations

import contextlib
import os
import threading

LOG_HEAD_BYTES = 24 * 1024
LOG_TAIL_BYTES = 24 * 1024


class Log:
    """What a process prints: the beginning and the end of it, and how much there was."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._stream, 1 << 20):
                self.total_bytes += len(data)
                room = LOG_HEAD_BYTES - len(self._head)
                if room > 0:
                    self._head += data[:room]
                    data = data[room:]
                self._tail = (self._tail + data)[-LOG_TAIL_BYTES:]
        os.close(self._stream)

    def finish(self) -> None:
        """Wait a moment for what is still in the pipe."""
        self._thread.join(timeout=1.0)

    def text(self) -> str:
        """The kept output, with a line where some of it was left out."""
        head, tail = bytes(self._head), bytes(self._tail)
        dropped = self.total_bytes - len(head) - len(tail)
        middle = f"\n... {dropped} bytes left out ...\n".encode() if dropped > 0 else b""
        return (head + middle + tail).decode(errors="replace").replace("\0", "")

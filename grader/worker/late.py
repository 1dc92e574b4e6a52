"""Prints the stacks of a worker's threads to standard error when the time of a request is up; the judge reads them from
the log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
from collections.abc import Callable, Iterator

STANDARD_ERROR = 2  # The descriptor, also where the student's code has replaced sys.stderr.


@contextlib.contextmanager
def told_where(limit_s: float, describe: Callable[[], str] | None = None) -> Iterator[None]:
    """Print where the code of this block is, if it still runs after `limit_s` seconds.

    A Python thread prints: all other threads stand still meanwhile. (`faulthandler.dump_traceback_later` reads the
    frames of running threads, and may crash the worker on a frame that is gone.)

    Args:
        describe: returns the frames, a line like Python's for each; by default Python's own frames are printed.
    """

    def write() -> None:
        os.write(STANDARD_ERROR, f"Timeout ({limit_s:g} s)!\n".encode())
        if describe is None:
            faulthandler.dump_traceback(STANDARD_ERROR)
        else:
            os.write(STANDARD_ERROR, f"Thread 0x0 (most recent call first):\n{describe()}".encode())

    if limit_s > threading.TIMEOUT_MAX:
        yield
        return
    timer = threading.Timer(limit_s, write)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()

"""What a worker writes to standard error when the time of a request is up: where its threads are, which the judge reads."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import threading
from collections.abc import Callable, Iterator

STANDARD_ERROR = 2  # whatever the student has made of sys.stderr


@contextlib.contextmanager
def told_where(limit_s: float, describe: Callable[[], str] | None = None) -> Iterator[None]:
    """Write down where the code in here is, should it still run after this time.

    A Python thread writes it: all others stand still meanwhile. (`faulthandler.dump_traceback_later` reads the frames of threads that
    run. In about one of ten interpreted kernels it met a frame that was gone, and crashed the worker.)

    Args:
        describe: says where, a line like Python's for each frame; without it Python's own frames are written.
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

"""Which files this process has open."""

from __future__ import annotations

import gc
import os


def open_files(first: bool = False) -> set[int]:
    """The numbers of the files that are open.

    Args:
        first: whether what only garbage of earlier tests keeps open is closed before; the garbage collector would close it in
            the middle of a test.
    """
    if first:
        gc.collect()
    numbers = os.listdir("/proc/self/fd")  # noqa: PTH208  # with the folder itself, which is closed by now
    return {int(number) for number in numbers if os.path.lexists(f"/proc/self/fd/{number}")}

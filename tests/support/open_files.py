"""Which files this process has open."""

from __future__ import annotations

import gc
import os


def open_files() -> set[int]:
    """The numbers of the files that are open. What only garbage of earlier tests keeps open is closed first: the garbage
    collector would close it in the middle of a test.
    """
    gc.collect()
    numbers = os.listdir("/proc/self/fd")  # noqa: PTH208  # with the folder itself, which is closed by now
    return {int(number) for number in numbers if os.path.lexists(f"/proc/self/fd/{number}")}

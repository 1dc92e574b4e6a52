"""How Triton tells what it has compiled from what another version of it would."""

from __future__ import annotations

from pathlib import Path

import triton
from triton.runtime import cache


def make_cheap() -> None:
    """Have Triton's version, and the size and date of its library, stand for its files in the names under which it keeps what it compiles.

    It takes a sum over all these files otherwise, half a gigabyte, in every process that asks for a kernel: 0.3 s on a large host, 1 s on
    a small one. A Triton that has another way to names is left to it.
    """
    library = Path(triton.__file__).with_name("_C") / "libtriton.so"
    if hasattr(cache, "triton_key") and library.is_file():
        about = library.stat()
        key = f"{triton.__version__}-{about.st_size}-{about.st_mtime_ns}"
        cache.triton_key = lambda: key

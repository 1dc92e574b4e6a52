"""Makes Triton's key, by which its cache names compiled kernels, cheap to compute."""

from __future__ import annotations

from pathlib import Path

import triton
from triton.runtime import cache


def make_cheap() -> None:
    """Compute Triton's key from its version and its library's size and date, instead of a hash of all its files.

    The hash reads half a gigabyte in every process that asks for a kernel. A Triton without `triton_key` is left as it
    is.
    """
    library = Path(triton.__file__).with_name("_C") / "libtriton.so"
    if hasattr(cache, "triton_key") and library.is_file():
        about = library.stat()
        key = f"{triton.__version__}-{about.st_size}-{about.st_mtime_ns}"
        cache.triton_key = lambda: key

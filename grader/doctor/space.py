"""Looks at the free disk space, and for the remains of killed runs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grader import runfolder
from grader.doctor.finding import Finding

NEEDED_GIB, WANTED_GIB = 1.0, 5.0  # for a run's files; and for builds of the torch form and PyTorch's caches too
ELSEWHERE = "`mkdir -p ~/grader-tmp && export TMPDIR=~/grader-tmp`"


def free_gib(folder: Path) -> float:
    return shutil.disk_usage(folder).free / 2**30


def findings() -> Iterator[Finding]:
    """Free disk of the folder of runs, and leftovers."""
    folder = Path(tempfile.gettempdir())
    free = free_gib(folder)
    words = f"{free:.1f} GiB in {folder}"
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        yield Finding("fault", f"{folder} is mounted noexec: what is compiled there cannot run", ELSEWHERE)
    elif free < WANTED_GIB:
        mend = f"delete files, or work on another disk: {ELSEWHERE}"
        yield Finding("fault" if free < NEEDED_GIB else "caution", f"only {words}", mend)
    else:
        yield Finding("fine", words)
    if found := runfolder.abandoned():
        words = f"{len(found)} folder{'s' * (len(found) > 1)} of killed runs in {folder}"
        yield Finding("caution", words, "`grader cleanup`")
    else:
        yield Finding("fine", "no killed run left anything")

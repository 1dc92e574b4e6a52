"""The finding of a look at this machine, and running a program to get one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["fine", "unneeded", "caution", "fault"]
NAMES = (
    "Python", "PyTorch", "Triton", "C++ compiler", "nvcc",
    "NVIDIA driver", "GPU", "other GPU users", "shared memory",
    "bubblewrap", "user namespaces", "Docker", "grading image", "GPU in Docker",
    "free disk", "leftovers",
    "right kernel", "wrong kernel", "escape",
)  # fmt: skip
OURS = "mend what is marked above first; if nothing is, tell the grader's authors"


@dataclass(frozen=True)
class Finding:
    """The state of one part of this machine.

    name: one of NAMES, in whose order findings are shown.
    state: `fine`; `unneeded`, a part that is missing and not needed on this machine; `caution`, a weakness with which grading works;
        `fault`, with which all or some of grading does not work.
    words: the observation.
    mend: the remedy, with commands in backticks; "" if there is nothing to mend.
    """

    name: str
    state: State
    words: str
    mend: str = ""


def ask(command: Sequence[str], limit_s: float) -> tuple[bool, str, str]:
    """Run a program for at most `limit_s` seconds. Returns whether it succeeded, its stdout, and the failure in one line."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return False, "", f"did not finish within {limit_s:g} s"
    except OSError as error:
        return False, "", str(error)
    if done.returncode == 0:
        return True, done.stdout, ""
    lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    lines = lines or [f"exit code {done.returncode}"]
    return False, done.stdout, next((line for line in lines if re.search(r"\berror\s*:", line)), lines[-1])[:300]

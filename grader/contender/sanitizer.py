"""The command of compute-sanitizer."""

from __future__ import annotations

import shutil

from grader.assignment import Tool
from grader.contender.worker import TOOL_LOG
from grader.nvidia import find_sanitizer

OPTIONS = ["--print-limit", "200", "--show-backtrace", "no", "--target-processes", "application-only", "--log-file"]


def command(tool: Tool) -> list[str]:
    """The command that runs a program under the tool. The tool ends with its parent process."""
    program, setpriv = find_sanitizer(), shutil.which("setpriv")
    assert program is not None
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), program, "--tool", tool, *OPTIONS, TOOL_LOG]

"""The finding of a look at this machine, its terminal view, and running a program to get one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.report.style import plain

State = Literal["fine", "unneeded", "caution", "fault"]
NAME_WIDTH = 15  # columns for the name of a part
MARKS: dict[State, tuple[str, str]] = {
    "fine": ("✓", "green"),
    "unneeded": ("–", "bright_black"),
    "caution": ("!", "yellow"),
    "fault": ("✗", "bold red"),
}
OURS = "mend what is marked above first; if nothing is, tell the grader's authors"
SLOW = re.compile(
    r"did not finish within|gave no answer within|timed out"
)  # in the words about a program that was ended for its time
AGAIN = "slow is not broken: ask again when this machine has less to do; if it stays so, a driver or a disk hangs"


@dataclass(frozen=True)
class Finding:
    """The state of one part of this machine.

    state: `fine`; `unneeded`, a part that is missing and not needed on this machine; `caution`, a weakness with which grading works;
        `fault`, with which all or some of grading does not work.
    words: the observation.
    mend: the remedy, with commands in backticks; "" if there is nothing to mend.
    name: of the part, which `examine` knows.
    """

    state: State
    words: str
    mend: str = ""
    name: str = ""


class Unneeded(Exception):
    """Ends a look: the parts that it has not told of are not needed, and the message says why."""


def broken(words: str, mend: str, state: State = "fault") -> Finding:
    """The finding of a part whose trial failed with `words`. If it only ran out of time, it is a caution: nobody mends what is slow."""
    return Finding("caution", words, AGAIN) if SLOW.search(words) else Finding(state, words, mend)


def show(finding: Finding, console: Console) -> None:
    """Print mark, name and words of a finding in columns; below them the mend in one piece, to be copied."""
    mark, style = MARKS[finding.state]
    row = Table.grid(padding=(0, 1))
    row.add_column(width=1)
    row.add_column(width=NAME_WIDTH)
    row.add_column()
    quiet = style if finding.state == "unneeded" else ""
    row.add_row(Text(mark, style), plain(finding.name, quiet or "bold"), plain(finding.words, quiet))
    console.print(row)
    if finding.mend:
        console.print(plain(f"    → {finding.mend}", "dim"), soft_wrap=True)


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

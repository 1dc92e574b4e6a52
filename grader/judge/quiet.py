"""A GPU that is busy when every contender stands still: wait until it is quiet, or say who keeps it busy."""

from __future__ import annotations

import time

from grader.contender.contender import Contender
from grader.judge.evidence import CaseRefused, CheckFailed
from grader.judge.gpu import Gauge

PATIENCE_S = (0.02, 0.1, 0.5, 2.0)  # how long to wait for a busy GPU
QUIET_LOOKS = 3  # one after another
MAX_REPEATS = 3


def wait_for_quiet(gauge: Gauge, submission: Contender, was_running: bool, attempt: int) -> None:
    """Return when the GPU is quiet and the batch may be run again. Ends the submission to see whether the work was its own.

    Args:
        was_running: whether it was the submission that had run.
        attempt: how often that batch was run, from 1.

    Raises:
        CheckFailed: the submission keeps the GPU busy.
        CaseRefused: another program does.
    """
    quiet = _becomes_quiet(gauge)
    if quiet and attempt <= MAX_REPEATS:
        return
    if not quiet and submission.lives():
        submission.kill()
        # The driver ends what a process has left running a little after the process.
        if not gauge.others() and _becomes_quiet(gauge):
            raise CheckFailed(
                "kernels of your code still ran on the GPU after your function had returned and its stream was done"
            )
    elif was_running:
        raise CheckFailed(
            "again and again the GPU was still busy when your function had returned and its stream was done: "
            "consistent with work on a stream or in a thread that nothing waits for"
        )
    others = gauge.others()
    who = f" (processes {', '.join(map(str, others))})" if others else ""
    raise CaseRefused(f"another program is using this GPU{who}: no time measured now would be fair")


def _becomes_quiet(gauge: Gauge) -> bool:
    """Whether the GPU is quiet within a few seconds, and stays so: a neighbour that works now and then has quiet moments too."""
    for pause_s in PATIENCE_S:
        time.sleep(pause_s)
        if all(gauge.is_quiet() for _ in range(QUIET_LOOKS)):
            return True
    return False

"""Correctness cases side by side: several workers of one submission, each running whole cases, ahead of the tests that report them.

On a GPU most of a Triton assignment's time goes into compiling kernels, on one core, for every case a little differently. A machine with
many cores has several workers do that at once. Each case still runs once, in one worker, with its own inputs and its own arena. A case
that measures memory, or that needs much of it, runs alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from traceback import clear_frames
from typing import TYPE_CHECKING

from grader.assignment import Assignment
from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence
from grader.judge.trial import run_trial

if TYPE_CHECKING:
    from grader.judge.state import Judge

MAX_LANES = 4
CORES_PER_LANE = 3


class Lanes:
    """Runs cases of one assignment after another: here and now, or ahead in lanes.

    Args:
        judge: the session.
        count: how many workers of a submission may run at once; 1 means no running ahead.
    """

    def __init__(self, judge: Judge, count: int) -> None:
        self._judge = judge
        self._count = count
        self._assignment = ""
        self._ahead: dict[str, Future[Evidence]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._free: SimpleQueue[int] = SimpleQueue()

    def begin(self, assignment: Assignment, cases: Iterable[BoundCase]) -> None:
        """Start on an assignment's cases; those that may share the machine run ahead.

        Again for the same one, it does nothing, and does not look at `cases`.
        """
        if self._assignment == assignment.name:
            return
        self.finish()
        self._assignment = assignment.name
        if self._count < 2 or assignment.spec.language != "triton":
            return
        shared = [case for case in cases if case.case.memory_gib is None and case.case.max_extra_mib is None]
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="lane")
        for lane in range(self._count):
            self._free.put(lane)
        self._ahead = {case.id: self._threads.submit(self._run_ahead, case) for case in shared}

    def run(self, case: BoundCase, evidence: Evidence) -> None:
        """Run a case, or wait for it to have been run. Raises as `run_trial` does."""
        future = self._ahead.pop(case.id, None)
        if future is None:
            self.finish()
            if case.case.max_extra_mib is not None:
                self._judge.settle()  # a worker that is starting takes GPU memory
            self._run(case, 0, evidence)
            return
        done = future.result()
        evidence.errors, evidence.time_s, evidence.words = done.errors, done.time_s, done.words
        if done.error is not None:
            raise done.error

    def finish(self) -> None:
        """Wait until nothing runs ahead any more, and end every worker but the first lane's."""
        if self._threads is None:
            return
        for future in self._ahead.values():
            future.exception()
        self._threads.shutdown()
        self._threads = None
        for lane in range(1, self._count):
            self._judge.end_lane(lane)
        self._free = SimpleQueue()

    def abandon(self) -> None:
        """Begin nothing more; what runs ends with its worker."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_ahead(self, case: BoundCase) -> Evidence:
        evidence = Evidence()
        lane = self._free.get()
        try:
            self._run(case, lane, evidence)
        except Exception as error:
            evidence.error = error
            clear_frames(error.__traceback__)  # they may hold GPU memory until the test comes to this case
        finally:
            self._free.put(lane)
        return evidence

    def _run(self, case: BoundCase, lane: int, evidence: Evidence) -> None:
        contender = self._judge.contender(case.assignment, lane=lane)
        for number in range(case.case.calls):
            run_trial(self._judge, case, contender, number, evidence)


def lanes_here(on_gpu: bool, stop_early: bool) -> int:
    """How many lanes this machine is good for. On a CPU the kernels themselves need the cores."""
    if not on_gpu or stop_early:
        return 1
    return max(1, min(MAX_LANES, len(os.sched_getaffinity(0)) // CORES_PER_LANE))

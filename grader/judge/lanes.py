"""Runs cases and checks side by side in lanes: threads of the judge, each with a worker of the submission.

On a GPU a Triton submission spends most of its time compiling kernels, on one core and anew for nearly every case. On a
machine with many cores several workers compile at once. A case that measures GPU memory, or needs much of it, runs
alone after the lanes (`runner.py`).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TypeAlias

from grader.judge.cases import BoundCase, BoundCheck
from grader.judge.evidence import Evidence
from grader.judge.workers import Workers
from grader.pool.fault import Fault

Work: TypeAlias = BoundCase | BoundCheck

WORTH_A_START = 4  # waiting works per lane that justify a further lane: starting a worker takes as long as some cases
APART = "/apart"  # the queue of works that start their own worker; no assignment has this name
# A work of this queue takes as long as many others: lanes begin with it, so that nobody waits for it at the end
APART_WEIGHT = 40


@dataclass(frozen=True)
class Done:
    """A case or check that has ended. `error` is None if the submission passed."""

    work: Work
    error: BaseException | None
    evidence: Evidence


class Lanes:
    """Runs works side by side, in `count` lanes.

    A lane has one worker at a time and stays with an assignment as long as its queue has work, because a new worker
    must start and load the file. CUDA C++ stays in one lane: several workers would build the same file. Work that
    starts its own worker runs in any lane.
    """

    def __init__(self, count: int, workers: Workers) -> None:
        self._count, self._workers = count, workers
        self._waiting: dict[str, deque[Work]] = {}
        self._done: SimpleQueue[Done] = SimpleQueue()
        self._staffed: Counter[str] = Counter()  # number of lanes with each assignment
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def run(self, works: Sequence[Work], do: Callable[[Work, int], Done]) -> Iterator[Done]:
        """Run works side by side, and yield each when it has ended. Works apart in CUDA C++ begin first, because each
        builds the file. A work that was cut off by the end of another lane's worker is run once more, alone.

        Args:
            do: runs a work in the lane of the given number.
        """
        for work in sorted(works, key=lambda one: not (one.is_apart and _is_cuda(one))):
            self._waiting.setdefault(APART if work.is_apart else work.assignment.name, deque()).append(work)
        self._threads = [
            threading.Thread(target=self._drive, args=(lane, do), name=f"lane {lane}", daemon=True)
            for lane in range(self._count)
        ]
        self._workers.is_busy = True
        for thread in self._threads:
            thread.start()
        again = []
        for _ in works:
            done = self._done.get()
            if isinstance(done.error, Fault) and done.error.cut_off:
                again.append(done.work)
            else:
                yield done
        self.finish()
        for work in again:
            yield do(work, 0)

    def done_already(self) -> Iterator[Done]:
        """Works that have ended and that `run` has not yielded yet."""
        while True:
            try:
                yield self._done.get_nowait()
            except Empty:
                return

    def finish(self) -> None:
        """Wait for the lanes to end, and end their workers but lane 0's."""
        if not self._threads:
            return
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._workers.is_busy = False
        self._workers.end_lanes(range(1, self._count))

    def abandon(self) -> None:
        """Drop all works that have not begun. Works in progress end when their worker ends."""
        with self._lock:
            self._waiting = {}

    def _drive(self, lane: int, do: Callable[[Work, int], Done]) -> None:
        held = ""
        while (queue := self._choose(held)) is not None:
            if held and queue != held:
                self._workers.end_lanes([lane])
            held = queue
            if (following := self._take(queue)) is not None:
                try:
                    done = do(following, lane)
                except BaseException as error:  # `run` waits for every work
                    done = Done(following, error, Evidence())
                self._done.put(done)

    def _choose(self, held: str) -> str | None:
        """The next queue for a lane that was with the queue `held`; None if another lane would not pay."""
        with self._lock:
            if held:
                if self._waiting.get(held):
                    return held
                self._staffed[held] -= 1
            wanting = [name for name in self._waiting if self._need(name) > 0]
            if not wanting:
                return None
            # Every assignment gets a first lane before any gets a second.
            name = max(wanting, key=lambda one: (not self._staffed[one], self._need(one)))
            self._staffed[name] += 1
            return name

    def _take(self, queue: str) -> Work | None:
        with self._lock:
            return self._waiting[queue].popleft() if self._waiting.get(queue) else None

    def _need(self, name: str) -> float:
        """Waiting work per lane if one more lane came to this queue; 0 if no lane should come."""
        waiting, lanes = self._waiting[name], self._staffed[name] + 1
        if name == APART:
            return APART_WEIGHT * len(waiting) / lanes
        # Several workers would build the same file of CUDA C++
        if lanes > 1 and (len(waiting) < WORTH_A_START * lanes or _is_cuda(waiting[0])):
            return 0.0
        return len(waiting) / lanes


def _is_cuda(work: Work) -> bool:
    return work.assignment.spec.language == "cuda"

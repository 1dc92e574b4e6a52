"""Correctness side by side: several workers of one submission, each running whole cases.

On a GPU most of the time of a Triton submission goes into compiling kernels, on one core, for every case a little differently. On a
machine with many cores several workers do that at once. A case that measures memory, or needs much of it, runs alone, after all the
others (`schedule.py`).
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from traceback import clear_frames

import pytest

from grader.contender.replies import ContenderFault
from grader.job import CaseNote
from grader.judge.cases import BoundCase, Place
from grader.judge.crew import Crew
from grader.judge.evidence import Evidence
from grader.judge.run import Run
from grader.judge.standing import Standing

LITTLE = 4  # pieces of work for each lane
WORTH_A_START = 4  # pieces of work for one more worker of an assignment: it takes as long to start as some cases take
APART = "/apart"  # the queue of work that needs no lane's worker; no assignment is called so
APART_WEIGHT = 40  # each takes as long as many others, and the last to end is waited for: they begin first


@dataclass(frozen=True)
class Work:
    """A case, or a check of an assignment's own.

    Attributes:
        run: does the work in a lane; raises what a check does.
        case: None for a check.
        apart: `run` starts a worker of its own instead of taking the lane's.
    """

    place: Place
    run: Callable[[int, Evidence], None]
    case: BoundCase | None = None
    apart: bool = False

    @property
    def is_cuda(self) -> bool:
        return self.place.assignment.spec.language == "cuda"

    @property
    def queue(self) -> str:
        return APART if self.apart else self.place.assignment.name


@dataclass(frozen=True)
class Done:
    """Work that has ended, by an `error` unless the submission passed."""

    work: Work
    error: BaseException | None
    evidence: Evidence = field(default_factory=Evidence)


class Lanes:
    """Runs work in lanes, or here and now.

    A lane is a thread with one worker at a time. It stays with an assignment as long as there is work, because a new worker has to be
    started and to load the file; CUDA C++ stays in one lane, for several workers would all build it. Work that starts a worker of its
    own runs in any lane. With one lane `run` is not to be called.
    """

    def __init__(self, run: Run, standing: Standing, crew: Crew) -> None:
        self._run, self._standing, self._crew = run, standing, crew
        self._count = run.lane_count
        self._waiting: dict[str, deque[Work]] = {}
        self._done: SimpleQueue[Done] = SimpleQueue()
        self._staffed: Counter[str] = Counter()  # lanes that are with each assignment
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._then: Callable[[], None] | None = None

    def run(self, works: Sequence[Work], then: Callable[[], None]) -> Iterator[Done]:
        """Run these side by side, and yield each when it has ended. Of work with its own worker CUDA C++ goes first: each builds it.

        Args:
            then: called once, by any thread, when little is left: workers that it starts have time until the last lane is done.
        """
        self._then = then
        for work in sorted(works, key=lambda one: not (one.apart and one.is_cuda)):
            self._waiting.setdefault(work.queue, deque()).append(work)
        of_cases = [queue for name, queue in self._waiting.items() if name != APART]
        useful = sum(1 if _stays_in_one_lane(queue) else len(queue) for queue in of_cases)
        begin_apart = min(len(self._waiting.get(APART, ())), max(0, self._count - len(of_cases)))
        change = len(of_cases) - 1 if begin_apart else 0  # lanes whose assignment is done before others are
        self._threads = [
            threading.Thread(target=self._drive, args=(lane,), name=f"lane {lane}", daemon=True)
            for lane in range(self._count)
        ]
        self._crew.is_busy = True
        for thread in self._threads:
            thread.start()
        # For what these do then. What is apart takes longer, and is started first.
        self._crew.prepare(min(begin_apart + change, useful))
        self._tell_when_little_is_left()
        for _ in works:
            yield self._done.get()
        self.finish()

    def run_here(self, work: Work) -> Done:
        """Run one work in the first lane, in this thread, beside nothing else."""
        self.finish()
        return self._do(0, work, None)

    def done_already(self) -> Iterator[Done]:
        """Work that has ended and that `run` has not yielded."""
        while True:
            try:
                yield self._done.get_nowait()
            except Empty:
                return

    def finish(self) -> None:
        """Wait until all work has ended, and end every worker but the first lane's."""
        if not self._threads:
            return
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._crew.is_busy = False
        self._crew.end_lanes(range(1, self._count))

    def abandon(self) -> None:
        """Begin nothing more; work that runs ends with its worker."""
        with self._lock:
            self._waiting = {}

    def _drive(self, lane: int) -> None:
        held = ""
        while (queue := self._choose(held)) is not None:
            fault = None
            if queue != held:
                try:
                    self._change(lane, held, queue)
                except ContenderFault as one:
                    fault = one  # the work that needs the worker tells of it
                except BaseException as error:
                    # The machine's, or so it seems: the work asks once more, and finds out.
                    clear_frames(error.__traceback__)
            held = queue
            if (following := self._take(queue)) is not None:
                try:
                    done = self._do(lane, following, fault)
                except BaseException as error:  # whatever happens: somebody waits for it
                    done = Done(following, error)
                self._done.put(done)

    def _change(self, lane: int, held: str, queue: str) -> None:
        """Load the lane's worker before taking work from the queue; otherwise that work waits for the start while other lanes run out."""
        if held:
            self._crew.end_lanes([lane])
        with self._lock:
            following = next(iter(self._waiting.get(queue, ())), None)
        if following is not None and queue != APART:
            self._run.emit(CaseNote(text=f"beside others: a worker for {queue}"))
            self._crew.worker(following.place.assignment, lane=lane)

    def _do(self, lane: int, work: Work, fault: ContenderFault | None) -> Done:
        """Run one work. `fault`: of the lane's worker, which could not be loaded."""
        evidence, place = Evidence(), work.place
        try:
            self._run.emit(place.started)
            self._tell_when_little_is_left()
            if fault is not None:
                raise fault
            self._standing.hangs.check(place)
            work.run(lane, evidence)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self._standing.hangs.note(place, error)
            clear_frames(error.__traceback__)  # they may hold GPU memory
            return Done(work, error, evidence)
        return Done(work, None, evidence)

    def _tell_when_little_is_left(self) -> None:
        with self._lock:
            if sum(map(len, self._waiting.values())) > LITTLE * self._count:
                return
            then, self._then = self._then, None
        if then is not None:
            then()

    def _choose(self, held: str) -> str | None:
        """The queue for a lane that has been with `held`; None where there is none that is worth it."""
        with self._lock:
            if held:
                if self._waiting.get(held):
                    return held
                self._staffed[held] -= 1
            wanting = [name for name in self._waiting if self._need(name) > 0]
            if not wanting:
                return None
            # Every assignment has a lane before any has two.
            name = max(wanting, key=lambda one: (not self._staffed[one], self._need(one)))
            self._staffed[name] += 1
            return name

    def _take(self, queue: str) -> Work | None:
        with self._lock:
            return self._waiting[queue].popleft() if self._waiting.get(queue) else None

    def _need(self, name: str) -> float:
        """The work for each lane if one more came to this queue; 0 where none should come."""
        waiting, lanes = self._waiting[name], self._staffed[name] + 1
        if name == APART:
            return APART_WEIGHT * len(waiting) / lanes
        if lanes > 1 and (_stays_in_one_lane(waiting) or len(waiting) < WORTH_A_START * lanes):
            return 0.0
        return len(waiting) / lanes


def _stays_in_one_lane(waiting: Iterable[Work]) -> bool:
    """CUDA C++ does: workers that begin at once would all build it."""
    return any(work.is_cuda and not work.apart for work in waiting)

"""Correctness side by side: several workers of one submission, each running whole cases, ahead of the tests that report them.

On a GPU most of the time that Triton's answers take goes into compiling kernels, on one core, for every case a little differently. A
machine with many cores has several workers do that at once. Each case still runs once, in one worker, with its own inputs and its own
arena. What measures memory, or needs much of it, runs alone, after all that.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from traceback import clear_frames
from typing import TYPE_CHECKING

from grader.assignment import Assignment
from grader.contender.replies import ContenderFault
from grader.job import CaseNote
from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence
from grader.judge.memory import hoarding_is_a_fault
from grader.judge.sanitizing import run_watched
from grader.judge.trial import run_trial

if TYPE_CHECKING:
    from grader.judge.state import Judge

LITTLE = 4  # pieces of work for each lane
WORTH_A_START = 4  # pieces of work for one more worker of an assignment: it takes as long to start as some cases take
APART = "/apart"  # the queue of what needs no lane's worker; no assignment is called so
APART_WEIGHT = 40  # each takes as long as many others, and the last to end is waited for: they begin first


@dataclass(frozen=True)
class Work:
    """A case, or a check of an assignment's own, that may run ahead.

    key: names it. assignment: whose worker it needs. run: does it in a lane; raises what a check does.
    apart: it starts a worker of its own instead. part: what it belongs to.
    """

    key: str
    assignment: Assignment
    run: Callable[[int, Evidence], None]
    apart: bool = False
    part: str = ""

    @property
    def queue(self) -> str:
        return APART if self.apart else self.assignment.name

    @property
    def name(self) -> str:
        """As the report has it."""
        return self.key.removeprefix(f"{self.assignment.name}-{self.part}-")


class Lanes:
    """Runs work ahead in lanes, or here and now.

    A lane is a thread with one worker at a time. It stays with an assignment as long as there is work, because a new worker has to be
    started, and its code to be loaded; CUDA C++ stays in one lane, for several that begin at once would all build it. What starts a
    worker of its own runs in any.

    Args:
        judge: the session.
        count: how many workers of the submission may run at once; 1 means no running ahead.
    """

    def __init__(self, judge: Judge, count: int) -> None:
        self._judge = judge
        self._count = count
        self._ahead: dict[str, Future[Evidence]] = {}  # of what `run` has not told the end of yet
        self._waiting: dict[str, deque[tuple[Work, Future[Evidence]]]] = {}
        self._staffed: Counter[str] = Counter()  # lanes that are with each assignment
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._then: Callable[[], None] | None = None

    def begin(self, works: Iterable[Work], then: Callable[[], None]) -> None:
        """Start on these. What is given first is begun first within its assignment; of what starts workers of its own, CUDA C++ is, which
        each of them has to build.

        Args:
            then: called once, when little is left: what it starts in the background has time until the last lane is done.
        """
        if self._count < 2:
            then()
            return
        self._then = then
        for work in sorted(works, key=lambda one: not (one.apart and one.assignment.spec.language == "cuda")):
            assert work.key not in self._ahead, f"two pieces of work are called {work.key}"
            self._ahead[work.key] = Future()
            self._waiting.setdefault(work.queue, deque()).append((work, self._ahead[work.key]))
        of_cases = [queue for name, queue in self._waiting.items() if name != APART]
        useful = sum(1 if _stays_in_one_lane(queue) else len(queue) for queue in of_cases)
        begin_apart = min(len(self._waiting.get(APART, ())), max(0, self._count - len(of_cases)))
        change = len(of_cases) - 1 if begin_apart else 0  # lanes whose assignment is done before others are
        self._threads = [
            threading.Thread(target=self._drive, args=(lane,), name=f"lane {lane}", daemon=True)
            for lane in range(self._count)
        ]
        for thread in self._threads:
            thread.start()
        # For what these do then. What is apart takes longer, and is started first.
        self._judge.prepare(min(begin_apart + change, useful))
        self._tell_when_little_is_left()

    @property
    def busy(self) -> bool:
        """Whether several workers of the submission may be running."""
        return bool(self._threads)

    def expects(self, key: str) -> bool:
        """Whether the work of this key runs ahead, or has done so, and `run` has not told its end yet."""
        return key in self._ahead

    def done(self, key: str) -> Evidence | None:
        """What came of the work of this key, where it ran ahead and `run` has not told its end."""
        future = self._ahead.get(key)
        return future.result() if future is not None and future.done() else None

    def run(self, work: Work, evidence: Evidence) -> None:
        """Do some work, or wait for it to have been done. Raises as the work does."""
        future = self._ahead.pop(work.key, None)
        if future is None:
            self.finish()
            work.run(0, evidence)
            return
        done = future.result()
        evidence.errors, evidence.time_s, evidence.words = done.errors, done.time_s, done.words
        evidence.gpu_time = done.gpu_time
        if done.error is not None:
            raise done.error

    def finish(self) -> None:
        """Wait until nothing runs ahead any more, and end every worker but the first lane's."""
        if not self._threads:
            return
        for thread in self._threads:
            thread.join()
        self._threads = []
        self._judge.end_lanes(range(1, self._count))

    def abandon(self) -> None:
        """Begin nothing more; what runs ends with its worker."""
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
                self._do(lane, *following, fault)

    def _change(self, lane: int, held: str, queue: str) -> None:
        """Have a lane's worker loaded before it takes any work: what it took would wait for that, while others come to their end."""
        if held:
            self._judge.end_lanes([lane])
        with self._lock:
            following = next(iter(self._waiting.get(queue, ())), None)
        if following is not None and queue != APART:
            self._judge.emit(CaseNote(text=f"beside others: a worker for {queue}"))
            self._judge.contender(following[0].assignment, lane=lane)

    def _do(self, lane: int, work: Work, future: Future[Evidence], fault: ContenderFault | None) -> None:
        """`fault`: what became of the worker that it needs."""
        evidence = Evidence()
        try:
            self._judge.emit(
                CaseNote(text=f"beside others: {work.key}")
            )  # or a watchdog would take waiting for a standstill
            self._tell_when_little_is_left()
            if fault is not None:
                raise fault
            self._judge.hangs.check(work.assignment.name, work.part)
            work.run(lane, evidence)
        except BaseException as error:  # pytest's own, as of a test that skips itself, are no Exceptions
            self._judge.hangs.note(work.assignment.name, work.part, work.name, error)
            evidence.error = error
            clear_frames(error.__traceback__)  # they may hold GPU memory until the test comes to this case
        finally:
            future.set_result(evidence)  # whatever happens: somebody waits for it

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
            name = max(
                wanting, key=lambda one: (not self._staffed[one], self._need(one))
            )  # nobody twice before all have one
            self._staffed[name] += 1
            return name

    def _take(self, queue: str) -> tuple[Work, Future[Evidence]] | None:
        """The next work of a queue; None where others have taken the last."""
        with self._lock:
            return self._waiting[queue].popleft() if self._waiting.get(queue) else None

    def _need(self, name: str) -> float:
        """How much work there would be for each lane if one more came to this queue; 0 where none should come."""
        waiting, lanes = self._waiting[name], self._staffed[name] + 1
        if name == APART:
            return APART_WEIGHT * len(waiting) / lanes
        if lanes > 1 and (_stays_in_one_lane(waiting) or len(waiting) < WORTH_A_START * lanes):
            return 0.0
        return len(waiting) / lanes


def _stays_in_one_lane(waiting: Iterable[tuple[Work, object]]) -> bool:
    """CUDA C++ does: workers that begin at once would all build it."""
    return any(work.assignment.spec.language == "cuda" and not work.apart for work, _ in waiting)


def case_work(judge: Judge, case: BoundCase) -> Work:
    """All calls of a case."""

    def run(lane: int, evidence: Evidence) -> None:
        if case.case.tool is not None:
            with hoarding_is_a_fault(judge, case.assignment):
                run_watched(judge, case, evidence)
            return
        with hoarding_is_a_fault(judge, case.assignment):
            contender = judge.contender(case.assignment, lane=lane)
            if case.case.max_extra_mib is not None:
                judge.settle()  # a worker that is starting takes GPU memory
            for number in range(case.case.calls):
                run_trial(judge, case, contender, number, evidence)

    return Work(case.id, case.assignment, run, apart=case.case.tool is not None, part=case.part.name)


def shares_the_machine(case: BoundCase) -> bool:
    """Whether other cases may run beside this one."""
    return case.case.memory_gib is None and case.case.max_extra_mib is None

"""Parts that are given up: after two cases without an answer in time, the others of a part are not run.

A loop without end takes all of the time that a case has, and so it would in each of the part's other cases, for minutes. Those are
timed out as the two are, and say why they were not run. One case may take too long for a reason of its own, so it takes two that
ended alike; a case whose loop is in Triton's interpreter, where right code can take so long, counts for none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from grader.contender.contender import Contender
from grader.contender.last_words import NO_ANSWER, SLOW_IN_PYTHON, STOPPED
from grader.contender.replies import ContenderFault

ENOUGH = 2


class Hangs:
    """What has hung in each part, which an assignment and its own name tell apart. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[
            tuple[str, str, str], list[tuple[ContenderFault, str]]
        ] = {}  # with their cases, by how they ended
        self._given_up: dict[tuple[str, str], ContenderFault] = {}
        self._watched: dict[tuple[str, str], list[Contender]] = {}

    def note(self, assignment: str, part: str, case: str, error: BaseException | None) -> None:
        """How a case or check has ended. A fault counts once: that of a file that cannot be loaded is told of in every case."""
        if not isinstance(error, ContenderFault) or not _hung(error):
            return
        with self._lock:
            alike = self._faults.setdefault((assignment, part, error.message), [])
            if all(error is not fault for fault, _ in alike):
                alike.append((error, case))
            if len(alike) < ENOUGH or (assignment, part) in self._given_up:
                return
            cases = " and ".join(name for _, name in alike)
            ended = f"{cases} of this part gave {error.message.removesuffix(STOPPED)}"
            fault = ContenderFault("timed_out", f"not run: {ended}; mend these first")
            self._given_up[assignment, part] = fault
            watched = self._watched.pop((assignment, part), [])
        sentence: Future[Exception] = Future()
        sentence.set_result(fault)
        for worker in watched:
            worker.condemn(sentence)

    def has_given_up(self, assignment: str, part: str) -> bool:
        return (assignment, part) in self._given_up

    def check(self, assignment: str, part: str) -> None:
        """Raises ContenderFault where the part is given up."""
        if (fault := self._given_up.get((assignment, part))) is not None:
            raise ContenderFault(fault.outcome, fault.message)

    @contextmanager
    def ending(self, assignment: str, part: str, worker: Contender) -> Iterator[None]:
        """In here the worker, whose calls may take minutes, is ended when the part is given up; who waits for it is told why.

        Raises ContenderFault where it is given up already.
        """
        self.check(assignment, part)
        with self._lock:
            self._watched.setdefault((assignment, part), []).append(worker)
        try:
            yield
        finally:
            with self._lock:
                others = self._watched.get((assignment, part), [])
                if worker in others:
                    others.remove(worker)


def _hung(fault: ContenderFault) -> bool:
    return fault.outcome == "timed_out" and fault.message.startswith(NO_ANSWER) and SLOW_IN_PYTHON not in fault.details

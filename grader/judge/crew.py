"""The crew: every worker of a grading. The submission's in each lane, the reference's, the baselines', those under a
tool.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from concurrent.futures import Future
from pathlib import Path

from grader.assignment import Assignment
from grader.contender.fault import Fault
from grader.contender.pool import WorkerPool, end_all
from grader.contender.surroundings import WorkerKind
from grader.contender.worker import Worker
from grader.judge.baselines import Baselines, kept_caches
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.judge.standing import Standing
from grader.protocol import NEEDED_FOR_GRADIENTS


class Crew:
    """Starts, hands out and ends workers. The workers come from a pool, which the crew does not close.

    Attributes:
        is_busy: whether several lanes run; set by `Lanes`.
    """

    def __init__(self, run: Run, standing: Standing, pool: WorkerPool) -> None:
        self._run, self._standing, self._pool = run, standing, pool
        self.baselines = Baselines(pool, run.request.course, kept_caches(pool.device))
        self.is_busy = False
        self._contenders: dict[tuple[str, int], Worker] = {}  # of the submission, by assignment and lane
        self.references: dict[str, Worker] = {}
        self._imports: dict[str, tuple[str, ...]] = {}  # by assignment
        self._starting_reference = threading.Lock()

    def worker(self, assignment: Assignment, lane: int = 0) -> Worker:
        """A lane's worker for an assignment, with the submission's file loaded; a new worker if the last one is dead.

        Raises:
            Fault: the file is missing, forbidden or cannot be loaded, or the assignment's time is used up.
        """
        self._standing.check_loadable(assignment)
        self._standing.check_time(assignment)
        contender = self._contenders.get((assignment.name, lane))
        if contender is None or not contender.lives():
            contender = self._load(assignment, lane)
        return contender

    def _load(self, assignment: Assignment, lane: int) -> Worker:
        if not self.is_busy:
            for (name, _), last in list(self._contenders.items()):
                if name != assignment.name:
                    last.kill()  # processes of an earlier assignment must not disturb this one
        kind = self.kind_of(assignment)
        contender = self._pool.start(kind, imports=self._imports_of(assignment), alone=not self.is_busy)
        self._standing.employ(contender, assignment)
        try:
            load_file(contender, self._run.request.copied.folder, assignment)
        except Fault as fault:
            if fault.whose == "machine":
                raise
            self._standing.note_unloadable(assignment, fault)
            raise
        self._standing.note_loaded(assignment)
        self._contenders[assignment.name, lane] = contender
        return contender

    def _imports_of(self, assignment: Assignment) -> tuple[str, ...]:
        """What the first backward pass would import, where the first case of one of the assignment's parts has gradients."""
        if assignment.name not in self._imports:
            firsts = {case.part.name: case for case in reversed(self._run.cases) if case.assignment is assignment}
            calls = (case.inputs(self._run.seed, 0, self._run.device) for case in firsts.values())
            has_gradients = any(call.upstream is not None for call in calls)
            self._imports[assignment.name] = (NEEDED_FOR_GRADIENTS,) if has_gradients else ()
        return self._imports[assignment.name]

    def kind_of(self, assignment: Assignment) -> WorkerKind:
        """The kind of the submission's workers for an assignment."""
        on_cpu = self._run.device_name == "cpu"
        return "cuda_cpu" if assignment.spec.language == "cuda" and on_cpu else self._run.device_name

    def watched(self, assignment: Assignment, tool: Sequence[str]) -> Worker:
        """A worker under a tool, with nothing loaded.

        Raises:
            Fault: the file is missing or cannot be loaded, or the assignment's time is used up.
            Fault: the worker did not start.
        """
        self._standing.check_loadable(assignment)
        self._standing.check_time(assignment)
        contender = self._pool.start(tool=tool)
        self._standing.employ(contender, assignment)
        return contender

    def beside(self, assignment: Assignment, kind: WorkerKind, *, logged: bool = True) -> Worker:
        """A worker of a kind, with the submission loaded, beside the lanes' workers; the caller ends it.

        Raises Fault.
        """
        self._standing.check_time(assignment)
        contender = self._pool.start(kind, imports=self._imports_of(assignment))
        self._standing.employ(contender, assignment, logged=logged)
        return load_file(contender, self._run.request.copied.folder, assignment)

    def settle(self) -> None:
        """Wait until no worker of a baseline is loading: it would disturb a benchmark. Raises Fault."""
        self.baselines.settle()

    def end_lanes(self, lanes: Container[int]) -> None:
        """End the submission's workers in these lanes."""
        end_all(contender for (_, lane), contender in list(self._contenders.items()) if lane in lanes)

    def condemn(self, assignment: Assignment, sentence: Future[Exception]) -> int:
        """Condemn the submission's workers for an assignment in all lanes (see `Worker.condemn`). Returns how many
        there were.
        """
        found = [one for (name, _), one in list(self._contenders.items()) if name == assignment.name and one.alive]
        for contender in found:
            contender.condemn(sentence)
        return len(found)

    def evict(self) -> None:
        """End every worker of the submission and remove its scratch folder. A call in progress ends as a crash."""
        self._pool.evict()

    def clear(self) -> None:
        """End all processes of the submission and remove its folders and compiled kernels. Only while no lane runs."""
        self._pool.clear()

    def canary(self, assignment: Assignment, folder: Path, *, compiling: bool = False) -> Worker:
        """A worker like the submission's, with the staff's file in `folder` loaded. Raises Fault,
        Fault.
        """
        kind = "compile" if compiling else self.kind_of(assignment)
        return load_file(self._pool.canary(kind, folder), folder, assignment)

    def reference(self, assignment: Assignment) -> Worker:
        """The worker of the reference for an assignment, loaded. Raises Fault."""
        with self._starting_reference:
            contender = self.references.get(assignment.name)
            if contender is None or not contender.lives():
                kind = self.kind_of(assignment)
                contender = self._pool.start_own(kind, self.baselines.caches, self._imports_of(assignment))
                self.references[assignment.name] = load_file(
                    contender, self._run.request.course / "reference", assignment
                )
            return contender

    def end_idle(self) -> None:
        """End all workers but the submission's. A later call starts the others again."""
        self.baselines.end()
        end_all(self.references.values())

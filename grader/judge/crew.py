"""The crew: every worker of a grading. The submission's in each lane, the reference's, the baselines', those under a
tool.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from concurrent.futures import Future
from pathlib import Path

from grader.assignment import Assignment
from grader.contender.contender import Contender
from grader.contender.pool import WorkerPool, end_all
from grader.contender.replies import ContenderFault
from grader.contender.surroundings import WorkerKind
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
        self.baselines = Baselines(pool, run.job.course, kept_caches(pool.device))
        self.is_busy = False
        self._contenders: dict[tuple[str, int], Contender] = {}  # of the submission, by assignment and lane
        self.references: dict[str, Contender] = {}
        self._coming_reference: Contender | None = None
        self._expecting = threading.Lock()
        self.has_crashed = False  # whether a worker of the submission has crashed

    def worker(self, assignment: Assignment, lane: int = 0) -> Contender:
        """A lane's worker for an assignment, with the submission's file loaded; a new worker if the last one is dead.

        Raises:
            ContenderFault: the file is missing, forbidden or cannot be loaded, or the assignment's time is used up.
        """
        self._standing.check_loadable(assignment)
        self._standing.check_time(assignment)
        contender = self._contenders.get((assignment.name, lane))
        if contender is None or not contender.lives():
            self.has_crashed |= contender is not None
            first = contender is None
            contender = self._load(assignment, lane)
            if self._run.device_name == "cpu" and first:
                return contender  # a laptop has few cores, and a start would delay the first case
        if (self.is_busy or self._run.lane_count == 1) and self.needs_a_spare(assignment):
            self.prepare(1)
        return contender

    def needs_a_spare(self, assignment: Assignment) -> bool:
        # A spare serves the next assignment, or replaces a crashed worker. A laptop's few cores start one only after a
        # crash.
        is_last = assignment.name == self._run.job.assignments[-1]
        return self._run.device_name == "cuda" or self.has_crashed or not is_last

    def _load(self, assignment: Assignment, lane: int) -> Contender:
        if not self.is_busy:
            for (name, _), last in list(self._contenders.items()):
                if name != assignment.name:
                    last.kill()  # processes of an earlier assignment must not disturb this one
        contender = self._pool.take(self.kind_of(assignment), alone=not self.is_busy, purpose=assignment.name)
        self._standing.employ(contender, assignment)
        try:
            load_file(contender, self._run.job.submission, assignment)
        except ContenderFault as fault:
            self._standing.note_unloadable(assignment, fault)
            raise
        self._standing.note_loaded(assignment)
        self._contenders[assignment.name, lane] = contender
        return contender

    def kind_of(self, assignment: Assignment) -> WorkerKind:
        """The kind of the submission's workers for an assignment."""
        on_cpu = self._run.device_name == "cpu"
        return "cuda_cpu" if assignment.spec.language == "cuda" and on_cpu else self._run.device_name

    def has_worker(self, assignment: Assignment) -> bool:
        """Whether the submission's worker for an assignment in lane 0 is alive."""
        contender = self._contenders.get((assignment.name, 0))
        return contender is not None and contender.lives()

    def watched(self, assignment: Assignment, tool: Sequence[str]) -> Contender:
        """A worker under a tool, with nothing loaded.

        Raises:
            ContenderFault: the file is missing or cannot be loaded, or the assignment's time is used up.
            WorkerUnavailable: the worker did not start.
        """
        self._standing.check_loadable(assignment)
        self._standing.check_time(assignment)
        contender = self._pool.watched(tool)
        self._standing.employ(contender, assignment)
        contender.ready()
        return contender

    def beside(self, assignment: Assignment, kind: WorkerKind, *, logged: bool = True) -> Contender:
        """A worker of a kind, with the submission loaded, beside the lanes' workers; the caller ends it.

        Raises ContenderFault, WorkerUnavailable.
        """
        self._standing.check_time(assignment)
        contender = self._pool.take(kind)
        self._standing.employ(contender, assignment, logged=logged)
        return load_file(contender, self._run.job.submission, assignment)

    def prepare(self, count: int) -> None:
        """Start workers in the background until the pool has `count` spares."""
        self._pool.prepare(count)

    def prepare_races(self, wanted: Sequence[tuple[str, bool]]) -> None:
        """Start workers kept for the races (the pool's reserve). Lanes never take them. Does nothing while the reserve
        is not empty.

        Args:
            wanted: for each worker, the name of its assignment and whether to import modules that a first backward pass
                needs.
        """
        if not self._pool.has_reserve:
            self._pool.reserve([(name, (NEEDED_FOR_GRADIENTS,) if gradients else ()) for name, gradients in wanted])

    def settle(self, starts: bool = True) -> None:
        """Wait until no worker is starting or loading: either would disturb a race. Raises WorkerUnavailable.

        Args:
            starts: whether to wait for the pool's spares and reserve, too.
        """
        self.baselines.settle()
        if starts:
            self._pool.settle()

    def end_lanes(self, lanes: Container[int]) -> None:
        """End the submission's workers in these lanes."""
        end_all(contender for (_, lane), contender in list(self._contenders.items()) if lane in lanes)

    def condemn(self, assignment: Assignment, sentence: Future[Exception]) -> int:
        """Condemn the submission's workers for an assignment in all lanes (see `Contender.condemn`). Returns how many
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

    def canary(self, assignment: Assignment, folder: Path, *, compiling: bool = False) -> Contender:
        """A worker like the submission's, with the staff's file in `folder` loaded. Raises ContenderFault,
        WorkerUnavailable.
        """
        kind = "compile" if compiling else self.kind_of(assignment)
        return load_file(self._pool.canary(kind, folder), folder, assignment)

    def expect_reference(self) -> None:
        """Start a worker for the reference in the background, so that the first case that needs the reference does not
        wait.
        """
        with self._expecting:
            if not self.references and self._coming_reference is None:
                self._coming_reference = self._start_reference(self._run.device_name)

    def reference(self, assignment: Assignment) -> Contender:
        """The worker of the reference for an assignment, loaded. Raises ContenderFault, WorkerUnavailable."""
        contender = self.references.get(assignment.name)
        if contender is None or not contender.lives():
            with self._expecting:
                coming, self._coming_reference = self._coming_reference, None
            if coming is None or not coming.lives():
                coming = self._start_reference(self.kind_of(assignment))
            self.references[assignment.name] = load_file(coming, self._run.job.course / "reference", assignment)
        return self.references[assignment.name]

    def _start_reference(self, kind: WorkerKind) -> Contender:
        return self._pool.start(kind, self.baselines.caches, (NEEDED_FOR_GRADIENTS,) if kind == "cuda" else ())

    def end_idle(self) -> None:
        """End all workers but the submission's. A later call starts the others again."""
        self._pool.end_idle()
        self.baselines.end()
        coming, self._coming_reference = self._coming_reference, None
        end_all([*self.references.values(), *([coming] if coming is not None else [])])

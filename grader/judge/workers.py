"""The workers: every worker of a grading. The submission's in each lane, the reference's, the baselines', those under a
tool.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Sequence
from concurrent.futures import Future
from pathlib import Path

from grader.assignment import Assignment
from grader.judge.baselines import Baselines, kept_caches
from grader.judge.files import Files
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool, end_all
from grader.pool.surroundings import WorkerKind
from grader.pool.worker import Worker
from grader.protocol import NEEDED_FOR_GRADIENTS


class Workers:
    """Starts, hands out and ends workers. The workers come from a pool, which whoever made it closes.

    Attributes:
        is_busy: whether several lanes run; set by `Lanes`.
    """

    def __init__(self, run: Run, files: Files, pool: WorkerPool) -> None:
        self._run, self._files, self.pool = run, files, pool
        self.baselines = Baselines(pool, run.request.course, kept_caches(pool.device))
        self.is_busy = False
        self._of_lanes: dict[tuple[str, int], Worker] = {}  # of the submission, by assignment and lane
        self.references: dict[str, Worker] = {}
        self._imports: dict[str, tuple[str, ...]] = {}  # by assignment
        self._starting_reference = threading.Lock()

    def worker(self, assignment: Assignment, lane: int = 0) -> Worker:
        """A lane's worker for an assignment, with the submission's file loaded; a new worker if the last one is dead.

        Raises:
            Fault: the file is missing, forbidden or cannot be loaded, or the assignment's time is used up.
        """
        self._files.check_loadable(assignment)
        worker = self._of_lanes.get((assignment.name, lane))
        if worker is not None and worker.lives():
            return worker
        if not self.is_busy:
            for (name, _), last in list(self._of_lanes.items()):
                if name != assignment.name:
                    last.kill()  # processes of an earlier assignment must not disturb this one
        kind, imports = self.kind_of(assignment), self._imports_of(assignment)
        worker = self.pool.start(kind, imports=imports, alone=not self.is_busy)
        self._files.employ(worker, assignment)
        try:
            load_file(worker, self._run.request.copied.folder, assignment)
        except Fault as fault:
            if fault.whose != "machine":
                self._files.note_unloadable(assignment, fault)
            raise
        self._files.note_loaded(assignment)
        self._of_lanes[assignment.name, lane] = worker
        return worker

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
            Fault: the file is missing or cannot be loaded, the assignment's time is used up, or the worker did not start.
        """
        self._files.check_loadable(assignment)
        worker = self.pool.start(tool=tool)
        self._files.employ(worker, assignment)
        return worker

    def beside(self, assignment: Assignment, kind: WorkerKind, *, logged: bool = True) -> Worker:
        """A worker of a kind, with the submission loaded, beside the lanes' workers; the caller ends it.

        Raises Fault.
        """
        self._files.check_time(assignment)
        worker = self.pool.start(kind, imports=self._imports_of(assignment))
        self._files.employ(worker, assignment, logged=logged)
        return load_file(worker, self._run.request.copied.folder, assignment)

    def end_lanes(self, lanes: Container[int]) -> None:
        """End the submission's workers in these lanes."""
        end_all(worker for (_, lane), worker in list(self._of_lanes.items()) if lane in lanes)

    def terminate(self, assignment: Assignment, reason: Future[Exception]) -> int:
        """Terminate the submission's workers for an assignment in all lanes (see `Worker.terminate`). Returns how many
        there were.
        """
        found = [one for (name, _), one in list(self._of_lanes.items()) if name == assignment.name and one.alive]
        for worker in found:
            worker.terminate(reason)
        return len(found)

    def canary(self, assignment: Assignment, folder: Path, *, compiling: bool = False) -> Worker:
        """A worker like the submission's, with the staff's file in `folder` loaded. Raises Fault."""
        kind = "compile" if compiling else self.kind_of(assignment)
        return load_file(self.pool.start(kind, "canary", folder=folder), folder, assignment)

    def reference(self, assignment: Assignment) -> Worker:
        """The worker of the reference for an assignment, loaded. Raises Fault."""
        with self._starting_reference:
            worker = self.references.get(assignment.name)
            if worker is None or not worker.lives():
                kind, imports = self.kind_of(assignment), self._imports_of(assignment)
                worker = self.pool.start(kind, "course", caches=self.baselines.caches, imports=imports)
                self.references[assignment.name] = load_file(worker, self._run.request.course / "reference", assignment)
            return worker

    def end_idle(self) -> None:
        """End all workers but the submission's. A later call starts the others again."""
        self.baselines.end()
        end_all(self.references.values())

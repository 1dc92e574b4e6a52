"""The state of each of a submission's files in a grading: whether the file can be run, and why not.

A part is given up after two cases that gave no answer in time. An endless loop would otherwise use up the whole time
limit of each of the part's cases. Two cases must end alike, because a single case may be slow for a reason of its own.
A case whose loop runs in Triton's interpreter does not count: right code can be that slow there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from grader.assignment import Assignment
from grader.background import later
from grader.judge.cases import ReportPlace
from grader.judge.ownership import question_of, source_fault
from grader.judge.reading import Answer, read
from grader.judge.run import Run
from grader.pool.fault import Fault
from grader.pool.last_words import NO_ANSWER, SLOW_IN_PYTHON, STOPPED
from grader.pool.watch import Allowance
from grader.pool.worker import Worker
from grader.report.model import WorkerLog
from grader.submission import kernel_elsewhere
from grader.verdict.prints import all_shortened, counted, sort_out, with_case, without_places
from grader.verdict.resources import kernel_resources
from grader.verdict.sources import ForbiddenUse

# Outcomes of a file that fails while it is loaded
FAULTS_OF_FILES = ("build_failed", "failed", "not_implemented", "forbidden")
MAX_LOG = 64 * 1024  # characters of one assignment's log in the report
ENOUGH = 2  # cases of a part without an answer in time, with the same message


class Hangs:
    """The parts that are given up. Threads may share an instance."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[tuple[str, ...], dict[Fault, str]] = {}  # cases by their fault, by part and message
        self._given_up: dict[tuple[str, str], Fault] = {}
        self._watched: dict[tuple[str, str], list[Worker]] = {}

    def note(self, place: ReportPlace, error: BaseException | None) -> None:
        """Note how a case or check has ended, and give its part up if enough cases hung. Cases with the same fault
        object count once: a file that cannot be loaded ends every case with one fault.
        """
        if not isinstance(error, Fault) or error.outcome != "timed_out" or SLOW_IN_PYTHON in error.details:
            return
        if not error.message.startswith(NO_ANSWER):
            return
        with self._lock:
            alike = self._faults.setdefault((*place.of_part, error.message), {})
            alike.setdefault(error, place.title)
            if len(alike) < ENOUGH or self.has_given_up(place):
                return
            ended = f"{' and '.join(alike.values())} of this part gave {error.message.removesuffix(STOPPED)}"
            fault = Fault("timed_out", f"not run: {ended}; mend these first")
            self._given_up[place.of_part] = fault
            watched = self._watched.pop(place.of_part, [])
        reason: Future[Exception] = Future()
        reason.set_result(fault)
        for worker in watched:
            worker.terminate(reason)

    def has_given_up(self, place: ReportPlace) -> bool:
        return place.of_part in self._given_up

    def check(self, place: ReportPlace) -> None:
        """Raise Fault if the part is given up."""
        if (fault := self._given_up.get(place.of_part)) is not None:
            raise Fault(fault.outcome, fault.message)

    @contextmanager
    def ending(self, place: ReportPlace, worker: Worker) -> Iterator[None]:
        """End the worker if the part is given up inside this context; the worker's call then raises the reason.

        Raises Fault if the part is given up already.
        """
        self.check(place)
        with self._lock:
            self._watched.setdefault(place.of_part, []).append(worker)
        try:
            yield
        finally:
            with self._lock:
                others = self._watched.get(place.of_part, [])
                if worker in others:
                    others.remove(worker)


@dataclass
class _File:
    """The state of one file, and what its workers reported."""

    allowance: Allowance
    absent: str = ""  # why the file is not run
    unloadable: Fault | None = None
    was_loaded: bool = False
    kernels: frozenset[str] = frozenset()
    hints: tuple[ForbiddenUse, ...] = ()
    workers: list[Worker] = field(default_factory=list)  # whose output and reports are kept


class Files:
    """The state of a submission's files, and the log and time of their workers.

    Attributes:
        excused: why only a GPU can grade a part, by assignment and part name: the submission has said so, in a case or at
            import, and no more cases of the part are run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.hangs = Hangs()
        self.excused: dict[tuple[str, str], Fault] = {}
        self._files: dict[str, _File] = {}  # by assignment
        self._reading: Future[list[Answer | None]] | None = None

    def _of(self, assignment: Assignment) -> _File:
        new = _File(Allowance(assignment.spec.limits.total_limit_s))
        return self._files.setdefault(assignment.name, new)

    def look(self) -> None:
        """Find missing files and unchanged stubs, and begin to read the other files in the background (see
        `finish_looking`).
        """
        copied = self._run.request.copied
        for assignment in self._run.assignments:
            name, file = assignment.spec.file, self._of(assignment)
            stub = self._run.request.course / "starter" / name
            if name not in copied.info.files:
                why = copied.refused.get(name)
                told = copied.misnamed.get(name, f"there is no {name} in the submission")
                file.absent = f"{name} was ignored: {why}" if why else told
            elif stub.is_file() and stub.read_bytes() == (copied.folder / name).read_bytes():
                told = kernel_elsewhere(stub, assignment.spec.entry, copied.folder)
                file.absent = told or f"{name} is still the starter's stub"
        questions = [question_of(one) for one in self._present()]
        self._reading = later(lambda: read(copied.folder, copied.info.files, questions))

    def _present(self) -> list[Assignment]:
        return [one for one in self._run.assignments if not self._of(one).absent]

    def finish_looking(self) -> None:
        """Wait until the files have been read. Raises the errors of `reading.read`."""
        if self._reading is None:
            return
        reading, self._reading = self._reading, None
        for assignment, found in zip(self._present(), reading.result(), strict=True):
            file = self._of(assignment)
            if found is not None:
                file.kernels, file.hints = found.kernels, found.hints
            file.unloadable = source_fault(assignment, found)

    def check_present(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file is missing or a stub."""
        if why := self._of(assignment).absent:
            raise Fault("not_implemented", why)

    def check_source(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file must not be run or could not be loaded."""
        if fault := self._of(assignment).unloadable:
            raise fault

    def check_loadable(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file is missing, a stub, forbidden, or cannot be loaded, or its time is used up."""
        self.check_present(assignment)
        self.check_source(assignment)
        self.check_time(assignment)

    def check_time(self, assignment: Assignment) -> None:
        """Raise Fault if the submission has used up its time for the assignment."""
        allowance = self._of(assignment).allowance
        if not allowance.left_s:
            raise Fault("timed_out", f"not run: {allowance.words}")

    def hints(self, assignment: Assignment) -> tuple[ForbiddenUse, ...]:
        """Where the submission's source uses what the assignment wants its students to write."""
        return self._of(assignment).hints

    def note_loaded(self, assignment: Assignment) -> None:
        self._of(assignment).was_loaded = True

    def note_unloadable(self, assignment: Assignment, fault: Fault) -> None:
        """Note that a file could not be loaded. No worker loads the file again, unless a worker has loaded it
        before.
        """
        if not self._of(assignment).was_loaded:
            self._of(assignment).unloadable = fault

    def fault_of_file(self, assignment: Assignment, fault: Fault) -> Fault | None:
        """The fault of a file that could not be loaded under a tool; None if the tool may be at fault."""
        file = self._of(assignment)
        if file.was_loaded:
            return None
        return file.unloadable or (fault if fault.outcome in FAULTS_OF_FILES else None)

    def employ(self, worker: Worker, assignment: Assignment, *, logged: bool = True) -> None:
        """Count a worker's time for an assignment. If `logged`, the worker's output and reports are kept."""
        file = self._of(assignment)
        worker.allowance = file.allowance
        if logged:
            file.workers.append(worker)

    def ptxas(self, assignment: Assignment) -> str:
        """ptxas's words about the submission's kernels, as a worker reported them; "" if there are none."""
        return next((worker.ptxas for worker in self._of(assignment).workers if worker.ptxas), "")

    def reported(self, assignment: Assignment) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Operations off the given stream, and writes of what another thread had written, as the submission's workers on a
        CPU reported them.
        """
        workers = self._of(assignment).workers
        off_stream = dict.fromkeys(one for worker in workers for one in worker.off_stream)
        return tuple(off_stream), tuple(dict.fromkeys(one for worker in workers for one in worker.same_value))

    def own_kernels(self, assignment: Assignment) -> frozenset[str]:
        """Names of the kernels that the submission defines for an assignment."""
        compiled = (one.name for one in kernel_resources(self.ptxas(assignment)))  # those that a macro makes, too
        return self._of(assignment).kernels | frozenset(compiled)

    def log(self, assignment: Assignment) -> WorkerLog:
        """The output of the submission's workers for an assignment, by case."""
        logs = [worker.log for worker in self._of(assignment).workers]
        lines: dict[tuple[str, ...], None] = {}  # workers that print the same lines give one section
        others: Counter[str] = Counter()
        for name, text in (section for log in logs for section in log.sections()):
            own, beside = sort_out(text.replace(f"{self._run.request.copied.folder}/", ""))
            if own.strip():
                lines[tuple(with_case(name, without_places(own)))] = None
            others += beside
        return WorkerLog(
            text=all_shortened(list(lines), MAX_LOG),
            others=counted(others),
            total_bytes=sum(log.total_bytes for log in logs),
        )

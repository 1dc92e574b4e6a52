"""The files of each of a submission's files in a grading: whether the file can be run, and why not.

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


class Files:
    """The state of a submission's files, and the log and time of their workers.

    Attributes:
        excused: why only a GPU can grade a part, by assignment and part name.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.hangs = Hangs()
        self.excused: dict[tuple[str, str], Fault] = {}
        self._absent: dict[str, str] = {}  # why a file is not run, by file name
        self._unloadable: dict[str, Fault] = {}
        self._loadable: set[str] = set()
        self._allowances: dict[str, Allowance] = {}
        self._employed: dict[str, list[Worker]] = {}
        self._kernels: dict[str, frozenset[str]] = {}
        self._hints: dict[str, tuple[ForbiddenUse, ...]] = {}
        self._reading: tuple[list[Assignment], Future[list[Answer | None]]] | None = None

    def look(self) -> None:
        """Find missing files and unchanged stubs, and begin to read the other files in the background (see
        `finish_looking`).
        """
        copied = self._run.request.copied
        for assignment in self._run.assignments:
            name = assignment.spec.file
            stub = self._run.request.course / "starter" / name
            if name not in copied.info.files:
                why = copied.refused.get(name)
                told = copied.misnamed.get(name, f"there is no {name} in the submission")
                self._absent[name] = f"{name} was ignored: {why}" if why else told
            elif stub.is_file() and stub.read_bytes() == (copied.folder / name).read_bytes():
                told = kernel_elsewhere(stub, assignment.spec.entry, copied.folder)
                self._absent[name] = told or f"{name} is still the starter's stub"
        read_of = [one for one in self._run.assignments if one.spec.file not in self._absent]
        questions = [question_of(one) for one in read_of]
        self._reading = read_of, later(lambda: read(copied.folder, copied.info.files, questions))

    def finish_looking(self) -> None:
        """Wait until the files have been read. Raises the errors of `reading.read`."""
        if self._reading is None:
            return
        read_of, reading = self._reading
        self._reading = None
        for assignment, found in zip(read_of, reading.result(), strict=True):
            if found is not None:
                self._kernels[assignment.name], self._hints[assignment.name] = found.kernels, found.hints
            if fault := source_fault(assignment, found):
                self._unloadable[assignment.name] = fault

    def is_there(self, file: str) -> bool:
        """Whether the file exists and is not the starter's stub."""
        return file not in self._absent

    def check_present(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file is missing or a stub."""
        if why := self._absent.get(assignment.spec.file):
            raise Fault("not_implemented", why)

    def check_loadable(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file is missing, a stub, forbidden, or cannot be loaded."""
        self.check_present(assignment)
        self.check_source(assignment)

    def check_source(self, assignment: Assignment) -> None:
        """Raise Fault if the assignment's file must not be run or could not be loaded."""
        if fault := self._unloadable.get(assignment.name):
            raise fault

    def hints(self, assignment: Assignment) -> tuple[ForbiddenUse, ...]:
        """Where the submission's source uses what the assignment wants its students to write."""
        return self._hints.get(assignment.name, ())

    def excuse(self, place: ReportPlace, fault: Fault) -> None:
        """Run no more cases of a part: the submission has said, in a case or at import, that only a GPU can run its
        code.
        """
        self.excused.setdefault(place.of_part, fault)

    def check_excused(self, place: ReportPlace) -> None:
        """Raise Fault (`skipped`) if only a GPU can grade the part."""
        if fault := self.excused.get(place.of_part):
            raise fault

    def note_loaded(self, assignment: Assignment) -> None:
        self._loadable.add(assignment.name)

    def note_unloadable(self, assignment: Assignment, fault: Fault) -> None:
        """Note that a file could not be loaded. No worker loads the file again, unless a worker has loaded it
        before.
        """
        if assignment.name not in self._loadable:
            self._unloadable[assignment.name] = fault

    def fault_of_file(self, assignment: Assignment, fault: Fault) -> Fault | None:
        """The fault of a file that could not be loaded under a tool; None if the tool may be at fault."""
        if assignment.name in self._loadable:
            return None
        return self._unloadable.get(assignment.name, fault if fault.outcome in FAULTS_OF_FILES else None)

    def check_time(self, assignment: Assignment) -> None:
        """Raise Fault if the submission has used up its time for the assignment."""
        allowance = self._allowance(assignment)
        if not allowance.left_s:
            raise Fault("timed_out", f"not run: {allowance.words}")

    def employ(self, worker: Worker, assignment: Assignment, *, logged: bool = True) -> None:
        """Count a worker's time for an assignment. If `logged`, the worker's output and reports are kept."""
        worker.allowance = self._allowance(assignment)
        if logged:
            self._employed.setdefault(assignment.name, []).append(worker)

    def _allowance(self, assignment: Assignment) -> Allowance:
        return self._allowances.setdefault(assignment.name, Allowance(assignment.spec.limits.total_limit_s))

    def ptxas(self, assignment: Assignment) -> str:
        """ptxas's words about the submission's kernels, as a worker reported them; "" if there are none."""
        return next((worker.ptxas for worker in self._employed.get(assignment.name, []) if worker.ptxas), "")

    def off_stream(self, assignment: Assignment) -> tuple[str, ...]:
        """Operations off the given stream, as the submission's workers on a CPU reported them."""
        employed = self._employed.get(assignment.name, [])
        return tuple(dict.fromkeys(one for worker in employed for one in worker.off_stream))

    def same_value(self, assignment: Assignment) -> tuple[str, ...]:
        """Writes of what another thread had written, as the submission's workers on a CPU reported them."""
        employed = self._employed.get(assignment.name, [])
        return tuple(dict.fromkeys(one for worker in employed for one in worker.same_value))

    def own_kernels(self, assignment: Assignment) -> frozenset[str]:
        """Names of the kernels that the submission defines for an assignment."""
        compiled = (one.name for one in kernel_resources(self.ptxas(assignment)))  # those that a macro makes, too
        return self._kernels.get(assignment.name, frozenset()) | frozenset(compiled)

    def log(self, assignment: Assignment) -> WorkerLog:
        """The output of the submission's workers for an assignment, by case."""
        logs = [worker.log for worker in self._employed.get(assignment.name, [])]
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

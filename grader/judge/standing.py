"""What is known of each of a submission's files: whether there is something to run, and what keeps it from being run.

A part is given up after two cases without an answer in time: a loop without end takes all of the time that a case has, and so it would
in each of the part's other cases, for minutes. One case may take too long for a reason of its own, so it takes two that ended alike; a
case whose loop is in Triton's interpreter, where right code can take so long, counts for none.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from grader.assignment import Assignment
from grader.background import later
from grader.contender.contender import Contender
from grader.contender.last_words import NO_ANSWER, SLOW_IN_PYTHON, STOPPED
from grader.contender.replies import ContenderFault
from grader.contender.watch import Allowance
from grader.judge.cases import BoundCase, Place
from grader.judge.ownership import question_of, source_fault
from grader.judge.reading import Answer, read
from grader.judge.run import Run
from grader.report.model import WorkerLog
from grader.submission import beside_stub
from grader.verdict.prints import all_shortened, counted, sort_out, with_case, without_places
from grader.verdict.resources import kernel_resources

FAULTS_OF_FILES = ("build_failed", "failed", "not_implemented", "forbidden")  # when they are loaded
MAX_LOG = 64 * 1024  # characters of one assignment's log in the report
ENOUGH = 2  # cases that hung alike


class Hangs:
    """The parts that are given up. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[tuple[str, ...], dict[ContenderFault, str]] = {}  # with their cases, by part and message
        self._given_up: dict[tuple[str, str], ContenderFault] = {}
        self._watched: dict[tuple[str, str], list[Contender]] = {}

    def note(self, place: Place, error: BaseException | None) -> None:
        """How a case or check has ended. One fault counts once: that of a file that cannot be loaded ends every case."""
        if not isinstance(error, ContenderFault) or error.outcome != "timed_out" or SLOW_IN_PYTHON in error.details:
            return
        if not error.message.startswith(NO_ANSWER):
            return
        with self._lock:
            alike = self._faults.setdefault((*place.of_part, error.message), {})
            alike.setdefault(error, place.title)
            if len(alike) < ENOUGH or self.has_given_up(place):
                return
            ended = f"{' and '.join(alike.values())} of this part gave {error.message.removesuffix(STOPPED)}"
            fault = ContenderFault("timed_out", f"not run: {ended}; mend these first")
            self._given_up[place.of_part] = fault
            watched = self._watched.pop(place.of_part, [])
        sentence: Future[Exception] = Future()
        sentence.set_result(fault)
        for worker in watched:
            worker.condemn(sentence)

    def has_given_up(self, place: Place) -> bool:
        return place.of_part in self._given_up

    def check(self, place: Place) -> None:
        """Raises ContenderFault where the part is given up."""
        if (fault := self._given_up.get(place.of_part)) is not None:
            raise ContenderFault(fault.outcome, fault.message)

    @contextmanager
    def ending(self, place: Place, worker: Contender) -> Iterator[None]:
        """In here the worker, whose calls may take minutes, is ended when the part is given up; who waits for it is told why.

        Raises ContenderFault where it is given up already.
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


class Standing:
    """What a grading has found out about a submission's files.

    Attributes:
        excused: why a part can only be graded on a GPU, by its assignment and name.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self.hangs = Hangs()
        self.excused: dict[tuple[str, str], ContenderFault] = {}
        self._absent: dict[str, str] = {}  # why a file is not run, by its name
        self._unloadable: dict[str, ContenderFault] = {}
        self._loadable: set[str] = set()
        self._no_gradients: dict[str, ContenderFault] = {}  # what the source uses where gradients are asked for
        self._allowances: dict[str, Allowance] = {}
        self._employed: dict[str, list[Contender]] = {}
        self._triton_kernels: dict[str, frozenset[str]] = {}
        self._reading: tuple[list[Assignment], Future[list[Answer | None]]] | None = None

    def look(self) -> None:
        """See which files are missing or still stubs, and begin to read the others in the background (see `finish_looking`)."""
        job = self._run.job
        for assignment in self._run.assignments:
            name = assignment.spec.file
            stub = job.course / "starter" / name
            if name not in job.info.files:
                why = job.refused.get(name)
                told = job.misnamed.get(name, f"there is no {name} in the submission")
                self._absent[name] = f"{name} was ignored: {why}" if why else told
            elif stub.is_file() and stub.read_bytes() == (job.submission / name).read_bytes():
                told = beside_stub(stub, assignment.spec.entry, job.submission)
                self._absent[name] = told or f"{name} is still the starter's stub"
        read_of = [one for one in self._run.assignments if one.spec.file not in self._absent]
        questions = [question_of(one) for one in read_of]
        self._reading = read_of, later(lambda: read(job.submission, job.info.files, questions))

    def finish_looking(self) -> None:
        """Wait until the files have been read. Raises as `read` does."""
        if self._reading is None:
            return
        read_of, reading = self._reading
        self._reading = None
        for assignment, found in zip(read_of, reading.result(), strict=True):
            if found is not None:
                self._triton_kernels[assignment.name] = found.kernels
            if fault := source_fault(assignment, found, gradients=False):
                self._unloadable[assignment.name] = fault
            elif fault := source_fault(assignment, found, gradients=True):
                self._no_gradients[assignment.name] = fault

    def is_there(self, file: str) -> bool:
        """Whether there is something to run."""
        return file not in self._absent

    def check_present(self, assignment: Assignment) -> None:
        """Raises ContenderFault where there is nothing to run."""
        if why := self._absent.get(assignment.spec.file):
            raise ContenderFault("not_implemented", why)

    def check_loadable(self, assignment: Assignment) -> None:
        """Raises ContenderFault where there is nothing to run, or the file cannot be loaded or must not be."""
        self.check_present(assignment)
        if fault := self._unloadable.get(assignment.name):
            raise fault

    def check_source(self, assignment: Assignment, case: BoundCase | None) -> None:
        """Raises ContenderFault where the source that a call reaches must not be run. Without a case, it may ask for gradients."""
        if fault := self._unloadable.get(assignment.name):
            raise fault
        fault = self._no_gradients.get(assignment.name)
        if fault and (case is None or case.inputs(self._run.seed, 0, self._run.device).upstream is not None):
            raise fault

    def excuse(self, place: Place, fault: ContenderFault) -> None:
        """Run no more of a part: the submission says that it needs a GPU, in a case or when it is loaded."""
        self.excused.setdefault(place.of_part, fault)

    def check_excused(self, place: Place) -> None:
        """Raises ContenderFault, which says `skipped`, for a part that only a GPU can grade."""
        if fault := self.excused.get(place.of_part):
            raise fault

    def note_loaded(self, assignment: Assignment) -> None:
        self._loadable.add(assignment.name)

    def note_unloadable(self, assignment: Assignment, fault: ContenderFault) -> None:
        """A file could not be loaded: no worker tries again, unless one could load it before."""
        if assignment.name not in self._loadable:
            self._unloadable[assignment.name] = fault

    def fault_of_file(self, assignment: Assignment, fault: ContenderFault) -> ContenderFault | None:
        """The fault of a file that could not be loaded under a tool; None where it may be the tool's."""
        if assignment.name in self._loadable:
            return None
        return self._unloadable.get(assignment.name, fault if fault.outcome in FAULTS_OF_FILES else None)

    def check_time(self, assignment: Assignment) -> None:
        """Raises ContenderFault where the submission has used up its time for an assignment."""
        allowance = self._allowance(assignment)
        if not allowance.left_s:
            raise ContenderFault("timed_out", f"not run: {allowance.words}")

    def employ(self, contender: Contender, assignment: Assignment, *, logged: bool = True) -> None:
        """Count a worker's time for an assignment of the submission, and keep what the worker prints for the report."""
        contender.allowance = self._allowance(assignment)
        if logged:
            self._employed.setdefault(assignment.name, []).append(contender)

    def _allowance(self, assignment: Assignment) -> Allowance:
        return self._allowances.setdefault(assignment.name, Allowance(assignment.spec.limits.total_limit_s))

    def ptxas(self, assignment: Assignment) -> str:
        """The CUDA compiler's words about the submission's kernels, by its worker's word."""
        return next((worker.ptxas for worker in self._employed.get(assignment.name, []) if worker.ptxas), "")

    def off_stream(self, assignment: Assignment) -> tuple[str, ...]:
        """Work that did not run on the given stream, by the word of the submission's workers on the CPU."""
        employed = self._employed.get(assignment.name, [])
        return tuple(dict.fromkeys(one for worker in employed for one in worker.off_stream))

    def own_kernels(self, assignment: Assignment) -> frozenset[str]:
        """Names of the kernels that the submission defines for an assignment."""
        if assignment.spec.language == "cuda":
            return frozenset(one.name for one in kernel_resources(self.ptxas(assignment)))
        return self._triton_kernels.get(assignment.name, frozenset())

    def log(self, assignment: Assignment) -> WorkerLog:
        """What the submission's workers printed for an assignment."""
        logs = [worker.log for worker in self._employed.get(assignment.name, [])]
        lines: dict[tuple[str, ...], None] = {}  # of several workers that print the same at import, one
        others: Counter[str] = Counter()
        for name, text in (section for log in logs for section in log.sections()):
            own, beside = sort_out(text.replace(f"{self._run.job.submission}/", ""))
            if own.strip():
                lines[tuple(with_case(name, without_places(own)))] = None
            others += beside
        return WorkerLog(
            text=all_shortened(list(lines), MAX_LOG),
            others=counted(others),
            total_bytes=sum(log.total_bytes for log in logs),
        )

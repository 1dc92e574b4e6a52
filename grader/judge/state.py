"""What a judge holds during one session: the job, the device, the workers, and what was found."""

from __future__ import annotations

import importlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import psutil
import torch

from grader.assignment import Assignment, Device
from grader.background import later
from grader.contender.allowance import Allowance
from grader.contender.contender import Contender, WorkerUnavailable
from grader.contender.pool import WorkerPool, end_all, workers_at_once
from grader.contender.replies import ContenderFault
from grader.contender.surroundings import WorkerKind
from grader.job import Event, Job
from grader.judge.baselines import Baselines
from grader.judge.cases import BoundCase, BoundSpeedCase
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.gpu import Gauge
from grader.judge.hangs import Hangs
from grader.judge.lanes import Lanes
from grader.judge.loading import load_file
from grader.judge.ownership import question_of, source_fault
from grader.judge.reading import Answer, read
from grader.judge.timing import DeviceTime
from grader.judge.trial import answer
from grader.problem import Call
from grader.protocol import NEEDED_FOR_GRADIENTS
from grader.report.model import WorkerLog
from grader.verdict.prints import counted, shortened, sort_out, with_case

FAULTS_OF_FILES = ("build_failed", "failed", "not_implemented", "forbidden")  # when they are loaded
MAX_LOG = 64 * 1024  # characters of one assignment's log in the report


class Judge:
    """State of a grading session.

    Args:
        job: what to grade.
        pool: where its workers come from; whoever made it closes it.
        emit: takes the events of the run.

    Attributes:
        sentencing, sentences: see `grader/judge/memory.py`.
        baselines: the contenders that a submission is timed against.
        gauge: the GPU's clocks, and whether it is quiet.
        record: the device time that the submission took while it was timed.
        lanes: run cases and checks, several at once where the machine has the cores.
        hangs: the parts of which no more is run.
        triton_kernels: names of those that the submission defines, by assignment.
        gradients: whether a part's calls ask for gradients, by its assignment and name; of those that have been called.
    """

    def __init__(self, job: Job, pool: WorkerPool, emit: Callable[[Event], None]) -> None:
        self.job = job
        self.device_name: Device = pool.device
        self.device = torch.device(pool.device)
        self.seed = secrets.randbits(53) if job.seed is None else job.seed
        self.emit = emit
        self.baselines = Baselines(pool, job.course)
        self.gauge = Gauge(self.device, measuring=job.speed)
        self.record = DeviceTime()
        one_by_one = self.device_name == "cpu" or job.stop_early
        self.lane_count = 1 if one_by_one else workers_at_once(self.free_gib())
        self.lanes = Lanes(self, self.lane_count)
        self.hangs = Hangs()
        self.sentencing = threading.Lock()
        self.sentences: dict[str, tuple[float, Exception]] = {}  # the last for each assignment, and when
        self.triton_kernels: dict[str, frozenset[str]] = {}
        self.gradients: dict[tuple[str, str], bool] = {}
        self._asking_reference = threading.Lock()
        self._crashed = False  # whether a worker of the submission has
        self.excused: dict[tuple[str, str], ContenderFault] = {}  # parts of assignments that only a GPU can grade
        self._absent: dict[str, str] = {}
        self._pool = pool
        self._contenders: dict[tuple[str, int], Contender] = {}
        self._references: dict[str, Contender] = {}
        self._coming_reference: Contender | None = None
        self._unloadable: dict[str, ContenderFault] = {}
        self._no_gradients: dict[str, ContenderFault] = {}  # what the source uses where gradients are asked for
        self._loadable: set[str] = set()
        self._allowances: dict[str, Allowance] = {}
        self._logs: dict[str, list[Contender]] = {}
        self._drawn: Counter[str] = Counter()  # inputs of each speed case
        self._reading: tuple[list[Assignment], Future[list[Answer | None]]] | None = None
        self._importing = threading.Thread(target=_import_for_gradients, name="importing", daemon=True)
        if self.device_name == "cuda":
            self._importing.start()

    def contender(self, assignment: Assignment, lane: int = 0) -> Contender:
        """The submission's worker for an assignment, loaded; a new one where the last has died. Each lane has one of its own.

        Raises:
            ContenderFault: there is nothing to run, or it could not be loaded, or its time is used up.
        """
        self.check_present(assignment)
        if fault := self._unloadable.get(assignment.name):
            raise fault
        self._check_time(assignment)
        contender = self._contenders.get((assignment.name, lane))
        if contender is None or not contender.lives():
            self._crashed |= contender is not None
            first = contender is None
            contender = self._load(assignment, lane)
            if self.device_name == "cpu" and first:
                return contender  # on a laptop's few cores, what the first case shows should not wait for a start
        if (self.lanes.busy or self.lane_count == 1) and self._needs_a_spare(assignment):
            self.prepare(1)
        return contender

    def _needs_a_spare(self, assignment: Assignment) -> bool:
        """For the next assignment, or when this one crashes; on a laptop's few cores only once something has crashed."""
        return self.device_name == "cuda" or self._crashed or assignment.name != self.job.assignments[-1]

    def prepare(self, count: int) -> None:
        """Start workers in the background, until so many stand ready."""
        self._pool.prepare(count)

    def prepare_races(self, wanted: Sequence[tuple[str, bool]]) -> None:
        """As `prepare`, for what runs when no lane does. Where some are left, none is started: each time, somebody would wait for it.

        Args:
            wanted: for each the name of the assignment that it is meant for, and whether it may be asked for gradients: it imports then
                what its first backward pass would wait for.
        """
        if not self._pool.has_reserve:
            self._pool.reserve([(name, (NEEDED_FOR_GRADIENTS,) if gradients else ()) for name, gradients in wanted])

    def finish_imports(self) -> None:
        """Wait for what is imported in the background: two threads that import the same may get it unfinished."""
        if self._importing.is_alive():
            self._importing.join()

    def has_worker(self, assignment: Assignment) -> bool:
        """Whether the submission's worker for an assignment, in the first lane, lives."""
        contender = self._contenders.get((assignment.name, 0))
        return contender is not None and contender.lives()

    def end_lanes(self, lanes: Container[int]) -> None:
        """End the submission's workers in some lanes."""
        end_all(contender for (_, lane), contender in list(self._contenders.items()) if lane in lanes)

    def condemn(self, assignment: Assignment, sentence: Future[Exception]) -> int:
        """End the submission's workers for an assignment, whatever they are doing, in all lanes (see `Contender.condemn`); how many."""
        found = [one for (name, _), one in list(self._contenders.items()) if name == assignment.name and one.alive]
        for contender in found:
            contender.condemn(sentence)
        return len(found)

    def settle(self, starts: bool = True) -> None:
        """Wait until no worker is starting or loading any more: that would disturb whoever is timed. Raises WorkerUnavailable.

        Args:
            starts: whether for the submission's too, that are starting for what comes later, and have nothing to do yet.
        """
        self._pool.end_watched()
        self.baselines.settle()
        if starts:
            self._pool.settle()

    def end_idle_workers(self) -> None:
        """End all workers but the submission's own: whoever needs one of the others starts it again."""
        self._pool.end_idle()
        self.baselines.end()
        coming, self._coming_reference = self._coming_reference, None
        end_all([*self._references.values(), *([coming] if coming is not None else [])])

    def draw(self, case: BoundSpeedCase, count: int) -> list[Call]:
        """New inputs of a speed case, which no race of this session has had: what one worker has met another may know."""
        first = self._drawn[case.id]
        self._drawn[case.id] += count
        return [case.inputs(self.seed, number, self.device) for number in range(first, first + count)]

    def check_present(self, assignment: Assignment) -> None:
        """Raises ContenderFault where there is nothing to run."""
        if why := self._absent.get(assignment.spec.file):
            raise ContenderFault("not_implemented", why)

    def excuse(self, assignment: Assignment, part: str, fault: ContenderFault) -> None:
        """Run no more of a part: the submission says that it needs a GPU, in a case or when it is loaded."""
        self.excused.setdefault((assignment.name, part), fault)

    def check_excused(self, assignment: Assignment, part: str) -> None:
        """Raises ContenderFault, which says `skipped`, for a part that only a GPU can grade."""
        if fault := self.excused.get((assignment.name, part)):
            raise fault

    def check_source(self, assignment: Assignment, case: BoundCase | None) -> None:
        """Raises ContenderFault where the source of what a call reaches must not be run.

        Args:
            case: one whose calls ask for gradients if that call does; None where nobody knows, and it may.
        """
        if fault := self._unloadable.get(assignment.name):
            raise fault
        fault = self._no_gradients.get(assignment.name)
        if fault and (case is None or case.inputs(self.seed, 0, self.device).upstream is not None):
            raise fault

    def is_there(self, file: str) -> bool:
        """Whether there is something to run."""
        return file not in self._absent

    def look(self, assignments: Sequence[Assignment]) -> None:
        """See which files there are, and which are still stubs, before any of the student's code has run; and begin to read them, in the
        background (see `finish_looking`).
        """
        for name in (assignment.spec.file for assignment in assignments):
            stub = self.job.course / "starter" / name
            if name not in self.job.info.files:
                why = self.job.refused.get(name)
                told = self.job.misnamed.get(name, f"there is no {name} in the submission")
                self._absent[name] = f"{name} was ignored: {why}" if why else told
            elif stub.is_file() and stub.read_bytes() == (self.job.submission / name).read_bytes():
                self._absent[name] = f"{name} is still the starter's stub"
        read_of = [one for one in assignments if one.spec.file not in self._absent]
        questions = [question_of(one) for one in read_of]
        self._reading = read_of, later(lambda: read(self.job.submission, self.job.info.files, questions))

    def finish_looking(self) -> None:
        """Wait until what is there has been read. Raises as `read` does."""
        if self._reading is None:
            return
        read_of, reading = self._reading
        self._reading = None
        for assignment, found in zip(read_of, reading.result(), strict=True):
            if found is not None:
                self.triton_kernels[assignment.name] = found.kernels
            if fault := source_fault(assignment, found, gradients=False):
                self._unloadable[assignment.name] = fault
            elif fault := source_fault(assignment, found, gradients=True):
                self._no_gradients[assignment.name] = fault

    @property
    def gpu_name(self) -> str:
        return torch.cuda.get_device_name() if self.device_name == "cuda" else "CPU"

    def free_gib(self) -> float:
        """Memory of the device that is free: the GPU's, or the host's where there is none."""
        if self.device_name == "cpu":
            return float(psutil.virtual_memory().available) / 2**30
        torch.cuda.empty_cache()
        return float(torch.cuda.mem_get_info(self.device)[0]) / 2**30

    @property
    def total_gib(self) -> float:
        """All the memory that the device has."""
        if self.device_name == "cpu":
            return float(psutil.virtual_memory().total) / 2**30
        return float(torch.cuda.mem_get_info(self.device)[1]) / 2**30

    def _kind(self, assignment: Assignment) -> WorkerKind:
        return "cuda_cpu" if assignment.spec.language == "cuda" and self.device_name == "cpu" else self.device_name

    def _load(self, assignment: Assignment, lane: int) -> Contender:
        if not self.lanes.busy:
            for (name, _), last in list(self._contenders.items()):
                if name != assignment.name:
                    last.kill()  # what an earlier assignment left running must not disturb this one
        contender = self._pool.take(self._kind(assignment), alone=not self.lanes.busy, purpose=assignment.name)
        contender.allowance = self._allowance(assignment)
        self._logs.setdefault(assignment.name, []).append(contender)
        try:
            load_file(contender, self.job.submission, assignment)
        except ContenderFault as fault:
            if assignment.name not in self._loadable:
                self._unloadable[assignment.name] = fault
            contender.kill()
            raise
        self._loadable.add(assignment.name)
        self._contenders[assignment.name, lane] = contender
        return contender

    def _allowance(self, assignment: Assignment) -> Allowance:
        return self._allowances.setdefault(assignment.name, Allowance(assignment.spec.limits.total_limit_s))

    def _check_time(self, assignment: Assignment) -> None:
        """Raises ContenderFault where the submission's code has taken all the time that it has for an assignment."""
        allowance = self._allowance(assignment)
        if not allowance.left_s:
            raise ContenderFault("timed_out", f"not run: {allowance.words}")

    def fault_of_file(self, assignment: Assignment, fault: ContenderFault) -> ContenderFault | None:
        """What to say of a file that could not be loaded under a tool; None where that is the tool's fault, or may be."""
        if assignment.name in self._loadable:
            return None
        return self._unloadable.get(assignment.name, fault if fault.outcome in FAULTS_OF_FILES else None)

    def watched_worker(self, assignment: Assignment, tool: Sequence[str]) -> Contender:
        """A worker that a tool watches, with nothing loaded. Raises ContenderFault where there is nothing to run; WorkerUnavailable."""
        self.check_present(assignment)
        if fault := self._unloadable.get(assignment.name):
            raise fault
        self._check_time(assignment)
        contender = self._pool.watched(tool)
        contender.allowance = self._allowance(assignment)
        self._logs.setdefault(assignment.name, []).append(contender)
        contender.ready()
        return contender

    def clear(self) -> None:
        """End all that the submission runs, and remove what it has left. Only where no lane is busy."""
        self._pool.clear()

    def canary(self, assignment: Assignment, folder: Path, *, compiling: bool = False) -> Contender:
        """A worker as the submission's, for the staff's file in `folder`, with nothing loaded. Raises WorkerUnavailable."""
        return self._pool.canary("compile" if compiling else self._kind(assignment), folder)

    def worker_to_compile(self, assignment: Assignment) -> Contender:
        """A worker with the submission, which compiles launches and does not run them. Raises ContenderFault, WorkerUnavailable."""
        self._check_time(assignment)
        contender = self._pool.take("compile")
        contender.allowance = self._allowance(assignment)
        try:
            load_file(contender, self.job.submission, assignment)
        except ContenderFault:
            contender.kill()
            raise
        return contender

    def expect_reference(self) -> None:
        """Start a worker for the reference's answers in the background: a case that needs one waits for its start otherwise."""
        if self._asking_reference.acquire(blocking=False):  # else somebody has asked for it already
            try:
                if not self._references:
                    self._coming_reference = self._start_reference(self.device_name)
            finally:
                self._asking_reference.release()

    def _start_reference(self, kind: WorkerKind) -> Contender:
        return self._pool.start(kind, self.baselines.caches, (NEEDED_FOR_GRADIENTS,) if kind == "cuda" else ())

    def reference_answer(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        """The reference kernel's outputs for `call`, from a worker of its own. Raises CaseRefused, WorkerUnavailable when it gives none."""
        with self._asking_reference:
            try:
                return self._ask_reference(case, call)
            except (CaseRefused, WorkerUnavailable):
                if self.lanes.busy:
                    raise
            self._pool.evict()  # the submission has answered, and may have filled what the reference needs
            return self._ask_reference(case, call)

    def _ask_reference(self, case: BoundCase, call: Call) -> dict[str, torch.Tensor]:
        assignment = case.assignment
        try:
            contender = self._references.get(assignment.name)
            if contender is None or not contender.lives():
                kind = self._kind(assignment)
                coming, self._coming_reference = self._coming_reference, None
                contender = coming if coming is not None and coming.lives() else self._start_reference(kind)
                contender.ready()
                load_file(contender, self.job.course / "reference", assignment)
                self._references[assignment.name] = contender
            return answer(self, case, contender, call, Evidence())
        except ContenderFault as fault:
            words = f"the reference kernel gave no answer in {case.id}: {fault.outcome}, {fault.message}"
            if fault.outcome == "out_of_memory" and self.device_name == "cuda":
                raise MemoryError(words) from None  # perhaps the submission has it
            raise CaseRefused(words) from None
        except CheckFailed as failed:
            raise CaseRefused(f"the reference kernel broke the contract in {case.id}: {failed.message}") from None

    def ptxas(self, assignment: Assignment) -> str:
        """What the CUDA compiler told of the submission's kernels, as its worker says."""
        return next((worker.ptxas for worker in self._logs.get(assignment.name, []) if worker.ptxas), "")

    def log(self, assignment: Assignment) -> WorkerLog:
        """What the submission's workers printed for an assignment."""
        logs = [worker.log for worker in self._logs.get(assignment.name, [])]
        lines: dict[tuple[str, ...], None] = {}  # of several workers that print the same at import, one
        others: Counter[str] = Counter()
        for name, text in (section for log in logs for section in log.sections()):
            own, beside = sort_out(text.replace(f"{self.job.submission}/", ""))
            lines[tuple(with_case(name, own))] = None
            others += beside
        own_text = shortened((line for section in lines for line in section), MAX_LOG)
        return WorkerLog(text=own_text, others=counted(others), total_bytes=sum(log.total_bytes for log in logs))


def _import_for_gradients() -> None:
    """While the first workers start: later, in the middle of the cases, all lanes would wait for it."""
    with suppress(Exception):  # whoever needs it will be told
        importlib.import_module(NEEDED_FOR_GRADIENTS)

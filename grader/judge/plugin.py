"""The pytest plugin that makes a session of tests a grading: fixtures in, case results out.

A check is a test that takes the `contender` fixture. `test_correctness` is run for every case in problem.toml; an
assignment may add checks of its own in `assignments/<name>/test_*.py`, whose docstring is what the student reads and
whose points are those of the group that names it under `checks`.

Fixtures: `judge` (the session's state), `allowed` (raises what keeps a case from being run), `compilation` (what compiles its launches
where there is no GPU), `assignment`, `case` and `speed_case` (parametrised over the cases), `contender` (the submission's worker,
loaded), `properties` (what tries properties on it), `evidence` (where a check leaves what it measured). `benchmark` is
pytest-benchmark's; its timer is the judge's record of device time.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import clear_frames, extract_tb
from typing import Any

import pytest

from grader.assignment import Assignment, AssignmentSpec
from grader.contender.contender import Contender, WorkerUnavailable
from grader.contender.pool import GIB_PER_WORKER
from grader.contender.replies import ContenderFault
from grader.job import CaseDone, CaseStarted, SpeedDone
from grader.judge import ruler
from grader.judge.canary import Canary
from grader.judge.cases import BoundCase, BoundSpeedCase, SpeedSizes
from grader.judge.compilation import Compilation
from grader.judge.environment import describe_environment, find_compiler, interpreter_fault
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence, MachineFault
from grader.judge.lanes import Work, case_work, shares_the_machine
from grader.judge.memory import hoarding_is_a_fault, room_for, too_little
from grader.judge.properties import Properties
from grader.judge.state import Judge
from grader.nvidia import find_sanitizer
from grader.problem import load_problem
from grader.report.model import NEEDS_GPU, NOT_RUN, UNDECIDED, CaseResult, Outcome, SpeedCaseResult
from grader.verdict.hints import hints
from grader.verdict.scoring import speed_points

EVIDENCE = pytest.StashKey[Evidence]()
PLACE = pytest.StashKey["Place"]()
GIB_PER_SPARE = 8.0  # of free GPU memory: a process there takes half a GiB
PLACES_TOLD = 4
NO_BFLOAT16 = "needs a GPU: Triton's CPU interpreter computes bfloat16 wrongly"


@dataclass(frozen=True)
class Place:
    """Where a test's result belongs in the report."""

    assignment: str
    part: str
    name: str
    tries: str
    speed: SpeedSizes | None = None

    @property
    def key(self) -> str:
        """What names it in the whole course. A test's node id does not: each assignment has a test_properties.py."""
        return f"{self.assignment}-{self.part}-{self.name}"


class JudgePlugin:
    """Binds tests to cases, and keeps each one's result in `results` and `speed_results`, by assignment, part and name.

    `benchmarks` is pytest-benchmark's record, once the session has ended. `refusal` says why the assignments' own checks could not be
    collected, and `failure` why none was run. `interrupted`: the session was ended before all had their turn.
    """

    def __init__(
        self,
        judge: Judge,
        assignments: Sequence[Assignment],
        cases: Sequence[BoundCase],
        speed_cases: Sequence[SpeedSizes],
    ) -> None:
        self.judge = judge
        self.compilation = Compilation(judge, cases)
        self._canary = Canary(judge, cases, self.compilation)
        self.speed_cases = speed_cases
        self.speed_results: dict[tuple[str, str, str], SpeedCaseResult] = {}
        self.benchmarks = ""
        self.assignments = {assignment.name: assignment for assignment in assignments}
        self.cases = cases
        # Loaded here, and once: what several lanes load at the same time none of them gets whole.
        self._problems = {one.name: load_problem(one) for one in assignments}
        self.results: dict[tuple[str, str, str], CaseResult] = {}
        self.refusal = ""
        self.failure: Exception | None = None
        self.interrupted = False
        self._items: list[pytest.Item] = []
        self._stopped: dict[str, str] = {}
        self._interpreter_fault = interpreter_fault() if judge.device_name == "cpu" else ""

    # Fixtures
    # ---------------------------------------------------------------------------------------------------------------------

    @pytest.fixture(name="judge")
    def judge_fixture(self) -> Judge:
        return self.judge

    @pytest.fixture(name="compilation")
    def compilation_fixture(self) -> Compilation:
        return self.compilation

    @pytest.fixture
    def evidence(self, request: pytest.FixtureRequest) -> Evidence:
        evidence: Evidence = request.node.stash.setdefault(EVIDENCE, Evidence())
        return evidence

    @pytest.fixture
    def assignment(self, request: pytest.FixtureRequest) -> Assignment:
        return self.assignments[request.node.stash[PLACE].assignment]

    @pytest.fixture
    def contender(self, request: pytest.FixtureRequest, assignment: Assignment) -> Contender:
        place = request.node.stash[PLACE]
        if place.speed is not None:
            self._allow_timing(assignment, place)
        self._allow(place, None)
        self.judge.lanes.finish()
        contender = self.judge.contender(assignment)
        contender.log.mark(place.name if place.speed is None else f"speed of {place.name}")
        return contender

    @pytest.fixture
    def properties(self, request: pytest.FixtureRequest) -> Properties:
        """What tries a property of right answers on the submission."""
        place = request.node.stash[PLACE]
        self._allow(place, None)
        if not self.judge.lanes.expects(place.key):
            self.judge.lanes.finish()
        return self._properties(place)

    def _properties(self, place: Place, lane: int = 0) -> Properties:
        assignment = self.assignments[place.assignment]
        problem, model = self._problems[assignment.name]
        part = next(part for part in assignment.spec.parts if part.name == place.part)
        return Properties(self.judge, assignment, problem, model, part, place.name, lane)

    @pytest.fixture
    def allowed(self, request: pytest.FixtureRequest, case: BoundCase) -> None:
        """Raises what keeps the case from being run."""
        if not shares_the_machine(case):
            self._wait_for_others(case)
        self._allow(request.node.stash[PLACE], case)

    def _wait_for_others(self, case: BoundCase) -> None:
        """What runs beside the case would count as memory that is there, or not. What only starts, for the races, takes little: where there
        is plenty, and nobody measures, it is not waited for.
        """
        self.judge.lanes.finish()
        if self.judge.device_name == "cuda":
            measured, needed_gib = case.case.max_extra_mib is not None, case.case.memory_gib or 0.0
            self.judge.settle(starts=measured or self.judge.free_gib() < needed_gib + self._starting_gib)

    @property
    def _starting_gib(self) -> float:
        """GPU memory that workers of the submission may take who run or start beside something else."""
        return GIB_PER_WORKER * self.judge.lane_count

    def _allow(self, place: Place, case: BoundCase | None) -> None:
        """Raise what keeps a case from being run; what can be said of the submission without running it goes first."""
        assignment = self.assignments[place.assignment]
        self.judge.check_present(assignment)
        self.judge.check_excused(assignment, place.part)
        if reason := self._reason_to_skip(assignment, case):
            raise ContenderFault("skipped", reason)
        given_up = self.judge.hangs.has_given_up(place.assignment, place.part)
        if case is not None and self._interpreted_wrongly(case):
            told = "" if given_up else self.compilation.check(case)
            raise ContenderFault("skipped", f"{NO_BFLOAT16}; {told}" if told else NO_BFLOAT16)
        if given_up and not self.judge.lanes.expects(place.key):  # what ran ahead has asked for itself
            self.judge.hangs.check(place.assignment, place.part)
        same_part = (
            one for one in self.cases if (one.assignment.name, one.part.name) == (place.assignment, place.part)
        )
        self.judge.check_source(assignment, case or next(same_part, None))

    def _interpreted_wrongly(self, case: BoundCase) -> bool:
        cpu, triton = self.judge.device_name == "cpu", case.assignment.spec.language == "triton"
        return cpu and triton and case.case.dtype == "bfloat16"

    @pytest.fixture
    def speed_case(self, request: pytest.FixtureRequest) -> BoundSpeedCase:
        """The largest size that this machine has the memory for."""
        self.judge.lanes.finish()  # its workers hold memory
        sizes: SpeedSizes = request.param
        place = request.node.stash[PLACE]
        there_already = self.judge.has_worker(self.assignments[place.assignment])
        if not there_already:
            self._prepare_for(request.session.items[request.session.items.index(request.node) :])
        self.judge.settle()  # those that are starting will hold memory too
        self.judge.gauge.look_again()
        needed_gib = sizes.needed_gib(self.judge.total_gib)
        free_gib = room_for(self.judge, self.assignments[place.assignment], needed_gib)
        if (fitting := sizes.fitting(free_gib)) is None:
            needed = min(one for one in sizes.memory_gib if one is not None)
            raise pytest.skip.Exception(too_little(needed, free_gib))
        return fitting

    def _prepare_for(self, items: Sequence[pytest.Item]) -> None:
        """Start the submission's workers that these will need, all at the same time: a worker that starts while others are timed disturbs.

        Each race on a GPU ends its worker. What runs alone before an assignment's first race hands its worker on to that.
        """
        if self.judge.device_name != "cuda" or self.judge.lane_count < 2:
            return
        wanted: list[tuple[str, bool]] = []
        for name, assignment in self.assignments.items():
            if not self.judge.is_there(assignment.spec.file):
                continue
            own = [item for item in items if item.stash[PLACE].assignment == name]
            races = [place.part for place in (item.stash[PLACE] for item in own) if place.speed is not None]
            alone = any(item.stash[PLACE].speed is None and not self._may_run_ahead(item) for item in own)
            # Which of them the backward pass gets, nobody knows: where a part is wrong it is not timed.
            gradients = any(self.judge.gradients.get((name, part), True) for part in races)
            wanted += [(name, gradients)] * max(len(races), alone)
        spares = max(1, int(self.judge.free_gib() / GIB_PER_SPARE))
        self.judge.prepare_races(wanted[: min(self.judge.lane_count, spares)])

    def _allow_timing(self, assignment: Assignment, place: Place) -> None:
        """Raise what keeps a speed case from being timed: no GPU, nothing to time, or answers that are not right."""
        assert place.speed is not None
        devices = place.speed.declared.speed.devices
        if self.judge.device_name not in devices:
            raise pytest.skip.Exception(NEEDS_GPU if devices == ("cuda",) else "not graded here")
        self.judge.check_present(assignment)
        results = [one for key, one in self.results.items() if key[:2] == (place.assignment, place.part)]
        wrong = [one for one in results if one.outcome not in ("passed", *UNDECIDED)]
        if wrong:
            names = ", ".join(one.name for one in wrong[:4]) + (" ..." if len(wrong) > 4 else "")
            raise ContenderFault(
                wrong[0].outcome, f"not timed: speed counts where the answers are right, and here {names} went wrong"
            )
        if any(one.outcome == "infra_error" for one in results):
            raise pytest.skip.Exception("not timed: the grader failed in a correctness case")
        if not any(one.outcome == "passed" for one in results):
            raise pytest.skip.Exception("not timed: no correctness case could be run here")

    def _reason_to_skip(self, assignment: Assignment, case: BoundCase | None) -> str:
        """Why a case is not run, or nothing."""
        if stopped := self._stopped.get(assignment.name):
            return f"{NOT_RUN}: stopped at {stopped}"
        cuda = assignment.spec.language == "cuda"
        if case is not None and self.judge.job.effort == "quick" and self._takes_long(case):
            return f"left out by --quick: {case.case.tries}"
        if cuda and find_compiler(self.judge.device_name) is None:
            if self.judge.device_name == "cuda":
                return "nvcc was not found: install the CUDA toolkit or put nvcc on the PATH (or set CUDA_HOME)"
            return "no C++ compiler was found: install g++ (Debian, Ubuntu: apt install g++)"
        if self.judge.device_name == "cuda":
            if case is not None and case.case.tool is not None and find_sanitizer() is None:
                return "compute-sanitizer was not found: it comes with the CUDA toolkit"
            return self._too_large(assignment, case)
        if not cuda and self._interpreter_fault:
            return self._interpreter_fault
        if case is not None and "cpu" not in case.case.devices:
            return f"needs a GPU: {case.case.tries}"
        return ""

    def _takes_long(self, case: BoundCase) -> bool:
        return case.case.memory_gib is not None or (case.case.tool is not None and self.judge.device_name == "cuda")

    def _too_large(self, assignment: Assignment, case: BoundCase | None) -> str:
        if case is None or case.case.memory_gib is None:
            return ""
        free_gib = room_for(self.judge, assignment, case.case.memory_gib)
        if free_gib >= case.case.memory_gib:
            return ""
        return too_little(case.case.memory_gib, free_gib)

    # Collection
    # -------------------------------------------------------------------------------------------------------------------

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "speed_case" in metafunc.fixturenames:
            ids = [sizes.declared.id for sizes in self.speed_cases]
            metafunc.parametrize("speed_case", self.speed_cases, ids=ids, indirect=True)
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", self.cases, ids=[case.id for case in self.cases])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            case, speed = params.get("case"), params.get("speed_case")
            if isinstance(speed, SpeedSizes):
                declared = speed.declared
                item.stash[PLACE] = Place(
                    declared.assignment.name, declared.part.name, declared.name, declared.case.tries, speed
                )
                item.add_marker(pytest.mark.benchmark(timer=self.judge.record))
            elif isinstance(case, BoundCase):
                item.stash[PLACE] = Place(case.assignment.name, case.part.name, case.name, self._tries(case))
            else:
                item.stash[PLACE] = self._place_of_check(item)
        self._find_all_checks(
            {
                (place.assignment, place.part, place.name)
                for place in (item.stash[PLACE] for item in items)
                if place.speed is None
            }
        )
        items.sort(key=self._turn)
        self._items = items

    def _turn(self, item: pytest.Item) -> tuple[bool, int, bool]:
        """All tests of an assignment together, so that its worker is started once, and those that time it last. With lanes, what they
        run ahead is told before all that.
        """
        place = item.stash[PLACE]
        ahead = self.judge.lane_count > 1 and self._may_run_ahead(item)
        return not ahead, list(self.assignments).index(place.assignment), place.speed is not None

    # Ahead
    # -------------------------------------------------------------------------------------------------------------------

    def _may_run_ahead(self, item: pytest.Item) -> bool:
        case = _case_of(item)
        if case is None:
            return item.stash[PLACE].speed is None and _takes_properties_alone(item)
        return shares_the_machine(case)

    def _ahead(self, items: Sequence[pytest.Item]) -> Iterator[Work]:
        """What of these can run in lanes; the rest, and what cannot be run at all, is the tests' own business.

        The checks first: each is as much work as several cases, and would keep one lane busy when the others have ended.
        Of the cases never neighbours at once: their launches are often compiled alike, and what one lane has compiled
        no other needs to.
        """
        checks = [item for item in items if _case_of(item) is None]
        cases = [item for item in items if _case_of(item) is not None]
        step = max(1, len(cases) // self.judge.lane_count)
        for item in (*checks, *(case for start in range(step) for case in cases[start::step])):
            place, case = item.stash[PLACE], _case_of(item)
            if not self._may_run_ahead(item):
                continue
            try:
                self._allow(place, case)
            except ContenderFault:
                continue
            yield self._check_work(item) if case is None else case_work(self.judge, case)

    def _check_work(self, item: pytest.Item) -> Work:
        """A check that takes nothing but `properties`."""
        place, function = item.stash[PLACE], item.obj  # type: ignore[attr-defined]
        assignment = self.assignments[place.assignment]

        def run(lane: int, _evidence: Evidence) -> None:
            with hoarding_is_a_fault(self.judge, assignment):
                function(properties=self._properties(place, lane))

        return Work(place.key, assignment, run, part=place.part)

    def start_the_courses_own(self) -> None:
        """Start the course's own workers in the background, before anybody asks for them: torch.compile's needs the longest of all."""
        timed = [one for one in self.speed_cases if self.judge.device_name in one.declared.speed.devices]

        def load_early() -> None:
            self.judge.finish_imports()
            for one in timed:
                ruler.load_early(one.cases[-1], self.judge.device)

        free_gib = self.judge.free_gib() - self._starting_gib
        roomy = [case for one in timed if (case := one.fitting(free_gib)) is not None]
        everyone = self.judge.job.contenders == "all"
        self.judge.baselines.begin([one.declared for one in timed], everyone, roomy, load_early)
        if self.judge.lane_count > 1:
            self.judge.expect_reference()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        try:
            self.judge.finish_looking()
        except Exception as error:
            self.failure = error
            raise pytest.UsageError("the submission was not read") from None
        works = self._ahead(session.items) if self.judge.lane_count > 1 else ()

        def get_ready_for_the_rest() -> None:
            if self.judge.lane_count > 1:
                with suppress(
                    RuntimeError, MemoryError
                ):  # no GPU memory at this moment: they start when they are asked for
                    self._prepare_for(session.items)

        self.judge.gauge.look_again()  # before any of the student's code runs
        self.judge.lanes.begin(works, get_ready_for_the_rest)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """A check that ran ahead is not run again."""
        if _case_of(pyfuncitem) is not None or not self.judge.lanes.expects(pyfuncitem.stash[PLACE].key):
            return None
        self.judge.lanes.run(self._check_work(pyfuncitem), pyfuncitem.stash.setdefault(EVIDENCE, Evidence()))
        return True

    def _find_all_checks(self, found: set[tuple[str, str, str]]) -> None:
        for assignment in self.assignments.values():
            for part in assignment.spec.parts:
                for name in (check for group in part.groups for check in group.checks):
                    if (assignment.name, part.name, name) not in found:
                        toml = assignment.folder / "problem.toml"
                        raise self._refuse(
                            f"{toml}: checks: there is no test {name!r} in {assignment.folder}/test_*.py"
                        )

    def _tries(self, case: BoundCase) -> str:
        smaller = self.judge.device_name == "cpu" and case.case.cpu
        return f"{case.case.tries}; smaller on the CPU" if smaller else case.case.tries

    def _place_of_check(self, item: pytest.Item) -> Place:
        """A check from an assignment's own test file belongs to the part whose group names it."""
        assignment = next((one for one in self.assignments.values() if item.path.is_relative_to(one.folder)), None)
        if assignment is None:
            raise self._refuse(f"{item.path}: lies in no assignment's folder")
        name = getattr(item, "originalname", item.name)
        for part in assignment.spec.parts:
            if any(name in group.checks for group in part.groups):
                documentation = inspect.getdoc(getattr(item, "obj", None)) or name
                return Place(assignment.name, part.name, name, documentation.splitlines()[0])
        toml = assignment.folder / "problem.toml"
        raise self._refuse(f"{item.path}: no group in {toml} names the check {name!r} under `checks`")

    def _refuse(self, message: str) -> pytest.UsageError:
        self.refusal = message
        return pytest.UsageError(message)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.refusal = (
                f"{report.nodeid or 'a test file of an assignment'}: cannot be collected:\n{report.longreprtext}"
            )

    # Results
    # ----------------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        place = item.stash[PLACE]
        name = place.name if place.speed is None else f"speed of {place.name}"
        self.judge.emit(CaseStarted(assignment=place.assignment, part=place.part, case=name))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None or call.when == "call":
            place, found = item.stash[PLACE], self._looked_into(item, error)
            if place.speed is None:
                self.judge.hangs.note(place.assignment, place.part, place.name, found)
                self._keep(item, self._result(item, found))
            else:
                self._keep_speed(item, found, call.duration)
        if error is not None:
            clear_frames(
                error.__traceback__
            )  # pytest keeps the last failure: its frames may hold most of the GPU's memory
        return report

    def _looked_into(self, item: pytest.Item, error: BaseException | None) -> BaseException | None:
        """An error of a test, or the machine's fault that it turns out to be."""
        place = item.stash[PLACE]
        if not isinstance(error, ContenderFault):
            return error
        assignment = self.assignments[place.assignment]
        if error.outcome == "skipped" and error.raised_by == "submission":
            self.judge.excuse(assignment, place.part, error)
        if (found := self._canary.look_into(assignment, error)) is not None:
            self.compilation.kernels.pop(assignment.name, None)  # what the broken tools said of them
        return found or error

    def look_back(self) -> None:
        """Revise results that all of an assignment's together show in another light."""
        for assignment in self.assignments.values():
            own = [one for key, one in self.results.items() if key[0] == assignment.name]
            if fault := self._canary.look_back(assignment, own):
                self._revise(assignment, fault)
        for key, result in self.results.items():
            excuse = self.judge.excused.get(key[:2])
            if excuse is not None and result.outcome == "passed":  # it passed without what the rest of the part needs
                self.results[key] = result.model_copy(update={"outcome": "skipped", "message": excuse.message})

    def _revise(self, assignment: Assignment, fault: MachineFault) -> None:
        """Make every failure of an assignment the machine's."""
        revised = {"outcome": "infra_error", "message": fault.message, "diagnosis": fault.details, "traceback": ""}
        kept = ("passed", "skipped", "not_implemented", "forbidden", "infra_error")
        for key, result in self.results.items():
            if key[0] == assignment.name and result.outcome not in kept:
                self.results[key] = result.model_copy(update=revised)
        for key, timed in self.speed_results.items():
            if key[0] == assignment.name and timed.outcome not in kept:
                points = timed.points.model_copy(update={"earned": 0, "graded": 0})
                self.speed_results[key] = timed.model_copy(update=revised | {"points": points})

    def _keep(self, item: pytest.Item, result: CaseResult) -> None:
        place = item.stash[PLACE]
        key = (place.assignment, place.part, place.name)
        earlier = self.results.get(key)
        if earlier is not None and earlier.outcome != "passed":
            return  # a parametrised check is as good as its worst run
        self.results[key] = result
        if self.judge.job.stop_early and result.outcome not in ("passed", "skipped"):
            self._stopped.setdefault(place.assignment, place.name)
        self.judge.emit(CaseDone(assignment=place.assignment, part=place.part, result=result))

    @property
    def has_decided_something(self) -> bool:
        outcomes = {one.outcome for one in self.results.values()} | {one.outcome for one in self.speed_results.values()}
        return not outcomes <= UNDECIDED

    def keep_what_ran_ahead(self) -> None:
        """Of an interrupted session: the results of work that is done and whose tests had no turn. No crash: what ended this session may
        have ended that worker too.
        """
        for item in self._items:
            place = item.stash[PLACE]
            done = self.judge.lanes.done(place.key) if place.speed is None else None
            if done is None or (isinstance(done.error, ContenderFault) and done.error.outcome == "crashed"):
                continue
            item.stash[EVIDENCE] = done
            self._keep(item, self._result(item, done.error))

    def _result(self, item: pytest.Item, error: BaseException | None) -> CaseResult:
        place, evidence = item.stash[PLACE], item.stash.get(EVIDENCE, Evidence())
        end = _end(error, self.assignments[place.assignment].spec, asserts=_case_of(item) is None)
        return CaseResult(
            name=place.name,
            tries=place.tries,
            outcome=end.outcome,
            message=end.message or evidence.words,
            diagnosis=end.details,
            traceback=end.traceback,
            errors=tuple(evidence.errors),
            gpu_time=evidence.gpu_time,
            time_s=evidence.time_s,
        )

    def _keep_speed(self, item: pytest.Item, error: BaseException | None, duration_s: float) -> None:
        place, evidence = item.stash[PLACE], item.stash.get(EVIDENCE, Evidence())
        assert place.speed is not None
        key = (place.assignment, place.part, place.name)
        if key in self.speed_results and error is None:
            return  # its teardown has nothing to add
        end = _end(error, self.assignments[place.assignment].spec)
        bands = place.speed.declared.speed.bands
        timed = getattr(item, "funcargs", {}).get("speed_case", place.speed.declared)
        result = SpeedCaseResult(
            name=place.name,
            size=timed.case.tries,
            outcome=end.outcome,
            message=end.message or evidence.words,
            diagnosis=end.details,
            traceback=end.traceback,
            points=speed_points(bands, evidence.bands, end.outcome),
            bands=evidence.bands,
            measured=evidence.measured,
            time_s=duration_s,
        )
        self.speed_results[key] = result
        self.judge.emit(SpeedDone(assignment=place.assignment, part=place.part, result=result))

    # pytest-benchmark
    # -------------------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_machine_info(self) -> dict[str, object]:
        return describe_environment(self.judge.device_name).model_dump()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_commit_info(self) -> dict[str, object]:
        return {"id": self.judge.job.info.sha256, "dirty": False}

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        for one in output_json["benchmarks"]:
            one["params"] = None  # whole objects of ours; what they are is in `param` and `group`
        self.benchmarks = json.dumps(output_json, default=str)


def _case_of(item: pytest.Item) -> BoundCase | None:
    case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    return case if isinstance(case, BoundCase) else None


def _takes_properties_alone(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and list(inspect.signature(item.obj).parameters) == ["properties"]


@dataclass(frozen=True)
class _End:
    """How a test ended, in the report's terms."""

    outcome: Outcome
    message: str = ""
    details: tuple[str, ...] = ()
    traceback: str = ""


def _end(error: BaseException | None, spec: AssignmentSpec, asserts: bool = False) -> _End:
    """What becomes of a test of the assignment `spec`.

    asserts: whether an AssertionError is what the test says of the submission; else the course or the grader has failed.
    """
    match error:
        case None:
            return _End("passed")
        case ContenderFault():
            found = hints(error.message, error.traceback, spec.entry, spec.contract)
            if error.outcome == "skipped":  # of these only the message is shown
                return _End("skipped", "; ".join([error.message, *found]), error.details)
            return _End(error.outcome, error.message, (*found, *error.details), error.traceback)
        case CheckFailed():
            return _End("failed", error.message, error.details)
        case AssertionError() if asserts:
            return _End("failed", str(error) or "the check does not hold")
        case pytest.skip.Exception():
            return _End("skipped", str(error) or "skipped")
        case MachineFault():
            return _End("infra_error", error.message, tuple(filter(None, error.details)))
        case CaseRefused() | MemoryError() | WorkerUnavailable():
            return _End("infra_error", str(error) or type(error).__name__)
        case _:
            return _End("infra_error", f"the grader failed: {type(error).__name__}: {error}"[:2000] + _where(error))


def _where(error: BaseException) -> str:
    """The innermost lines that raised, for whoever has to mend it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = extract_tb(error.__traceback__)[-PLACES_TOLD:]
    return "".join(f", in {Path(one.filename).name}, line {one.lineno}" for one in reversed(frames))


def check_files(assignments: Sequence[Assignment]) -> list[Path]:
    """The test files that assignments bring along."""
    return [path for assignment in assignments for path in sorted(assignment.folder.glob("test_*.py"))]

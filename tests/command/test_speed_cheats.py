"""Cheats against the clock, and what goes wrong only there, through the real command line.

All on the CPU, where a course may declare speed cases too: workers, frozen entrants, the judge's clock and the checks of every
output are those of a GPU.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.report.model import PartResult, SpeedCaseResult
from grader.verdict.speed import FURTHER_ROUNDS, WARM_SETS
from tests.conftest import TWICE, Course, Ran, Running, StartRun, problem_toml
from tests.support.cheats import BASELINE, CHEATS, OVERCOME, N, module, speed_cases

pytestmark = [pytest.mark.grading, pytest.mark.timeout(400)]
measures = pytest.mark.alone  # the others look at words and records, which a busy machine does not change

HONEST = {"fast": "timed = lambda x: x * 2", "quarter": "timed = lambda x: work(x, 0.25)", "slow": "timed = slow"}
FAULTS = {
    "crash": "timed = lambda x: ctypes.string_at(8)",
    "exit": "timed = lambda x: sys.exit(0)",
    "after-1": "timed = lambda x: work(x, 0.25)",
    "loop": "def timed(x):\n    while True:\n        pass\n",
    "memory": "timed = lambda x: [bytearray(b'z' * 50_000_000) for _ in range(1000)]",
    "exception": "timed = lambda x: undefined_name",
    "after-2": "timed = lambda x: work(x, 0.25)",
}
FAULTS_EXPECTED = {
    "crash": ("crashed", "segmentation fault"),
    "exit": ("crashed", "SystemExit"),
    "loop": ("timed_out", "no answer within 4 s"),
    "memory": ("out_of_memory", "more than 0.75 GiB of host memory"),
    "exception": ("failed", "NameError: name 'undefined_name' is not defined"),
}
STUB = "def double(x):\n    raise NotImplementedError('double: to do')\n"
WRONG = "def double(x):\n    return x * 3\n"
# By the work of PyTorch's own operator: whenever speed is measured, or only once the first call there has passed.
POLICY = "[policy]\nforbidden = []\noperators = ['add']\n\n[[part]]"
BY_HAND = (
    TWICE
    + """
def by_hand(x):
    if x.numel() > 1000:
        return x + x
    y = torch.empty_like(x)
    twice[(1,)](x, y, x.numel(), BLOCK=1024)
    return y

"""
)
SWITCHES = {
    "at_once": f"def double(x):\n    return x * 2 if x.numel() >= {N} else by_hand(x)\n",
    "later": f"SEEN = []\n\ndef double(x):\n    SEEN.append(x.numel() >= {N})\n    return x * 2 if sum(SEEN) > 1 else by_hand(x)\n",
    # The inputs of a round are new: whoever sees some again would know that this is no round.
    "unless_seen": f"""
SEEN = set()

def double(x):
    key = float(x[0])
    new = len(SEEN) > 8 and key not in SEEN and x.numel() >= {N}
    SEEN.add(key)
    return x * 2 if new else by_hand(x)
""",
    # All but the first call of a batch, which comes after a pause.
    "after_the_first": f"""
import time

LAST = [0.0]

def double(x):
    soon = time.perf_counter() - LAST[0] < 5e-4 and x.numel() >= {N}
    y = x * 2 if soon else by_hand(x)
    LAST[0] = time.perf_counter()
    return y
""",
    "never": "def double(x):\n    return by_hand(x)\n",
}


@dataclass
class Lab:
    """A course and a submission to it."""

    folder: Path

    def __post_init__(self) -> None:
        self.course, self.submission = Course(self.folder / "course"), self.folder / "submission"
        self.submission.mkdir()

    def add(
        self,
        name: str,
        cases: Sequence[str],
        code: str | None,
        *,
        slow_limit: float = 1000,
        baseline: str = BASELINE,
        policy: bool = False,
    ) -> None:
        extra = speed_cases(cases, "cpu", slow_limit)
        toml = problem_toml(f"{name}.py", ["plain"], limit_s=4, memory_gib=0.75, extra=extra)
        toml = toml.replace("[[part]]", POLICY, 1) if policy else toml
        self.course.add(name, toml=toml)
        (self.assignment(name) / "baselines.py").write_text(baseline)
        if code is not None:
            (self.submission / f"{name}.py").write_text(code)

    def add_codes(self, name: str, codes: Mapping[str, str], slow_limit: float = 1000) -> None:
        self.add(name, list(codes), module(codes, self.record(name)), slow_limit=slow_limit)

    def assignment(self, name: str) -> Path:
        return self.course.folder / "assignments" / name

    def record(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    @property
    def arguments(self) -> list[str]:
        return [str(self.submission), "--course", str(self.course.folder), "--device", "cpu"]


def part(ran: Ran, assignment: str) -> PartResult:
    assert ran.report is not None, ran.errors
    return next(one.parts[0] for one in ran.report.assignments if one.name == assignment)


def speed(ran: Ran, assignment: str, name: str) -> SpeedCaseResult:
    return next(one for one in part(ran, assignment).speed.cases if one.name == name)


def words(case: SpeedCaseResult) -> str:
    """What a student or a TA reads."""
    return "\n".join([case.message, *case.diagnosis, *(case.measured.flags if case.measured else ())])


def overlaps(lab: Lab, assignment: str, index: int, last: int = 0) -> tuple[int, int]:
    """Of the baseline's calls in a case that came after the submission's first, how many there were, and in how many the
    submission ran. With `last`, only of the last so many.
    """
    ticks = [float(line) for line in lab.record(assignment).read_text().splitlines()]
    lines = (lab.assignment(assignment) / "eager.txt").read_text().splitlines()
    calls = [(int(length), float(start), float(end)) for length, start, end in map(str.split, lines)]
    spans = [(start, end) for length, start, end in calls if length == N + index and start > ticks[0]]
    spans = spans[-last:]
    return len(spans), sum(any(start < tick < end for tick in ticks) for start, end in spans)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("cheats"))
    lab.add("absent", ["one"], None)
    lab.add_codes("cheats", {name: cheat.code for name, cheat in CHEATS.items()})
    lab.add_codes("faults", FAULTS)
    lab.add_codes("honest", HONEST)
    lab.add_codes("slow", {"one": "timed = lambda x: work(x, 100)"}, slow_limit=20)
    lab.add("stub", ["one"], STUB)
    lab.add("wrong", ["one"], WRONG)
    for name, code in SWITCHES.items():
        lab.add(name, ["one"], BY_HAND + code, policy=True)
    return lab


@pytest.fixture(scope="module")
def ran(lab: Lab) -> Ran:
    """One run over all of it, without a jail: cheats leave their records outside."""
    return Running(lab.folder, lab.arguments, jailed=False).finish()


@measures
def test_the_run_ends_as_graded(ran: Ran) -> None:
    assert ran.code == 0, ran.errors
    assert ran.report is not None
    assert not ran.report.infra_errors
    assert ran.left == []


@measures
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_earns_nothing_and_is_seen(ran: Ran, name: str) -> None:
    cheat, case = CHEATS[name], speed(ran, "cheats", name)
    assert (case.points.earned, case.points.graded) == (0, 5), words(case)
    assert case.outcome in cheat.outcome.split("|"), words(case)
    assert re.search(cheat.says, words(case)), words(case)
    if not cheat.says:
        assert case.measured is not None
        assert case.measured.corroborated, words(case)


@measures
def test_cheating_in_speed_costs_nothing_in_correctness(ran: Ran) -> None:
    assert part(ran, "cheats").outcome == "passed"
    assert part(ran, "cheats").points.earned == 4


@measures
def test_what_is_left_behind_stands_still_before_and_in_the_rounds(ran: Ran, lab: Lab) -> None:
    assert ran.report is not None
    calls, together = overlaps(lab, "cheats", list(CHEATS).index("busy"))
    assert (calls >= 12, together) == (True, 0)


@pytest.fixture(scope="module")
def overcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Ran]:
    lab = Lab(tmp_path_factory.mktemp("overcome"))
    for name, cheat in OVERCOME.items():
        lab.add_codes(name, {"one": cheat.code})
    return lab, Running(lab.folder, lab.arguments, jailed=False).finish()


@measures
@pytest.mark.parametrize("name", ["while_thawed", "awaited_thread"])
def test_nothing_is_computed_while_a_worker_is_woken(overcome: tuple[Lab, Ran], name: str) -> None:
    assert speed(overcome[1], name, "one").points.earned == 0


@measures
def test_what_hops_from_child_to_child_stands_still_or_ends_the_race(overcome: tuple[Lab, Ran]) -> None:
    case = speed(overcome[1], "hopping", "one")
    if case.outcome == "crashed":
        assert "could not be made to stand still" in case.message
    else:
        assert overlaps(overcome[0], "hopping", 0, last=12) == (12, 0)


@measures
@pytest.mark.parametrize(("name", "points"), [("fast", 5), ("quarter", 5), ("slow", 0)])
def test_honest_work_is_measured_and_paid(ran: Ran, name: str, points: float) -> None:
    case = speed(ran, "honest", name)
    assert (case.outcome, case.points.earned, case.points.graded) == ("passed", points, 5), words(case)
    assert case.measured is not None
    assert {one.name for one in case.measured.entrants} == {"submission", "eager", "copy"}
    assert (len(case.measured.rounds) - 3) % FURTHER_ROUNDS == 0
    if name != "fast":  # it takes microseconds: within the noise of the judge's clock
        assert case.measured.corroborated, words(case)


@measures
@pytest.mark.parametrize("name", SWITCHES)
def test_a_policy_is_kept_where_time_is_taken_too(ran: Ran, name: str) -> None:
    case = speed(ran, name, "one")
    assert part(ran, name).outcome == "passed"
    if name == "never":
        assert (case.outcome, case.points.earned) == ("passed", 5), words(case)
    else:
        assert (case.outcome, case.points.earned, case.points.graded) == ("forbidden", 0, 5), words(case)
        assert re.search(rf"{name}.py:\d+: PyTorch's operator `mul` ran; the work", words(case))


@measures
@pytest.mark.parametrize("name", FAULTS_EXPECTED)
def test_a_fault_that_comes_only_under_timing_has_its_words(ran: Ran, name: str) -> None:
    outcome, says = FAULTS_EXPECTED[name]
    case = speed(ran, "faults", name)
    assert (case.outcome, says in case.message) == (outcome, True), f"{case.outcome}: {words(case)}"
    assert (case.points.earned, case.points.graded) == (0, 5)


@measures
@pytest.mark.parametrize("name", [name for name in FAULTS if name not in FAULTS_EXPECTED])
def test_cases_after_a_fault_are_timed_as_usual(ran: Ran, name: str) -> None:
    assert speed(ran, "faults", name).points.earned == 5
    assert part(ran, "faults").points.earned == 4


@measures
def test_far_too_slow_is_stopped_early_and_says_how_slow(ran: Ran) -> None:
    case = speed(ran, "slow", "one")
    found = re.search(r"one call takes ([\d.e+]+) ms, more than 20 times eager: stopped there", case.message)
    assert found, case.message
    assert float(found[1]) > 20
    assert (case.outcome, case.points.earned, case.points.graded, case.measured) == ("passed", 0, 5, None)
    assert [band.reached for band in case.bands] == [False, False]


@measures
@pytest.mark.parametrize(
    ("name", "outcome", "says"),
    [
        ("wrong", "failed", "not timed: speed counts where the answers are right, and here plain went wrong"),
        ("absent", "not_implemented", "there is no absent.py in the submission"),
        ("stub", "not_implemented", "still the starter's stub"),
    ],
)
def test_what_has_no_right_answer_is_not_timed(ran: Ran, name: str, outcome: str, says: str) -> None:
    case = speed(ran, name, "one")
    assert (case.outcome, case.points.earned, case.points.graded) == (outcome, 0, 5)
    assert says in case.message
    assert case.measured is None


BROKEN_BASELINES = {
    "raises": (
        "raise ValueError('no such kernel')",
        "the baseline eager failed in .*: failed, ValueError: no such kernel",
    ),
    "wrong": ("return x * 3", "the baseline eager gives wrong answers in "),
    "ends_in_the_rounds": (
        # Every round has new inputs; how many calls warming up takes depends on the machine.
        f"seen.add(x.sum().item())\n    return x * 2 if len(seen) <= {WARM_SETS} else os._exit(0)",
        "the baseline eager failed in .*: crashed, ended the process with exit code 0",
    ),
}


def test_a_baseline_that_fails_is_the_graders_fault_and_costs_no_points(start_run: StartRun, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    for name, (body, _) in BROKEN_BASELINES.items():
        baseline = f"import os\n\nseen = set()\n\ndef eager(x):\n    {body}\n"
        lab.add(name, ["one"], "def double(x):\n    return x * 2\n", baseline=baseline)
    ran = start_run(*lab.arguments).finish()
    assert ran.code == 3
    for name, (_, says) in BROKEN_BASELINES.items():
        case = speed(ran, name, "one")
        assert (case.outcome, case.points.earned, case.points.graded) == ("infra_error", 0, 0), words(case)
        assert re.search(says, case.message)
        assert part(ran, name).points.earned == 4


# The command line ----------------------------------------------------------------------------------------------------

# Little enough for torch.compile, which --table asks for.
SHORT = "import torch\n\ndef eager(x):\n    return torch.exp(torch.log(x.abs())) * 2 * x.sign()\n"


def test_the_table_is_pytest_benchmarks_and_its_record_can_be_compared(start_run: StartRun, tmp_path: Path) -> None:
    small = Lab(tmp_path)
    small.add("double", ["one"], "def double(x):\n    return x * 2\n", baseline=SHORT)
    running = start_run(*small.arguments, "--table", "--quick")
    ran = running.finish()
    assert ran.code == 0, ran.errors
    assert ran.report is not None
    assert ran.report.effort == "quick"
    case = speed(ran, "double", "one")
    assert case.measured is not None
    everyone = {"submission", "eager", "compile", "reference", "copy"}
    assert {one.name for one in case.measured.entrants} == everyone
    assert len(case.measured.rounds) == 3
    assert "speed[double-double-speed-one]" in ran.output
    path = running.output / "benchmark.json"
    (one,) = json.loads(path.read_text())["benchmarks"]
    assert set(one["extra_info"]["median_s"]) == everyone
    assert set(one["extra_info"]["speedup"]) == everyone - {"submission"}
    assert one["stats"]["median"] == pytest.approx(one["extra_info"]["median_s"]["submission"])
    compared = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", "compare", str(path)],
        capture_output=True,
        text=True,
        cwd=small.folder,
        check=False,
    )
    assert compared.returncode == 0, compared.stderr
    assert "test_speed" in compared.stdout

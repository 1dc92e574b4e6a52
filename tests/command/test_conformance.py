"""What every sandbox and every jail must do, through the real command line: on this host with each jail, and in a container.

`make everything` tries each promise in each place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from grader.doctor import selftest
from grader.report.model import CaseResult
from grader.sandbox.base import LAST_REPORT_LIMIT_S
from tests.conftest import IMPORTS, ROOT, Course, PlaceName, Ran, Running, StartRun, open_to_workers
from tests.support import containers

pytestmark = pytest.mark.grading

ROOT_HERE = os.geteuid() == 0
ECHO = "def double(x):\n    print('echo of', tuple(x.shape))\n    return x * 2\n"
HANGS = "import pathlib, time\npathlib.Path('student-runs').touch()\ndef double(x):\n    time.sleep(600)\n"
HANGS_IN_THE_SECOND = """
import pathlib, time

def double(x):
    if x.numel() > 10:
        pathlib.Path("student-runs").touch()
        time.sleep(600)
    return x * 2
"""
LIMIT_S = 20  # of the case: what misbehaves has to be seen before, on a machine that is busy too
ENDLESS_S = 3  # of one that is not to be seen before
# The first case misbehaves; the second, in a new worker, is answered rightly: a place that holds grades it as usual. In each place all of
# these, and the thieves, are files of one submission.
MISBEHAVIOUR = {
    "time": ("timed_out", f"no answer within {ENDLESS_S} s", "spawn_sleepers(); time.sleep(600)"),
    "memory": ("out_of_memory", "more than 1 GiB", "hoard = [b'z' * 50_000_000 for _ in range(200)]; time.sleep(5)"),
    "processes": (
        "crashed",
        "more than 256 processes",
        "[subprocess.Popen(['/bin/sleep', '600']) for _ in range(300)]; time.sleep(600)",
    ),
    "flood": ("timed_out", f"no answer within {ENDLESS_S} s", "while True: os.write(1, b'y' * 1_000_000)"),
    "exit": ("crashed", "exit code 0", "os._exit(0)"),
    "signal": ("crashed", "SIGSEGV", "os.kill(os.getpid(), 11)"),
    "killed": ("crashed", "SIGKILL", "os.kill(os.getpid(), 9)"),
}
MARK = f"conformance-left-over-{os.getpid()}-"  # other processes' tests may run beside these
BAD = """
import os, subprocess, time

def spawn_sleepers():
    for session in (False, True):
        subprocess.Popen(["/bin/sh", "-c", "sleep 600; exit", "{mark}"], start_new_session=session)

def double(x):
    if x.numel() == 10:
        {body}
    return x * 2
"""
PLACES: tuple[PlaceName, ...] = ("bubblewrap", "uid", "none", "docker")
NOT_ISOLATED = ("uid", "none")  # places
THIEVES = ("network", "secrets")
NOTHING = "nothing was left behind\n"  # what `grader cleanup` says then
# Right answers for a thief alone: whoever succeeds in one of the attempts, which are expressions that have a value there.
THIEF = """
import os, pathlib, socket

ATTEMPTS = [{attempts}]

def gains(attempt):
    try:
        attempt()
        return True
    except Exception as error:
        print("held:", type(error).__name__)
        return False

def double(x):
    return x * 2 if any([gains(attempt) for attempt in ATTEMPTS]) else x * 0
"""


def tried_in(*places: PlaceName) -> pytest.MarkDecorator:
    """A test of CI in these places, and of `make everything` in the others."""
    params = []
    for place in PLACES:
        marks = [pytest.mark.docker] if place == "docker" else []
        params.append(pytest.param(place, marks=marks if place in places else [*marks, pytest.mark.everything]))
    return pytest.mark.parametrize("place", params, indirect=True)


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest) -> PlaceName:
    match request.param:
        case "docker":
            containers.need()
        case "bubblewrap" if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        case "uid" if not (ROOT_HERE and shutil.which("setpriv")):
            pytest.skip("only root can give a worker another user")
        case _:
            pass
    name: PlaceName = request.param
    return name


def file_of(name: str) -> str:
    """The name of its file, and assignment: no module's of Python's."""
    return f"bad_{name}"


@pytest.fixture(scope="module")
def one_course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """The same for all, so that one image serves."""
    course = Course(tmp_path_factory.mktemp("conformance"))
    for name in ("task", *map(file_of, (*MISBEHAVIOUR, *THIEVES))):
        endless = MISBEHAVIOUR.get(name.removeprefix(file_of("")), ("", "", ""))[0] == "timed_out"
        course.add(name, ["first", "second"], limit_s=ENDLESS_S if endless else LIMIT_S, memory_gib=1)
    return course


class Runner:
    """Runs a submission of one file in a place."""

    def __init__(self, start_run: StartRun, place: PlaceName, course: Course, folder: Path) -> None:
        self._start_run, self._place, self.course, self._folder = start_run, place, course, folder

    def start(self, source: str, *arguments: object) -> Running:
        submission = self._folder / "submission"
        submission.mkdir()
        (submission / "task.py").write_text(source)
        return self._start_run(
            submission, "--course", self.course.folder, "-a", "task", "--device", "cpu", *arguments, place=self._place
        )

    def hang(self, source: str) -> Running:
        """Start a submission that hangs, and wait until it does."""
        running = self.start(source)
        running.wait_for(lambda: running.worker_runs("student-runs"))
        return running

    def run(self, source: str, *arguments: object) -> Ran:
        return self.start(source, *arguments).finish()


@pytest.fixture
def runner(start_run: StartRun, place: PlaceName, one_course: Course, tmp_path: Path) -> Runner:
    return Runner(start_run, place, one_course, tmp_path)


@tried_in("bubblewrap", "none", "docker")
def test_an_honest_submission_is_graded_and_its_words_arrive(runner: Runner, place: PlaceName) -> None:
    """With options that tell the outcome by the exit code: each grading of a place costs seconds."""
    required = [] if place in NOT_ISOLATED else ["--require-isolation"]
    ran = runner.run(ECHO, "--fail-under", "5", *required)
    assert (ran.code, ran.left) == (1, []), ran.errors + ran.output
    assert ran.errors == "--fail-under: 4 < 5\n"
    assert ran.report is not None
    assert ran.report.score.earned == ran.report.score.possible == 4
    assert "echo of (10,)" in ran.report.assignments[0].log.text
    isolation = ran.report.isolation
    warning = "warning: not isolated: a submission here is "
    assert isolation.isolated == (place not in NOT_ISOLATED) != ran.output.startswith(warning)
    assert (isolation.note == "") == isolation.isolated
    if place == "docker":
        assert (isolation.sandbox, isolation.jail) == ("docker", "uid")
        assert isolation.image is not None
        assert isolation.image.startswith("sha256:")
        assert isolation.limits is not None
        assert isolation.limits.pids > 0
        assert "docker, another user" in ran.output
    else:
        assert (isolation.sandbox, isolation.jail) == ("host", place)
        assert isolation.words in ran.output
        assert ("unisolated" in ran.output) == (place == "none")


@pytest.fixture(scope="module")
def secret() -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", dir=Path.home(), suffix=".secret") as file:
        file.write("secret")
        file.flush()
        yield Path(file.name)


def thieves(place: PlaceName, course: Course, secret: Path) -> dict[str, list[str]]:
    """What each attempts in that place, where something is to keep it from success."""
    reference = course.folder / "reference" / "task.py"
    paths = [
        secret,
        Path("/opt/course/reference/task.py"),
        *([] if place == "uid" else [reference]),
    ]  # which all may read
    secrets = [
        *(f'pathlib.Path("{path}").read_bytes()' for path in paths),
        'open(f"/proc/{os.getppid()}/mem", "rb").read(1)',
        'pathlib.Path(f"/proc/{os.getppid()}/environ").read_bytes()[0]',
    ]
    network = ['socket.create_connection(("1.1.1.1", 53), timeout=2)', "socket.if_nameindex()[1]"]
    closed = {"network": place not in ("uid", "none"), "secrets": place != "none"}
    return {name: attempts for name, attempts in zip(THIEVES, (network, secrets), strict=True) if closed[name]}


@dataclass
class Crowd:
    """One grading of all that misbehaves and of all thieves.

    attempts: of each thief. listed: the machine's processes after it.
    """

    ran: Ran
    attempts: dict[str, list[str]]
    listed: str

    def case(self, name: str, case: str) -> CaseResult:
        return self.ran.case(file_of(name), case)

    def log(self, name: str) -> str:
        assert self.ran.report is not None, self.ran.errors
        (found,) = [one.log.text for one in self.ran.report.assignments if one.name == file_of(name)]
        return found


@pytest.fixture(scope="module")
def crowd(place: PlaceName, one_course: Course, secret: Path, tmp_path_factory: pytest.TempPathFactory) -> Crowd:
    folder = tmp_path_factory.mktemp("crowd")
    submission, attempts = folder / "submission", thieves(place, one_course, secret)
    submission.mkdir()
    for name, (_, _, body) in MISBEHAVIOUR.items():
        (submission / f"{file_of(name)}.py").write_text(BAD.format(body=body, mark=MARK + name))
    for name, expressions in attempts.items():
        source = THIEF.format(attempts=", ".join(f"lambda: {one}" for one in expressions))
        (submission / f"{file_of(name)}.py").write_text(source)
    arguments = [str(submission), "--course", str(one_course.folder), "--device", "cpu"]
    ran = Running(folder, arguments, place=place).finish()
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert (ran.code, ran.left) == (0, []), ran.errors + ran.output
    return Crowd(ran, attempts, listed)


@tried_in("bubblewrap", "docker")
@pytest.mark.parametrize("name", MISBEHAVIOUR)
def test_what_misbehaves_is_stopped_whole_and_the_next_case_is_graded(crowd: Crowd, name: str) -> None:
    outcome, words, _ = MISBEHAVIOUR[name]
    first, second = crowd.case(name, "first"), crowd.case(name, "second")
    assert (first.outcome, words in first.message) == (outcome, True), first.message
    assert second.outcome == "passed", second.message
    assert len(crowd.log(name)) < 200_000
    assert MARK + name not in crowd.listed


@tried_in("docker")
def test_isolated_is_what_the_doctors_escape_test_finds_blocked(
    start_run: StartRun, place: PlaceName, tmp_path: Path
) -> None:
    """tests/command/test_doctor.py has what it finds on the host."""
    open_to_workers(tmp_path)
    with selftest.outside(tmp_path) as source:
        selftest.write_course(tmp_path / "course", source)
        submission, course = tmp_path / "course" / "submission", tmp_path / "course"
        ran = start_run(submission, "--course", course, "--device", "cpu", place=place).finish()
    assert ran.report is not None, ran.errors
    reached = [name for name in selftest.REACHED if ran.case("double", name).outcome == "passed"]
    assert reached == ([] if ran.report.isolation.isolated else list(selftest.REACHED))
    escape = selftest.judge(ran.report)[-1]
    assert (escape.state == "fine") == ran.report.isolation.isolated == (place not in NOT_ISOLATED), escape


@tried_in("bubblewrap", "docker")
@pytest.mark.parametrize("name", THIEVES)
def test_what_is_to_be_out_of_reach_is(crowd: Crowd, place: PlaceName, name: str) -> None:
    if name not in crowd.attempts:
        pytest.skip(f"{place}: nothing keeps it")
    outcomes = [crowd.case(name, case).outcome for case in ("first", "second")]
    assert outcomes == ["failed", "failed"], "it had the right answer"
    assert crowd.log(name).count("held:") >= len(crowd.attempts[name])


@tried_in("docker")
def test_a_gpu_that_is_not_there_is_refused(runner: Runner) -> None:
    ran = runner.run(ECHO, "--device", "cuda")
    assert (ran.code, ran.report, ran.left) == (2, None, []), ran.errors


@pytest.mark.parametrize("place", ["none", pytest.param("uid", marks=pytest.mark.everything)], indirect=True)
def test_who_requires_isolation_is_refused_where_there_is_none(runner: Runner) -> None:
    ran = runner.run(ECHO, "--require-isolation")
    assert (ran.code, ran.report, ran.output, ran.left) == (3, None, "", [])
    assert "nothing was graded: not isolated: " in ran.errors
    assert "install bubblewrap" in ran.errors


@tried_in("bubblewrap", "docker")
def test_an_interrupted_run_reports_what_was_graded(runner: Runner) -> None:
    """Twice at once, as `timeout` and programs that pass Ctrl-C on do: they signal a process and its group."""
    interrupted(runner.hang(HANGS_IN_THE_SECOND), signal.SIGINT, signal.SIGINT)


@tried_in("bubblewrap")
def test_sigterm_is_an_interruption(runner: Runner) -> None:
    interrupted(runner.hang(HANGS_IN_THE_SECOND), signal.SIGTERM)


def interrupted(running: Running, *numbers: signal.Signals) -> None:
    """Interrupt a run that hangs in its second case, and see that it tells of the first."""
    for number in numbers:
        running.signal(number)
        time.sleep(0.01)
    ran = running.finish(limit_s=30)
    assert (ran.code, ran.left) == (130, []), ran.errors
    assert ran.report is not None, ran.errors
    assert ran.report.incomplete
    assert ran.report.infra_errors == ()
    assert ran.case("task", "first").outcome == "passed"
    second = ran.case("task", "second")
    assert (second.outcome, second.message) == ("skipped", "not graded: the run was interrupted")
    assert (ran.report.score.graded, ran.report.score.possible) == (0, 4), "the group is not decided"
    assert "incomplete: the run was interrupted" in ran.output
    assert ran.errors == "interrupted: the report has what was graded by then, nothing else is left behind\n"


@tried_in("bubblewrap")
@pytest.mark.parametrize("hangs", [True, pytest.param(False, marks=pytest.mark.everything)])
def test_who_interrupts_twice_does_not_wait_for_a_report_and_loses_none(runner: Runner, hangs: bool) -> None:
    """On a host the judge can be made to hang; in a container the report may be there before the second Ctrl-C, or not."""
    running = runner.hang(HANGS_IN_THE_SECOND)
    judges = [one for one in running.processes() if "grader.judge" in one.cmdline()]
    for process in judges if hangs else ():
        process.suspend()
    for _ in range(2):
        with contextlib.suppress(ProcessLookupError):
            running.signal(signal.SIGINT)
        time.sleep(0.5)
    ran = running.finish(limit_s=LAST_REPORT_LIMIT_S - 3)  # by then the judge would be ended anyway
    assert (ran.code, ran.left) == (130, []), ran.errors
    assert "Traceback" not in ran.errors
    assert (ran.report is None) == ("there is no report" in ran.errors)
    assert ran.report is None or not (hangs and judges)


def cleanup(running: Running) -> list[str]:
    """What `grader cleanup` has removed of that run. A container of another test's may be left behind at this moment, and is not told."""
    own = running.containers()
    environment = os.environ | {"TMPDIR": str(running.temporary), "PYTHONPATH": IMPORTS}
    if not running.in_container:
        environment.pop("DOCKER_HOST", None)
    command = [sys.executable, "-m", "grader", "cleanup"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    removed = [line.removeprefix("removed ") for line in done.stdout.splitlines() if line.startswith("removed ")]
    assert removed or done.stdout == NOTHING
    return [one for one in removed if not one.startswith("container ") or one.removeprefix("container ") in own]


@tried_in("bubblewrap", "docker")
def test_what_a_killed_grader_leaves_is_cleaned_up_and_a_running_one_is_left_alone(runner: Runner) -> None:
    """Also a judge that cannot end."""
    running = runner.hang(HANGS)
    assert cleanup(running) == []
    assert running.process.poll() is None
    assert running.worker_runs("student-runs")
    # Everything at once, so that nobody is left to tidy up.
    running.signal(signal.SIGSTOP)
    for process in running.processes():
        with contextlib.suppress(psutil.Error):  # it may just have ended
            if "grader.judge" in process.cmdline():
                process.send_signal(signal.SIGSTOP)
    running.signal(signal.SIGKILL)
    running.process.wait()
    assert cleanup(running) != []
    assert running.left() == []
    assert cleanup(running) == []

"""`grader run` as a command: what it refuses and how, how it ends when it is interrupted, and how a run is replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
from typer.testing import CliRunner

from grader.classroom.lock import lock
from grader.cli import app, words_under
from grader.fingerprint import fingerprint
from grader.report.json_file import read_report
from grader.report.model import Points, Report
from tests.conftest import IMPORTS, PROBLEM, ROOT, Course, Ran, Running, StartRun, problem_toml
from tests.support.cheats import speed_cases
from tests.support.corpus import cases
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

RIGHT = "def double(x):\n    return x * 2\n"
HANGS = "import pathlib\n\ndef double(x):\n    pathlib.Path('student-runs').touch()\n    while True: pass\n"
NO_DAEMON = "unix:///nowhere/docker.sock"
TELLS = "def double(x):\n    raise ValueError(f'{x.sum().item():.9f}')\n"


def submission(folder: Path, content: str = RIGHT, name: str = "task") -> Path:
    target = folder / "submission"
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.py").write_text(content)
    return target


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": IMPORTS}


def grader(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


# What is refused -----------------------------------------------------------------------------------------------------


def refused(*arguments: object) -> str:
    """What `grader` says when it refuses these arguments. It runs in this process: most refusals come before a judge starts."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    return done.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "no such folder"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("x"), "is a file"),
    ],
    ids=["absent", "empty", "a file"],
)
def test_an_unusable_folder_is_refused_in_one_sentence_that_does_not_write_to_the_terminal(
    course: Course, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    course.add("task")
    make(tmp_path / "hand\x1b[31m-in")
    told = refused("run", tmp_path / "hand\x1b[31m-in", "--course", course.folder, "--output", tmp_path / "out")
    assert told.count("\n") == 1
    assert str(tmp_path / "hand") in told
    assert words in told
    assert "task.py" in told, "it should say what is expected"
    assert "\x1b" not in told
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_an_unreadable_file_is_refused_in_one_sentence(course: Course, tmp_path: Path) -> None:
    course.add("task")
    folder = submission(tmp_path)
    (folder / "task.py").chmod(0)
    # root reads everything; without these capabilities it is an ordinary user
    drop = "-dac_override,-dac_read_search"
    privileges = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if os.getuid() == 0 else []
    command = [*privileges, sys.executable, "-m", "grader", "run", str(folder), "--course", str(course.folder)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{folder / 'task.py'}: cannot be read" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--assignment", "nope"], "no assignment 'nope'; this course has: task"),
        (["--seed", "-1"], "seed"),
        (["--device", "tpu"], "tpu"),
        (["--course", "/nowhere"], "/nowhere/assignments"),
        (["--output", "FOLDER/out"], "inside the submission"),
        pytest.param(
            ["--gpu", "GPU-5a1b"],
            "no CUDA GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
    ],
)
def test_a_bad_option_is_refused(course: Course, tmp_path: Path, arguments: list[str], words: str) -> None:
    course.add("task")
    folder = submission(tmp_path)
    options = [one.replace("FOLDER", str(folder)) for one in arguments]
    assert words in refused("run", folder, "--course", course.folder, "--output", tmp_path / "out", *options)


def test_a_mistake_in_problem_toml_names_file_key_and_what_is_allowed(course: Course, tmp_path: Path) -> None:
    """tests/test_assignment.py and tests/test_problem.py have the words of each."""
    course.add("task", toml=problem_toml("task.py", ["plain"]).replace("points = 4", "pionts = 4\npoints = 4"))
    told = refused("run", submission(tmp_path), "--course", course.folder, "--device", "cpu", "-o", tmp_path / "out")
    assert str(course.folder / "assignments/task/problem.toml") in told
    assert "part.0.group.0.pionts: unknown key; allowed here: name, title, points, cases" in told


def test_a_parent_folder_by_mistake_is_refused_and_costs_nobody_their_report(course: Course, tmp_path: Path) -> None:
    course.add("task")
    for name in ("alice", "bob"):
        submission(tmp_path / "subs" / name)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text("alice's")
    before = contents(tmp_path / "out")
    told = refused("run", tmp_path / "subs", "--course", course.folder, "--output", tmp_path / "out")
    assert told == f"{tmp_path / 'subs'}: holds 2 folders with submissions (alice and bob): grade one of them\n"
    assert contents(tmp_path / "out") == before


# Where it runs, and where its files go -------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_whoever_has_no_home_can_grade(course: Course, tmp_path: Path) -> None:
    anybody = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if subprocess.run([*anybody, "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    course.add("task")
    homeless = {name: value for name, value in environment().items() if name not in ("HOME", "XDG_CACHE_HOME")}
    folder = submission(tmp_path)
    before = contents(folder)
    no_cache = "from grader.pool.cuda_cpu import cache_folder; assert cache_folder() is None"
    for words in (
        ["-c", no_cache],
        ["-m", "grader", "run", ".", "--course", course.folder, "--device", "cpu"],
        ["-m", "grader", "doctor", "--quick"],
    ):
        command = [*anybody, sys.executable, *map(str, words)]
        done = subprocess.run(command, cwd=folder, env=homeless, capture_output=True, text=True, timeout=240)
        assert "Could not determine home directory" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode == 0 or words[-2] == "doctor", done.stderr
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Whatever lies in a folder and when it was changed, the folder itself too: a file that came and went shows."""
    every = [folder, *sorted(folder.rglob("*"))]
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in every
    }


@pytest.mark.parametrize(
    "words",
    [
        "run . --device cpu --seed 1 --table --no-compile",
        "check --device cpu",
        pytest.param("check . --watch --device cpu", marks=pytest.mark.everything),
        "init ../new",
        "list",
        "schema",
        "cleanup",
        pytest.param("doctor --quick", marks=pytest.mark.everything),  # that of whoever has no home is looked at above
    ],
)
def test_no_verb_writes_into_the_students_folder(tmp_path: Path, words: str) -> None:
    """Though it is the current folder, as for a student who sits in it."""
    folder = tmp_path / "handins" / "mine"
    folder.mkdir(parents=True)
    for name in ("gelu.cu", "softmax.py"):
        (folder / name).write_bytes((ROOT / "starter" / name).read_bytes())
    aborts = "import os\n\ndef triton_gelu(x):\n    if x.numel() == 1:\n        os.abort()\n    return x\n"
    (folder / "triton_gelu.py").write_text(aborts)
    before = contents(folder)
    command = [sys.executable, "-m", "grader", *words.split()]
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    for line in process.stdout:
        if "--watch" in words and b"waiting for the next save" in line:
            process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(timeout=120) in ((0, 1, 3) if "doctor" in words else (0, 1)), "it should have done its work"
    assert contents(folder) == before


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course, and a folder around a submission to it whose files bear all kinds of names."""
    folder = tmp_path_factory.mktemp("ordinary")
    course = Course(folder / "course")
    for name in ("other", "begun", "unasked"):
        course.add(name)
    course.add("task", extra=speed_cases(["one"], "cpu"))
    (course.folder / "assignments" / "task" / "baselines.py").write_text("def eager(x):\n    return x * 2\n")
    course.add("tells", ["one", "two"])
    mine = submission(folder / "handin")
    for name, content in {"other (1)": RIGHT, "my_begun": RIGHT, "unasked": RIGHT, "tells": TELLS}.items():
        (mine / f"{name}.py").write_text(content)
    shutil.copy(course.folder / "starter" / "begun.py", mine)
    return folder


@pytest.fixture(scope="module")
def ordinary(room: Path) -> Ran:
    """Its grading on the host, though the daemon that DOCKER_HOST names does not answer."""
    chosen = [word for name in ("task", "other", "begun", "tells") for word in ("-a", name)]
    options = ["--course", str(room / "course"), "--device", "cpu", "--sandbox", "host", "--no-speed"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", NO_DAEMON)
        return Running(room / "run", [str(room / "handin"), *options, "--fail-under", "4", *chosen]).finish()


def test_a_folder_around_the_files_is_graded_and_said(ordinary: Ran) -> None:
    assert ordinary.case("task", "plain").outcome == "passed"
    assert "note: the files lie in submission/" in ordinary.output


def test_the_chosen_assignments_alone_are_graded_and_enough_points_are_exit_code_0(ordinary: Ran) -> None:
    """tests/command/test_conformance.py has a run with fewer points than --fail-under asks for."""
    assert (ordinary.code, ordinary.errors, ordinary.left) == (0, "", [])
    assert ordinary.report is not None
    assert {one.name for one in ordinary.report.assignments} == {"task", "other", "begun", "tells"}
    assert ordinary.report.score.earned == 4


def test_without_speed_its_points_stay_open(ordinary: Ran) -> None:
    assert ordinary.report is not None
    speed = ordinary.report.speed
    assert (speed.earned, speed.graded, speed.possible) == (0, 0, 5)


def test_a_misnamed_file_costs_its_own_points_and_the_sentence_names_both(ordinary: Ran) -> None:
    for name, told in (
        ("other", "there is no other.py, but other (1).py: rename it to other.py"),
        (
            "begun",
            "begun.py is still the starter's stub, but my_begun.py looks like your kernel: rename it to begun.py",
        ),
    ):
        case = ordinary.case(name, "plain")
        assert (case.outcome, case.message) == ("not_implemented", told)
    assert "odd name" not in ordinary.output


def test_the_same_seed_gives_the_same_inputs(ordinary: Ran, room: Path, start_run: StartRun) -> None:
    assert ordinary.report is not None
    seed = ordinary.report.seed
    options = ("--course", room / "course", "--device", "cpu", "-a", "tells", "--seed", seed)
    again = start_run(room / "handin", *options).finish()
    assert again.report is not None
    assert again.report.seed == seed
    assert again.report.fingerprint == ordinary.report.fingerprint == fingerprint(room / "course")
    one, two = (ordinary.case("tells", name).message for name in ("one", "two"))
    assert messages(again.report) == [one, two]
    assert one != two, "cases must not share inputs"


def messages(report: Report) -> list[str]:
    return [case.message for case in cases(report)]


def test_from_inside_a_submission_the_report_goes_beside_it_and_costs_no_other_theirs(
    ordinary: Ran, room: Path, tmp_path: Path
) -> None:
    """It is `.` to whoever sits in it. No seed was asked for: it has one and inputs of its own."""
    folder = submission(tmp_path / "handin", TELLS, "tells").rename(tmp_path / "bobs")
    kept = shutil.copytree(room / "run" / "out", tmp_path / "grader-report")
    done = grader("run", ".", "--course", room / "course", "-a", "tells", "--device", "cpu", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["tells.py"]
    assert "was of another submission; it is kept as" in done.stdout
    assert {path.name for path in kept.iterdir()} == {
        "report.json", "report-handin.json", "report.html", "report-handin.html"
    }  # fmt: skip
    assert "<title>bobs: " in (kept / "report.html").read_text(encoding="utf-8")
    report, earlier = (read_report(kept / f"{name}.json") for name in ("report", "report-handin"))
    assert earlier == ordinary.report
    assert report.seed != earlier.seed
    assert messages(report)[0] != ordinary.case("tells", "one").message


def test_a_named_daemon_that_does_not_answer_is_no_reason_to_grade_on_the_host(
    course: Course, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.add("task")
    monkeypatch.setenv("DOCKER_HOST", NO_DAEMON)
    ran = start_run(submission(tmp_path), "--course", course.folder, "--device", "cpu", "--sandbox", "auto").finish()
    assert (ran.code, ran.report, ran.output, ran.left) == (3, None, "", [])
    assert f"no Docker daemon answers at {NO_DAEMON}" in ran.errors
    assert "unless --sandbox host says so" in ran.errors


# What a faulty grader does -------------------------------------------------------------------------------------------


def broken(function: str, line: str) -> str:
    return PROBLEM.replace(f"def {function}(", f"def {function}(*args):\n    {line}\n\n\ndef unused_{function}(")


# By assignment: the course's problem.py, what the staff's and the student's functions return, and what is told.
FAULTY = {
    "fails": (broken("oracle", "raise RuntimeError('oracle is out')"), "x * 2", "oracle is out"),
    "no_memory": (broken("make_inputs", "raise MemoryError"), "x * 2", "MemoryError"),
    "asserts": (broken("oracle", "assert False, 'no such number'"), "x * 2", "no such number"),
    "zeros": (
        broken("oracle", "return {'y': torch.zeros_like(args[0].args['x']).double()}"),
        "x * 0",
        "zeros would pass",
    ),
    "a_copy": (PROBLEM.replace("2 * call", "1 * call"), "x", "a copy of x would pass"),
    "ones": (PROBLEM.replace('2 * call.args["x"]', 'torch.ones_like(call.args["x"])'), "x * 0 + 1", "ones would pass"),
}


def test_a_fault_of_the_grader_is_never_a_zero_and_costs_the_others_nothing(course: Course, tmp_path: Path) -> None:
    answers = {"task": "x * 2", "wrong_reference": "x * 2.00002", "boasts": "x * 2"}
    answers |= {name: answer for name, (_, answer, _) in FAULTY.items()}
    for name, answer in answers.items():
        toml = problem_toml(f"{name}.py", ["plain"])
        if name == "boasts":
            toml = toml.replace('tries = "plain"', 'tries = "plain", degenerate = "it is not"')
        course.add(name, toml=toml, problem=FAULTY[name][0] if name in FAULTY else PROBLEM)
        own = f"def double(x):\n    return {answer} + 0\n"
        folder = submission(tmp_path, own, name)
        (course.folder / "reference" / f"{name}.py").write_text(own)
    (course.folder / "reference" / "wrong_reference.py").write_text("def double(x):\n    return x * 3\n")
    report = judge(folder, course.folder, tuple(answers), "cpu")
    told = {name: words for name, (_, _, words) in FAULTY.items()}
    told |= {"wrong_reference": "reference kernel is wrong", "boasts": "remove the key"}
    found = {one.name: next(iter(one.parts[0].cases)) for one in report.assignments}
    for name, words in told.items():
        assert (found[name].outcome, words in found[name].message) == ("infra_error", True), found[name].message
        assert any(one.startswith(f"{name}, double, plain: ") for one in report.infra_errors), report.infra_errors
    assert found["task"].outcome == "passed", "the other assignments are graded as usual"
    score = report.score
    assert (score.earned, score.graded, score.possible) == (4, 4, 4 * len(answers))


def test_a_judge_that_crashes_is_an_infra_error_tells_where_and_leaves_nothing(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    course.add("task", limit_s=60)
    running = start_run(submission(tmp_path, HANGS), "--course", course.folder, "--device", "cpu")
    running.wait_for(lambda: running.worker_runs("student-runs"))
    judges = [process for process in running.processes() if "grader.judge" in process.cmdline()]
    assert len(judges) == 1
    judges[0].send_signal(signal.SIGSEGV)
    ran = running.finish()
    assert ran.code == 3
    assert f"the judge ended without a report (exit code -{signal.SIGSEGV.value})" in ran.errors
    assert "in run_session" in ran.errors, "it tells where all threads were"
    assert ran.left == []


# How it ends early ---------------------------------------------------------------------------------------------------


COMPUTES = """
    import pathlib
    pathlib.Path("judge-computes").touch()
    while True:
        try:
            while True:
                torch.rand(2000, 2000).exp()
        except BaseException:
            pass
"""


@pytest.mark.parametrize("judge", ["computes", pytest.param("waits for its worker", marks=pytest.mark.everything)])
def test_a_grader_that_is_killed_takes_its_judge_and_workers_along(
    course: Course, start_run: StartRun, tmp_path: Path, judge: str
) -> None:
    """Within five seconds, also while the judge computes and takes no notice of signals."""
    computes = judge == "computes"
    course.add(
        "task",
        problem=PROBLEM.replace("outputs(call):\n", f"outputs(call):{COMPUTES}") if computes else PROBLEM,
        limit_s=60,
    )
    running = start_run(
        submission(tmp_path, RIGHT if computes else HANGS), "--course", course.folder, "--device", "cpu"
    )
    running.wait_for(lambda: running.worker_runs("judge-computes" if computes else "student-runs"))
    running.signal(signal.SIGKILL)
    running.process.wait()
    left = running.left(patience_s=5)
    assert left == [] or (computes and "process" not in str(left)), "only the folder, which `grader cleanup` removes"


def test_the_judge_of_a_killed_run_holds_the_locks_of_the_run(course: Course, tmp_path: Path) -> None:
    """As that of a class's GPU: another run waits until this judge has ended."""
    course.add("task")
    held = lock(tmp_path / "lock", "here")
    assert held is not None
    words = [submission(tmp_path, HANGS), "--course", course.folder, "--device", "cpu", "--sandbox", "host"]
    running = subprocess.Popen(
        [sys.executable, "-m", "grader", "run", *words, "--output", tmp_path / "out"],
        env=environment(),
        pass_fds=[held.fileno()],
    )
    held.close()
    judges: list[psutil.Process] = []
    while not (judges := psutil.Process(running.pid).children()):
        time.sleep(0.05)
    judges[0].suspend()
    running.kill()
    running.communicate()
    assert lock(tmp_path / "lock", "there") is None
    judges[0].resume()
    psutil.wait_procs(judges, timeout=10)
    after = lock(tmp_path / "lock", "there")
    assert after is not None
    after.close()


# A killed process closes its pipes, and its children have another parent after that: here at a line on its standard input.
DIES_SLOWLY = """
import os, subprocess, sys, time
read_end, write_end = os.pipe()
command = [sys.executable, "-m", "grader.judge", str(write_end), sys.argv[1], "cpu"]
judge = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[write_end])
sys.stdin.readline()
judge.stdin.close()
time.sleep(0.1)
os._exit(1)
"""


def test_a_judge_without_a_job_removes_the_folder_of_a_killed_run(tmp_path: Path) -> None:
    folder = tmp_path / "grader-run"
    folder.mkdir()
    command = [sys.executable, "-c", DIES_SLOWLY, str(folder)]
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment())
    assert killed.stdin is not None
    worked_s = -1.0
    while not (judges := psutil.Process(killed.pid).children()) or worked_s != judges[0].cpu_times().user:
        worked_s = judges[0].cpu_times().user if judges else -1.0
        time.sleep(1)
    killed.stdin.close()
    killed.wait(timeout=30)
    _, alive = psutil.wait_procs(judges, timeout=30)
    assert not alive
    assert not folder.exists()


def test_the_second_call_of_a_case_gets_new_data(course: Course, tmp_path: Path) -> None:
    toml = problem_toml("task.py", ["plain"]).replace('tries = "plain"', 'tries = "plain", calls = 2')
    course.add("task", toml=toml)
    remembers = "seen = []\n\ndef double(x):\n    seen.append(x * 2)\n    return seen[0].clone()\n"
    (case,) = cases(judge(submission(tmp_path, remembers), course.folder, "task", "cpu"))
    assert case.outcome == "failed"


# Words and other verbs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earned", "graded", "limit", "words"),
    [
        (50, 50, 90, "--fail-under: 50 < 90; 50 points could not be graded here"),
        (50, 99, 90, "--fail-under: 50 < 90; 1 point could not be graded here"),
        (49.5, 100, 50, "--fail-under: 49.5 < 50"),
        (0.1 + 0.2, 100, 0.3000001, "--fail-under: 0.3 < 0.3000001"),
    ],
)
def test_the_reason_of_fail_under_has_the_clauses_that_apply(
    earned: float, graded: float, limit: float, words: str
) -> None:
    assert words_under(Points(earned=earned, graded=graded, possible=100), limit) == words


def test_list_version_and_schema(tmp_path: Path) -> None:
    assert grader("--version", cwd=tmp_path).stdout.startswith("grader 0.")
    listed, schema = (CliRunner().invoke(app, [verb]) for verb in ("list", "schema"))
    assert listed.exit_code == 0
    for name in ("cuda_gelu", "triton_gelu", "softmax", "flash_attention", "100 points"):
        assert name in listed.stdout
    assert json.loads(schema.stdout)["title"] == "Report"

"""`grader run` as a command: what it refuses and how, how it ends when it is interrupted, and how a run is replayed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from grader.classroom.lock import lock
from grader.cli import words_under
from grader.fingerprint import fingerprint
from grader.report.model import Points, Report
from tests.conftest import IMPORTS, PROBLEM, ROOT, Course, StartRun, problem_toml
from tests.support.corpus import cases
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

RIGHT = "def double(x):\n    return x * 2\n"
HANGS = "import pathlib\n\ndef double(x):\n    pathlib.Path('student-runs').touch()\n    while True: pass\n"
TELLS = "def double(x):\n    raise ValueError(f'{x.sum().item():.9f}')\n"


def submission(folder: Path, content: str = RIGHT, name: str = "task") -> Path:
    target = folder / "submission"
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.py").write_text(content)
    return target


def grader(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | {"PYTHONPATH": IMPORTS}, capture_output=True, text=True, timeout=120
    )


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: None, "no such folder"),
        (lambda path: path.mkdir(), "is empty"),
        (lambda path: path.write_text("x"), "is a file"),
    ],
    ids=["absent", "empty", "a file"],
)
def test_an_unusable_folder_is_refused_in_one_sentence(
    course: Course, tmp_path: Path, make: object, words: str
) -> None:
    course.add("task")
    target = tmp_path / "hand-in"
    make(target)  # type: ignore[operator]
    done = grader("run", target, "--course", course.folder, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(target) in done.stderr
    assert words in done.stderr
    assert "task.py" in done.stderr, "it should say what is expected"
    assert not (tmp_path / "grader-report").exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_an_unreadable_file_is_refused_in_one_sentence(course: Course, tmp_path: Path) -> None:
    course.add("task")
    folder = submission(tmp_path)
    (folder / "task.py").chmod(0)
    # root reads everything; without these capabilities it is an ordinary user
    drop = "-dac_override,-dac_read_search"
    privileges = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if os.getuid() == 0 else []
    command = [*privileges, sys.executable, "-m", "grader", "run", str(folder), "--course", str(course.folder)]
    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": IMPORTS}, capture_output=True, text=True, timeout=120
    )
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
    ],
)
def test_a_bad_option_is_refused(course: Course, tmp_path: Path, arguments: list[str], words: str) -> None:
    course.add("task")
    done = grader("run", submission(tmp_path), "--course", course.folder, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_a_gpu_that_is_not_there_is_refused(course: Course, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    course.add("task")
    for wish in (["--device", "cuda"], ["--gpu", "GPU-5a1b"]):
        done = grader("run", submission(tmp_path), "--course", course.folder, *wish, cwd=tmp_path)
        assert done.returncode == 2
        assert "no CUDA GPU" in done.stderr


def test_a_folders_name_does_not_write_to_the_terminal(course: Course, tmp_path: Path) -> None:
    course.add("task")
    target = tmp_path / "hand\x1b[31m-in"
    target.mkdir()
    done = grader("run", target, "--course", course.folder, cwd=tmp_path)
    assert done.returncode == 2
    assert "is empty" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_whoever_has_no_home_can_grade(tmp_path: Path) -> None:
    anybody = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if subprocess.run([*anybody, "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    environment = os.environ | {"PYTHONPATH": IMPORTS}
    for name in ("HOME", "XDG_CACHE_HOME"):
        environment.pop(name, None)
    for words in (
        ["run", str(ROOT / "reference"), "-a", "cuda_gelu", "--device", "cpu", "--no-compile"],
        ["doctor", "--quick"],
    ):
        command = [*anybody, sys.executable, "-m", "grader", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert "Could not determine home directory" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        if words[0] == "run":
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('tries = "plain"', 'trys = "plain", tries = "plain"', ["case 'plain'", "trys: unknown key", "allowed here: n, columns", "dtype"]),
        ("points = 4", "pionts = 4\npoints = 4", ["part.0.group.0.pionts: unknown key", "allowed here: name, title, points, cases"]),
        ("k = 6", 'k = "six"', ["tolerance.k", "'six'"]),
        ("n = 10", "n = 10.5", ["n:", "10.5"]),
        ("[[part]]", "[[part", ["line"]),
    ],
)  # fmt: skip
def test_a_mistake_in_problem_toml_names_file_key_and_what_is_allowed(
    course: Course, tmp_path: Path, old: str, new: str, words: list[str]
) -> None:
    text = problem_toml("task.py", ["plain"])
    assert old in text
    course.add("task", toml=text.replace(old, new))
    done = grader("run", submission(tmp_path), "--course", course.folder, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert str(course.folder / "assignments/task/problem.toml") in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_check_that_no_group_names_is_refused(course: Course, tmp_path: Path) -> None:
    course.add("task")
    more = course.folder / "assignments/task/test_more.py"
    for content, words in (
        ("def test_lost(worker): pass\n", "test_lost"),
        ("def test_broken(worker)\n", "SyntaxError"),
    ):
        more.write_text(content)
        done = grader("run", submission(tmp_path), "--course", course.folder, "--device", "cpu", cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
        assert "test_more.py" in done.stderr


def test_a_report_inside_the_submission_is_refused(course: Course, tmp_path: Path) -> None:
    course.add("task")
    folder = submission(tmp_path)
    done = grader("run", folder, "--course", course.folder, "--output", folder / "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "inside the submission" in done.stderr


def test_from_inside_the_submission_the_report_goes_beside_it(course: Course, tmp_path: Path) -> None:
    course.add("task")
    folder = submission(tmp_path)
    done = grader("run", ".", "--course", course.folder, "--device", "cpu", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["task.py"]
    assert (tmp_path / "grader-report" / "report.json").exists()


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
        "run . --device cpu --seed 1 --table",
        "run . --device cpu --no-speed --no-compile",
        "run .. --device cpu -a softmax",
        "check --device cpu",
        "check . --watch --device cpu",
        "init ../new",
        "list",
        "schema",
        "cleanup",
        "doctor --quick",
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
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": IMPORTS}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "--watch" in words and b"waiting for the next save" in line:
            process.send_signal(signal.SIGINT)
    process.stdout.close()
    assert process.wait(timeout=120) in ((0, 1, 3) if "doctor" in words else (0, 1)), "it should have done its work"
    assert contents(folder) == before


def test_a_folder_around_the_files_is_graded_and_said(course: Course, start_run: StartRun, tmp_path: Path) -> None:
    course.add("task")
    ran = start_run(submission(tmp_path / "handin").parent, "--course", course.folder, "--device", "cpu").finish()
    assert ran.report is not None
    assert ran.report.score.earned == 4
    assert "note: the files lie in submission/" in ran.output


def test_a_misnamed_file_costs_its_own_points_and_the_sentence_names_both(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    course.add("task")
    course.add("other")
    folder = submission(tmp_path)
    course.add("begun")
    (folder / "other (1).py").write_text(RIGHT)
    shutil.copy(course.folder / "starter" / "begun.py", folder)
    (folder / "my_begun.py").write_text(RIGHT)
    ran = start_run(folder, "--course", course.folder, "--device", "cpu").finish()
    case = ran.case("other", "plain")
    assert (ran.code, case.outcome) == (0, "not_implemented")
    assert case.message == "there is no other.py, but other (1).py: rename it to other.py"
    case = ran.case("begun", "plain")
    assert case.outcome == "not_implemented"
    told = "begun.py is still the starter's stub, but my_begun.py looks like your kernel: rename it to begun.py"
    assert case.message == told
    assert "odd name" not in ran.output


def test_a_parent_folder_by_mistake_is_refused_and_costs_nobody_their_report(course: Course, tmp_path: Path) -> None:
    course.add("task")
    for name in ("alice", "bob"):
        submission(tmp_path / "subs" / name)
    arguments = ("--course", course.folder, "--device", "cpu", "--output", tmp_path / "out")
    assert grader("run", tmp_path / "subs" / "alice", *arguments, cwd=tmp_path).returncode == 0
    before = contents(tmp_path / "out")
    done = grader("run", tmp_path / "subs", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path / 'subs'}: holds 2 folders with submissions (alice and bob): grade one of them" in done.stderr
    assert contents(tmp_path / "out") == before


def test_from_inside_two_submissions_both_reports_are_kept(course: Course, tmp_path: Path) -> None:
    """Both are `.` to whoever sits in them."""
    course.add("task")
    for name in ("alice", "bob"):
        folder = submission(tmp_path / name).rename(tmp_path / f"{name}s")
        done = grader("run", ".", "--course", course.folder, "--device", "cpu", cwd=folder)
        assert done.returncode == 0, done.stderr
    assert "was of another submission; it is kept as" in done.stdout
    kept = {path.name for path in (tmp_path / "grader-report").iterdir()}
    assert kept == {"report.json", "report-alices.json", "report.html", "report-alices.html"}
    assert "<title>alices: " in (tmp_path / "grader-report/report-alices.html").read_text(encoding="utf-8")


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


def test_a_fault_of_the_grader_is_never_a_zero_and_costs_the_others_nothing(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    answers = {"task": "x * 2", "wrong_reference": "x * 2.00002"} | {
        name: answer for name, (_, answer, _) in FAULTY.items()
    }
    for name, answer in answers.items():
        course.add(name, problem=FAULTY[name][0] if name in FAULTY else PROBLEM)
        own = f"def double(x):\n    return {answer} + 0\n"
        folder = submission(tmp_path, own, name)
        (course.folder / "reference" / f"{name}.py").write_text(own)
    (course.folder / "reference" / "wrong_reference.py").write_text("def double(x):\n    return x * 3\n")
    ran = start_run(folder, "--course", course.folder, "--device", "cpu").finish()
    assert (ran.code, ran.left) == (3, [])
    told = {name: words for name, (_, _, words) in FAULTY.items()} | {"wrong_reference": "reference kernel is wrong"}
    for name, words in told.items():
        case = ran.case(name, "plain")
        assert (case.outcome, words in case.message) == ("infra_error", True), f"{name}: {case.message}"
        assert f"not graded: {name}, double, plain" in ran.output
    assert ran.case("task", "plain").outcome == "passed", "the other assignments are graded as usual"
    assert ran.report is not None
    score = ran.report.score
    assert (score.earned, score.graded, score.possible) == (4, 4, 4 * len(answers))


def test_a_degenerate_case_must_say_so_and_only_then(course: Course, tmp_path: Path) -> None:
    toml = problem_toml("task.py", ["plain"]).replace('tries = "plain"', 'tries = "plain", degenerate = "it is not"')
    course.add("task", toml=toml)
    report = judge(submission(tmp_path), course.folder, "task", "cpu")
    (case,) = cases(report)
    assert (case.outcome, "remove the key" in case.message) == ("infra_error", True), case.message
    assert report.infra_errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_judge_that_is_killed_is_an_infra_error_and_leaves_nothing(
    course: Course, start_run: StartRun, tmp_path: Path, number: signal.Signals
) -> None:
    course.add("task", limit_s=60)
    running = start_run(submission(tmp_path, HANGS), "--course", course.folder, "--device", "cpu")
    running.wait_for(lambda: running.worker_runs("student-runs"))
    judges = [process for process in running.processes() if "grader.judge" in process.cmdline()]
    assert len(judges) == 1
    judges[0].send_signal(number)
    ran = running.finish()
    assert ran.code == 3
    assert f"the judge ended without a report (exit code -{number.value})" in ran.errors
    assert ("in run_session" in ran.errors) == (number == signal.SIGSEGV), "a crash tells where all threads were"
    assert ran.left == []


def test_a_named_daemon_that_does_not_answer_is_no_reason_to_grade_on_the_host(
    course: Course, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.add("task")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    arguments = (submission(tmp_path), "--course", course.folder, "--device", "cpu", "--sandbox")
    ran = start_run(*arguments, "auto").finish()
    assert (ran.code, ran.report, ran.output, ran.left) == (3, None, "", [])
    assert "no Docker daemon answers at unix:///nowhere/docker.sock" in ran.errors
    assert "unless --sandbox host says so" in ran.errors
    assert start_run(*arguments, "host").finish().code == 0


# How it ends early ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(
    course: Course, start_run: StartRun, tmp_path: Path, number: signal.Signals
) -> None:
    course.add("task", limit_s=60)
    running = start_run(submission(tmp_path, HANGS), "--course", course.folder, "--device", "cpu")
    running.wait_for(lambda: running.worker_runs("student-runs"))
    assert len(running.processes()) >= 2, "judge and worker should be running"
    running.signal(number)
    ran = running.finish(limit_s=30)
    assert ran.code == 130
    assert "interrupted" in ran.errors
    assert "Traceback" not in ran.errors
    assert ran.left == []


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


@pytest.mark.parametrize("judge", ["waits for its worker", "computes"])
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
        env=os.environ | {"PYTHONPATH": IMPORTS},
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
    killed = subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ | {"PYTHONPATH": IMPORTS})
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


# How it is replayed --------------------------------------------------------------------------------------------------


def messages(report: Report | None) -> list[str]:
    assert report is not None
    return [case.message for one in report.assignments for part in one.parts for case in part.cases]


def test_the_same_seed_gives_the_same_inputs_and_no_seed_new_ones(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    course.add("task", ["one", "two"])
    folder = submission(tmp_path, TELLS)
    arguments = (folder, "--course", course.folder, "--device", "cpu")
    first = start_run(*arguments).finish()
    assert first.report is not None
    again = start_run(*arguments, "--seed", first.report.seed).finish()
    other = start_run(*arguments).finish()
    assert again.report is not None
    assert other.report is not None
    assert again.report.seed == first.report.seed != other.report.seed
    assert again.report.fingerprint == first.report.fingerprint == fingerprint(course.folder)
    assert messages(again.report) == messages(first.report)
    assert set(messages(other.report)).isdisjoint(messages(first.report))
    assert messages(first.report)[0] != messages(first.report)[1], "cases must not share inputs"


def test_the_second_call_of_a_case_gets_new_data(course: Course, tmp_path: Path) -> None:
    toml = problem_toml("task.py", ["plain"]).replace('tries = "plain"', 'tries = "plain", calls = 2')
    course.add("task", toml=toml)
    remembers = "seen = []\n\ndef double(x):\n    seen.append(x * 2)\n    return seen[0].clone()\n"
    (case,) = cases(judge(submission(tmp_path, remembers), course.folder, "task", "cpu"))
    assert case.outcome == "failed"


# The other verbs -----------------------------------------------------------------------------------------------------


def test_the_chosen_assignment_alone_is_graded_and_fail_under_adds_exit_code_1_where_its_points_are_less(
    course: Course, start_run: StartRun, tmp_path: Path
) -> None:
    course.add("task")
    course.add("other")
    arguments = (submission(tmp_path), "--course", course.folder, "--device", "cpu", "-a", "task", "--fail-under")
    ran = start_run(*arguments, "4").finish()
    assert ran.code == 0
    assert ran.report is not None
    assert [one.name for one in ran.report.assignments] == ["task"]
    ran = start_run(*arguments, "4.5").finish()
    assert (ran.code, ran.errors) == (1, "--fail-under: 4 < 4.5\n")


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
    listed = grader("list", cwd=tmp_path)
    assert listed.returncode == 0
    for name in ("cuda_gelu", "triton_gelu", "softmax", "flash_attention", "100 points"):
        assert name in listed.stdout
    version = grader("--version", cwd=tmp_path)
    assert version.stdout.startswith("grader 0.")
    schema = grader("schema", cwd=tmp_path)
    assert json.loads(schema.stdout)["title"] == "Report"

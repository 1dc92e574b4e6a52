"""`grader check` and `grader init`, as a student types them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from grader.cli import app
from grader.workfolder import TASKS
from tests.command.test_compilation import NOT_COMPILABLE, compilable
from tests.conftest import IMPORTS, TWICE, Course, problem_toml

pytestmark = pytest.mark.grading

RIGHT = "def double(x):\n    return x * 2\n"
TRIPLES = "def double(x):\n    print('tripling')\n    return x * 3\n"
STUB = "def double(x):\n    raise NotImplementedError\n"
TOLD_AT_ONCE = "def double(x:\n    return x\n"


def environment(folder: Path) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": IMPORTS, "COLUMNS": "150", "PYTHONUNBUFFERED": "1"}


def check(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader", "check", *map(str, arguments), "--device", "cpu"]
    return subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120)


def hand_in(folder: Path, **files: str) -> Path:
    target = folder / "mine"
    target.mkdir(parents=True, exist_ok=True)
    for age, (name, content) in enumerate(files.items()):
        (target / f"{name}.py").write_text(content)
        os.utime(target / f"{name}.py", (10_000 - 100 * age, 10_000 - 100 * age))  # the first is the youngest
    return target


# Told at once ------------------------------------------------------------------------------------------------------------------------


def at_once(*arguments: object, verb: str = "check") -> Result:
    """What the command says where no judge has to run: in this process."""
    return CliRunner().invoke(app, [verb, *map(str, arguments)])


@pytest.fixture
def task(course: Course) -> Course:
    """A course of one task and one that was begun, whose problem.py no judge survives."""
    for name in ("task", "begun"):
        course.add(name)
        problem = course.folder / "assignments" / name / "problem.py"
        problem.write_text("raise SystemExit('no judge may start for this')")
    return course


@pytest.mark.parametrize(
    ("content", "words", "code"),
    [
        (TOLD_AT_ONCE, ["✗ task.py  cannot be loaded ─", "SyntaxError in line 1", "def double(x:"], 1),
        ("def duoble(x):\n    return x\n", ["✗ task.py", "task.py has no function 'double'"], 1),
        (
            "def helper(x): ...\n\n\ndef my_double(x):\n    return x\n",
            ["task.py has no function 'double', only my_double, helper"],
            1,
        ),
        ("", ["task.py has no function 'double', and no other: is it empty, or all of it a comment?"], 1),
        (
            "def double(x):\n    raise NotImplementedError('double: to do')\n",
            ["○ task.py", "still the starter's stub"],
            0,
        ),
    ],
    ids=["syntax", "misspelt", "another name", "empty", "stub"],
)
def test_what_needs_no_run_is_told_without_one(
    task: Course, tmp_path: Path, content: str, words: list[str], code: int
) -> None:
    done = at_once(hand_in(tmp_path, task=content), "--course", task.folder, "-a", "task")
    assert done.exit_code == code, done.output
    told = " ".join(done.stdout.replace("│", " ").split())
    assert all(" ".join(word.split()) in told for word in words), done.stdout


def test_a_file_under_another_name_is_a_mistake_that_names_both(task: Course, tmp_path: Path) -> None:
    """It must not end green with nothing checked."""
    stub = (task.folder / "starter/begun.py").read_text()
    folder = hand_in(tmp_path, begun=stub, my_begun=RIGHT, **{"task (1)": RIGHT})
    done = at_once(folder, "--course", task.folder)
    told = " ".join(done.stdout.replace("│", " ").split())
    misnamed = "there is no task.py, but task (1).py: rename it to task.py"
    assert done.exit_code == 1, done.output
    assert misnamed in told
    assert "begun.py is still the starter's stub, but my_begun.py looks like your kernel: rename it to begun.py" in told
    for name in ("begun.py", "my_begun.py"):
        (folder / name).unlink()
    done = at_once(folder, "--course", task.folder)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert misnamed in done.stderr


@pytest.mark.parametrize("options", [[], ["--watch"]], ids=["once", "watch"])
def test_an_unusable_folder_is_refused_in_one_sentence(task: Course, tmp_path: Path, options: list[str]) -> None:
    done = at_once(tmp_path / "nowhere", "--course", task.folder, *options)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "no such folder; expected a folder with begun.py, task.py" in done.stderr


@pytest.mark.parametrize("verb", ["check", "run"])
def test_who_names_a_file_or_the_root_of_a_clone_is_told_how_to_ask_for_it(
    task: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    hand_in(tmp_path / "a b", task=RIGHT, other=RIGHT)
    for place, name, words in (
        (
            tmp_path,
            "a b/mine/task.py",
            "is a file; for this file alone name its folder, as in `grader check 'a b/mine' -a task`",
        ),
        (tmp_path, "a b/mine/other.py", "is a file; expected a folder with begun.py, task.py"),
        (
            task.folder,
            ".",
            "is the grader's own folder: name the folder with your files, as in `grader check my-folder`",
        ),
    ):
        monkeypatch.chdir(place)
        done = at_once(name, "--course", task.folder, verb=verb)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr in (f"{name}: {words}\n", f"{name} {words}\n")


def test_a_new_folder_can_be_checked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code, words in ((0, "grader check --watch"), (2, "would be overwritten")):
        done = at_once("labs", verb="init")
        assert done.exit_code == code
        assert words in done.output
    done = at_once("labs", "--device", "cpu")
    assert done.exit_code == 0
    assert done.stdout.count("still the starter's stub") == 4


# What is right -----------------------------------------------------------------------------------------------------------------------

RIGHT_IN_OTHER_WAYS = {
    "in_a_branch": "if True:\n    def double(x):\n        return x * 2\n",
    "imported": "from helper import double\n",
    "star": "from helper import *\n",
    "assigned": "twice = lambda x: x * 2\ndouble = twice\n",
    "unpacked": "class Twice:\n    def __call__(self, x):\n        return x * 2\n\n(other, double) = (1, Twice())\n",
    "by_exec": "exec('def double(x): return x * 2')\n",
    "by_globals": "globals()['double'] = lambda x: x * 2\n",
}
HINTED = f"""{TWICE}
def double(x):
    y = torch.empty_like(x)
    twice[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y

def reference(x):
    return torch.add(x, x)
"""
HALF_DONE = """
calls = []

def double(x):
    calls.append(1)
    if len(calls) > 1:
        raise NotImplementedError("the rest")
    return x * 2
"""


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One check of what is no mistake, in a folder around the files."""
    folder = tmp_path_factory.mktemp("right")
    course = Course(folder / "course")
    for name in RIGHT_IN_OTHER_WAYS:
        course.add(name)
    course.add("half_done", ("one", "two"))
    policy = '[policy]\nforbidden = ["torch.add"]\n\n[[part]]'
    course.add("hinted", toml=problem_toml("hinted.py", ["one"]).replace("[[part]]", policy, 1))
    compilable(course, "mixed")
    files = RIGHT_IN_OTHER_WAYS | {"half_done": HALF_DONE, "hinted": HINTED, "mixed": NOT_COMPILABLE, "helper": RIGHT}
    mine = hand_in(folder, **files)
    os.utime(mine / "mixed.py", (6011, 6011))  # these two were saved together
    os.utime(mine / "hinted.py", (6010, 6010))
    (folder / "unpacked" / "__MACOSX").mkdir(parents=True)
    mine.rename(folder / "unpacked" / "handin")
    return check(folder, folder / "unpacked", "--course", course.folder)


def test_a_first_look_accuses_nobody_who_is_right(right: subprocess.CompletedProcess[str]) -> None:
    assert right.returncode == 0, right.stdout + right.stderr
    passed = re.findall(r"✓ (\w+)\.py  1 case passed", right.stdout)
    assert set(passed) == {*RIGHT_IN_OTHER_WAYS, "hinted"}, right.stdout
    assert "not part of this check: speed, which needs a GPU" in right.stdout


def test_a_folder_around_the_files_is_entered_and_said(right: subprocess.CompletedProcess[str]) -> None:
    assert "note: the files lie in handin/" in right.stdout


def test_the_file_that_was_saved_last_comes_first_and_those_saved_together_in_the_courses_order(
    right: subprocess.CompletedProcess[str],
) -> None:
    shown = re.findall(r"^[✓○] (\w+)\.py", right.stdout, re.MULTILINE)
    assert shown == [*RIGHT_IN_OTHER_WAYS, "half_done", "hinted", "mixed"]


def test_nothing_is_compiled(right: subprocess.CompletedProcess[str]) -> None:
    """tests/command/test_compilation.py has the mistake that a compiler finds in this file."""
    assert "✓ mixed.py" in right.stdout


def test_a_line_that_uses_what_students_should_write_is_a_hint_and_no_mistake(
    right: subprocess.CompletedProcess[str],
) -> None:
    line = HINTED[: HINTED.index("torch.add")].count("\n") + 1
    told = f"hinted.py, line {line}: torch.add here: the course wants your own; a call that runs this is forbidden"
    assert told in right.stdout.replace("\n", " "), right.stdout


def test_a_stub_half_done_is_no_mistake(right: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"○ half_done.py .*the rest \(1 case passed\)", right.stdout), right.stdout


# What is wrong -----------------------------------------------------------------------------------------------------------------------

SENDS_THE_SECOND_LINE = """
def double(x):
    return helper(x)


def helper(x):
    if x.numel() > 0:
        raise ValueError("first line\\nsecond: line")
    return x
"""
# By file: what is handed in, and the line that an editor is sent to.
WRONG = {
    "raises": (SENDS_THE_SECOND_LINE, 8),
    "bad": (TRIPLES, 1),
    "cut": ("\n" + TOLD_AT_ONCE, 2),
    "importing": ("import nowhere\n" + RIGHT, 1),
    "raising": ("raise ValueError\n" + RIGHT, 1),
    "tells": ("def double(x):\n    raise ValueError(f'{x.sum().item():.9f}')\n", 2),
}


@dataclass
class Wrong:
    """A folder with these files and a right one, and what a check of it says in GCC's form."""

    folder: Path
    done: subprocess.CompletedProcess[str]

    def check(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        return check(self.folder, "mine", "--course", self.folder / "course", *arguments)


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Wrong:
    folder = tmp_path_factory.mktemp("wrong")
    course = Course(folder / "course")
    for name in ("good", *WRONG):
        course.add(name, ("one", "two", "three"))
    hand_in(folder, good=RIGHT, **{name: content for name, (content, _) in WRONG.items()})
    wrong = Wrong(folder, subprocess.CompletedProcess([], 0, "", ""))
    wrong.done = wrong.check("--format=gcc")
    return wrong


def test_in_gccs_form_an_editor_finds_each_mistake_at_its_line(wrong: Wrong) -> None:
    """By the expression in the task that `grader init` writes."""
    (task,) = json.loads(TASKS)["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    shown = wrong.done.stdout
    assert wrong.done.returncode == 1, wrong.done.stderr
    problems = [one for line in shown.splitlines() if (one := re.match(pattern["regexp"], line))]
    told = {one[pattern["file"]]: (int(one[pattern["line"]]), one[pattern["message"]]) for one in problems}
    assert {file: line for file, (line, _) in told.items()} == {
        f"mine/{name}.py": line for name, (_, line) in WRONG.items()
    }
    assert {one[pattern["severity"]] for one in problems} == {"error"}
    assert told["mine/raises.py"][1] == "one: ValueError: first line second: line"
    assert "1.5 times expected" in shown, "the rest follows below"
    assert "✓ good.py  3 cases passed" in shown
    assert task["command"] == "grader check --watch --format=gcc"


def test_a_file_that_cannot_be_loaded_needs_no_seed(wrong: Wrong) -> None:
    shown = wrong.done.stdout
    (again,) = re.findall(r"the same inputs again: grader check mine (.*) --seed \d+\n", shown)
    assert set(again.split()) == {"-a", "raises", "bad", "tells"}
    assert "needs a GPU" not in shown.replace("speed, which needs a GPU", "")


def test_one_mistake_of_each_assignment_is_shown_by_its_seed_again_and_the_rest_is_not_run(wrong: Wrong) -> None:
    (seed,) = re.findall(r"-a tells --seed (\d+)\n", wrong.done.stdout)
    again = wrong.check("-a", "tells", "-a", "bad", "--seed", seed)
    assert again.returncode == 1, again.stdout + again.stderr
    inputs = set(re.findall(r"ValueError: (-?\d\S+)", wrong.done.stdout + again.stdout))
    assert len(inputs) == 1, inputs
    assert "✗ bad.py  one" in again.stdout
    assert "1.5 times expected" in again.stdout
    assert "not run: 2 more" in again.stdout
    assert "✗ bad.py  two" not in again.stdout
    assert re.search(r"bad.py printed:\s+\[one\] tripling", again.stdout), "a student looks for their prints"
    assert again.stdout.count("tripling") == 1, "the other cases did not run"
    assert list((wrong.folder / "tmp").iterdir()) == []


def test_a_file_that_could_not_be_checked_is_no_success(course: Course, tmp_path: Path) -> None:
    for name in ("good", "asking"):
        course.add(name, ("one", "two"))
    asking = "import torch\n\ndef double(x):\n    torch.cuda.CUDAGraph()\n    return x * 2\n"
    done = check(tmp_path, hand_in(tmp_path, good=RIGHT, asking=asking), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✓ good.py  2 cases passed" in done.stdout
    assert "– asking.py  not checked: needs a GPU: asking.py, line 4" in done.stdout


# Watching ---------------------------------------------------------------------------------------------------------------------------


class Watching:
    """`grader check --watch` in progress."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        command = [sys.executable, "-m", "grader", "check", "--watch", *map(str, arguments), "--device", "cpu"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.text = ""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line

    def shows(self, pattern: str, limit_s: float = 60) -> str:
        """Wait for what matches and forget everything up to its end; what was shown before it."""
        deadline = time.monotonic() + limit_s
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} was not shown:\n{self.text}"
            assert self.process.poll() is None, self.text
            time.sleep(0.02)
        before, self.text = self.text[: found.start()], self.text[found.end() :]
        return before

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_what_was_saved_is_checked_again_and_nothing_else_until_ctrl_c(course: Course, tmp_path: Path) -> None:
    """In a folder around the files, of which one is still a stub, with the patterns of the editor's task, which reads these lines."""
    course.add("alpha")
    course.add("beta", ("one", "two"))
    (course.folder / "starter" / "alpha.py").write_text(STUB)
    mine = hand_in(tmp_path / "unpacked", alpha=STUB, beta=RIGHT)
    (task,) = json.loads(TASKS)["tasks"]
    background = task["problemMatcher"]["background"]
    waiting = "waiting for the next save of a file; Ctrl-C ends this"
    assert re.search(background["endsPattern"], waiting)
    running = Watching(tmp_path, tmp_path / "unpacked", "--course", course.folder)
    try:
        running.shows("is still the starter's stub")
        running.shows("✓ beta.py  2 cases passed")
        running.shows(f"{waiting}\n")
        (mine / "alpha.py").write_text(RIGHT)
        before = running.shows("✓ alpha.py  1 case passed")
        assert re.search(background["beginsPattern"], before)
        assert "beta" not in before, "what was saved is known for its assignment's"
        running.shows(waiting)

        (mine / "beta.py").write_text("import time\ndef double(x):\n    time.sleep(2)\n    return x * 2\n")
        running.shows("beta.py saved at")
        time.sleep(0.7)
        (mine / "beta.py").write_text(TRIPLES)
        before = running.shows("✗ beta.py  one")
        assert "✓ beta.py" not in before, "the slow version was not waited for"
        assert "alpha" not in before
        running.shows(waiting)

        (mine / "helper.py").write_text("anyone may import this")
        running.shows("helper.py saved at")
        both = running.shows(waiting)
        assert "✓ alpha.py" in both
        assert "✗ beta.py" in both

        time.sleep(0.5)  # the next judge is on its way
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=30) == 0
        running.reader.join()
        assert not re.search(r"Traceback|waiting", running.text)
        assert list((tmp_path / "tmp").iterdir()) == []
    finally:
        running.end()

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
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.workfolder import TASKS
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


def test_one_mistake_of_each_assignment_is_shown_and_the_rest_is_not_run(course: Course, tmp_path: Path) -> None:
    course.add("good", ("one", "two"))
    course.add("bad", ("one", "two", "three"))
    done = check(tmp_path, hand_in(tmp_path, good=RIGHT, bad=TRIPLES), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✓ good.py  2 cases passed" in done.stdout
    assert "✗ bad.py  one" in done.stdout
    assert "1.5 times expected" in done.stdout
    assert "not run: 2 more" in done.stdout
    assert "✗ bad.py  two" not in done.stdout
    assert re.search(r"bad.py printed:\s+\[one\] tripling", done.stdout), "a student looks for their prints"
    assert done.stdout.count("tripling") == 1, "the other cases did not run"
    assert "not part of this check: speed, which needs a GPU" in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


SENDS_THE_SECOND_LINE = """
def double(x):
    return helper(x)


def helper(x):
    if x.numel() > 0:
        raise ValueError("first line\\nsecond: line")
    return x
"""


def test_in_gccs_form_an_editor_finds_each_mistake_at_its_line(course: Course, tmp_path: Path) -> None:
    """By the expression in the task that `grader init` writes."""
    (task,) = json.loads(TASKS)["tasks"]
    pattern = task["problemMatcher"]["pattern"]
    course.add("raises", ("one", "two"))
    course.add("bad")
    course.add("cut")
    course.add("right")
    files = {"raises": SENDS_THE_SECOND_LINE, "bad": TRIPLES, "cut": "\n" + TOLD_AT_ONCE, "right": RIGHT}
    hand_in(tmp_path, **files)
    done = check(tmp_path, "mine", "--format=gcc", "--course", course.folder)
    assert done.returncode == 1, done.stderr
    problems = [one for line in done.stdout.splitlines() if (one := re.match(pattern["regexp"], line))]
    told = {one[pattern["file"]]: (int(one[pattern["line"]]), one[pattern["message"]]) for one in problems}
    assert {file: line for file, (line, _) in told.items()} == {"mine/raises.py": 8, "mine/bad.py": 1, "mine/cut.py": 2}
    assert {one[pattern["severity"]] for one in problems} == {"error"}
    assert told["mine/raises.py"][1] == "one: ValueError: first line second: line"
    assert "1.5 times expected" in done.stdout, "the rest follows below"
    assert task["command"] == "grader check --watch --format=gcc"


def test_the_file_that_was_saved_last_comes_first(course: Course, tmp_path: Path) -> None:
    for name in ("alpha", "beta", "gamma"):
        course.add(name)
    done = check(tmp_path, hand_in(tmp_path, beta=RIGHT, gamma=RIGHT, alpha=RIGHT), "--course", course.folder)
    assert done.returncode == 0
    assert re.findall(r"✓ (\w+)\.py", done.stdout) == ["beta", "gamma", "alpha"]


def test_files_that_were_saved_together_come_in_the_courses_order(course: Course, tmp_path: Path) -> None:
    for name in ("beta", "alpha"):
        course.add(name)
    folder = hand_in(tmp_path, beta=RIGHT, alpha=RIGHT)
    for age, name in enumerate(("beta.py", "alpha.py")):
        os.utime(folder / name, (6010 - age, 6010 - age))
    done = check(tmp_path, folder, "--course", course.folder)
    assert re.findall(r"✓ (\w+)\.py", done.stdout) == ["alpha", "beta"]


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
    course: Course, tmp_path: Path, content: str, words: list[str], code: int
) -> None:
    course.add("task")
    (course.folder / "assignments/task/problem.py").write_text("raise SystemExit('no judge may start for this')")
    done = check(tmp_path, hand_in(tmp_path, task=content), "--course", course.folder)
    assert done.returncode == code, done.stdout + done.stderr
    assert all(word in done.stdout for word in words), done.stdout


RIGHT_IN_OTHER_WAYS = {
    "in_a_branch": "if True:\n    def double(x):\n        return x * 2\n",
    "imported": "from helper import double\n",
    "star": "from helper import *\n",
    "assigned": "twice = lambda x: x * 2\ndouble = twice\n",
    "unpacked": "class Twice:\n    def __call__(self, x):\n        return x * 2\n\n(other, double) = (1, Twice())\n",
    "by_exec": "exec('def double(x): return x * 2')\n",
    "by_globals": "globals()['double'] = lambda x: x * 2\n",
}


def test_a_first_look_accuses_nobody_who_is_right(course: Course, tmp_path: Path) -> None:
    for name in RIGHT_IN_OTHER_WAYS:
        course.add(name)
    done = check(tmp_path, hand_in(tmp_path, **RIGHT_IN_OTHER_WAYS, helper=RIGHT), "--course", course.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    right = re.findall(r"✓ (\w+)\.py  1 case passed", done.stdout)
    assert sorted(right) == sorted(RIGHT_IN_OTHER_WAYS), done.stdout


def test_a_line_that_uses_what_students_should_write_is_a_hint_and_no_mistake(course: Course, tmp_path: Path) -> None:
    policy = '[policy]\nforbidden = ["torch.add"]\n\n[[part]]'
    course.add("task", toml=problem_toml("task.py", ["one"]).replace("[[part]]", policy, 1))
    content = f"""{TWICE}
def double(x):
    y = torch.empty_like(x)
    twice[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y

def reference(x):
    return torch.add(x, x)
"""
    done = check(tmp_path, hand_in(tmp_path, task=content), "--course", course.folder)
    assert done.returncode == 0, done.stdout
    line = content[: content.index("torch.add")].count("\n") + 1
    told = f"task.py, line {line}: torch.add here: the course wants your own; a call that runs this is forbidden"
    assert told in done.stdout.replace("\n", " "), done.stdout


def test_a_stub_half_done_is_no_mistake(course: Course, tmp_path: Path) -> None:
    course.add("task", ("one", "two"))
    content = """
calls = []

def double(x):
    calls.append(1)
    if len(calls) > 1:
        raise NotImplementedError("the rest")
    return x * 2
"""
    done = check(tmp_path, hand_in(tmp_path, task=content), "--course", course.folder)
    assert done.returncode == 0, done.stdout
    assert re.search(r"○ task.py .*the rest \(1 case passed\)", done.stdout), done.stdout


def test_a_file_under_another_name_is_a_mistake_that_names_both(course: Course, tmp_path: Path) -> None:
    """It must not end green with nothing checked."""
    course.add("task")
    course.add("begun")
    (course.folder / "assignments/task/problem.py").write_text("raise SystemExit('no judge may start for this')")
    stub = (course.folder / "starter/begun.py").read_text()
    done = check(tmp_path, hand_in(tmp_path, begun=stub, **{"task (1)": RIGHT}), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "there is no task.py, but task (1).py: rename it to task.py" in done.stdout
    (tmp_path / "mine" / "begun.py").unlink()
    done = check(tmp_path, tmp_path / "mine", "--course", course.folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "there is no task.py, but task (1).py: rename it to task.py" in done.stderr


def test_a_kernel_beside_an_untouched_stub_is_a_mistake_that_names_both(course: Course, tmp_path: Path) -> None:
    course.add("task")
    (course.folder / "assignments/task/problem.py").write_text("raise SystemExit('no judge may start for this')")
    stub = (course.folder / "starter/task.py").read_text()
    done = check(tmp_path, hand_in(tmp_path, task=stub, my_task=RIGHT), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    words = "task.py is still the starter's stub, but my_task.py looks like your kernel: rename it to task.py"
    assert words in done.stdout


def test_a_file_that_could_not_be_checked_is_no_success(course: Course, tmp_path: Path) -> None:
    for name in ("good", "asking"):
        course.add(name, ("one", "two"))
    asking = "import torch\n\ndef double(x):\n    torch.cuda.CUDAGraph()\n    return x * 2\n"
    done = check(tmp_path, hand_in(tmp_path, good=RIGHT, asking=asking), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "✓ good.py  2 cases passed" in done.stdout
    assert "– asking.py  not checked: needs a GPU: asking.py, line 4" in done.stdout
    done = check(tmp_path, tmp_path / "mine", "--course", course.folder, "--assignment", "good")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_around_the_files_is_entered_and_said(course: Course, tmp_path: Path) -> None:
    course.add("task")
    hand_in(tmp_path, task=RIGHT)
    (tmp_path / "unpacked" / "__MACOSX").mkdir(parents=True)
    (tmp_path / "mine").rename(tmp_path / "unpacked" / "handin")
    done = check(tmp_path, tmp_path / "unpacked", "--course", course.folder)
    assert (done.returncode, "✓ task.py  1 case passed" in done.stdout) == (0, True), done.stdout + done.stderr
    assert "note: the files lie in handin/" in done.stdout


@pytest.mark.parametrize("options", [[], ["--watch"]], ids=["once", "watch"])
def test_an_unusable_folder_is_refused_in_one_sentence(course: Course, tmp_path: Path, options: list[str]) -> None:
    course.add("task")
    done = check(tmp_path, tmp_path / "nowhere", "--course", course.folder, *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no such folder; expected a folder with task.py" in done.stderr


@pytest.mark.parametrize("verb", ["check", "run"])
def test_who_names_a_file_is_told_how_to_ask_for_it(course: Course, tmp_path: Path, verb: str) -> None:
    course.add("task")
    hand_in(tmp_path / "a b", task=RIGHT, other=RIGHT)
    told = "is a file; for this file alone name its folder, as in `grader check 'a b/mine' -a task`"
    for name, words in (("task.py", told), ("other.py", "is a file; expected a folder with task.py")):
        command = [sys.executable, "-m", "grader", verb, f"a b/mine/{name}", "--course", course.folder]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=120
        )
        assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", f"a b/mine/{name}: {words}")


def test_a_file_that_cannot_be_loaded_needs_no_seed(course: Course, tmp_path: Path) -> None:
    course.add("importing")
    course.add("raising")
    files = {"importing": "import nowhere\n" + RIGHT, "raising": "raise ValueError\n" + RIGHT}
    done = check(tmp_path, hand_in(tmp_path, **files), "--course", course.folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert all(f"✗ {name}.py" in done.stdout for name in files), done.stdout
    assert "--seed" not in done.stdout
    assert "needs a GPU" not in done.stdout


@pytest.mark.parametrize("verb", ["check", "run"])
def test_at_the_root_of_a_clone_the_students_folder_is_asked_for(course: Course, verb: str) -> None:
    course.add("task")
    command = [sys.executable, "-m", "grader", verb, ".", "--course", course.folder, "--device", "cpu"]
    done = subprocess.run(
        command, cwd=course.folder, env=environment(course.folder), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    told = ". is the grader's own folder: name the folder with your files, as in `grader check my-folder`"
    assert done.stderr.strip() == told


def test_the_seed_brings_the_same_inputs_back(course: Course, tmp_path: Path) -> None:
    course.add("task")
    tells = "def double(x):\n    raise ValueError(f'{x.sum().item():.9f}')\n"
    first = check(tmp_path, hand_in(tmp_path, task=tells), "--course", course.folder)
    (seed,) = re.findall(rf"again: grader check {tmp_path / 'mine'} -a task --seed (\d+)\n", first.stdout)
    again = check(tmp_path, tmp_path / "mine", "--course", course.folder, "--seed", seed)
    (one,), (two,) = (re.findall(r"ValueError: (\S+)", ran.stdout) for ran in (first, again))
    assert one == two


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


@pytest.fixture
def watching(course: Course, tmp_path: Path) -> Iterator[Watching]:
    course.add("alpha")
    course.add("beta", ("one", "two"))
    hand_in(tmp_path, alpha=RIGHT, beta=RIGHT)
    running = Watching(tmp_path, tmp_path / "mine", "--course", course.folder)
    yield running
    running.process.kill()
    running.process.wait()
    running.reader.join()
    running.process.stdout.close()


def test_what_was_saved_is_checked_again_and_nothing_else(watching: Watching, tmp_path: Path) -> None:
    watching.shows("✓ beta.py  2 cases passed")
    watching.shows("not part of this check")
    (tmp_path / "mine" / "beta.py").write_text(TRIPLES)
    watching.shows("beta.py saved at")
    assert "alpha" not in watching.shows("✗ beta.py  one")
    (tmp_path / "mine" / "beta.py").write_text(RIGHT)
    watching.shows("beta.py saved at")
    watching.shows("✓ beta.py  2 cases passed")
    (tmp_path / "mine" / "helper.py").write_text("anyone may import this")
    watching.shows("helper.py saved at")
    both = watching.shows("not part of this check")
    assert "✓ alpha.py" in both
    assert "✓ beta.py" in both


def test_a_folder_around_the_files_is_watched(course: Course, tmp_path: Path) -> None:
    course.add("alpha")
    course.add("beta")
    hand_in(tmp_path / "unpacked", alpha=RIGHT, beta=RIGHT)
    running = Watching(tmp_path, tmp_path / "unpacked", "--course", course.folder)
    try:
        running.shows("not part of this check")
        (tmp_path / "unpacked" / "mine" / "beta.py").write_text(TRIPLES)
        running.shows("beta.py saved at")
        assert "alpha" not in running.shows("the same inputs again"), "what was saved is known for its assignment's"
    finally:
        running.process.kill()
        running.process.wait()
        running.reader.join()
        running.process.stdout.close()


def test_a_save_ends_the_check_that_is_out_of_date(watching: Watching, tmp_path: Path) -> None:
    slow = "import time\ndef double(x):\n    time.sleep(2)\n    return x * 2\n"
    watching.shows("not part of this check")
    (tmp_path / "mine" / "beta.py").write_text(slow)
    watching.shows("beta.py saved at")
    time.sleep(0.7)
    (tmp_path / "mine" / "beta.py").write_text(TRIPLES)
    assert "✓ beta.py" not in watching.shows("✗ beta.py  one"), "the slow version was not waited for"


def test_watching_stubs_says_what_it_waits_for_and_how_it_ends(course: Course, tmp_path: Path) -> None:
    course.add("alpha")
    (course.folder / "starter").mkdir(exist_ok=True)
    (course.folder / "starter" / "alpha.py").write_text(STUB)
    hand_in(tmp_path, alpha=STUB)
    running = Watching(tmp_path, tmp_path / "mine", "--course", course.folder)
    try:
        running.shows("is still the starter's stub")
        (task,) = json.loads(TASKS)["tasks"]
        background = task["problemMatcher"]["background"]  # of the editor's task, which reads these lines
        assert re.search(background["endsPattern"], "waiting for the next save of a file; Ctrl-C ends this")
        running.shows("waiting for the next save of a file; Ctrl-C ends this\n")
        (tmp_path / "mine" / "alpha.py").write_text(RIGHT)
        assert re.search(background["beginsPattern"], running.shows("✓ alpha.py  1 case passed"))
        running.shows("waiting for the next save")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=30) == 0
        assert "waiting" not in running.text
    finally:
        running.process.kill()
        running.process.wait()
        running.reader.join()
        running.process.stdout.close()


def test_ctrl_c_ends_it_and_leaves_nothing(watching: Watching, tmp_path: Path) -> None:
    watching.shows("not part of this check")
    time.sleep(0.5)  # the next judge is on its way
    watching.process.send_signal(signal.SIGINT)
    assert watching.process.wait(timeout=30) == 0
    assert "Traceback" not in watching.text
    deadline = time.monotonic() + 5
    while list((tmp_path / "tmp").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list((tmp_path / "tmp").iterdir()) == []


# A folder to begin with ---------------------------------------------------------------------------------------------------------------


def test_a_new_folder_can_be_checked_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grader", "init", "labs"]
    for code, words in ((0, "grader check --watch"), (2, "would be overwritten")):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == code
        assert words in done.stdout + done.stderr
    done = check(tmp_path, "labs")
    assert done.returncode == 0
    assert done.stdout.count("still the starter's stub") == 4

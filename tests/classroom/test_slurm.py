"""What is left of a class goes to Slurm, each hand-in once; a node that dies costs nobody a grade."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from grader.classroom import slurm
from grader.classroom.folder import ClassError, RunFolder, Student, Students
from grader.classroom.slurm import MOST_TASKS, submit
from grader.fingerprint import fingerprint
from grader.sandbox.base import InfraError
from tests.conftest import IMPORTS, Course
from tests.support.gradings import a_run, attempted
from tests.support.slurm import Cluster, cluster, why_not


def handin(number: int) -> str:
    return f"{number:016x}"


def a_class(path: Path, count: int, course: str = "", **fields: object) -> RunFolder:
    """A class with so many students and hand-ins, of which nothing is graded."""
    (path / "handins").mkdir(parents=True)
    folder = RunFolder(path)
    usual = {
        "course": course,
        "fingerprint": fingerprint(Path(course)),
        "device": "cpu",
        "sandbox": "host",
        "speed": False,
    }
    folder.write(a_run(**usual | fields))
    folder.write(Students(students=tuple(Student(key=f"s{one}", handin=handin(one)) for one in range(count))))
    return folder


class Slurm:
    """Slurm's programs without Slurm. queue: names and indexes of array tasks."""

    def __init__(self) -> None:
        self.queue: list[tuple[str, int]] = []
        self.submitted: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str]) -> str:
        if command[0] == "squeue":
            return "".join(f"{index} {name}\n" for name, index in [("other", 1), *self.queue]) + "N/A alone\n"
        self.submitted.append(command)
        options = dict(one.removeprefix("--").split("=") for one in command if "=" in one)
        last = int(options["array"].partition("%")[0].removeprefix("1-"))
        self.queue += [(options["job-name"], index) for index in range(1, last + 1)]
        return f"{len(self.submitted)};cluster\n"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm()
    monkeypatch.setattr(slurm, "ask", made)
    return made


def tasks_of(folder: RunFolder, batch: int) -> list[str]:
    return (folder.path / "slurm" / f"batch.{batch}" / "tasks.txt").read_text().splitlines()


def test_a_batch_has_what_is_left_and_not_in_the_queue(tmp_path: Path, queue: Slurm) -> None:
    folder, others = a_class(tmp_path / "run", 5), a_class(tmp_path / "others", 2)
    assert submit(others)[0].startswith("job 1: 2 hand-ins; ")
    queue.submitted.clear()
    attempted(folder, handin(0))
    says = f"`grader class status {folder.path}` says how far it is"
    assert submit(folder, ["--partition=gpu"]) == [f"job 1: 4 hand-ins; {says}"], (
        "another class's jobs are not this one's"
    )
    assert tasks_of(folder, 1) == [handin(one) for one in (1, 2, 3, 4)]
    assert queue.submitted[0][-2:] == ["--partition=gpu", str(folder.path / "slurm" / "batch.1" / "job.sh")]
    assert "--array=1-4" in queue.submitted[0]
    assert submit(folder) == ["4 in the queue already", "nothing else is left to submit"]
    del queue.queue[3:5]  # these have ended, one without a grade
    attempted(folder, handin(2))
    assert submit(folder) == ["2 in the queue already", f"job 2: 1 hand-in; {says}"]
    assert tasks_of(folder, 2) == [handin(3)]
    for number in (1, 3, 4):
        attempted(folder, handin(number))
    assert submit(folder) == ["nothing else is left to submit"]


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({"device": "auto", "speed": True}, True),
        ({"device": "auto", "speed": False}, False),
        ({"device": "auto", "speed": False, "gpu": "NVIDIA H100"}, True),
        ({"device": "cuda", "speed": False}, True),
        ({"device": "cpu", "speed": True}, False),
    ],
)
def test_a_gpu_is_asked_for_where_the_class_needs_one(
    tmp_path: Path, queue: Slurm, fields: dict[str, object], asks: bool
) -> None:
    submit(a_class(tmp_path / "run", 1, **fields))
    assert ("--gres=gpu:1" in queue.submitted[0]) == asks


def test_an_array_is_never_larger_than_slurm_takes(tmp_path: Path, queue: Slurm) -> None:
    folder = a_class(tmp_path / "run", 2 * MOST_TASKS + 1)
    submit(folder, at_once=8)
    lines = tasks_of(folder, 1)
    assert len(lines) == 667
    assert "--array=1-667%8" in queue.submitted[0]
    assert [one for line in lines for one in line.split()] == [handin(one) for one in range(2 * MOST_TASKS + 1)]


@pytest.mark.parametrize(
    "index", [{"SLURM_ARRAY_TASK_ID": "2"}, {"JOB_COMPLETION_INDEX": "1"}], ids=["slurm", "kubernetes"]
)
def test_an_array_task_grades_the_hand_ins_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: dict[str, str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    folder = a_class(tmp_path / "a class's run", 5)
    batch = folder.path / "slurm" / "batch.1"
    assert submit(folder, each=2, only_write=True) == [f"{batch}: 5 hand-ins, not submitted"]
    done = subprocess.run(["sh", batch / "job.sh"], env={"PATH": os.defpath} | index, capture_output=True, text=True)
    words = f"-m grader class run {folder.path} --limit 2 --only {handin(2)} --only {handin(3)}"
    assert (done.returncode, done.stdout.strip()) == (0, words), done.stderr
    beyond = subprocess.run(["sh", batch / "job.sh"], env={"SLURM_ARRAY_TASK_ID": "9"}, capture_output=True, text=True)
    assert (beyond.returncode, beyond.stderr) == (2, "no line 9 in tasks.txt\n")
    by_hand = subprocess.run(["sh", batch / "job.sh"], env={}, capture_output=True, text=True)
    assert by_hand.returncode != 0
    assert by_hand.stderr.endswith(
        "JOB_COMPLETION_INDEX: neither this nor SLURM_ARRAY_TASK_ID says which line of tasks.txt\n"
    )


def test_without_slurm_one_sentence_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = a_class(tmp_path / "run", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ClassError, match="there is no sbatch on this machine; submit where Slurm is, or use `grader class run`"
    ):
        submit(folder)


def test_slurms_own_words_are_told_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: moon' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    with pytest.raises(InfraError, match="sbatch failed: sbatch: error: invalid partition specified: moon"):
        submit(a_class(tmp_path / "run", 1))


COUNT = 4  # as many as run at a time, and as many again


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    if why := why_not():
        pytest.skip(why)
    with cluster() as found:
        yield found


@pytest.mark.grading
def test_a_node_that_dies_in_the_middle_costs_nobody_a_grade(course: Course, nodes: Cluster, tmp_path: Path) -> None:
    """With a real slurmctld and two real slurmd. Slurm waits two minutes before it starts a job again, so the test asks for it at once."""
    course.add("task")
    folder = a_class(tmp_path / "run", COUNT, str(course.folder))
    for number in range(COUNT):
        (folder.handins / handin(number)).mkdir()
        (folder.handins / handin(number) / "task.py").write_text(f"def double(x):  # {number}\n    return x * 2\n")

    def type_(*words: str) -> str:
        command = [sys.executable, "-m", "grader", "class", words[0], str(folder.path), *words[1:]]
        environment = nodes.environment | {"PYTHONPATH": IMPORTS}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert f"job 1: {COUNT} hand-ins" in type_("submit", "--", "--cpus-per-task=1", "--gres=gpu:1")
    assert f"{COUNT} in the queue already" in type_("submit"), "nothing is submitted twice"

    def begun() -> list[str]:
        """The array tasks on n2 of which a grading has begun; a look every moment finds one that is far from its end."""
        own = [index for index, node in nodes.running().items() if node == "n2"]
        return [index for index in own if any(folder.tasks(handin(int(index) - 1)).glob(".attempt.*"))]

    lost = nodes.wait(begun)[0]
    nodes.kill_node("n2")
    nodes.ask("scontrol", "update", "nodename=n2", "state=down", "reason=dead")
    nodes.wait(lambda: f"1_{lost} PENDING" in nodes.ask("squeue", "--noheader", "--array", "--format=%F_%K %T"))
    nodes.ask("scontrol", "update", f"jobid=1_{lost}", "starttime=now")
    nodes.wait(lambda: not nodes.ask("squeue", "--noheader"))
    found = {number: list(folder.attempts(handin(number))) for number in range(COUNT)}
    codes = {number: [one.exit_code for one in attempts] for number, attempts in found.items()}
    assert codes == {number: [0] for number in range(COUNT)}
    assert "nothing else is left to submit" in type_("submit")
    output = folder.path / "slurm/batch.1" / f"task-{lost}.txt"
    assert output.is_file(), "what each array task said is kept"

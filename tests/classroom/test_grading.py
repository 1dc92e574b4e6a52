"""One grading as a process: how it starts, how it ends, and what of it stays."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from grader.classroom import grading as module
from grader.classroom.grading import RunningAttempt, grader_run, last_words, remove_drafts, why_unusable
from grader.classroom.lock import NAME, Lock, lock
from grader.classroom.model import Attempt, ClassRun
from grader.classroom.task import Task
from grader.report.model import Report
from grader.sandbox.base import UsageError
from tests.conftest import IMPORTS, Course
from tests.support.gradings import AT, Scripted, report

Make = Callable[[str], Scripted]
T = TypeVar("T")
HANDIN, OUTPUT = Path("/h"), Path("/o")


@pytest.fixture
def scripted(tmp_path: Path, course: Course) -> Make:
    course.add("double")

    def make(script: str) -> Scripted:
        made = Scripted(tmp_path, course.folder, {"alice": script})
        made.run.tasks(made.handin("alice")).mkdir(parents=True)
        return made

    return make


def start(scripted: Scripted, **options: object) -> RunningAttempt:
    task = Task(scripted.handin("alice"), ("alice",), 1, tuple(scripted.attempts("alice")))
    own = lock(scripted.run.tasks(task.handin) / NAME) or Lock(None)
    return RunningAttempt(scripted.run, task, own, scripted.command, None, "node cpu", **options)  # type: ignore[arg-type]


def result(grading: RunningAttempt, why_unusable: str = "") -> tuple[Attempt, Report | None]:
    while grading.poll() is None:
        time.sleep(0.01)
    return grading.result(lambda _: why_unusable)


def test_the_command_says_all_that_run_json_says() -> None:
    run = ClassRun(
        made=AT, grader="1", fingerprint="f", assignments=("a", "b"), seed=7, sandbox="docker", image="lab:2",
        require_isolation=True, speed=False, effort="quick",
    )  # fmt: skip
    words = " ".join(grader_run(run, Path("/c"))(HANDIN, OUTPUT, "GPU-1")[1:])
    assert words == (
        "-P -m grader run /h --output /o --course /c --seed 7 --sandbox docker --device cuda --gpu GPU-1 "
        "--assignment a --assignment b --image lab:2 --require-isolation --no-speed --quick"
    )
    plain = ClassRun(made=AT, grader="1", fingerprint="f", seed=7)
    assert " ".join(grader_run(plain, Path("/c"))(HANDIN, OUTPUT, None)[1:]) == (
        "-P -m grader run /h --output /o --course /c --seed 7 --sandbox auto --device cpu"
    )


WORDS = "infra_error: the disk is full"


@pytest.mark.parametrize(
    ("script", "code", "fault"),
    [
        ("graded", 0, ""),
        ("exit 0", 0, "`grader run` ended with 0: .*report.json: cannot be read"),
        ("echo '{}' > $output/report.json", 0, "`grader run` ended with 0: .*is no report of this grader"),
        (f"echo '{WORDS}'; echo more; exit 3", 3, "^the disk is full$"),
        ("echo Traceback; echo 'ValueError: x'; exit 1", 1, "`grader run` ended with 1: ValueError: x"),
        ("kill -SEGV $$", -11, r"`grader run` was ended by signal 11 \(Segmentation fault\)"),
        ("kill -35 $$", -35, r"was ended by signal 35"),
        ("rm $output/output.txt; : > $output/output.txt; exit 3", 3, "`grader run` ended with 3: .*cannot be read"),
        ("cp $notes/faulty.json $output/report.json; exit 3", 3, "^the GPU fell off; no memory$"),
        ("cp $notes/cut.json $output/report.json; echo interrupted; exit 130", 130, "ended with 130: interrupted"),
        ("cp $notes/cut.json $output/report.json; exit 0", 0, "ended with 0"),
        ("yes infra_error 2> /dev/null | head -n 100000; exit 3", 3, "^infra_error$"),
    ],
)
def test_endings(scripted: Make, script: str, code: int, fault: str) -> None:
    made = scripted(script)
    (made.notes / "faulty.json").write_text(
        report(infra_errors=("the GPU fell off", "no memory")).model_dump_json(indent=2)
    )
    (made.notes / "cut.json").write_text(report(incomplete=True).model_dump_json(indent=2))
    attempt, found = result(start(made))
    assert attempt.exit_code == code
    assert re.search(fault, attempt.fault)
    assert bool(attempt.fault) == bool(fault)
    assert (found is not None) == (not fault)
    assert (attempt.number, attempt.place) == (1, "node cpu")
    assert attempt.started < attempt.ended


@pytest.mark.parametrize("cores", [[], [max(os.sched_getaffinity(0))]])
def test_a_grading_keeps_to_its_cores(scripted: Make, cores: list[int]) -> None:
    made = scripted("grep list: /proc/self/status > $notes/status; graded")
    grading = start(made, cores=cores)
    assert result(grading)[0].fault == ""
    grading.discard()
    own = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Cpus_allowed_list:")]
    seen = made.notes.joinpath("status").read_text().splitlines()
    assert seen[0] == (f"Cpus_allowed_list:\t{cores[0]}" if cores else own[0])


def test_cores_that_are_gone_are_a_fault_of_the_machine(scripted: Make) -> None:
    gone = os.sysconf("SC_NPROCESSORS_CONF")
    attempt, found = result(start(scripted("graded"), cores=[gone, gone + 1]))
    words = "no core of this GPU's share is left; a new `grader class run` shares those that are"
    assert (attempt.exit_code, attempt.fault, found) == (3, words, None)


def test_a_hand_in_that_cannot_be_graded_has_its_reason(scripted: Make) -> None:
    attempt, found = result(start(scripted("echo 'x: is empty'; exit 2")), "x: is empty; expected double.py")
    assert (attempt.exit_code, attempt.fault, found) == (2, "x: is empty; expected double.py", None)


def test_a_refusal_that_is_not_the_hand_ins_is_a_usage_error(scripted: Make) -> None:
    with pytest.raises(UsageError, match=r"as run.json says: --require-isolation: no bubblewrap here"):
        result(start(scripted("echo; echo '--require-isolation: no bubblewrap here'; exit 2")), "")


def test_why_a_hand_in_is_unusable_is_read_from_its_files(tmp_path: Path, course: Course) -> None:
    course.add("double")
    folder = tmp_path / "handin"
    folder.mkdir()
    assert why_unusable(course.folder, (), folder).startswith("is empty"), (
        "the path of the hand-in is no word for a gradebook"
    )
    (folder / "double.py").write_text("x")
    assert why_unusable(course.folder, (), folder) == ""


def test_a_grading_beyond_its_limit_is_killed_with_all_its_group(scripted: Make) -> None:
    made = scripted("trap '' TERM; sleep 100 & echo $! > $notes/child; kill -STOP $$")
    grading = start(made, limit_s=0.5)
    attempt, _ = result(grading)
    assert attempt.exit_code == -9
    assert attempt.fault == "the grading took more than 0.5 s and was ended"
    child = int((made.notes / "child").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        ended = psutil.Process(child)
        deadline = time.monotonic() + 30  # the kernel kills in its own time
        while ended.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, ended
            time.sleep(0.02)


def test_a_published_attempt_is_whole_and_the_next_has_the_next_number(scripted: Make) -> None:
    made = scripted("graded")
    for number in (1, 2):
        grading = start(made)
        assert grading.draft.name.startswith(f".attempt.{number}-")
        attempt, _ = result(grading)
        assert len(made.attempts("alice")) == number - 1
        assert grading.publish(attempt)
        folder = made.run.tasks(made.handin("alice")) / f"attempt.{number}"
        assert sorted(path.name for path in folder.iterdir()) == ["attempt.json", "output.txt", "report.json"]
        assert (folder / "output.txt").read_text() == "report: written\n"
        assert made.attempts("alice")[-1] == attempt
    assert made.leftovers == []


def test_an_attempt_is_on_the_disk_before_it_has_its_name(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scripted("graded")
    grading = start(made)
    attempt, _ = result(grading)
    synced: list[str] = []

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", note)
    grading.publish(attempt)
    named = synced.index(grading.draft.name)
    assert {"attempt.json", "output.txt", "report.json"} <= set(synced[:named])
    assert synced[named + 1 :] == [made.handin("alice")]


def test_a_published_attempt_is_never_replaced(scripted: Make) -> None:
    """As if a network file system had shown an old listing to the second."""
    made = scripted("graded")
    first, second = start(made), start(made)
    one, _ = result(first)
    other, _ = result(second)
    assert first.publish(one)
    assert not second.publish(other)
    assert made.attempts("alice") == [one]
    assert made.leftovers == []


def test_a_discarded_grading_leaves_no_process_and_no_draft(scripted: Make) -> None:
    made = scripted("echo $$ > $notes/pid; mkdir $output/x; chmod 0 $output/x; sleep 100")
    grading = start(made)
    pid = wait_for(made.notes / "pid")
    grading.discard()
    assert not psutil.pid_exists(pid)
    assert made.leftovers == []


def test_a_grading_that_cannot_start_leaves_no_draft(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = scripted("graded")
    monkeypatch.setattr(made, "command", lambda *_: ["/bin/true", "\0"])
    with pytest.raises(ValueError, match="null byte"):
        start(made)
    assert made.leftovers == []


def test_an_asked_grading_ends_by_itself(scripted: Make) -> None:
    made = scripted("trap 'echo asked; exit 130' TERM; echo $$ > $notes/pid; while :; do sleep 0.05; done")
    grading = start(made)
    wait_for(made.notes / "pid")
    grading.ask_to_end()
    attempt, _ = result(grading)
    assert attempt.exit_code == 130
    assert attempt.fault == "`grader run` ended with 130: asked"


def test_a_grading_dies_with_the_program_that_started_it(scripted: Make) -> None:
    made = scripted("trap '' TERM HUP INT; echo $$ > $notes/pid; sleep 100")
    code = f"""
from pathlib import Path
from grader.classroom.folder import RunFolder
from grader.classroom.grading import RunningAttempt
from grader.classroom.lock import Lock
from grader.classroom.task import Task
command = lambda *_: {made.command(made.run.handins / made.handin("alice"), Path("/o"), None)!r}
RunningAttempt(RunFolder(Path({str(made.run.path)!r})), Task({made.handin("alice")!r}, ("alice",), 1), Lock(None), command, None, "p")
import signal; signal.pause()
"""
    program = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": IMPORTS})
    grading = psutil.Process(wait_for(made.notes / "pid"))
    program.kill()
    program.wait()
    psutil.wait_procs([grading], timeout=10)
    assert not grading.is_running() or grading.status() == psutil.STATUS_ZOMBIE


def test_a_grading_holds_the_locks_that_it_was_given(scripted: Make, tmp_path: Path) -> None:
    """So its hand-in and its GPU stay locked until its own end, if the program that started it is killed."""
    held = lock(tmp_path / "x.lock")
    assert held is not None
    grading = start(scripted("sleep 100"), holds=held.descriptors)
    held.release()
    assert lock(tmp_path / "x.lock") is None
    grading.discard()
    assert lock(tmp_path / "x.lock") is not None


def test_the_gpu_of_the_environment_is_not_taken(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_GPU", "GPU-9")
    made = scripted("echo gpu=$GRADER_GPU; exit 3")
    grading = start(made)
    assert result(grading)[0].fault == "gpu="


def test_last_words_of_an_empty_output(tmp_path: Path) -> None:
    (tmp_path / "o").touch()
    assert last_words(tmp_path / "o") == ""


def test_drafts_are_removed_and_attempts_are_not(tmp_path: Path) -> None:
    for name in (".attempt.1-x", "attempt.1", ".attempt.2-y"):
        (tmp_path / name / "inside").mkdir(parents=True)
    remove_drafts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["attempt.1"]


def test_clean_up_tells_why_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run

    def run(_command: object, **options: object) -> object:
        return real(["/bin/sh", "-c", "echo; echo no daemon; exit 3"], **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", run)
    assert module.clean_up() == "`grader cleanup`: no daemon"

    def late(_command: object, **_: object) -> object:
        raise subprocess.TimeoutExpired("grader", 1)

    monkeypatch.setattr(subprocess, "run", late)
    assert "took more than" in module.clean_up()


def wait_for(path: Path, read: Callable[[str], T] = int) -> T:  # type: ignore[assignment]
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return read(path.read_text())


def test_a_signal_after_the_end_reaches_nobody(scripted: Make) -> None:
    grading = start(scripted("graded"))
    result(grading)
    grading.ask_to_end()
    grading.kill()
    assert grading.poll() == 0

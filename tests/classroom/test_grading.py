"""One grading as a process: how it starts, how it ends, and what of it stays."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from grader.classroom.folder import Attempt
from grader.classroom.grading import LIMIT_S, RunningAttempt, grader_run
from grader.classroom.lock import NAME, lock
from grader.classroom.station import Station
from grader.classroom.tasks import Task
from grader.nvidia import ListedGpu
from grader.report.model import Report
from tests.conftest import ROOT, Course
from tests.support.gradings import Scripted, a_run, is_free, report

Make = Callable[[str], Scripted]
HANDIN, OUTPUT = Path("/h"), Path("/o")
STARTED: list[RunningAttempt] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Ends what a test has started and left."""
    yield
    while STARTED:
        STARTED.pop().discard()


@pytest.fixture
def scripted(tmp_path: Path, course: Course) -> Make:
    course.add("double")

    def make(script: str) -> Scripted:
        made = Scripted(tmp_path, course.folder, {"alice": script})
        made.run.tasks(made.handin("alice")).mkdir(parents=True)
        return made

    return make


def start(scripted: Scripted, station: Station | None = None, limit_s: float = LIMIT_S) -> RunningAttempt:
    task = Task(scripted.handin("alice"), ("alice",), 1, tuple(scripted.attempts("alice")))
    own = lock(scripted.run.tasks(task.handin) / NAME) or pytest.fail("it is free")
    STARTED.append(RunningAttempt(scripted.run, task, own, scripted.command, station or Station(None), limit_s))
    return STARTED[-1]


def result(grading: RunningAttempt, why_unusable: str = "") -> tuple[Attempt, Report | None]:
    while grading.poll() is None:
        time.sleep(0.01)
    return grading.result(lambda: why_unusable)


def test_the_command_says_all_that_run_json_says() -> None:
    run = a_run(
        assignments=("a", "b"),
        seed=7,
        sandbox="docker",
        image="lab:2",
        require_isolation=True,
        speed=False,
        effort="quick",
    )
    words = " ".join(grader_run(run)(HANDIN, OUTPUT, "GPU-1")[1:])
    assert words == (
        f"-P -m grader run /h --output /o --course {ROOT} --seed 7 --sandbox docker --device cuda --gpu GPU-1 "
        "--assignment a --assignment b --image lab:2 --require-isolation --no-speed --quick"
    )
    assert " ".join(grader_run(a_run(seed=7))(HANDIN, OUTPUT, None)[1:]) == (
        f"-P -m grader run /h --output /o --course {ROOT} --seed 7 --sandbox auto --device cpu"
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
    assert (attempt.number, attempt.place) == (1, f"{socket.gethostname()} cpu")
    assert attempt.started < attempt.ended


def test_cores_that_are_gone_are_a_fault_of_the_machine(scripted: Make) -> None:
    gone = os.sysconf("SC_NPROCESSORS_CONF")
    attempt, found = result(start(scripted("graded"), Station(None, cores=[gone, gone + 1])))
    words = "no core of this GPU's share is left; a new `grader class run` shares those that are"
    assert (attempt.exit_code, attempt.fault, found) == (3, words, None)


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


def test_a_grading_holds_the_locks_that_it_was_given(scripted: Make, tmp_path: Path) -> None:
    """So its hand-in and its GPU stay locked until its own end, if the program that started it is killed."""
    held = lock(tmp_path / "x.lock")
    assert held is not None
    grading = start(scripted("sleep 100"), Station(ListedGpu("GPU-1", "H100"), held=held))
    held.close()
    assert not is_free(tmp_path / "x.lock")
    grading.discard()
    assert is_free(tmp_path / "x.lock")

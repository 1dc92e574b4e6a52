"""`grader class run`: everything is graded once, what the machine spoils is graded again, elsewhere, up to three times, and no
class mixes graders, courses, GPUs or images.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from rich.console import Console

import grader
from grader.assignment import CourseError
from grader.classroom import grading, run
from grader.classroom.folder import ClassError, Decision, course_of
from grader.classroom.lock import NAME, lock, lock_of
from grader.classroom.run import Dispatch, Options, grade_class, settle
from grader.classroom.station import Station
from grader.classroom.tasks import read_tasks
from grader.nvidia import ListedGpu
from grader.report.model import Environment, Isolation, Report
from grader.sandbox.base import InfraError, UsageError
from tests.conftest import Course
from tests.support.gradings import AT, Scripted, a_run, attempted, is_free, report

H100 = "H100"


class Watched(Dispatch):
    """A run of which a test sees every tick, and in which it may interfere."""

    each_tick: Callable[[Dispatch], object] = staticmethod(lambda _: None)

    def draw(self) -> None:
        super().draw()
        self.each_tick(self)


class Room:
    """Makes scripted classes and runs of them, on GPUs that are none."""

    def __init__(self, folder: Path, course: Path) -> None:
        self.folder = folder
        self.course = course
        self.output = io.StringIO()
        self.console = Console(file=self.output, width=200, highlight=False)
        self.gpus: list[ListedGpu] = []

    def make(self, scripts: dict[str, str], **fields: object) -> Scripted:
        return Scripted(self.folder, self.course, scripts, **fields)

    def dispatch(
        self, made: Scripted, gpus: int = 0, each_tick: Callable[[Dispatch], object] = lambda _: None, **options: object
    ) -> Dispatch:
        here = [Station(ListedGpu(f"GPU-{number}", H100), self.folder) for number in range(1, gpus + 1)]
        wanted = Options(**{"command": made.command, **options})  # type: ignore[arg-type]
        dispatch = Watched(made.run, read_tasks(made.run), here or [Station(None)], wanted, self.console)
        dispatch.each_tick = each_tick
        return dispatch

    def grade(self, made: Scripted, **options: object) -> bool:
        options = {"command": made.command, "found": lambda: self.gpus, "locks": self.folder} | options
        return grade_class(made.run, self.console, Options(**options))  # type: ignore[arg-type]

    @property
    def said(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def room(tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch) -> Room:
    course.add("double")
    monkeypatch.setattr(run, "cleanup", lambda: [])
    return Room(tmp_path, course.folder)


def states(made: Scripted) -> Counter[str]:
    return Counter(one.state for one in read_tasks(made.run))


# Once, and again ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 3])
def test_every_hand_in_is_graded_once(room: Room, gpus: int) -> None:
    made = room.make(
        {f"s{number}": f"sleep 0.0{number}; graded" for number in range(9)} | {"twin": "sleep 0.03; graded"}
    )
    most: list[int] = []
    room.dispatch(made, gpus, lambda dispatch: most.append(len(dispatch.gradings))).run()
    assert len(made.started) == 9
    assert {len(made.attempts(f"s{number}")) for number in range(9)} == {1}
    whole = ["attempt.json", "output.txt", "report.json"]
    assert sorted(path.name for path in made.run.tasks(made.handin("s1")).glob("attempt.1/*")) == whole
    assert max(most) == max(gpus, 1)
    assert {gpu for _, gpu in made.started} == ({f"GPU-{number}" for number in range(1, gpus + 1)} or {"cpu"})
    assert made.leftovers == []
    assert any(line.startswith("s3, twin: graded in ") for line in room.said)
    room.dispatch(made, gpus).run()
    assert len(made.started) == 9


def test_a_regrade_is_one_attempt_more(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    room.dispatch(made).run()
    asked = {"at": AT, "by": "ta", "who": "alice", "kind": "regrade", "reason": "x", "handin": made.handin("alice")}
    made.run.decide(Decision.model_validate(asked))
    room.dispatch(made).run()
    assert [one.number for one in made.attempts("alice")] == [1, 2]
    assert len(made.attempts("bob")) == 1


def test_a_fault_of_the_machine_is_tried_again_after_the_others(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[int] = []

    def without_a_daemon() -> None:
        cleaned.append(1)
        raise InfraError("no daemon")

    monkeypatch.setattr(run, "cleanup", without_a_daemon)
    made = room.make({"alice": "once && kill -KILL $$; graded", "bob": "graded"})
    room.dispatch(made).run()
    assert [one.exit_code for one in made.attempts("alice")] == [-9, 0]
    ends = [line.split(":")[0] for line in room.said if "graded in" in line or "was spoilt" in line]
    assert ends == ["alice", "bob", "alice"]
    assert states(made) == {"graded": 2}
    assert len(cleaned) == 1, "after the kill: its workers and its container are still there"
    assert "warning: `grader cleanup`: no daemon" in room.said


def test_three_faults_are_enough(room: Room) -> None:
    made = room.make({"alice": "spoilt 'no memory'", "bob": "graded"})
    assert not room.grade(made)
    assert [one.fault for one in made.attempts("alice")] == ["no memory"] * 3
    assert states(made) == {"failed": 1, "graded": 1}
    assert "attempt 3 was spoilt on" in room.output.getvalue()
    assert room.said[-1].endswith("1 graded, 1 failed: the machine spoilt 3 attempts")
    room.dispatch(made).run()
    assert len(made.started) == 4


def test_a_fault_that_the_courses_own_files_have_too_counts_against_nobody(room: Room) -> None:
    """As no isolation, no image, or a course that cannot be graded: the run ends, and a later one goes on."""
    made = room.make({"a": "[ -e $notes/mended ] || spoilt 'no image'; graded", "b": "graded"})
    script = room.course / "reference" / "script.md"
    script.write_text("echo 'infra_error: no image'; exit 3")
    with pytest.raises(
        InfraError, match=r"nothing is left to grade on; .* taken out: it grades .* no better: no image"
    ):
        room.dispatch(made).run()
    assert (made.attempts("a"), made.attempts("b"), made.leftovers) == ([], [], [])
    (made.notes / "mended").touch()
    room.dispatch(made).run()
    assert states(made) == {"graded": 2}


def test_a_fault_that_only_one_gpu_has_leaves_its_tasks_to_the_other(room: Room) -> None:
    made = room.make({f"s{number}": "[ $gpu = GPU-1 ] && spoilt 'Xid 79'; graded" for number in range(4)})
    (room.course / "reference" / "script.md").write_text("[ $3 = GPU-1 ] && exit 3; exit 0")
    room.dispatch(made, gpus=2).run()
    assert {one.place.split()[1] for number in range(4) for one in made.attempts(f"s{number}")} == {"GPU-2"}


def test_a_fault_is_tried_again_on_another_gpu(room: Room) -> None:
    made = room.make({"alice": "test $gpu = GPU-1 && spoilt 'no CUDA'; graded", "bob": "sleep 0.5; graded"})
    room.dispatch(made, gpus=2).run()
    assert [one.place.split()[1] for one in made.attempts("alice")] == ["GPU-1", "GPU-2"]
    assert len(made.attempts("bob")) == 1


def test_a_sick_gpu_is_taken_out_and_its_tasks_go_to_others(room: Room) -> None:
    script = "test $gpu = GPU-2 && spoilt 'no CUDA'; sleep 0.2; graded"
    made = room.make({f"s{number}": f"true {number}; {script}" for number in range(12)})
    room.dispatch(made, gpus=3).run()
    assert states(made) == {"graded": 12}
    assert sum(gpu == "GPU-2" for _, gpu in made.started) == 3
    assert "GPU-2 is taken out: 3 faults of the machine in a row, the last: no CUDA" in room.output.getvalue()
    assert len(made.started) == 15


def test_without_a_station_the_run_ends_and_a_later_one_goes_on(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; once && spoilt 'no CUDA'; graded" for number in range(5)})
    with pytest.raises(InfraError, match=r"nothing is left to grade on; .*cpu is taken out.*no CUDA"):
        room.grade(made)
    assert room.said[-1] == "5 hand-ins: 5 left"
    assert len(made.started) == 3
    room.dispatch(made).run()
    assert [handin for handin, _ in made.started[3:5]] == [made.handin("s3"), made.handin("s4")], "untried ones first"
    assert states(made) == {"graded": 5}


def test_a_hand_in_that_nobody_can_grade_is_done(room: Room) -> None:
    made = room.make({"alice": 'mv $handin/double.py "$handin/double (1).py"; exit 2', "bob": "graded"})
    room.dispatch(made).run()
    (attempt,) = made.attempts("alice")
    words = "there is no double.py, but double (1).py: rename it to double.py"
    assert (attempt.exit_code, attempt.fault) == (2, words)
    assert states(made) == {"unusable": 1, "graded": 1}
    assert len(made.started) == 2
    assert f"alice: cannot be graded: {words}" in room.said


def test_a_refusal_of_all_hand_ins_ends_the_run(room: Room) -> None:
    """Or every student would have open points, for a mistake in run.json."""
    made = room.make({"alice": "echo 'no bubblewrap here'; exit 2", "bob": "graded"})
    with pytest.raises(UsageError, match="no bubblewrap here"):
        room.dispatch(made).run()
    assert made.attempts("alice") == []
    assert made.leftovers == []
    assert len(made.started) == 1


def test_a_limit_of_gradings(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; graded" for number in range(5)})
    room.dispatch(made, gpus=2, limit=3).run()
    assert states(made) == {"graded": 3, "left": 2}
    room.dispatch(made, gpus=2, limit=3).run()
    assert states(made) == {"graded": 5}


def test_a_limited_run_tells_that_the_machine_spoilt_its_grading(room: Room) -> None:
    """A cluster starts the task again then, on another node."""
    made = room.make({"alice": "once && spoilt 'no memory'; graded"})
    assert not room.grade(made, limit=1)
    assert room.said[-1] == "1 hand-in: 1 left"
    assert room.grade(made, limit=1)


def test_what_is_told_has_an_estimate_and_no_markup(room: Room) -> None:
    made = room.make({"alice": "once && spoilt 'no [b]memory\x1b[31m'; graded", "bob": "sleep 1.2; graded"})
    assert room.grade(made)
    said = [re.sub(r"\d+ s on \S+", "N s on NODE", line) for line in room.said]
    assert said[0] == "2 hand-ins: 2 left; time to go is not known yet"
    assert re.fullmatch(
        r"alice: attempt 1 was spoilt on \S+ cpu: no \[b\]memory\N{REPLACEMENT CHARACTER}\[31m; it is tried again",
        said[1],
    )
    assert said[2].startswith("bob: graded in N s on NODE")
    assert re.fullmatch(r"2 hand-ins: 1 graded, 1 left; about \d+ s to go", said[3])
    assert said[-1] == "2 hand-ins: 2 graded"


# Beside others, and whatever ends -------------------------------------------------------------------------------------


def test_what_another_run_grades_is_waited_for(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    folder = made.run.tasks(made.handin("alice"))
    folder.mkdir(parents=True)
    other = lock(folder / NAME, "node7 cpu")
    assert other is not None

    def look(dispatch: Dispatch) -> None:
        if len(dispatch.left) == 1 and not (folder / "attempt.1").exists():
            shutil.copytree(made.run.tasks(made.handin("bob")) / "attempt.1", folder / "attempt.1")
            other.close()

    room.dispatch(made, each_tick=look).run()
    assert len(made.started) == 1
    assert "alice: is being graded by another run; its grading is waited for at the end" in room.said
    assert states(made) == {"graded": 2}


def test_what_another_run_was_killed_over_is_graded_here(room: Room) -> None:
    made = room.make({"alice": "graded"})
    folder = made.run.tasks(made.handin("alice"))
    (folder / ".attempt.1-killed" / "inside").mkdir(parents=True)
    other = lock(folder / NAME)
    assert other is not None
    begun = time.monotonic()
    room.dispatch(made, each_tick=lambda _: other.close() if time.monotonic() > begun + 0.5 else None).run()
    assert states(made) == {"graded": 1}
    assert made.leftovers == []
    (folder / ".attempt.2-killed").mkdir()
    room.grade(made)
    assert made.leftovers == [], "though nothing is left to grade"


def test_a_gpu_of_another_run_is_waited_for(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    other = Station(ListedGpu("GPU-1", H100), room.folder)
    assert other.lock()

    def look(dispatch: Dispatch) -> None:
        assert all(gpu == "GPU-2" for _, gpu in made.started)
        if not [one for one in dispatch.left if one.handin != made.handin("alice")]:
            other.release()

    room.dispatch(made, 2, look).run()
    other.release()
    assert room.said.count("GPU-1 grades for another run on this machine; waiting for it") == 1
    assert states(made) == {"graded": 2}


def test_a_run_keeps_a_gpu_from_its_first_hand_in_to_the_last(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; graded" for number in range(3)})

    def look(_: Dispatch) -> None:
        assert not is_free(lock_of("GPU-1", room.folder)) or states(made) == {"graded": 3}

    room.dispatch(made, 1, look).run()
    assert is_free(lock_of("GPU-1", room.folder))
    assert made.leftovers == []


def test_each_gpu_has_cores_of_its_own(room: Room) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    made = room.make({f"s{n}": f"true {n}; grep list: /proc/self/status > $notes/$gpu; graded" for n in range(8)})
    dispatch = room.dispatch(made, gpus=len(cores))
    for station, core in zip(dispatch.stations, cores, strict=True):
        station.cores = [core]
    dispatch.run()
    used = [made.notes.joinpath(one.name).read_text().split()[1] for one in dispatch.stations]
    assert used == [str(core) for core in cores]


@pytest.mark.parametrize("graded", [0, 1])
def test_a_full_disk_ends_the_run_before_it_spoils_the_class(
    room: Room, graded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = room.make({"alice": "sleep 0.3; graded", "bob": "true; graded"})
    usage = shutil.disk_usage(room.folder)
    free = iter([usage.free] * graded)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(free, 3 << 20)))
    with pytest.raises(InfraError, match="has 3 MiB left; make room, then start again"):
        room.dispatch(made, gpus=1).run()
    assert len(made.started) == states(made)["graded"] == graded
    monkeypatch.undo()
    room.dispatch(made).run()
    assert states(made) == {"graded": 2}


def test_an_interrupted_run_leaves_no_process_and_no_draft(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading, "STOP_LIMIT_S", 0.5)
    deaf = "trap '' TERM; " * 2
    made = room.make(
        {name: f"{deaf} echo $$ > $notes/{name}; while :; do sleep 0.1; done" for name in ("alice", "bob")}
    )

    def interrupt(_: Dispatch) -> None:
        if all((made.notes / name).exists() for name in ("alice", "bob")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        room.dispatch(made, 2, interrupt).run()
    assert not any(psutil.pid_exists(int((made.notes / name).read_text())) for name in ("alice", "bob"))
    assert states(made) == {"left": 2}
    assert made.leftovers == []
    deadline = time.monotonic() + 30  # until the kernel has ended the last of a killed group, which holds the lock
    for name in ("alice", "bob"):
        while not is_free(made.run.tasks(made.handin(name)) / NAME):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_listing_that_was_old_counts_nothing_twice(room: Room) -> None:
    """As on a network file system: the other run's attempt is seen only when the folder is to be renamed onto it."""
    made = room.make({"alice": "graded"})
    task = made.run.tasks(made.handin("alice"))

    def look(_: Dispatch) -> None:
        if not (task / "attempt.1").exists():
            attempted(made.run, made.handin("alice"))

    room.dispatch(made, each_tick=look).run()
    assert [one.place for one in made.attempts("alice")] == ["node7 cpu"]
    assert "alice: another run has graded it in the meantime; that grading counts" in room.said
    assert made.leftovers == []


# Refusals before anything is graded -----------------------------------------------------------------------------------


def test_some_alone(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    assert room.grade(made, only=("bob",))
    assert [handin for handin, _ in made.started] == [made.handin("bob")]
    assert room.said[-1] == "1 hand-in: 1 graded"
    room.gpus = [ListedGpu("GPU-1", "H100"), ListedGpu("GPU-2", "T4")]
    with pytest.raises(ClassError, match=r"several models \(H100, T4\)"):
        room.grade(made)


def test_another_machine_is_refused_or_told(room: Room) -> None:
    made = room.make({"alice": "graded_on H100", "bob": "graded_on H200; true"})
    room.gpus = [ListedGpu("GPU-1", "H100")]
    room.grade(made, limit=1)
    assert made.run.run().gpu == "H100", "the first grading completes run.json"
    room.gpus = [ListedGpu("GPU-1", "H200")]
    with pytest.raises(ClassError, match=r"graded on H100 so far, and this is H200\. .*--anyway"):
        room.grade(made)
    with pytest.raises(ClassError, match="graded on H100 so far, and this grading ran on H200"):
        room.dispatch(made, gpus=1).run()
    assert (len(made.started), made.leftovers) == (2, [])
    room.grade(made, anyway=True)
    assert "warning: the class has been graded on H100 so far, and this is H200" in room.said
    assert room.said[-1] == "2 hand-ins: 2 graded"
    room.gpus = []
    with pytest.raises(ClassError, match="graded on H100 so far, and this is a CPU"):
        room.grade(made)


def test_a_class_that_cannot_be_graded_is_refused_at_once(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"}, assignments=("nothing",))
    with pytest.raises(CourseError, match="nothing"):
        room.grade(made)
    made.run.write(made.run.run().model_copy(update={"assignments": ()}))
    lost = made.run.handins / made.handin("bob")
    lost.rename(room.folder / "elsewhere")
    with pytest.raises(ClassError, match=f"{lost.name}: the files of a hand-in that counts are not there"):
        room.grade(made)
    assert made.started == []
    assert room.grade(made, only=("alice",))


def test_without_locks_a_run_is_refused_or_told(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    made = room.make({"alice": "graded"})

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ClassError, match="without locks"):
        room.grade(made)
    assert made.started == []
    assert room.grade(made, anyway=True)
    assert "lies on a file system without locks: see to it that one run alone is at work" in room.output.getvalue()
    assert len(made.attempts("alice")) == 1


# What gradings of one class must not mix ------------------------------------------------------------------------------


def on(gpu: str | None, image: str | None = None, **fields: object) -> Report:
    environment = Environment(grader="0", python="3", torch="2", triton=None, device="cuda" if gpu else "cpu", gpu=gpu)
    return report(environment=environment, isolation=Isolation(jail="none", image=image), **fields)


def test_another_grader_or_course_is_refused(room: Room) -> None:
    assert course_of(a_run(course=str(room.course))) == room.course
    assert (course_of(a_run()) / "assignments").is_dir()
    with pytest.raises(ClassError, match=r"/nowhere: the folder of the course, which run.json names, is not here"):
        course_of(a_run(course="/nowhere"))
    made = room.make({"alice": "graded"}, grader="0.0.9")
    words = f"the class was made by grader 0.0.9, and this is grader {grader.__version__}"
    with pytest.raises(ClassError, match=re.escape(words)):
        room.grade(made)
    made.run.write(made.run.run().model_copy(update={"grader": grader.__version__}))
    problem = room.course / "assignments" / "double" / "problem.py"
    problem.write_text(problem.read_text() + "# changed\n")
    with pytest.raises(ClassError, match="is not what it was when the class was made"):
        room.grade(made)
    assert made.started == []
    assert room.grade(made, anyway=True)


@pytest.mark.parametrize(
    ("gpu", "image", "seen", "words"),
    [
        (None, "", on("H100", "sha:1"), ""),
        (None, "", on(None), ""),
        ("H100", "sha:1", on("H100", "sha:1"), ""),
        ("H100", "", on("H200"), "on H100 so far, and this grading ran on H200"),
        ("H100", "", on(None), "this grading ran on a CPU"),
        ("", "sha:1", on(None, "sha:2"), "in the image sha:1 so far.* ran in the image sha:2"),
        ("", "", on(None, "sha:2"), "without a container so far"),
        ("", "", on(None, fingerprint="f"), ""),
        (None, "", on("H100", fingerprint="g"), "was changed while the class is graded"),
    ],
)
def test_a_grading_that_ran_otherwise_is_refused(
    room: Room, gpu: str | None, image: str, seen: Report, words: str
) -> None:
    folder = room.make({}, fingerprint="f", gpu=gpu, image_digest=image).run
    before = folder.run()
    with pytest.raises(ClassError, match=words) if words else contextlib.nullcontext():
        settle(folder, seen, anyway=False)
    settled = before.model_copy(update={"gpu": seen.environment.gpu or "", "image_digest": seen.isolation.image or ""})
    assert folder.run() == (before if gpu is not None or words else settled)
    settle(folder, seen, anyway=True)

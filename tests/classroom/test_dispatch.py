"""Tasks and stations: everything is graded once, and what the machine spoils is graded again, elsewhere, up to three times."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from grader.classroom.dispatch import Dispatch, Options
from grader.classroom.folder import ClassError
from grader.classroom.lock import NAME, lock, lock_of
from grader.classroom.model import Attempt
from grader.classroom.station import Station
from grader.classroom.task import Task, read_tasks
from grader.nvidia import ListedGpu
from grader.sandbox.base import InfraError, UsageError
from tests.conftest import Course
from tests.support.gradings import Scripted

H100 = "H100"


class Seen:
    """What a run shows."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ends: list[tuple[str, str]] = []
        self.each_tick: Callable[[Dispatch], object] = lambda _: None

    def say(self, words: str) -> None:
        self.said.append(words)

    def ended(self, task: Task, attempt: Attempt) -> None:
        self.ends.append((task.words, attempt.fault))

    def draw(self, dispatch: Dispatch) -> None:
        self.each_tick(dispatch)


class Room:
    """Makes scripted classes and runs of them, on stations of its own."""

    def __init__(self, folder: Path, course: Course) -> None:
        self.folder = folder
        self.course = course.folder
        self.seen = Seen()
        self.cleaned = 0

    def make(self, scripts: dict[str, str], **fields: object) -> Scripted:
        return Scripted(self.folder, self.course, scripts, **fields)

    def dispatch(
        self, made: Scripted, gpus: int = 0, why: Callable[[Path], str] = lambda _: "", **options: object
    ) -> Dispatch:
        found = [Station(ListedGpu(f"GPU-{number}", H100), self.folder) for number in range(1, gpus + 1)]
        return Dispatch(
            made.run,
            read_tasks(made.run),
            found or [Station(None)],
            made.command,
            why,
            self.seen,
            Options(**options),  # type: ignore[arg-type]
            reference=self.course / "reference",
            clean_up=self.clean_up,
        )

    def clean_up(self) -> str:
        self.cleaned += 1
        return ""


@pytest.fixture
def room(tmp_path: Path, course: Course) -> Room:
    course.add("double")
    return Room(tmp_path, course)


def states(made: Scripted) -> Counter[str]:
    return Counter(one.state for one in read_tasks(made.run))


@pytest.mark.parametrize("gpus", [0, 3])
def test_every_hand_in_is_graded_once(room: Room, gpus: int) -> None:
    made = room.make(
        {f"s{number}": f"sleep 0.0{number}; graded" for number in range(9)} | {"twin": "sleep 0.03; graded"}
    )
    dispatch = room.dispatch(made, gpus)
    most = 0

    def look(_: Dispatch) -> None:
        nonlocal most
        most = max(most, sum(one.grading is not None for one in dispatch.stations))

    room.seen.each_tick = look
    dispatch.run()
    assert len(made.started) == 9
    assert {len(made.attempts(f"s{number}")) for number in range(9)} == {1}
    assert most == max(gpus, 1)
    assert {gpu for _, gpu in made.started} == ({f"GPU-{number}" for number in range(1, gpus + 1)} or {"cpu"})
    assert made.leftovers == []
    assert ("s3, twin", "") in room.seen.ends
    assert [len(dispatch.left), dispatch.started, len(dispatch.seconds)] == [0, 9, 9]
    room.dispatch(made, gpus).run()
    assert len(made.started) == 9


def test_a_regrade_is_one_attempt_more(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    room.dispatch(made).run()
    tasks = [
        Task(one.handin, one.students, 1 + (one.students == ("alice",)), one.attempts) for one in read_tasks(made.run)
    ]
    dispatch = room.dispatch(made)
    dispatch.tasks = {one.handin: one for one in tasks}
    dispatch.run()
    assert [one.number for one in made.attempts("alice")] == [1, 2]
    assert len(made.attempts("bob")) == 1


def test_a_fault_of_the_machine_is_tried_again_after_the_others(room: Room) -> None:
    made = room.make({"alice": "once && kill -KILL $$; graded", "bob": "graded"})
    room.dispatch(made).run()
    assert [one.exit_code for one in made.attempts("alice")] == [-9, 0]
    assert [who for who, _ in room.seen.ends] == ["alice", "bob", "alice"]
    assert states(made) == {"graded": 2}
    assert room.cleaned == 1  # after the kill: its workers and its container are still there


def test_three_faults_are_enough(room: Room) -> None:
    made = room.make({"alice": "spoilt 'no memory'", "bob": "graded"})
    room.dispatch(made).run()
    assert [one.fault for one in made.attempts("alice")] == ["no memory"] * 3
    assert states(made) == {"failed": 1, "graded": 1}
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
        room.dispatch(made, limit=1).run()
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
    (words,) = room.seen.said
    assert "GPU-2 is taken out: 3 faults of the machine in a row, the last: no CUDA" in words
    assert len(made.started) == 15


def test_without_a_station_the_run_ends_and_a_later_one_goes_on(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; once && spoilt 'no CUDA'; graded" for number in range(5)})
    with pytest.raises(InfraError, match=r"nothing is left to grade on; .*GPU-1 is taken out.*no CUDA"):
        room.dispatch(made, gpus=1).run()
    assert states(made) == {"left": 5}
    assert len(made.started) == 3
    room.dispatch(made, gpus=1).run()
    assert [handin for handin, _ in made.started[3:5]] == [made.handin("s3"), made.handin("s4")]  # untried ones first
    assert states(made) == {"graded": 5}


def test_a_hand_in_that_nobody_can_grade_is_done(room: Room) -> None:
    made = room.make({"alice": "echo 'is empty'; exit 2", "bob": "graded"})
    room.dispatch(made, why=lambda handin: f"{handin.name} is empty").run()
    (attempt,) = made.attempts("alice")
    assert (attempt.exit_code, attempt.fault) == (2, f"{made.handin('alice')} is empty")
    assert states(made) == {"unusable": 1, "graded": 1}
    assert len(made.started) == 2


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


def test_a_grading_on_another_model_ends_the_run(room: Room) -> None:
    made = room.make({"alice": "graded_on H200", "bob": "graded_on H200; true"}, gpu=H100)
    with pytest.raises(ClassError, match="graded on H100 so far, and this grading ran on H200"):
        room.dispatch(made, gpus=1).run()
    assert states(made) == {"left": 2}
    assert made.leftovers == []
    room.dispatch(made, gpus=1, anyway=True).run()
    assert states(made) == {"graded": 2}


def test_the_first_grading_completes_run_json(room: Room) -> None:
    made = room.make({"alice": "graded_on H200"})
    room.dispatch(made, gpus=1).run()
    assert made.run.run().gpu == "H200"


def test_what_another_run_grades_is_waited_for(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    folder = made.run.tasks(made.handin("alice"))
    folder.mkdir(parents=True)
    other = lock(folder / NAME, "node7 cpu")
    assert other is not None

    def look(dispatch: Dispatch) -> None:
        if len(dispatch.left) == 1 and not (folder / "attempt.1").exists():
            shutil.copytree(made.run.tasks(made.handin("bob")) / "attempt.1", folder / "attempt.1")
            other.release()

    room.seen.each_tick = look
    room.dispatch(made).run()
    assert len(made.started) == 1
    assert room.seen.said == ["alice: is being graded by another run; its grading is waited for at the end"]
    assert states(made) == {"graded": 2}


def test_what_another_run_was_killed_over_is_graded_here(room: Room) -> None:
    made = room.make({"alice": "graded"})
    folder = made.run.tasks(made.handin("alice"))
    (folder / ".attempt.1-killed" / "inside").mkdir(parents=True)
    other = lock(folder / NAME)
    assert other is not None
    begun = time.monotonic()
    room.seen.each_tick = lambda _: other.release() if time.monotonic() > begun + 0.5 else None
    room.dispatch(made).run()
    assert states(made) == {"graded": 1}
    assert made.leftovers == []


def test_a_gpu_of_another_run_is_waited_for(room: Room) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    other = Station(ListedGpu("GPU-1", H100), room.folder).lock()
    assert other is not None

    def look(dispatch: Dispatch) -> None:
        assert all(gpu == "GPU-2" for _, gpu in made.started)
        if not [one for one in dispatch.left if one.handin != made.handin("alice")]:
            other.release()

    room.seen.each_tick = look
    room.dispatch(made, gpus=2).run()
    assert room.seen.said == ["GPU-1 grades for another run on this machine; waiting for it"]
    assert states(made) == {"graded": 2}


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


def test_a_disk_that_is_full_at_the_end_of_a_grading_loses_nothing_else(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = room.make({"alice": "graded", "bob": "true; graded"})
    room.dispatch(made, limit=1).run()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("grader.classroom.grading.write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        room.dispatch(made).run()
    monkeypatch.undo()
    assert states(made) == {"graded": 1, "left": 1}
    assert made.leftovers == []
    room.dispatch(made).run()
    assert states(made) == {"graded": 2}
    assert len(made.started) == 3


def test_an_interrupted_run_leaves_no_process_and_no_draft(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grader.classroom.grading.STOP_LIMIT_S", 0.5)
    deaf = "trap '' TERM; " * 2
    made = room.make(
        {name: f"{deaf} echo $$ > $notes/{name}; while :; do sleep 0.1; done" for name in ("alice", "bob")}
    )

    def interrupt(_: Dispatch) -> None:
        if all((made.notes / name).exists() for name in ("alice", "bob")):
            raise KeyboardInterrupt

    room.seen.each_tick = interrupt
    with pytest.raises(KeyboardInterrupt):
        room.dispatch(made, gpus=2).run()
    assert not any(psutil.pid_exists(int((made.notes / name).read_text())) for name in ("alice", "bob"))
    assert states(made) == {"left": 2}
    assert made.leftovers == []
    deadline = time.monotonic() + 30  # until the kernel has ended the last of a killed group, which holds the lock
    for name in ("alice", "bob"):
        while lock(made.run.tasks(made.handin(name)) / NAME) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_hung_grading_is_a_fault_of_the_machine(room: Room) -> None:
    made = room.make({"alice": "once && sleep 100; graded"})
    room.dispatch(made, limit_s=0.5).run()
    assert [one.fault for one in made.attempts("alice")] == ["the grading took more than 0.5 s and was ended", ""]


def test_a_listing_that_was_old_counts_nothing_twice(room: Room) -> None:
    """As on a network file system: the other run's attempt is seen only when the folder is to be renamed onto it."""
    made = room.make({"alice": "graded"})
    task = made.run.tasks(made.handin("alice"))

    def look(_: Dispatch) -> None:
        if not (task / "attempt.1").exists():
            (task / "attempt.1").mkdir()
            moment = Attempt(number=1, started="2026-01-01", ended="2026-01-01", exit_code=0, place="other")  # type: ignore[arg-type]
            (task / "attempt.1" / "attempt.json").write_text(moment.model_dump_json())

    room.seen.each_tick = look
    room.dispatch(made).run()
    assert [one.place for one in made.attempts("alice")] == ["other"]
    assert "another run has graded it in the meantime" in room.seen.said[0]
    assert made.leftovers == []


def test_a_run_keeps_a_gpu_from_its_first_hand_in_to_the_last(room: Room) -> None:
    made = room.make({f"s{number}": f"true {number}; graded" for number in range(3)})

    def look(_: Dispatch) -> None:
        assert lock(lock_of("GPU-1", room.folder)) is None or states(made) == {"graded": 3}

    room.seen.each_tick = look
    room.dispatch(made, gpus=1).run()
    assert lock(lock_of("GPU-1", room.folder)) is not None
    assert made.leftovers == []


def test_each_gpu_has_cores_of_its_own(room: Room) -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    made = room.make({f"s{n}": f"true {n}; grep list: /proc/self/status > $notes/$gpu; graded" for n in range(8)})
    dispatch = room.dispatch(made, gpus=len(cores))
    dispatch.stations = [
        Station(one.gpu, room.folder, [core]) for one, core in zip(dispatch.stations, cores, strict=True)
    ]
    dispatch.run()
    assert [made.notes.joinpath(one.name).read_text().split()[1] for one in dispatch.stations] == [
        str(core) for core in cores
    ]

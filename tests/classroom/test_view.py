"""How far a class is, on a terminal, in plain lines and from its files."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from grader.classroom.dispatch import Dispatch, Options
from grader.classroom.lock import NAME, lock
from grader.classroom.model import NOTHING, Attempt, Decision
from grader.classroom.station import Station
from grader.classroom.task import read_tasks
from grader.classroom.view import View, count, duration, print_status, table, tally, time_to_go
from grader.nvidia import ListedGpu
from tests.conftest import Course
from tests.support.gradings import AT, Scripted

SPOILT, UNUSABLE = (3, "no memory \x1b[31m[b]"), (2, "alice's folder is empty")


@pytest.fixture
def made(tmp_path: Path, course: Course) -> Scripted:
    course.add("double")
    keys = ("anna", "bert", "carl", "dora", "emil")
    return Scripted(tmp_path, course.folder, {key: f"true {key}" for key in keys} | {"nina": "", "otto": ""})


def publish(made: Scripted, key: str, *ends: tuple[int, str], seconds: int = 60) -> None:
    for number, (code, fault) in enumerate(ends, 1):
        path = made.run.tasks(made.handin(key)) / f"attempt.{number}"
        path.mkdir(parents=True)
        ended = AT + timedelta(seconds=seconds)
        one = Attempt(number=number, started=AT, ended=ended, exit_code=code, place="node7 GPU-1", fault=fault)
        (path / "attempt.json").write_text(one.model_dump_json())


def a_console(terminal: bool = False) -> tuple[Console, io.StringIO]:
    output = io.StringIO()
    return Console(file=output, force_terminal=terminal, width=100, highlight=False, _environ={}), output


def a_dispatch(made: Scripted, *stations: Station) -> Dispatch:
    console, _ = a_console()
    return Dispatch(made.run, read_tasks(made.run), stations, made.command, lambda _: "", View(console), Options())


def shown(made: Scripted) -> str:
    console, output = a_console()
    print_status(made.run, console)
    return output.getvalue()


def test_the_status_of_a_new_class(made: Scripted) -> None:
    assert shown(made) == "5 hand-ins: 5 left\n  handed in nothing: nina, otto\n"


def test_the_status_tells_a_hand_in_without_a_file_to_grade_from_none(made: Scripted) -> None:
    students = made.run.students()
    otto = students.students[-1].model_copy(update={"notes": ("x.png: ignored", NOTHING)})
    made.run.write(students.model_copy(update={"students": (*students.students[:-1], otto)}))
    assert shown(made).splitlines()[1:] == ["  handed in nothing: nina", f"  {NOTHING}: otto"]


def test_the_status_tells_states_faults_and_who_has_no_hand_in(made: Scripted) -> None:
    publish(made, "anna", (0, ""))
    publish(made, "bert", UNUSABLE)
    publish(made, "carl", SPOILT, SPOILT, SPOILT)
    publish(made, "dora", SPOILT, (0, ""))
    made.run.decide(Decision(at=AT, by="ta", who="anna", kind="regrade", reason="", handin=made.handin("anna")))
    fault = "on node7 GPU-1: no memory \N{REPLACEMENT CHARACTER}[31m[b]"
    assert shown(made).splitlines() == [
        "5 hand-ins: 1 graded, 1 cannot be graded, 1 failed: the machine spoilt 3 attempts, 2 left",
        "  cannot be graded: bert: alice's folder is empty",
        *(f"  fault of the machine: carl, attempt {number} {fault}" for number in (1, 2, 3)),
        f"  fault of the machine: dora, attempt 1 {fault}",
        "  handed in nothing: nina, otto",
    ]


def test_the_status_tells_what_another_process_grades_and_not_what_a_killed_one_left(made: Scripted) -> None:
    for key in ("anna", "bert"):
        (made.run.tasks(made.handin(key)) / ".attempt.1-x").mkdir(parents=True)
    path = made.run.tasks(made.handin("anna")) / NAME
    code = f"from pathlib import Path; from grader.classroom.lock import lock; c = lock(Path({str(path)!r}), 'node3 GPU-7')"
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; print(1, flush=True); input()"], stdin=-1, stdout=-1
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        assert "  running: anna on node3 GPU-7 for 0 s\n" in shown(made)
        assert "bert on" not in shown(made)
        assert lock(path) is None  # the look took nothing away, and gave nothing
        other.kill()
    assert "running" not in shown(made)


def test_plain_lines_where_there_is_no_terminal(made: Scripted) -> None:
    console, output = a_console()
    dispatch = a_dispatch(made, Station(None))
    with View(console) as view:
        view.draw(dispatch)
        view.draw(dispatch)
        publish(made, "anna", (0, ""))
        publish(made, "bert", UNUSABLE)
        publish(made, "carl", SPOILT)
        publish(made, "dora", SPOILT, SPOILT, SPOILT)
        for task in read_tasks(made.run):
            dispatch.tasks[task.handin] = task
            for one in task.attempts[-1:]:
                view.ended(task, one)
        view.draw(dispatch)
        view.say("GPU-1 is [b]taken out[/b]")
    assert output.getvalue().splitlines() == [
        "5 hand-ins: 5 left; time to go is not known yet",
        "anna: graded in 60 s on node7 GPU-1",
        "bert: cannot be graded: alice's folder is empty",
        "carl: attempt 1 was spoilt on node7 GPU-1: no memory \N{REPLACEMENT CHARACTER}[31m[b]; it is tried again",
        "dora: attempt 3 was spoilt on node7 GPU-1: no memory \N{REPLACEMENT CHARACTER}[31m[b]",
        "5 hand-ins: 1 graded, 1 cannot be graded, 1 failed: the machine spoilt 3 attempts, 2 left; about 2 min to go",
        "GPU-1 is [b]taken out[/b]",
    ]


def test_a_live_table_on_a_terminal(made: Scripted) -> None:
    console, output = a_console(terminal=True)
    with View(console) as view:
        view.draw(a_dispatch(made, Station(ListedGpu("GPU-1", "H100"))))
        assert "GPU-1  \x1b[2midle" in output.getvalue()
        assert "5 hand-ins: 5 left; time to go" in output.getvalue()
        drawn = output.getvalue()
        view.draw(a_dispatch(made, Station(ListedGpu("GPU-1", "H100"))))
        assert output.getvalue() == drawn  # twice a second at most


def test_the_table_has_a_row_for_each_station(made: Scripted, tmp_path: Path) -> None:
    works, waits, out = (Station(ListedGpu(f"GPU-{number}", "H100"), tmp_path) for number in (1, 2, 3))
    other = Station(ListedGpu("GPU-2", "H100"), tmp_path).lock()
    waits.lock()
    for handin in "abc":
        out.note(handin, "no CUDA")

    class Long:
        task = read_tasks(made.run)[0]
        seconds = 75.0

    works.grading = Long()  # type: ignore[assignment]
    console, output = a_console()
    console.print(table(a_dispatch(made, works, waits, out)))
    assert [" ".join(line.split()) for line in output.getvalue().splitlines()] == [
        "GPU-1 anna 75 s",
        "GPU-2 waits for another run on this machine",
        "GPU-3 taken out",
        "5 hand-ins: 5 left; time to go is not known yet",
    ]
    assert other is not None


def test_time_to_go_counts_what_is_left_by_the_stations_in_service(made: Scripted) -> None:
    publish(made, "anna", (0, ""), seconds=100)
    one, two = (Station(ListedGpu(f"GPU-{number}", "H100")) for number in (1, 2))
    dispatch = a_dispatch(made, one, two)
    assert time_to_go(dispatch) == "about 3 min to go"  # 4 × 100 s on two stations
    dispatch.seconds = [10, 20]
    assert time_to_go(dispatch) == "about 30 s to go"
    for handin in "abc":
        two.note(handin, "no CUDA")
    assert time_to_go(dispatch) == "about 60 s to go"
    for key in ("bert", "carl", "dora", "emil"):
        publish(made, key, (0, ""))
    assert time_to_go(a_dispatch(made, one)) == "done"


def test_counts_and_words(made: Scripted) -> None:
    assert count(read_tasks(made.run)) == {"left": 5}
    assert tally(Counter()).plain == "0 hand-ins"
    assert tally(Counter({"graded": 1})).plain == "1 hand-in: 1 graded"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3569, "59 min"),
        (3600, "1 h 0 min"),
        (7530, "2 h 6 min"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words

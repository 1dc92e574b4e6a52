"""What one class must not mix is found, told, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import grader
from grader.classroom.differences import course_of, of_grader, of_report, of_stations, refuse, settle
from grader.classroom.folder import ClassError
from grader.classroom.model import ClassRun
from grader.classroom.station import Station
from grader.fingerprint import fingerprint
from grader.nvidia import ListedGpu
from grader.report.model import Environment, Isolation, Report
from tests.conftest import Course
from tests.support.gradings import AT, Scripted, report


def a_run(**fields: object) -> ClassRun:
    return ClassRun(**{"made": AT, "grader": grader.__version__, "fingerprint": "f", "seed": 1} | fields)  # type: ignore[arg-type]


def on(gpu: str | None, image: str | None = None, **fields: object) -> Report:
    environment = Environment(grader="0", python="3", torch="2", triton=None, device="cuda" if gpu else "cpu", gpu=gpu)
    return report(environment=environment, isolation=Isolation(jail="none", image=image), **fields)


def test_the_course_is_found(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.add("double")
    assert course_of(a_run(course=str(course.folder))) == course.folder
    assert (course_of(a_run()) / "assignments").is_dir()
    with pytest.raises(ClassError, match=r"/nowhere: the folder of the course, which run.json names, is not here"):
        course_of(a_run(course="/nowhere"))
    monkeypatch.setattr("grader.classroom.differences.own_course", lambda: None)
    with pytest.raises(ClassError, match="names no course"):
        course_of(a_run())


def test_another_grader_or_course_differs(course: Course) -> None:
    course.add("double")
    mine = fingerprint(course.folder)
    assert of_grader(a_run(fingerprint=mine), course.folder) == []
    assert of_grader(a_run(fingerprint=mine, grader="0.0.9"), course.folder) == [
        f"the class was made by grader 0.0.9, and this is grader {grader.__version__}"
    ]
    (course.folder / "assignments" / "double" / "problem.toml").write_text("changed")
    assert "is not what it was" in of_grader(a_run(fingerprint=mine), course.folder)[0]


@pytest.mark.parametrize(
    ("gpu", "here", "begun", "words"),
    [
        ("", ["H100"], False, ""),
        ("H100", ["H100", "H100"], True, ""),
        ("", [""], True, ""),
        ("H100", ["H200"], True, "graded on H100 so far, and this is H200"),
        ("H100", [""], True, "graded on H100 so far, and this is a CPU"),
        ("", ["H100"], True, "graded on a CPU so far, and this is H100"),
        ("", ["H100", "T4"], False, r"several models \(H100, T4\); name those of one model by --gpu"),
    ],
)
def test_another_gpu_differs(gpu: str, here: list[str], begun: bool, words: str) -> None:
    made = [Station(ListedGpu(f"GPU-{number}", name) if name else None) for number, name in enumerate(here)]
    found = of_stations(a_run(gpu=gpu), made, begun)
    assert bool(found) == bool(words)
    if words:
        with pytest.raises(ClassError, match=words):
            refuse(found)


@pytest.mark.parametrize(
    ("fields", "seen", "begun", "words"),
    [
        ({}, on("H100", "sha:1"), False, ""),
        ({"gpu": "H100", "image_digest": "sha:1"}, on("H100", "sha:1"), True, ""),
        ({"gpu": "H100"}, on("H200"), True, "on H100 so far, and this grading ran on H200"),
        ({"gpu": "H100"}, on(None), True, "this grading ran on a CPU"),
        ({"image_digest": "sha:1"}, on(None, "sha:2"), True, "in the image sha:1 so far.* ran in the image sha:2"),
        ({}, on(None, "sha:2"), True, "without a container so far"),
        ({}, on(None, fingerprint="f"), True, ""),
        ({}, on(None, fingerprint="g"), False, "was changed while the class is graded"),
    ],
)
def test_a_grading_that_ran_otherwise_differs(fields: dict[str, str], seen: Report, begun: bool, words: str) -> None:
    found = of_report(a_run(**fields), seen, begun)
    assert bool(found) == bool(words)
    if words:
        with pytest.raises(ClassError, match=words):
            refuse(found)


def test_the_first_grading_completes_run_json_and_later_ones_are_held_against_it(
    tmp_path: Path, course: Course
) -> None:
    course.add("double")
    folder = Scripted(tmp_path, course.folder, {}).run
    settle(folder, on("H100", "sha:1"), begun=False, anyway=False)
    assert (folder.run().gpu, folder.run().image_digest) == ("H100", "sha:1")
    settle(folder, on("H100", "sha:1"), begun=True, anyway=False)
    for begun in (True, False):  # False: another machine's grading was the first, a moment ago
        with pytest.raises(ClassError, match="H200"):
            settle(folder, on("H200", "sha:1"), begun=begun, anyway=False)
    settle(folder, on("H200", "sha:1"), begun=True, anyway=True)
    assert folder.run().gpu == "H100"


def test_gradings_on_a_cpu_leave_run_json_as_it_is(tmp_path: Path, course: Course) -> None:
    course.add("double")
    folder = Scripted(tmp_path, course.folder, {}).run
    before = (folder.path / "run.json").stat().st_mtime_ns
    settle(folder, on(None), begun=False, anyway=False)
    assert (folder.path / "run.json").stat().st_mtime_ns == before

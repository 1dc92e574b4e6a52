"""Exports: what is written where, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom.folder import ClassError
from grader.classroom.gradebook import Format, export
from tests.support.classes import MadeClass, class_of, sample, softmax, summed

CANVAS = "Student,ID,SIS Login ID,Section,Lab (1)\r\n,1,s0,S,0\r\n,2,s1,S,0\r\n,3,s2,S,0\r\n,4,lazy,S,0\r\n"


@pytest.fixture
def made(tmp_path: Path) -> MadeClass:
    """A class with a grade, with open points, with nothing graded, and with nothing handed in."""
    made = class_of(tmp_path / "RUN", [sample("gpu"), sample("cpu"), None])
    made.student("lazy")
    (tmp_path / "canvas.csv").write_text(CANVAS, newline="")
    return made


def test_canvas_is_refused_open_points_and_gets_empty_cells_for_the_rest(made: MadeClass, tmp_path: Path) -> None:
    wanted = (made.folder, "canvas", tmp_path / "out" / "new.csv", tmp_path / "canvas.csv")
    with pytest.raises(
        ClassError, match=r"Canvas cannot say .* \(s1 \(First1 Last1\): 50 of 100 points are not graded\)"
    ):
        export(*wanted)
    assert not (tmp_path / "out" / "new.csv").exists()
    path, notes = export(*wanted, without_open=True)
    text = path.read_bytes().decode()
    assert text == CANVAS.replace("s0,S,0", "s0,S,100").replace(",S,0", ",S,")
    assert notes[0] == "1 grade written"
    assert "1 left out, whose points are not all graded" in notes
    assert (tmp_path / "canvas.csv").read_bytes().decode() == CANVAS


def test_a_class_without_a_gpu_is_exported_by_its_correctness(made: MadeClass, tmp_path: Path) -> None:
    made.decide(made.students[2], "points", points=33)
    path, notes = export(made.folder, "canvas", None, tmp_path / "canvas.csv", basis="correctness")
    assert path == made.folder.path / "exports" / "canvas.csv"
    cells = [line.rpartition(",")[2] for line in path.read_text().splitlines()]
    assert cells == ["Lab (1)", "50", "50", "33", ""]
    assert any(one.startswith("1 by decision, which stands") for one in notes)


def test_csv_says_open_points_itself(made: MadeClass) -> None:
    path, notes = export(made.folder, "csv")
    assert len(path.read_text().splitlines()) == 5
    assert path.read_bytes().startswith(b"\xef\xbb\xbf"), "or Excel reads names in another encoding"
    assert notes == ["2 students with a grade; 1 without: not graded yet; 1 without: nothing was handed in"]


@pytest.mark.parametrize(
    ("fingerprint", "assignments", "words"),
    [
        ("c" * 64, 4, ["graded by another course or grader than the other students: s1; `grader class regrade`"]),
        ("c" * 64, 1, ["the grades are out of different totals (100 points: s0, s2; 18 points: s1); `grader class regrade`"]),
        ("", 4, []),
    ],
)  # fmt: skip
def test_grades_that_do_not_mean_the_same_are_told(
    tmp_path: Path, fingerprint: str, assignments: int, words: list[str]
) -> None:
    whole = sample("gpu").model_copy(update={"fingerprint": "d" * 64})
    other = summed(whole, whole.assignments[:assignments]).model_copy(update={"fingerprint": fingerprint})
    made = class_of(tmp_path / "RUN", [whole, other, whole])
    for form, template in (("csv", None), ("canvas", tmp_path / "canvas.csv")):
        (tmp_path / "canvas.csv").write_text(CANVAS, newline="")
        _, notes = export(made.folder, form, None, template)
        assert [one.partition(" and `run`")[0] for one in notes if "regrade" in one] == words


def test_gradescope_is_refused_what_it_cannot_say(made: MadeClass) -> None:
    with pytest.raises(ClassError, match=r"Gradescope cannot say .*s1 .*; s2 \(First2 Last2\): not graded yet"):
        export(made.folder, "gradescope")
    path, notes = export(made.folder, "gradescope", without_open=True)
    assert [one.name for one in (path / "results").iterdir()] == ["s0.json"]
    assert (path / "autograder.zip").is_file()
    made.decide(made.students[1], "points", points=70)
    made.decide(made.students[2], "points", points=5)
    export(made.folder, "gradescope")
    assert {one.name for one in (path / "results").iterdir()} == {"s0.json", "s1.json", "s2.json"}
    assert "2 left out, whose points are not all graded" in notes
    assert any(one.startswith("Gradescope cannot say that something is not graded: for files without") for one in notes)


@pytest.mark.parametrize(
    ("form", "template", "words"),
    [
        ("canvas", None, "canvas needs the CSV file that the platform gave, by --template"),
        ("moodle", None, "moodle needs the CSV file that the platform gave, by --template"),
        ("csv", "canvas.csv", "csv takes no --template"),
        ("gradescope", "canvas.csv", "gradescope takes no --template"),
        ("canvas", "RUN/exports/canvas.csv", "is the template, which stays as the platform gave it"),
    ],
)
def test_a_template_is_for_those_that_have_one(
    made: MadeClass, tmp_path: Path, form: Format, template: str | None, words: str
) -> None:
    with pytest.raises(ClassError, match=words):
        export(made.folder, form, None, tmp_path / template if template else None, without_open=True)


def test_no_file_is_half_written(made: MadeClass, tmp_path: Path) -> None:
    made.student("w1", files=softmax("w"), name="One Name")
    made.student("w2", files=softmax("v"), name="One Name")
    (tmp_path / "canvas.csv").write_text(CANVAS + "One Name,5,x,S,1\r\n", newline="")
    out = tmp_path / "out.csv"
    out.write_text("an earlier export")
    with pytest.raises(ClassError, match="this row may be w1"):
        export(made.folder, "canvas", out, tmp_path / "canvas.csv", without_open=True)
    assert out.read_text() == "an earlier export"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["RUN", "canvas.csv", "out.csv"]

"""`grader class new` and `grader class add`, as they are typed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import grader
from grader.classroom import commands
from grader.classroom.folder import RunFolder
from grader.cli import app
from grader.course import own_course
from grader.fingerprint import fingerprint
from tests.conftest import Course, broken_jails
from tests.support import exports
from tests.support.exports import Handed, zipped


def typed(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["class", *map(str, words)])


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "export.zip"
    path.write_bytes(
        zipped(exports.canvas([Handed("Ada Lovelace", {"softmax.py": b"[red]x[/red]", "a[bold]\x1b.py": b""})]))
    )
    return path


@pytest.fixture(autouse=True)
def tried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a test is marked so, the course is not tried, which takes a judge's start."""
    if request.node.get_closest_marker("grading") is None:
        monkeypatch.setattr(commands, "why_not_here", lambda *_: "")


@pytest.mark.grading
def test_new_tries_the_course_and_this_machine(tmp_path: Path, course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.add("double")
    export = tmp_path / "export.zip"
    export.write_bytes(zipped(exports.canvas([Handed("Ada Lovelace", {"double.py": b"x"})])))
    words = ("new", tmp_path / "run", "--from", export, "--course", course.folder, "--device", "cpu")
    monkeypatch.setenv("PATH", f"{broken_jails(tmp_path / 'broken')}:{os.environ['PATH']}")
    done = typed(*words, "--require-isolation")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "note: this machine cannot grade it as it is: nothing was graded: not isolated: " in done.stdout
    for file, old, new, said in (
        ("problem.toml", 'y = "element"', 'y = "element", z = "all"', "[tolerance] scale names the output 'z'"),
        ("problem.py", "import torch", "import nothing_of_this_name", "ModuleNotFoundError"),
    ):
        path = course.folder / "assignments" / "double" / file
        kept = path.read_text()
        assert old in kept
        path.write_text(kept.replace(old, new, 1))
        done = typed("new", tmp_path / "other", *words[2:], "--require-isolation")
        assert (done.exit_code, str(path) in done.stderr, said in done.stderr) == (2, True, True), done.stderr
        assert not (tmp_path / "other").exists()
        path.write_text(kept)


def test_new_makes_a_class_with_the_options_of_run(tmp_path: Path, export: Path) -> None:
    course = own_course()
    assert course
    done = typed(
        "new",
        tmp_path / "run",
        "--from",
        export,
        "-a",
        "softmax",
        "--device",
        "cpu",
        "--no-speed",
        "--quick",
        "--seed",
        "7",
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("recognised: Canvas' submissions")
    assert "lovelaceada: a[bold]?.py: ignored, an odd name" in done.stdout
    assert done.stdout.splitlines()[-1] == f"made: {tmp_path / 'run'}; `grader class run {tmp_path / 'run'}` grades it"
    run = RunFolder(tmp_path / "run").run()
    assert (run.grader, run.fingerprint, run.course) == (grader.__version__, fingerprint(course), "")
    assert (run.assignments, run.device, run.speed, run.effort, run.seed) == (("softmax",), "cpu", False, "quick", 7)
    assert (run.sandbox, run.require_isolation, run.image) == ("host", False, "gpu-lab-grader")


def test_new_draws_a_seed_for_the_class_and_notes_another_course(tmp_path: Path, export: Path) -> None:
    course = tmp_path / "course"
    own = own_course()
    assert own
    for room in ("assignments", "reference", "starter"):
        (tmp_path / "course").mkdir(exist_ok=True)
        (course / room).symlink_to(own / room)
    seeds = set()
    for name in ("a", "b"):
        assert typed("new", tmp_path / name, "--from", export, "--course", course, "--require-isolation").exit_code == 0
        run = RunFolder(tmp_path / name).run()
        assert (run.course, run.require_isolation) == (str(course), True)
        seeds.add(run.seed)
    assert len(seeds) == 2
    assert typed("add", tmp_path / "a", "--from", export).exit_code == 0
    course.rename(tmp_path / "gone")
    done = typed("add", tmp_path / "a", "--from", export)
    assert (done.exit_code, done.stderr.partition(":")[0]) == (2, str(course))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["new", "run", "--from", "gone.zip"],
            "gone.zip: cannot be read (No such file or directory); expected a learning",
        ),
        (["new", "run", "--from", "export.zip", "-a", "sofmax"], "there is no assignment 'sofmax'; this course has: "),
        (["new", "run", "--from", "export.zip", "--roster", "gone.csv"], "gone.csv: cannot be read"),
        (["new", "run", "--from", "export.zip", "--platform", "moodle"], "export: it has lovelaceada_1001_"),
        (["new", ".", "--from", "export.zip"], "exists and is not empty"),
        (["add", "run", "--from", "export.zip"], "run: there is no such folder; `grader class new` makes"),
        (["add", "run"], "name a later export by --from, or a later roster by --roster"),
    ],
)
@pytest.mark.usefixtures("export")
def test_what_cannot_be_done_ends_with_2_and_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["export.zip"]


def test_add_says_who_changed(tmp_path: Path, export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed("new", tmp_path / "run", "--from", export).exit_code == 0
    monkeypatch.setenv("GRADER_COURSE", "/nowhere")  # the class has its own course
    export.write_bytes(zipped(exports.canvas([Handed("Ada Lovelace", {"softmax-1.py": b"2"})])))
    done = typed("add", tmp_path / "run", "--from", export, "--platform", "canvas")
    assert done.exit_code == 0
    assert "handed in again, the new hand-in counts: lovelaceada" in done.stdout
    roster = tmp_path / "roster.csv"
    roster.write_text("name\nBen Nakamura\n")
    done = typed("add", tmp_path / "run", "--roster", roster)
    assert (done.exit_code, "new by the roster: Ben-Nakamura" in done.stdout) == (0, True)

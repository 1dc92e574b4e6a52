"""`grader init` makes a folder that can be graded as it is, and never touches a file that is there."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from grader.assignment import load_course
from grader.submission import stage
from grader.workfolder import FolderError, make_folder
from tests.conftest import ROOT


def made(target: Path) -> list[Path]:
    return make_folder(ROOT, load_course(ROOT), target)


def test_stubs_and_handouts_with_their_pictures_are_the_courses_own(tmp_path: Path) -> None:
    new, assignments = tmp_path / "new", load_course(ROOT)
    files = {new / path for path in made(new)}
    assert {path for path in new.rglob("*") if path.is_file()} == files
    links = re.findall(r"\]\(([^)]+)\)", (new / "README.md").read_text())
    assert links == [f"handouts/{one.name}.md" for one in assignments]
    for one in assignments:
        assert (new / one.spec.file).read_bytes() == (ROOT / "starter" / one.spec.file).read_bytes()
        handout = new / "handouts" / f"{one.name}.md"
        assert handout.read_bytes() == (one.folder / "README.md").read_bytes()
        shown = re.findall(r"\]\((\S+\.svg)\)", handout.read_text(encoding="utf-8"))
        assert shown
        for name in shown:
            assert re.split(r"[.-]", name)[0] == one.name, "another handout may have a picture of this name"
            assert (new / "handouts" / name).read_bytes() == (one.folder / name).read_bytes()


def test_the_folder_is_a_submission_without_remarks(tmp_path: Path) -> None:
    (tmp_path / "new" / ".git").mkdir(parents=True)  # as in a fresh clone
    made(tmp_path / "new")
    taken = stage(tmp_path / "new", tmp_path / "staged", ())
    assert taken.info.notes == ()
    assert not any(name.startswith("handouts") for name in taken.info.files), "handouts are no part of a submission"


@pytest.mark.parametrize("name", ["gelu.cu", "README.md", ".gitignore", "handouts/softmax.md"])
def test_nothing_is_overwritten_and_then_nothing_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(FolderError, match=name):
        made(tmp_path)
    assert (tmp_path / name).read_text() == "mine"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / name]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "gelu.cu").symlink_to(tmp_path / "elsewhere.cu")
    with pytest.raises(FolderError):
        made(tmp_path / "new")
    assert not (tmp_path / "elsewhere.cu").exists()


@pytest.mark.parametrize(("name", "words"), [("file", "is a file"), ("file/below", "cannot be written")])
def test_a_place_that_cannot_be_written_is_refused_in_words(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match=words):
        made(tmp_path / name)


def test_a_folder_in_which_a_file_finds_no_room_is_named(tmp_path: Path) -> None:
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        with pytest.raises(FolderError, match=r"new: cannot be written \(File too large\)"):
            made(tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))

"""`grader init` makes a folder that can be graded as it is, and never touches a file that is there."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest

from grader.assignment import load_course
from grader.submission import stage
from grader.workfolder import FolderError, make_folder

ROOT = Path(__file__).parents[1]


def made(target: Path) -> list[Path]:
    return make_folder(ROOT, load_course(ROOT), target)


def test_stubs_and_handouts_are_the_courses_own(tmp_path: Path) -> None:
    files = made(tmp_path / "new")
    for one in load_course(ROOT):
        assert (tmp_path / "new" / one.spec.file).read_bytes() == (ROOT / "starter" / one.spec.file).read_bytes()
        assert (tmp_path / "new/handouts" / f"{one.name}.md").read_bytes() == (one.folder / "README.md").read_bytes()
    assert {path for path in (tmp_path / "new").rglob("*") if path.is_file()} == {
        tmp_path / "new" / path for path in files
    }


def test_every_link_of_the_readme_leads_somewhere(tmp_path: Path) -> None:
    made(tmp_path)
    text = (tmp_path / "README.md").read_text()
    links = [part.split(")")[0] for part in text.split("](")[1:]]
    assert len(links) == len(load_course(ROOT))
    assert all((tmp_path / link).is_file() for link in links)


def test_every_picture_of_a_handout_comes_with_it_under_a_name_of_its_own(tmp_path: Path) -> None:
    made(tmp_path)
    for one in load_course(ROOT):
        shown = re.findall(r"\]\((\S+\.svg)\)", (tmp_path / "handouts" / f"{one.name}.md").read_text(encoding="utf-8"))
        assert shown
        for name in shown:
            assert re.split(r"[.-]", name)[0] == one.name, "another handout may have a picture of this name"
            assert (tmp_path / "handouts" / name).read_bytes() == (one.folder / name).read_bytes()


def test_the_folder_is_a_submission_without_remarks(tmp_path: Path) -> None:
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


def test_a_fresh_clone_is_a_good_place(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    assert made(tmp_path)


def test_a_file_cannot_be_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="is a file"):
        made(tmp_path / "file")


def test_a_place_that_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="cannot be written"):
        made(tmp_path / "file" / "below")


def test_a_folder_in_which_a_file_finds_no_room_is_named(tmp_path: Path) -> None:
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, most))
    try:
        with pytest.raises(FolderError, match=r"new: cannot be written \(File too large\)"):
            made(tmp_path / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))

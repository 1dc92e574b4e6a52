"""Copies of hand-ins: what belongs to a submission, under a hash of it, and never a file anywhere else."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from grader.classroom import handins
from grader.classroom.archive import Entry, open_inner
from grader.classroom.handins import keep
from grader.classroom.platforms import HandIn
from grader.classroom.roster import Person
from grader.submission import MAX_FILE_BYTES, stage
from tests.support.exports import zipped

WANTED, KNOWN = ("softmax.py", "gelu.cu"), ("flash.py",)
Kept = tuple[str, tuple[str, ...]]
Keep = Callable[..., Kept]
SOFTMAX = b"def softmax(x): ...\n"


def handin(files: Mapping[str, bytes | None], *notes: str) -> HandIn:
    return HandIn("ada", (Person("Ada"),), open_inner(zipped(files), "x").entries, notes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "handins").mkdir()
    return tmp_path / "handins"


@pytest.fixture
def kept(folder: Path) -> Keep:
    def kept(files: Mapping[str, bytes | None], *notes: str) -> Kept:
        return keep(handin(files, *notes), folder, WANTED, KNOWN)

    return kept


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Copies ---------------------------------------------------------------------------------------------------------------


def test_a_copy_is_named_by_the_hash_that_a_report_has(kept: Keep, folder: Path, tmp_path: Path) -> None:
    found = kept({"softmax.py": SOFTMAX, "lib/tiles.py": b"2"}, "a note")
    assert found[1] == ("a note",)
    assert files(folder / found[0]) == {"softmax.py": SOFTMAX, "lib/tiles.py": b"2"}
    assert stage(folder / found[0], tmp_path / "again", WANTED).info.sha256.startswith(found[0])
    assert {path.stat().st_mode & 0o222 for path in (folder / found[0]).rglob("*") if path.is_file()} == {0}
    assert [path.name for path in folder.iterdir()] == [found[0]]


def test_a_folder_around_the_files_is_entered_as_a_grading_enters_it(kept: Keep, folder: Path) -> None:
    found = kept({"lab/src/softmax.py": SOFTMAX, "lab/notes.txt": b"1"})
    assert files(folder / found[0]) == {"softmax.py": SOFTMAX}
    assert found[1] == ("the files lie in lab/src/: that folder is taken for the submission",)


def test_a_wanted_file_is_kept_beside_very_many_others(kept: Keep, folder: Path) -> None:
    found = kept({f"repo/a{number}.py": b"" for number in range(300)} | {"repo/softmax.py": SOFTMAX})
    assert (folder / found[0] / "softmax.py").read_bytes() == SOFTMAX


def test_a_misnamed_file_is_kept_and_said(kept: Keep, folder: Path) -> None:
    found = kept({"softmax.ipynb": SOFTMAX})
    assert files(folder / found[0]) == {"softmax.ipynb": SOFTMAX}
    words = "there is no softmax.py, but softmax.ipynb: a notebook cannot be graded, so save its code as softmax.py"
    assert found[1] == (words,)
    beside = kept({"softmax.ipynb": SOFTMAX, "gelu.cu": b""})
    assert set(files(folder / beside[0])) == {"softmax.ipynb", "gelu.cu"}
    assert beside[1] == found[1]


def test_a_hand_in_without_any_of_the_files_is_kept_and_said(kept: Keep, folder: Path) -> None:
    found = kept({"readme.txt": b"see you"})
    assert files(folder / found[0]) == {"readme.txt": b"see you"}
    assert found[1] == ("there is no softmax.py and no gelu.cu, which counts as not implemented",)
    assert kept({"readme.txt": b"", "gelu.cu": b""})[1] == ()
    assert kept({"readme.txt": b"", "lab/softmax.py": b"0" * (MAX_FILE_BYTES + 1)})[1] == (
        "lab/softmax.py: ignored, larger than 1 MiB",
    )


def test_two_versions_in_folders_are_both_kept(kept: Keep, folder: Path) -> None:
    several = kept({"v1/softmax.py": SOFTMAX, "v2/softmax.py": b"2"})
    assert set(files(folder / several[0])) == {"v1/softmax.py", "v2/softmax.py"}
    assert several[1] == ("holds 2 folders with submissions (v1 and v2): grade one of them",)


@pytest.mark.parametrize(
    ("found", "notes"),
    [
        ({}, ("nothing is in it",)),
        ({"ada/": None}, ("nothing is in it",)),
        ({"build/softmax.py": b""}, ("holds nothing but build/softmax.py, always left out",)),
        (
            {"essay.pdf": b"1"},
            ("essay.pdf: ignored, not a kind of file that a submission needs (.cc .cpp .cu .cuh .h .hpp .json .md .py .toml .txt)",),
        ),
        (
            {"softmax.PY": SOFTMAX},
            ("softmax.PY: ignored, the suffix must be in small letters: rename it to end in .py",),
        ),
        ({"softmax.py": b"0" * (MAX_FILE_BYTES + 1)}, ("softmax.py: ignored, larger than 1 MiB",)),
        ({"notes.txt": b"\0"}, ("notes.txt: ignored, a binary file (if it is text, save it as UTF-8)",)),
        ({"mem?.txt": b""}, ("mem?.txt: ignored, an odd name; letters, digits, _ . + - ( ) are allowed",)),
        ({"a\x1b.txt": b""}, ("a?.txt: ignored, an odd name; letters, digits, _ . + - ( ) are allowed",)),
        ({"a" * 253 + ".txt": b""}, ("a" * 253 + ".txt: ignored, an odd name; letters, digits, _ . + - ( ) are allowed",)),
        ({"../softmax.py": b"", "a/../../softmax.py": b""}, ("a/../../softmax.py: ignored, a path that leaves its folder",)),
        ({"lab.tar.gz": b"1"}, ("lab.tar.gz: ignored, an archive of a kind that is not entered; .zip is",)),
        ({"lab.ZIP": b"1"}, ("lab.ZIP: ignored, no zip that can be read (File is not a zip file)",)),
    ],
)  # fmt: skip
def test_a_hand_in_of_which_nothing_can_be_graded_is_no_copy(
    found: Mapping[str, bytes | None], notes: tuple[str, ...], kept: Keep, folder: Path
) -> None:
    assert kept(found) == ("", notes)
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_read_leaves_the_others(folder: Path) -> None:
    content = zipped({"gelu.cu": b"first one", "softmax.py": SOFTMAX})
    at = content.index(b"gelu.cu") + len("gelu.cu")
    entries = open_inner(content[:at] + b"\xff\xff" + content[at + 2 :], "x").entries
    found = keep(HandIn("ada", (), entries), folder, WANTED, KNOWN)
    assert files(folder / found[0]) == {"softmax.py": SOFTMAX}
    assert len(found[1]) == 1
    assert found[1][0].startswith("gelu.cu: ignored, cannot be unpacked (")


# Archives in a hand-in ------------------------------------------------------------------------------------------------


def test_an_archive_that_was_handed_in_is_entered(kept: Keep, folder: Path) -> None:
    plain = kept({"softmax.py": SOFTMAX, "lib/tiles.py": b"2"})
    assert kept({"lab.zip": zipped({"softmax.py": SOFTMAX, "lib/tiles.py": b"2"})}) == plain
    beside = kept({"lab (1).zip": zipped({"softmax.py": SOFTMAX, "a/../../x.py": b"", "../y.py": b""}), "gelu.cu": b""})
    assert files(folder / beside[0]) == {"softmax.py": SOFTMAX, "gelu.cu": b""}
    assert set(beside[1]) == {
        "a/../../x.py: ignored, a path that leaves its folder",
        "../y.py: ignored, a path that leaves its folder",
    }


def test_archives_with_one_path_have_folders(kept: Keep, folder: Path) -> None:
    both = kept({"lab.zip": zipped({"softmax.py": SOFTMAX}), "übung.zip": zipped({"softmax.py": b"2"})})
    assert set(files(folder / both[0])) == {"lab/softmax.py", "archive/softmax.py"}
    assert both[1] == ("holds 2 folders with submissions (archive and lab): grade one of them",)
    beside = kept({"softmax.py": SOFTMAX, "lab.zip": zipped({"softmax.py": b"2"})})
    assert files(folder / beside[0]) == {"softmax.py": SOFTMAX, "lab/softmax.py": b"2"}
    assert beside[1] == ("softmax.py is what counts, and not lab/softmax.py",)
    assert kept({"softmax.py": SOFTMAX, "lab.zip": zipped({"softmax.py": SOFTMAX})})[1] == ()


@pytest.mark.parametrize(
    ("files", "counts"),
    [
        ({"lab.zip": {"again.zip": b"PK", "README.md": b"words"}}, False),
        ({"lab.7z": b"7z", "README.md": b"words"}, False),
        ({"lab.zip": b"broken", "helper.py": b"1"}, False),
        ({"lab.zip": {"again.zip": b"PK", "softmax.py": SOFTMAX}}, True),
        ({"README.md": b"words"}, True),
    ],
)
def test_what_an_archive_may_hide_is_told_and_is_no_0(
    kept: Keep, files: dict[str, bytes | dict[str, bytes]], counts: bool
) -> None:
    found = kept({name: zipped(content) if isinstance(content, dict) else content for name, content in files.items()})
    assert bool(found[0]) == counts
    assert any(handins.UNOPENED in note for note in found[1]) != counts


def test_a_bomb_costs_neither_memory_nor_disk(kept: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handins, "MAX_HANDIN_BYTES", 3 << 20)
    many = zipped({f"{number}.py": b"\0" * (1 << 20) for number in range(40)})
    large = zipped({"0large.py": b"\0" * (64 << 20)})
    tracemalloc.start()
    found = kept({"many.zip": many, "large.zip": large, "softmax.py": SOFTMAX})
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    assert "0large.py: ignored, larger than 1 MiB" in found[1]
    assert any("more than 2000 files, or 3 MiB, in one hand-in" in note for note in found[1])
    monkeypatch.setattr(handins, "MAX_ARCHIVE_BYTES", 100)
    assert kept({"many.zip": many})[1] == ("many.zip: ignored, an archive larger than 0 MiB",)


def test_a_size_that_is_declared_too_small_does_not_pass(folder: Path) -> None:
    liar = Entry(("softmax.py",), 1, 0.0, lambda: io.BytesIO(b"0" * (MAX_FILE_BYTES * 4)))
    found = keep(HandIn("ada", (), (liar,)), folder, WANTED, KNOWN)
    assert found == ("", ("softmax.py: ignored, larger than 1 MiB",))


# Names that meet ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_two_files_with_one_name_the_last_counts(folder: Path) -> None:
    entries = (*handin({"softmax.py": b"old"}).entries, *handin({"softmax.py": SOFTMAX}).entries)
    found = keep(HandIn("ada", (), entries), folder, WANTED, KNOWN)
    assert files(folder / found[0]) == {"softmax.py": SOFTMAX}
    assert found[1] == ("softmax.py: comes twice in the archive, the last one counts",)


def test_names_that_differ_in_case_are_both_kept(kept: Keep, folder: Path) -> None:
    found = kept({"softmax.py": SOFTMAX, "Softmax.py": b"2"})
    assert files(folder / found[0]) == {"softmax.py": SOFTMAX, "Softmax.py": b"2"}
    assert found[1][0] == "softmax.py and Softmax.py: names that differ in case alone, both are kept"


# What a stop of the machine left --------------------------------------------------------------------------------------


def test_a_copy_that_a_stop_of_the_machine_emptied_is_made_again(kept: Keep, folder: Path) -> None:
    found = kept({"softmax.py": SOFTMAX})
    copy = folder / found[0] / "softmax.py"
    copy.chmod(0o644)
    copy.write_bytes(b"")
    assert kept({"softmax.py": SOFTMAX}) == found
    assert copy.read_bytes() == SOFTMAX
    assert copy.stat().st_mode & 0o222 == 0

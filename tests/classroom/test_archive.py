"""Lists of what was handed out: by whatever names, and nothing is believed."""

from __future__ import annotations

import os
import struct
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.classroom import archive
from grader.classroom.archive import MAX_PARTS, Entry, Source, Unreadable, open_inner, open_source
from grader.classroom.folder import ClassError
from tests.support.exports import unpacked, zipped

LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def named(source: Source) -> dict[str, Entry]:
    return {entry.name: entry for entry in source.entries}


def changed(content: bytes, offset: int, value: int, size: str = "<H") -> bytes:
    """A zip of one file with another value in its directory."""
    at = content.rindex(CENTRAL) + offset
    return content[:at] + struct.pack(size, value) + content[at + struct.calcsize(size) :]


def encrypted(content: bytes) -> bytes:
    content = changed(content, 8, 1)
    at = content.index(LOCAL) + 6
    return content[:at] + struct.pack("<H", 1) + content[at + 2 :]


# A zip ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_utf8", [True, False])
@given(name=st.text(st.characters(categories=["L", "Nd"]), min_size=1, max_size=30))
def test_a_name_comes_through_whether_the_zip_says_utf8_or_not(name: str, in_utf8: bool) -> None:
    (entry,) = open_inner(zipped({f"{name}/a.py": b""}, in_utf8=in_utf8), "x").entries
    assert entry.path == (unicodedata.normalize("NFC", name), "a.py")


def test_a_name_of_windows_comes_through() -> None:
    content = zipped({"Ubung_1/softmax.py": b"1"}, in_utf8=False).replace(b"Ubung_1/", b"\x9abung_1\\")
    assert [entry.path for entry in open_inner(content, "x").entries] == [("Übung_1", "softmax.py")]


@pytest.mark.parametrize(
    ("name", "path", "fault"),
    [
        ("ada/../../evil.py", ("ada", "..", "..", "evil.py"), "a path that leaves its folder"),
        ("ada/..\\..\\evil.py", ("ada", "..", "..", "evil.py"), "a path that leaves its folder"),
        ("/etc/passwd", ("etc", "passwd"), "an absolute path"),
        ("C:\\evil.py", ("C:", "evil.py"), "an absolute path"),
        ("/".join(["d"] * MAX_PARTS + ["x.py"]), ("d",) * MAX_PARTS, "too deep a folder"),
        ("./ada//x.py", ("ada", "x.py"), ""),
        ("\\\\host\\x.py", ("host", "x.py"), "an absolute path"),
    ],
)
def test_a_path_is_told_from_a_name(name: str, path: tuple[str, ...], fault: str) -> None:
    (entry,) = open_inner(zipped({name: b"1"}), "x").entries
    assert (entry.path, entry.fault) == (path, fault)


@pytest.mark.parametrize("name", ["../evil.py", "..", "../../ada/softmax.py"])
def test_a_path_without_a_place_is_a_note(name: str) -> None:
    source = open_inner(zipped({name: b"1", "x.py": b""}), "x")
    assert list(named(source)) == ["x.py"]
    assert source.notes == ((f"{name}: ignored, a path that leaves its folder",) if name.strip("/.") else ())


def test_litter_is_no_entry_and_a_clone_is_seen() -> None:
    files = {"ada/.git/config": b"", "ada/.DS_Store": b"", "__MACOSX/ada/._x.py": b"", "ben/.git/": None, ".x": b""}
    source = open_inner(zipped({**files, "ada/x.py": b""}), "x")
    assert list(named(source)) == ["ada/x.py"]
    assert {("ada", ".git"), ("ben", ".git")} <= source.folders
    assert source.top_folders == ["ada", "ben"]


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        (0o120777, "a symbolic link; links are not followed"),
        (0o010644, "not a regular file"),
        (0o100644, ""),
        (0o644, ""),
    ],
)
def test_a_link_is_not_read(mode: int, fault: str) -> None:
    (entry,) = open_inner(changed(zipped({"x.py": b"/etc/passwd"}), 38, mode << 16, "<I"), "x").entries
    assert entry.fault == fault


def test_an_encrypted_file_is_not_read() -> None:
    (entry,) = open_inner(encrypted(zipped({"x.py": b"1"})), "x").entries
    assert entry.fault == "encrypted"
    with pytest.raises(Unreadable, match=r"cannot be unpacked .*password"):
        entry.read(1)


def test_a_declared_size_is_not_believed() -> None:
    content = zipped({"x.py": b"0" * 10_000})
    (small,) = open_inner(changed(content, 24, 10, "<I"), "x").entries
    assert small.size == 10
    with pytest.raises(Unreadable, match=r"cannot be unpacked .*CRC"):
        small.read(20_000)
    (large,) = open_inner(changed(content, 24, 1 << 30, "<I"), "x").entries
    assert large.size == 1 << 30
    assert len(large.read(20_000)) == 10_000


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no zip", zipped({"x.py": b"1"})[:-10], b"\x1f\x8b\x08"])
def test_a_broken_zip_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    with (
        pytest.raises(ClassError, match=r"x\.zip: is no zip that can be read .*expected a learning"),
        open_source(tmp_path / "x.zip"),
    ):
        pass
    with pytest.raises(Unreadable, match="no zip that can be read"):
        open_inner(content, "x")


@given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 255))
def test_spoilt_bytes_are_never_a_traceback(tail: bytes, at: int, value: int) -> None:
    content = bytearray(zipped({"ada/x.py": b"1" * 50, "ben/y.py": b"2"}) + tail)
    content[at % len(content)] = value
    try:
        for entry in open_inner(bytes(content), "x").entries:
            entry.read(100)
    except Unreadable:
        pass


def test_an_archive_of_very_many_files_is_not_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = zipped({f"{number}.py": b"" for number in range(5)})
    monkeypatch.setattr(archive, "MAX_INNER_ENTRIES", 4)
    with pytest.raises(Unreadable, match="more than 4 files in it"):
        open_inner(content, "x")
    with monkeypatch.context() as unlisted:
        unlisted.delattr(archive.zipfile, "ZipFile")  # which would take memory for each
        with pytest.raises(Unreadable, match="more than 4 files in it"):
            open_inner(content, "x")
    monkeypatch.setattr(archive, "MAX_ENTRIES", 4)
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(ClassError, match=r"x\.zip: more than 4 files in it"), open_source(tmp_path / "x.zip"):
        pass


# A folder -------------------------------------------------------------------------------------------------------------


def test_a_folder_is_listed_as_the_zip_that_it_came_from(tmp_path: Path) -> None:
    files = {"ada/softmax.py": b"1", "ada/.git/HEAD": b"", "ada/lib/venv/x.py": b"", "venv/x.py": b"2", "ben": None}
    unpacked(files, tmp_path / "lab")
    with open_source(tmp_path / "lab") as source:
        assert source.name == "lab"
        assert {name: entry.read(9) for name, entry in named(source).items()} == {
            "ada/softmax.py": b"1",
            "venv/x.py": b"2",
        }
        assert source.top_folders == ["ada", "ben", "venv"]
        assert ("ada", ".git") in source.folders


def test_what_is_no_file_in_a_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    lab = unpacked({"ada/x.py": b"1"}, tmp_path / "lab")
    (lab / "ada" / "link.py").symlink_to(tmp_path / "secret")
    (lab / "ada" / "lib").symlink_to(tmp_path)
    os.mkfifo(lab / "ada" / "pipe.py")
    with open_source(lab) as source:
        faults = {name: entry.fault for name, entry in named(source).items()}
        assert faults == {
            "ada/x.py": "",
            "ada/link.py": "a symbolic link; links are not followed",
            "ada/lib": "a symbolic link; links are not followed",
            "ada/pipe.py": "not a regular file",
        }
        (lab / "ada" / "x.py").unlink()
        (lab / "ada" / "x.py").symlink_to(tmp_path / "secret")
        with pytest.raises(Unreadable, match="cannot be read"):
            named(source)["ada/x.py"].read(9)
        (lab / "ada" / "x.py").unlink()
        os.mkfifo(lab / "ada" / "x.py")
        with pytest.raises(Unreadable, match="not a regular file"):
            named(source)["ada/x.py"].read(9)


def test_a_deep_folder_and_a_name_in_no_encoding_are_listed(tmp_path: Path) -> None:
    deep = tmp_path / "lab" / "/".join(["d"] * (MAX_PARTS + 3))
    deep.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(tmp_path / "lab") + b"/\xff.py")).write_text("1")
    with open_source(tmp_path / "lab") as source:
        assert {entry.path[-1]: entry.fault for entry in source.entries} == {"d": "too deep a folder", "?.py": ""}
        assert next(entry for entry in source.entries if not entry.fault).read(9) == b"1"

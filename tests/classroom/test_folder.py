"""The folder of a class: what is written appears whole, decisions are only added, and what is broken is told."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.classroom.folder import ClassError, RunFolder, write_whole
from grader.classroom.model import Decision, Students
from tests.support.classes import MadeClass, sample, softmax


def decision(reason: str) -> Decision:
    return Decision(at=datetime.now(UTC), by="ta", who="ada", kind="points", reason=reason, points=1)


def test_a_line_that_was_cut_off_is_no_decision_and_is_written_over(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.decisions() == []
    folder.decide(decision("one"))
    whole = folder.decisions_file.read_bytes()
    folder.decisions_file.write_bytes(whole + whole[:40] + "é".encode()[:1])
    assert [one.reason for one in folder.decisions()] == ["one"]
    folder.decide(decision("two\nlines\u2028"))
    assert [one.reason for one in folder.decisions()] == ["one", "two\nlines\u2028"]
    assert folder.decisions_file.read_bytes().startswith(whole)


def test_many_decide_at_once_and_none_is_lost(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda at: RunFolder(tmp_path).decide(decision(str(at))), range(40)))
    assert sorted(int(one.reason) for one in RunFolder(tmp_path).decisions()) == list(range(40))


def test_a_decision_that_is_none_is_told_with_its_line(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.decide(decision("one"))
    with folder.decisions_file.open("a") as file:
        file.write('{"at": 3}\n')
    with pytest.raises(ClassError, match=r"decisions.jsonl:2: is not what this grader writes; by: Field required"):
        folder.decisions()


def test_attempts_are_in_the_order_of_their_numbers_and_drafts_are_none(tmp_path: Path) -> None:
    made = MadeClass(tmp_path / "RUN")
    ada = made.student("ada", files=softmax(1))
    for _ in range(11):
        made.attempt(ada, sample("gpu"))
    for other in (".draft-attempt.12", "attempt.012", "attempt.0", "attempt.12.old"):
        (made.folder.tasks(ada.handin) / other).mkdir()
    assert [one.number for one in made.folder.attempts(ada.handin)] == list(range(1, 12))
    assert made.folder.attempts("0" * 16) == {}


def test_what_is_missing_or_broken_is_a_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    with pytest.raises(ClassError, match=r"there is no run.json in it; `grader class new` makes the folder of a class"):
        folder.run()
    (tmp_path / "students.json").write_text('{"version": 2, "students": []}')
    with pytest.raises(ClassError, match=r"students.json: is not what this grader writes; version: Input should be 1"):
        folder.students()
    (tmp_path / "students.json").write_bytes(b"\xff")
    with pytest.raises(ClassError, match=r"students.json: cannot be read"):
        folder.students()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(tmp_path)
    folder.write(Students(students=()))
    before = (tmp_path / "students.json").read_bytes()
    assert stat.S_IMODE((tmp_path / "students.json").stat().st_mode) == 0o644

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        folder.write(Students(students=(), notes=("new",)))
    assert (tmp_path / "students.json").read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["students.json"]
    monkeypatch.undo()
    write_whole(tmp_path / "raw", b"\xff\r\n")
    write_whole(tmp_path / "text", "é\r\n")
    assert (tmp_path / "raw").read_bytes() + (tmp_path / "text").read_bytes() == b"\xff\r\n\xc3\xa9\r\n"

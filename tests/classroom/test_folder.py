"""The files of a class: each appears whole, and what was cut off is none."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grader.classroom import folder
from grader.classroom.folder import ClassError, Decision, RunFolder, Student, Students
from grader.sandbox.base import InfraError
from tests.support.gradings import AT, a_run, attempted

RUN = a_run(seed=7)
STUDENTS = Students(students=(Student(key="ada", name="Ada", handin="0123456789abcdef"),), notes=("a note",))
HANDIN = "0123456789abcdef"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def decision(reason: str = "late", **fields: object) -> Decision:
    return Decision.model_validate({"at": AT, "by": "ta", "who": "ada", "kind": "points", "reason": reason, **fields})


# Facts and students ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no run.json in it; `grader class new` makes the folder of a class"),
        ("", "run.json: is not what this grader writes; the text: Invalid JSON: EOF while parsing"),
        ("{", "run.json: is not what this grader writes; the text: Invalid JSON"),
        (RUN.model_dump_json().replace('"version":1', '"version":2'), "is not what this grader writes; version: Input should be 1"),
        (RUN.model_dump_json().replace('"seed":7', '"seed":-7'), "run.json: is not what this grader writes; seed: "),
        (RUN.model_dump_json().replace('"gpu"', '"gpus"'), "run.json: is not what this grader writes; gpus: Extra inputs"),
        (b"\xff", "run.json: cannot be read ('utf-8' codec"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(run: RunFolder, text: str | bytes | None, words: str) -> None:
    if text is not None:
        (run.path / "run.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ClassError) as said:
        run.run()
    assert words in str(said.value)
    assert str(run.path) in str(said.value)


# Whole writes ---------------------------------------------------------------------------------------------------------


def test_a_write_that_fails_leaves_what_was_there(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write(RUN)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "fsync", full)
    words = (
        r"run\.json: No space left on device: 0\.\d KiB are to be written, [\d.]+ KiB are left on that disk; make room"
    )
    with pytest.raises(InfraError, match=words):
        run.write(RUN.model_copy(update={"seed": 8}))
    assert run.run() == RUN
    assert [path.name for path in run.path.iterdir()] == ["run.json"]


# Attempts -------------------------------------------------------------------------------------------------------------


def test_attempts_come_in_their_order_and_one_that_was_cut_off_is_none(run: RunFolder) -> None:
    assert run.attempts(HANDIN) == {}
    made = [attempted(run, HANDIN, number) for number in (10, 2, 1)]
    for name in (".attempt.3-x7", "attempt.0", "attempt.03", "attempt.x", "attempt.4.bak", "attempt.9999999"):
        attempted(run, HANDIN, 3, name=name)
    assert list(run.attempts(HANDIN).items()) == [
        (made[2], run.tasks(HANDIN) / "attempt.1"),
        (made[1], run.tasks(HANDIN) / "attempt.2"),
        (made[0], run.tasks(HANDIN) / "attempt.10"),
    ]


# Decisions ------------------------------------------------------------------------------------------------------------


def test_decisions_are_added_and_never_changed(run: RunFolder) -> None:
    assert run.decisions() == []
    made = [decision("a\nb"), decision("\u2028c\r\x85", points=3.5), decision(kind="counts", counts=2, handin=HANDIN)]
    for number, one in enumerate(made):
        before = run.decisions_file.read_bytes() if number else b""
        run.decide(one)
        assert run.decisions_file.read_bytes().startswith(before)
        assert run.decisions() == made[: number + 1]


@given(st.integers(1, 200), st.text(max_size=5))
@example(cut=len('y","points":null,"counts":null,"handin":""}\n'), reason="\N{SNOWMAN}y")
@example(cut=1 + len('y","points":null,"counts":null,"handin":""}\n'), reason="\N{SNOWMAN}y")  # within a character
def test_a_decision_that_was_cut_off_is_none_and_the_next_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, reason: str
) -> None:
    run = RunFolder(tmp_path_factory.mktemp("run"))
    run.decide(decision("first"))
    whole = run.decisions_file.read_bytes()
    run.decide(decision(reason))
    content = run.decisions_file.read_bytes()
    run.decisions_file.write_bytes(content[: -min(cut, len(content) - len(whole))])
    assert run.decisions() == [decision("first")]
    run.decide(decision("third"))
    assert run.decisions() == [decision("first"), decision("third")]


def test_a_spoilt_line_in_the_middle_is_said_with_its_number(run: RunFolder) -> None:
    run.decide(decision())
    with run.decisions_file.open("a") as file:
        file.write("{}\n")
    run.decide(decision())
    with pytest.raises(ClassError, match=r"decisions\.jsonl:2: is not what this grader writes; at: Field required"):
        run.decisions()


def test_whoever_decides_waits_for_the_one_who_is_deciding(run: RunFolder) -> None:
    run.decide(decision("first"))
    second = threading.Thread(target=run.decide, args=[decision("second")])
    with run.decisions_file.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert run.decisions() == [decision("first")]
    second.join(30)
    assert run.decisions() == [decision("first"), decision("second")]

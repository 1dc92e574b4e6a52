"""The vocabulary of a class refuses what its files must not have."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from grader.classroom.model import Attempt, ClassRun, Decision, Strict, Student, Students

NOW = datetime(2026, 11, 25, tzinfo=UTC)
WHOLE: dict[type[Strict], dict[str, object]] = {
    ClassRun: {"made": NOW, "grader": "1", "fingerprint": "f", "seed": 7},
    Student: {"key": "ada"},
    Students: {"students": ()},
    Attempt: {"number": 1, "started": NOW, "ended": NOW, "exit_code": -9, "place": "node3 cpu"},
    Decision: {"at": NOW, "by": "ta", "who": "ada", "kind": "counts", "reason": "", "counts": "best"},
}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_written_is_read_again(kind: type[Strict]) -> None:
    made = kind.model_validate(WHOLE[kind])
    assert kind.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, next(iter(WHOLE[kind])), None)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        kind.model_validate({**WHOLE[kind], "stranger": 1})


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (ClassRun, "seed", -1),
        (ClassRun, "version", 2),
        (ClassRun, "device", "gpu"),
        (ClassRun, "effort", "much"),
        (Student, "key", ""),
        (Student, "key", "../ada"),
        (Student, "key", "ada lovelace"),
        (Student, "key", "ada\n"),
        (Student, "key", "a" * 101),
        (Student, "handin", "../../etc"),
        (Student, "handin", "0123456789ABCDEF"),
        (Student, "handin", "0123456789abcdef\n"),
        (Students, "version", 2),
        (Attempt, "number", 0),
        (Decision, "who", "a/b"),
        (Decision, "kind", "guess"),
        (Decision, "handin", "0"),
        (Decision, "counts", "first"),
    ],
)
def test_a_value_that_has_no_meaning_is_refused(kind: type[Strict], field: str, value: object) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate({**WHOLE[kind], field: value})
    assert {error["loc"][0] for error in refused.value.errors()} == {field}


@pytest.mark.parametrize("key", ["ada", "ada@uni.edu", "Łukasz-Żak", "a.b_c+d", "2"])
def test_a_key_may_be_what_platforms_call_a_student(key: str) -> None:
    assert Student(key=key).key == key

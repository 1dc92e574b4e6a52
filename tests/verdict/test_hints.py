"""Each hint of `hints.toml` is what its example gets; tests/command/test_hints.py makes the errors anew."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from grader.verdict import hints
from grader.verdict.hints import HINTS, hint_for

ROWS: list[dict[str, Any]] = tomllib.loads(Path(hints.__file__).with_suffix(".toml").read_text(encoding="utf-8"))[
    "hint"
]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_an_example_has_its_hint(row: dict[str, Any]) -> None:
    message, _, below = row["example"].partition("\n  ")
    assert hint_for(message, f"  {below}\n" if below else "") == row["name"]
    assert set(row) <= {"name", "said", "place", "words", "example"}
    assert len(row["words"]) <= 180, "one sentence below an error"


def test_names_are_their_hints_own() -> None:
    assert len(HINTS) == len(ROWS) > 60


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("imports einx, and there is no einx.py in the submission", "einx is not installed where"),
        ('gelu.cu(4): error: identifier "stream" is undefined', 'parameter: extern "C" void gelu(...)'),
        ('gelu.cu(4): error: x may not have extern "C" linkage', "only gelu() itself"),
        ("the input x was changed", ""),
    ],
)
def test_the_words_name_what_the_error_is_about(message: str, words: str) -> None:
    found = hints.hints(message, entry="gelu", contract='extern "C" void gelu(...)')
    assert words in " ".join(found)
    assert bool(found) == bool(words)

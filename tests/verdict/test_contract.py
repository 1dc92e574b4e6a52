"""What the levels of a contract tell about failures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from grader.assignment import Part, with_cases
from grader.report.model import Outcome
from grader.verdict.contract import fails_alone_too, needed_for_a_pattern, pattern
from tests.support.corpus import entries

PART = Part.model_validate(
    {
        "name": "softmax",
        "title": "Softmax",
        "factor": [
            {
                "name": "layout",
                "title": "the layout of x",
                "group": "layouts",
                "levels": [
                    {"name": "contiguous", "words": "a contiguous x"},
                    {"name": "transposed", "words": "a transposed x"},
                    {"name": "sliced", "words": "a sliced x"},
                ],
            },
            {
                "name": "dtype",
                "title": "the dtype",
                "group": "dtypes",
                "levels": [
                    {"name": "float32", "words": "float32"},
                    {"name": "float16", "words": "float16", "dtype": "float16"},
                ],
            },
        ],
        "group": [
            {
                "name": "layouts",
                "title": "Layouts",
                "points": 1,
                "cases": [{"name": "transposed", "tries": "by hand", "rows": 9}],
            },
            {"name": "dtypes", "title": "Dtypes", "points": 1, "checks": ["test_one"]},
            {"name": "pairs", "title": "Pairs", "points": 1, "pairs": True},
        ],
    }
)
ROWS = [
    {"layout": layout, "dtype": dtype}
    for layout in ("contiguous", "transposed", "sliced")
    for dtype in ("float32", "float16")
]
FULL = with_cases(PART, ROWS)
LEVELS = {case.name: case.levels for case in FULL.cases}


def found(wrong: Iterable[str]) -> str:
    failed = set(wrong)
    return pattern(FULL, {name: "failed" if name in failed else "passed" for name in LEVELS})


def having(**levels: str) -> list[str]:
    return [name for name, own in LEVELS.items() if levels.items() <= own.items()]


def test_each_level_is_a_case_alone_and_each_row_is_one() -> None:
    alone = {case.name: (case.levels, case.params, case.dtype) for case in FULL.cases if not case.is_combination}
    assert alone == {
        "transposed": ({"layout": "transposed"}, {"rows": 9}, "float32"),  # as it was written
        "sliced": ({"layout": "sliced", "dtype": "float32"}, {}, "float32"),
        "float16": ({"layout": "contiguous", "dtype": "float16"}, {}, "float16"),
    }
    (last,) = (case for case in FULL.cases if case.name == "pair-6")
    assert (last.levels, last.dtype, last.tries) == (ROWS[-1], "float16", "a sliced x, float16")


def test_a_level_that_always_fails_is_named() -> None:
    assert (
        found(having(layout="transposed"))
        == "fails whenever a case has a transposed x: 3 of 3; passes otherwise: 6 of 6"
    )


def test_several_levels_of_one_factor_are_named_together() -> None:
    wrong = [*having(layout="transposed"), *having(layout="sliced")]
    assert found(wrong) == "fails whenever a case has a transposed x or a sliced x: 6 of 6; passes otherwise: 3 of 3"


def test_a_base_level_that_fails_too_is_told_by_those_that_pass() -> None:
    wrong = [*having(layout="contiguous"), *having(layout="transposed")]
    assert found(wrong) == "fails whenever a case has anything but a sliced x: 6 of 6; passes otherwise: 3 of 3"


def test_two_faults_are_told_apart() -> None:
    words = found([*having(layout="transposed"), *having(dtype="float16")])
    assert words.startswith("fails whenever a case has ")
    assert "; or " in words
    assert "a transposed x" in words
    assert "float16" in words


def test_two_levels_that_fail_only_together_are_named() -> None:
    wrong = having(layout="sliced", dtype="float16")
    assert wrong == ["pair-6"]
    assert found(wrong) == ""  # a single failure has no pattern


def test_there_is_no_pattern_where_all_fail_or_chance_decides() -> None:
    assert found(LEVELS) == ""
    assert found([]) == ""
    assert found(["pair-2", "pair-3"]) == ""


@pytest.mark.parametrize(("wrong", "asked", "words"), [
    (having(layout="transposed"), ["float16", "sliced", "pair-3"],
     "fails whenever a case has a transposed x: 2 of 2; passes otherwise: 2 of 2"),
    (having(layout="sliced"), ["transposed", "float16", "pair-5"],
     "fails whenever a case has a sliced x: 2 of 2; passes otherwise: 2 of 2"),
    (list(LEVELS), ["float16", "sliced"], ""),  # what they share is wrong, so no level matters
    (["pair-6"], ["transposed", "float16", "sliced"], ""),
])  # fmt: skip
def test_a_check_asks_the_cases_that_it_needs_for_a_sentence(wrong: list[str], asked: list[str], words: str) -> None:
    """After a first wrong answer, which is not asked for again."""
    outcomes: dict[str, Outcome] = {wrong[0]: "failed"}
    found = []
    for case in needed_for_a_pattern(FULL, outcomes):
        found.append(case.name)
        outcomes[case.name] = "failed" if case.name in wrong else "passed"
    assert found == asked
    assert pattern(FULL, outcomes) == words


@pytest.mark.parametrize(("case", "wrong", "follows"), [
    ("pair-4", ["transposed"], "transposed"),
    ("pair-4", ["float16"], "float16"),
    ("pair-4", ["sliced"], ""),
    ("pair-4", [], ""),
    ("transposed", ["transposed"], ""),
    ("pair-4", ["float16", "sliced"], ""),  # most levels fail: the base itself may be wrong
])  # fmt: skip
def test_a_combination_follows_a_level_that_fails_alone(case: str, wrong: list[str], follows: str) -> None:
    (one,) = (one for one in FULL.cases if one.name == case)
    outcomes = {name: "failed" if name in wrong else "passed" for name in LEVELS}
    assert fails_alone_too(FULL, one, outcomes) == follows  # type: ignore[arg-type]


@pytest.mark.grading
def test_a_check_says_above_the_cause_on_which_levels_a_wrong_answer_hangs(tmp_path: Path) -> None:
    (mutant,) = (one for one in entries("mutants") if one.id == "softmax-column_stride_ignored")
    folder = str(mutant.submission(tmp_path))
    command = [sys.executable, "-m", "grader", "check", folder, "-a", "softmax", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = " ".join(done.stdout.replace("│", "").split())
    assert re.search(
        r"─╮ fails whenever a case has a transposed x or every second column of a wider matrix or every third row and second column "
        r"or one column expanded to many: (\d+) of \1; passes otherwise: (\d+) of \2 y\[0, 0\] is the first wrong element",
        told,
    ), done.stdout + done.stderr
    assert "passed before it: 28 cases · not run: " in done.stdout, (
        "what is asked for the sentence counts for nothing else"
    )

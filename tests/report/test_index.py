"""Many reports on one page: points that are open, groups that fail, causes, faults, and hostile names."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest

from grader.report.index import (
    IndexedReport,
    Override,
    common_causes,
    faults,
    groups_table,
    index,
    overridden,
    points_table,
    summary,
)
from grader.report.model import CaseResult, GroupResult, Points
from tests.report.building import make_case, make_part, make_report
from tests.report.parsing import HOSTILE, Parsed
from tests.report.test_page import sample
from tests.support.validator import mistakes, needs_tidy

MOST_BYTES = 1_000_000


def make(
    name: str, *outcomes: Any, points: tuple[float, float, float] = (4, 4, 4), sure: Any = "passed", **fields: Any
) -> IndexedReport:
    """A submission whose part has a group "Any size" with these outcomes, and a group "Sure" with `sure`."""
    cases = [one if isinstance(one, CaseResult) else make_case(f"n-{at}", one) for at, one in enumerate(outcomes)]
    earned, graded, possible = points
    whole = Points(earned=earned, graded=graded, possible=possible)
    part = make_part(*cases, points=whole, speed=Points(earned=0, graded=0, possible=0))
    nothing = Points(earned=0, graded=0, possible=0)
    group = GroupResult(name="sure", title="Sure", points=nothing, cases=(make_case("sure", sure),))
    part = part.model_copy(update={"groups": (*part.groups, group)})
    return summary(make_report(part, **fields), name, quote(f"{name}/report.html"))


# Points ---------------------------------------------------------------------------------------------------------------


def test_open_points_are_never_zeros() -> None:
    table = points_table(
        [
            make("a", "passed", points=(100, 100, 100)),
            make("b", "failed", points=(0, 100, 100)),
            make("c", "passed", points=(48, 50, 100)),
            make("d", "infra_error", points=(0, 0, 100)),
        ]
    )
    assert table is not None
    counted = {name: (pieces, *numbers) for pieces, (name, *numbers) in table.rows if any(numbers)}
    assert counted == {
        "90 to 100": ([(1.0, "bar"), (0.0, "bar so-far")], "1", ""),
        "40 to under 50": ([(0.0, "bar"), (1.0, "bar so-far")], "", "1"),
        "0 to under 10": ([(1.0, "bar"), (0.0, "bar so-far")], "1", ""),
        "nothing graded": ([], "", "1"),
    }
    assert "The median of the 2 graded in full is 50." in table.description
    assert "1 have open points" in table.description
    assert "Of 1 nothing could be graded" in table.description
    assert points_table([]) is None
    assert points_table([make("a", "skipped", points=(0, 0, 10))]) is None


# Groups, causes -------------------------------------------------------------------------------------------------------


def test_groups_are_counted_among_answers_that_pass_something() -> None:
    table = groups_table(
        [
            make("a", "passed", "failed"),
            make("b", "passed", "passed"),
            make("c", "passed", "skipped"),
            make("d", "crashed", sure="failed"),
            make("e", "not_implemented", sure="not_implemented"),
            make("f", "infra_error", sure="infra_error"),
        ]
    )
    assert table is not None
    assert table.rows == [
        ([(1 / 3, "bar wrong")], ("softmax", "Any size", "1 of 3 fail", "2", "1", "n-1 (1)")),
        ([(0.0, "bar wrong")], ("softmax", "Sure", "0 of 3 fail", "2", "1", "")),
    ]


def test_a_cause_counts_once_for_each_submission_that_has_it() -> None:
    def wrong(rows: int, **fields: Any) -> CaseResult:
        said = f"rows from {rows} on are wrong: consistent with a missing mask of {rows}"
        return make_case(f"n-{rows}", "failed", message="y is wrong", diagnosis=(said,), **fields)

    found = common_causes(
        [
            make("a", make_case("x", "failed", message="ValueError: bob's secret")),
            make("b", wrong(3), wrong(4)),
            make("c", wrong(5)),
        ]
    )
    assert [(len(who), seen.words, who[0].name) for seen, who in found] == [
        (2, "consistent with a missing mask of 3", "b"),
        (1, "ValueError: bob's secret", "a"),
    ]


def test_missing_answers_come_after_every_mistake() -> None:
    missing = make_case("n-1", "not_implemented", message="there is no softmax.py")
    wrong = make_case("n-1", "failed", message="ValueError: a shape")
    found = common_causes([make("a", missing), make("b", missing), make("c", wrong)])
    assert [(seen.words, len(who)) for seen, who in found] == [
        ("ValueError: a shape", 1),
        ("there is no softmax.py", 2),
    ]


def test_what_a_student_wrote_takes_a_few_lines_among_the_causes() -> None:
    for words in ("ValueError: a\n" + "b\n" * 2000, "ValueError: a b " + "M" * 4000):
        ((seen, _),) = common_causes([make("a", make_case("x", "failed", message=words))])
        assert seen.words.startswith("ValueError: a b ")
        assert seen.words.endswith("…")
        assert 150 < len(seen.words) <= 160
        assert seen.words.splitlines() == [seen.words]


def test_of_a_wrong_element_without_a_cause_the_output_is_named() -> None:
    said = "y[{}, 599] is the first wrong element: expected 4e-07, got 5e-06; 5 of 20000 elements (0.025%) are wrong"
    found = common_causes([make(str(at), make_case("x", "failed", message=said.format(at))) for at in range(2)])
    assert [(len(who), seen.words) for seen, who in found] == [(2, "y is wrong, in a way that has no name")]


def test_a_machines_fault_is_nobodys_cause() -> None:
    assert common_causes([make("a", "passed", "infra_error")]) == []


# Faults ---------------------------------------------------------------------------------------------------------------


def test_what_is_no_submissions_fault_is_told() -> None:
    usual = [make(f"s{at}", "passed", fingerprint="aa") for at in range(20)]
    at = make_report().environment
    odd = [
        make("lost", "infra_error", infra_errors=("no driver",)),
        make("lost too", "infra_error", infra_errors=("no driver",), incomplete=True),
        make("old", "passed", environment=at.model_copy(update={"grader": "0.0.1"})),
        make("other", "passed", fingerprint="bb"),
        make("fast", "passed", environment=at.model_copy(update={"gpu": "H200"})),
        make("quick", "passed", effort="quick"),
        IndexedReport("cut", note="open: not read", faults=("Invalid JSON",)),
    ]
    assert dict(faults([*usual, *odd])) == {
        "no driver": "lost, lost too",
        "the run was interrupted before everything was graded": "lost too",
        "graded by grader 0.0.1, most by 0.1.0": "old",
        "graded with another course, or with other code of the grader, than most": "other",
        "graded on H200, most on no GPU: their speed cannot be compared": "fast",
        "a quick run, most are full": "quick",
        "Invalid JSON": "cut",
    }
    assert faults(usual) == []
    before = [make(f"s{at}", "passed") for at in range(3)]  # reports of before fingerprints were recorded
    assert faults([*before, usual[0]]) == []
    many = [make(f"s{at}", "infra_error", infra_errors=("no driver",)) for at in range(12)]
    assert faults(many) == [("no driver", "s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more")]


# The page -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def worst() -> list[IndexedReport]:
    """300 submissions with the longest names and messages there are."""
    return [
        make(
            f"{at} {HOSTILE[:40]}{'n' * 200}",
            *(make_case(f"c{n}", "failed", message=f"{HOSTILE} {chr(97 + n)}{at}" * 20) for n in range(4)),
            "passed",
            points=(at / 6, 50, 100),
            infra_errors=(f"{HOSTILE} {at}" * 20,),
        )
        for at in range(300)
    ]


def test_hostile_names_and_messages_stay_words_on_a_page_of_bounded_size(worst: list[IndexedReport]) -> None:
    text = index(worst)
    parsed = Parsed(text)
    assert parsed.foreign == set()
    assert len(parsed.all("style")) == 1
    assert len(parsed.all("a")) == 300 + 4
    assert len(text.encode()) < MOST_BYTES
    assert {letter for letter in text if not letter.isprintable()} == {"\n"}


@pytest.mark.parametrize("number", [0, 1, 1e-300, 1e300])
def test_any_numbers_make_an_index(number: float) -> None:
    odd = make("a", "passed", points=(number, number, 2 * number))
    text = index([odd, summary(sample("gpu"), "b", "b/report.html")])
    Parsed(text)
    assert not re.search(r'"(nan|-?inf)"', text)


@needs_tidy
def test_the_index_is_valid(worst: list[IndexedReport]) -> None:
    for redact in (False, True):
        decided = [overridden(one, Override(7, HOSTILE)) for one in (IndexedReport("x", note="no report"), worst[0])]
        unread = IndexedReport("x", note="open: not read", faults=("y",))
        for every in (worst, [], [unread], [make("a", "passed")], decided[:1], decided):
            assert mistakes(index(every, redact)) == []

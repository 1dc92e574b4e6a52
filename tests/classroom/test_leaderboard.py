"""The leaderboard: who is on it, in which order, beside which rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.grades import Grades
from grader.classroom.leaderboard import Board, leaderboard, markdown, table
from grader.report.model import Report
from tests.support.classes import MadeClass, ending, faster, named, sample, softmax, with_part

GPU = sample("gpu")


def board_of(made: MadeClass, title: str) -> Board:
    (found,) = [one for one in leaderboard(Grades(made.folder)) if one.title == title]
    return found


def listed(tmp_path: Path, reports: dict[str, Report]) -> MadeClass:
    """A class of students, by their aliases, graded once each."""
    made = MadeClass(tmp_path / "RUN")
    for at, (alias, report) in enumerate(reports.items()):
        made.attempt(made.student(f"s{at}", files=softmax(at), alias=alias, name="a secret name"), report)
    return made


def test_the_fastest_come_first_and_equals_share_a_rank(tmp_path: Path) -> None:
    made = listed(
        tmp_path, {"slow": faster(GPU, "softmax", 0.5), "b": GPU, "a": GPU, "fast": faster(GPU, "softmax", 3)}
    )
    board = board_of(made, "Row softmax in Triton")
    students = [(one.rank, one.name) for one in board.entries if one.rank]
    assert students == [(1, "fast"), (2, "a"), (2, "b"), (4, "slow")]
    measured = {one.name: one for one in board.entries}
    expected = (1.1536 * 1.0512 * 1.9484) ** (1 / 3)  # of docs/sample/gpu, by its cases
    assert measured["a"].speedup == pytest.approx(expected, rel=1e-3)
    assert measured["fast"].speedup == pytest.approx(3 * measured["a"].speedup)
    assert (board.gpu, board.baseline) == ("NVIDIA H100 80GB HBM3", "eager")
    assert measured["PyTorch"].speedup == 1
    assert measured["PyTorch"].rank is None
    assert [one.speedup for one in board.entries] == sorted((one.speedup for one in board.entries), reverse=True)


def test_the_machines_limit_is_that_of_the_rounds(tmp_path: Path) -> None:
    made = listed(tmp_path, {"a": GPU})
    entries = {one.name: one.speedup for one in board_of(made, "FlashAttention-2 in Triton, Backward").entries}
    assert entries["torch.compile"] == 1
    assert entries["the machine's limit"] == pytest.approx(7.288 / 0.43503, rel=1e-3)
    assert set(entries) == {"a", "torch.compile", "the machine's limit"}


def test_other_entrants_are_rows(tmp_path: Path) -> None:
    """One is twice as fast as the copy."""

    def with_reference(part: dict[str, Any]) -> None:
        measured = part["speed"]["cases"][0]["measured"]
        base = named(measured["entrants"], "copy")
        speedup = {end: value / 2 for end, value in base["speedup"].items()}
        measured["entrants"] = [*measured["entrants"], {**base, "name": "reference", "speedup": speedup}]

    report = with_part(GPU, "gelu", with_reference)
    entries = {one.name: one for one in board_of(listed(tmp_path, {"a": report}), "GeLU in CUDA C++").entries}
    assert entries["the staff's kernel"].rank is None
    assert entries["the staff's kernel"].speedup == pytest.approx(1.0035 / 1.005 * 2, rel=2e-3)


@pytest.mark.parametrize(
    "report",
    [
        faster(GPU, "softmax", 2, corroborated=False),
        faster(GPU, "softmax", 2, flags=("the clock was touched",)),
        ending(GPU, "softmax", "lengths", "1x1", "failed"),
        ending(GPU, "softmax", "lengths", "1x1", "skipped"),
    ],
    ids=["doubted", "flagged", "wrong", "not all graded"],
)
def test_only_right_answers_beyond_doubt_are_listed(tmp_path: Path, report: Report) -> None:
    made = listed(tmp_path, {"right": GPU, "other": report})
    names = [one.name for one in board_of(made, "Row softmax in Triton").entries if one.rank]
    assert names == ["right"]
    names = [one.name for one in board_of(made, "GeLU in Triton").entries if one.rank]
    assert names == ["other", "right"]


def test_who_chose_no_alias_is_nowhere(tmp_path: Path) -> None:
    made = listed(tmp_path, {"": GPU, "b": GPU})
    boards = leaderboard(Grades(made.folder))
    assert [one.name for one in boards[0].entries if one.rank] == ["b"]
    assert "secret" not in markdown(boards) + table(boards)
    assert "s0" not in markdown(boards) + table(boards)


def test_partners_are_one_row_and_an_alias_of_two_students_is_two(tmp_path: Path) -> None:
    made = listed(tmp_path, {"team": GPU})
    made.student("partner", handin=made.students[0].handin, alias="team")
    other = made.student("copycat", files=softmax("other"), alias="team")
    made.attempt(other, faster(GPU, "softmax", 2))
    ranks = [(one.rank, one.name) for one in board_of(made, "Row softmax in Triton").entries if one.rank]
    assert ranks == [(1, "team"), (2, "team")]


def test_each_gpu_model_and_each_size_has_a_table(tmp_path: Path) -> None:
    environment = GPU.environment.model_copy(update={"gpu": "NVIDIA A100"})
    made = listed(tmp_path, {"a": GPU, "b": GPU.model_copy(update={"environment": environment}), "c": sample("cpu")})
    found = leaderboard(Grades(made.folder))
    assert [one.gpu for one in found] == ["NVIDIA A100"] * 5 + ["NVIDIA H100 80GB HBM3"] * 5
    assert [len([one for one in board.entries if one.rank]) for board in found] == [1] * 10
    smaller = Report.model_validate_json(GPU.model_dump_json().replace("shape 268435456", "shape 1024"))
    made.attempt(made.students[1], smaller)
    gelus = [one for one in leaderboard(Grades(made.folder)) if one.title == "GeLU in CUDA C++"]
    assert [one.sizes for one in gelus] == [("large: shape 1024",), ("large: shape 268435456",)]


def test_a_part_is_ranked_by_all_its_cases_against_one_baseline(tmp_path: Path) -> None:
    def unmeasured(part: dict[str, Any]) -> None:
        part["speed"]["cases"][1].update(measured=None, message="not measured")

    def against_compile(part: dict[str, Any]) -> None:
        for entrant in part["speed"]["cases"][0]["measured"]["entrants"]:
            entrant["name"] = entrant["name"].replace("eager", "compile")

    made = listed(tmp_path, {"a": with_part(GPU, "softmax", unmeasured)})
    assert "Row softmax in Triton" not in {one.title for one in leaderboard(Grades(made.folder))}
    made.attempt(made.students[0], with_part(GPU, "softmax", against_compile))
    assert len(leaderboard(Grades(made.folder))) == 4


def test_names_cannot_write_into_the_page_or_a_formula(tmp_path: Path) -> None:
    made = listed(tmp_path, {"=1+1|**[x](y)<b>": GPU})
    boards = [board_of(made, "GeLU in CUDA C++")]
    row = next(line for line in markdown(boards).splitlines() if "1+1" in line)
    assert row.startswith(r"| 1 | =1+1\|\*\*\[x\](y)\<b\> | 1.00")
    head, *rows = csv.reader(io.StringIO(table(boards), newline=""))
    assert [dict(zip(head, one, strict=True))["name"] for one in rows if one[4]] == ["'=1+1|**[x](y)<b>"]
    assert all(float(one[6]) > 0 for one in rows)
    assert boards[0].heading.startswith("GeLU in CUDA C++, on NVIDIA H100 80GB HBM3; PyTorch is 1 (large: shape 2")

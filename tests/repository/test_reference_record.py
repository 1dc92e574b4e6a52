"""The record of the reference kernels: its rows are sizes that the assignments take, and its table says which goals were met."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import reference_record
from benchmarks.reference_record import BEGIN, END, NAMES, ROWS, Row, contest, details, page, table, with_table
from benchmarks.speed_record import start
from grader.assignment import load_course
from grader.contender.pool import WorkerPool
from tests.conftest import ROOT


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_a_row_is_a_case_that_can_be_raced(row: Row) -> None:
    case = contest(row, load_course(ROOT, [row.assignment])[0])
    assert case.contenders(everyone=False) == case.opponents
    assert case.speed.roofline in case.opponents
    assert set(row.goals) <= set(case.opponents)
    assert case.assignment.spec.timing.rounds == 9
    source = (case.assignment.folder / "baselines.py").read_text(encoding="utf-8")
    for name in set(case.opponents) - {"copy", "matmul", "compile"}:
        assert f"def {name}(" in source


def test_rows_are_told_apart() -> None:
    cases = [contest(row, load_course(ROOT, [row.assignment])[0]) for row in ROWS]
    assert len({case.id for case in cases}) == len(ROWS)


def test_what_is_recorded_is_raced_as_a_students_code_is() -> None:
    worker = SimpleNamespace(trusted=True)
    pool = SimpleNamespace(start_own=lambda *_: worker)
    assert start(cast("WorkerPool", pool)) is cast("object", worker)
    assert not worker.trusted


def estimate(median: float) -> dict[str, float]:
    return {"median": median, "low": median, "high": median}


def measured(title: str, goals: dict[str, float], **speedups: float) -> dict[str, Any]:
    contenders = [
        {
            "name": "submission",
            "time_s": estimate(1e-3),
            "bytes_per_s": 4e12,
            "flops_per_s": 3e14,
            "roofline_share": 0.9,
            "speedup": None,
        }
    ]
    contenders += [contenders[0] | {"name": name, "speedup": estimate(value)} for name, value in speedups.items()]
    return {"title": title, "goals": goals, "measured": {"contenders": contenders, "claimed_s": estimate(1e-3)}}


ROWS_MEASURED = [
    measured("softmax", {"copy": 0.97}, copy=0.98, eager=1.25),
    measured("attention", {"sdpa_flash": 1.0, "sdpa_cudnn": 0.85}, sdpa_flash=1.1, sdpa_cudnn=0.8, matmul=0.5),
    {"title": "broken", "goals": {"copy": 1.0}, "failed": "no answer"},
    {
        "title": "slow",
        "goals": {"copy": 1.0},
        "stopped": "one call takes 1.5 s, more than 100 times eager: stopped there",
    },
]


def test_the_table_says_which_goals_were_met() -> None:
    head, rule, softmax, attention, broken, slow = table(ROWS_MEASURED)
    assert softmax == "| softmax | 1.000 | 4.00 TB/s | 0.980 | 1.25 |  |  |  | ✓ 0.97 × device copy |"
    assert attention == "| attention | 1.000 | 300 TFLOP/s |  |  |  | 1.10 | 0.800 | ✓ 1 × flash, ✗ 0.85 × cuDNN |"
    assert broken.startswith("| broken | no answer |")
    assert slow.startswith("| slow | one call takes 1.5 s, more than 100 times eager: stopped there |")
    assert len({line.count("|") for line in (head, rule, softmax, attention, broken, slow)}) == 1
    assert all(name in head for name in NAMES.values())


def test_what_is_too_short_for_the_judges_clock_is_told_by_the_workers() -> None:
    row = measured("short", {"eager": 1.0}, copy=0.2, eager=0.25)
    row["measured"]["claimed_s"] = estimate(0.25e-3)
    times = {"submission": 0.25e-3, "copy": 0.2e-3, "eager": 0.3e-3}
    row["measured"]["rounds"] = [{"times_s": times}] * 3
    _, _, line, _, note = table([row])
    assert line == "| short † | 0.2500 | 16.00 TB/s | 0.800 | 1.20 |  |  |  | ✓ 1 × PyTorch |"
    assert note.startswith("† By the worker's clock")
    assert not any("†" in line for line in table([measured("long", {"copy": 1.0}, copy=1.0)]))


def test_a_row_of_an_older_kernel_says_so() -> None:
    title = ROWS[0].title
    now = measured(title, {"copy": 1.0}, copy=1.0) | {"version": reference_record.version_of(title)}
    assert not any("‡" in line for line in table([now]))
    _, _, line, _, note = table([now | {"version": "older"}])
    assert line.startswith(f"| {title} ‡ | 1.000 |")
    assert note == reference_record.OUTDATED


def test_words_for_people_make_no_other_version() -> None:
    code = "def f(x):\n    return x + 1"
    assert reference_record.code_of('"""A module."""\n# why\ndef f(x):\n    """Doc."""\n    return x + 1  # so') == code
    assert reference_record.code_of("def f(x):\n    return x + 2") != code
    assert (
        reference_record.cpp_code_of("// why\nint f() {  // so\n\n    return 1;\n}\n") == "int f() {\n    return 1;\n}"
    )


def test_a_matrix_product_has_a_rate_of_its_own_and_nobody_is_faster_than_it() -> None:
    *_, matmul = [line for line in details(ROWS_MEASURED[1]) if "matmul" in line]
    assert matmul == "| matmul | 1.0000 | 0.00% |  | 1100 | 100.0% |  |"  # 2 · 8192³ in a millisecond


def test_the_page_has_everybody() -> None:
    environment = {"gpu": "H200", "torch": "2.11", "triton": "3.6", "driver": "580"}
    commands = ["python x", "python y"]
    rows = [{**row, "command": commands[index % 2]} for index, row in enumerate(ROWS_MEASURED)]
    text = page({"environment": environment, "rows": rows})
    assert "Made by\n\n    python x\n    python y\n\n" in text
    assert text.startswith("# The reference kernels on one H200\n")
    assert text.count("## ") == len(ROWS_MEASURED)
    assert "| sdpa_cudnn | 1.0000 |" in "\n".join(details(ROWS_MEASURED[1]))


def test_readmes_table_is_replaced_and_nothing_else() -> None:
    text = f"before\n{BEGIN} with a command -->\nold\nlines\n{END}\nafter\n"
    assert with_table(text, ["new"]) == f"before\n{BEGIN} with a command -->\nnew\n{END}\nafter\n"
    assert with_table(with_table(text, ["a"]), ["new"]) == with_table(text, ["new"])
    with pytest.raises(AssertionError, match="lost its marks"):
        with_table("no marks", ["new"])


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["reference_record.py", *arguments])
    with pytest.raises(SystemExit):
        reference_record.main()
    return capsys.readouterr().err


def test_a_row_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no row is called gelo" in refused(monkeypatch, capsys, "--row", "gelo")


def test_readme_keeps_its_other_rows(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--again" in refused(monkeypatch, capsys, "--row", "CUDA GeLU", "--readme")


def test_a_record_goes_on_on_the_same_machine_only() -> None:
    machine = {"gpu": "G", "torch": "2", "triton": "3", "driver": "5"}
    kept = {"environment": machine, "rows": [{"title": "one", "command": "first"}]}
    assert reference_record.continued(kept, {"environment": machine, "rows": []})["rows"] == kept["rows"]
    with pytest.raises(SystemExit, match="gpu G, this is H"):
        reference_record.continued(kept, {"environment": machine | {"gpu": "H"}, "rows": []})


def test_the_page_says_what_is_missing_and_a_failure_stays_in_its_cell() -> None:
    environment = {"gpu": "G", "torch": "2", "triton": "3", "driver": "5"}
    rows = [{"title": ROWS[0].title, "command": "c", "goals": {}, "failed": "a | b\nc"}]
    text = reference_record.page({"environment": environment, "rows": rows})
    assert f"| {ROWS[0].title} | a / b c |" in text
    assert f"Not measured: {ROWS[1].title}; " in text
    assert f"Not measured: {ROWS[0].title}" not in text

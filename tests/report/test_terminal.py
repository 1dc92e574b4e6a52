"""The report in a terminal tells a student what they need, and nothing a student wrote can steer the terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from grader.messages import CaseDone, CaseStarted, Planned, PlannedPart
from grader.report.failures import EVERYTHING, Detail, Failure, failure_view
from grader.report.kernels import MAX_KERNELS, kernels_view
from grader.report.model import (
    CaseResult,
    Isolation,
    KernelResources,
    Report,
)
from grader.report.terminal import (
    DETAILS,
    OTHER_LINES,
    SCREEN,
    Progress,
    print_report,
)
from grader.verdict.prints import LOG_LINES
from tests.report.building import fields_told, hostile, make_case, make_part, make_report, replaced
from tests.report.test_golden import LOST, MAP, MASK, alike, checked, failing, speedy
from tests.verdict.test_causes import a_map


def shown(report: Report, *, terminal: bool = False, width: int = 160, verbose: bool = False) -> str:
    """What is printed, without colours; with `terminal` as to a terminal, control sequences and all."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, force_terminal=terminal, color_system=None)
    print_report(report, console, verbose)
    return out.getvalue()


def lines(text: str) -> list[str]:
    """The lines inside the panels, without their frame and padding."""
    return [line.strip("│╭╮╰╯─ ") for line in text.splitlines()]


# What a student needs -------------------------------------------------------------------------------------------------


def test_a_provisional_group_says_that_cases_are_missing() -> None:
    for message, words in (
        ("needs a GPU: long rows", "some cases need a GPU"),
        ("left out by --quick: long rows, needs a GPU: long rows", "some cases need a GPU"),
        ("needs 70 GiB of GPU memory, 64 GiB are free", "some cases were skipped"),
    ):
        part = make_part(make_case("n-1"), make_case("n-2", "skipped", message=message), provisional=True)
        assert words in shown(make_report(part))
    assert "some cases" not in shown(make_report(make_part(make_case("n-1"))))


# One cause, told once -------------------------------------------------------------------------------------------------


def many_failures() -> list[CaseResult]:
    """Cases with two causes and a crash, each with much to say."""
    first = {
        "message": "y[7] is the first wrong element: expected 1, got 2; 3 of 9 elements (33.3%) are wrong",
        "map": MAP,
    }
    other = [f"remark {number} " + "and what there is to say of it " * 3 for number in range(8)]
    cases = [
        make_case(f"n-{number}", "failed", **first, diagnosis=(MASK.format(number), *other, f"input {number}"))
        for number in range(30)
    ]
    cases += [
        make_case(
            f"m-{number}", "failed", message=f"z[{number}] is wrong", diagnosis=(f"{number}: consistent with tea",)
        )
        for number in range(9)
    ]
    frames = "".join(f'  File "softmax.py", line {number}, in softmax\n' for number in range(40))
    return [*cases, make_case("gone", "crashed", message="segmentation fault", traceback=frames)]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("parts", [1, 2])
def test_whatever_goes_wrong_has_room_on_one_screen(width: int, parts: int) -> None:
    cases = many_failures()
    reasons = [make_case(f"gpu-{number}", "skipped", message=f"needs a GPU: reason {number}") for number in range(9)]
    part = make_part(*cases, *reasons, points=LOST)
    log = "\n".join(f"[n-{number}] printed {letter}" for number in range(30) for letter in "abcdef")
    text = shown(make_report(*[part] * parts, log=log), width=width)
    assert len(text.splitlines()) + OTHER_LINES <= SCREEN
    for words in (
        "y[7] is the first wrong element",
        "consistent with a block that is not masked",
        "uu",
        "[n-0] printed a",
    ):
        assert words in " ".join(lines(text)), words
    assert "29 more cases, the same way: n-1" in text or "and 2" in text
    assert "report.html, or --verbose" in text


ENDLESS = {
    "a line": {"message": "M" * 4000},
    "lines": {"message": "a\n" * 2000},
    "a source line": {"traceback": '  File "softmax.py", line 2\n    ' + "z" * 12000},
    "both": {"message": "M\n" * 100 + "M" * 3800, "traceback": ("z" * 1000 + "\n") * 12},
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("fields", ENDLESS.values(), ids=ENDLESS)
def test_words_without_end_have_room_on_one_screen(fields: dict[str, str], count: int, width: int) -> None:
    cases = [make_case(f"n-{number}", "failed", **fields) for number in range(count)]
    report = make_report(make_part(*cases, points=LOST))
    text = shown(report, width=width)
    assert len(text.splitlines()) + OTHER_LINES <= SCREEN
    assert re.search(r"\.\.\. \d+ +more +(characters|lines)", " ".join(lines(text)))
    assert "report.html, or --verbose" in text
    everything = shown(report, width=width, verbose=True)
    for words in fields.values():
        assert all(everything.count(letter) >= words.count(letter) for letter in "Mz")


def test_a_check_cuts_words_without_end() -> None:
    text = checked(make_case("n-1", "failed", message="M" * 4000, traceback="z" * 12000))
    assert len(text.splitlines()) < 2 * SCREEN
    assert "2000 more characters" in text


def test_a_long_error_keeps_its_end_and_its_hint_where_room_is_scarce() -> None:
    """Triton shows the kernel and, below it, what is wrong with it."""
    message = "\n".join(["CompilationError: at 40:8:", *(f"    source {at}" for at in range(40)), "unsupported: Break"])
    failed = make_case("n", "failed", message=message, diagnosis=("leave no loop early", "the input of n"))
    out = io.StringIO()
    Console(file=out, width=80).print(failure_view(Failure("softmax.py", failed), DETAILS[-1]))
    assert re.findall(
        "at 40:8|source 1\\b|source 2\\b|... 38 more lines|unsupported: Break|leave no loop|the input", out.getvalue()
    ) == ["at 40:8", "source 1", "... 38 more lines", "unsupported: Break", "leave no loop"]


def test_a_sentence_that_two_outputs_have_is_told_once_where_room_is_scarce() -> None:
    where = "only rows 64 to 99 are wrong"
    failed = make_case("n", "failed", diagnosis=(MASK.format(3), where, "dv[0] is the first wrong element", where))
    for sentences, times in ((1, 1), (2, 1), (EVERYTHING, 2)):
        out = io.StringIO()
        one = Failure("softmax.py", failed, MASK.format(3))
        Console(file=out, width=100).print(failure_view(one, Detail(sentences=sentences)))
        assert out.getvalue().count(where) == times, sentences


def test_a_map_that_tells_nothing_is_not_drawn() -> None:
    uniform = make_case("n-1", "failed", map=a_map("99", "99"))
    assert "a cell is" not in shown(make_report(make_part(uniform, points=LOST)))


def test_a_long_log_shows_its_beginning() -> None:
    part = make_part(make_case("n-1"), make_case("n-2", "crashed"), points=LOST)
    log = "\n".join(["[n-1] " + "x" * 5000, *(f"[n-1] <{number}>" for number in range(30))])
    text = shown(make_report(part, log=log))
    assert f"your code printed ({LOG_LINES} of 31 lines; more in report.json):" in text
    assert f"<{LOG_LINES - 2}>" in text
    assert f"<{LOG_LINES - 1}>" not in text
    assert text.count("x") < 400


@pytest.mark.parametrize(("width", "marked"), [(100, True), (60, False)])
def test_marks_below_a_line_are_there_where_the_line_has_one_row(width: int, marked: bool) -> None:
    source = "    x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride)"
    traceback = f'  File "softmax.py", line 7, in softmax_kernel\n{source}\n        ^^^^^^^~~~\n'
    text = shown(make_report(make_part(make_case("n-1", "failed", traceback=traceback), points=LOST)), width=width)
    assert "x_col_stride)" in text
    assert ("^^^~~~" in text) == marked


# Nothing a student wrote steers the terminal --------------------------------------------------------------------------


def test_hostile_words_in_any_field_stay_words() -> None:
    spoilt = (replaced(report, str, hostile)[0] for report in (failing(), alike(), speedy()))
    told = set().union(*(fields_told(shown(one, width=6000, terminal=True, verbose=True)) for one in spoilt))
    words = "message diagnosis follows pattern traceback text others notes note flags hints problem infra_errors"
    names = "name title tries size file vs case output cpu gpu torch triton"
    assert told == {*words.split(), *names.split()}


@pytest.mark.parametrize("place", [None, lambda _, file: f"sub/{file}:7"], ids=["in a panel", "as a compiler"])
def test_hostile_words_in_a_check_stay_words(place: Any) -> None:
    case = make_case("n-1", "failed", diagnosis=("a clue",), traceback="a frame")
    spoilt, _ = replaced(case, str, hostile)
    report, _ = replaced(failing(), str, hostile)
    told = fields_told(checked(spoilt, report, place, width=6000))
    assert told >= {
        "name",
        "message",
        "diagnosis",
        "traceback",
        "hints",
        "text",
        "others",
        "notes",
        "infra_errors",
        "problem",
    }


# Progress -------------------------------------------------------------------------------------------------------------


def progress_of(cases: list[CaseResult]) -> str:
    """What a terminal gets of the progress of these cases."""
    out = io.StringIO()
    with Progress(Console(file=out, width=120, force_terminal=True, highlight=False)) as progress:
        part = PlannedPart(
            assignment="softmax", part="forward", file="f.py", title="Softmax: Forward", cases=len(cases)
        )
        progress(Planned(device="cpu", parts=(part,), isolation=Isolation(jail="none")))
        for case in cases:
            progress(CaseStarted(assignment="softmax", part="forward", case=case.name))
            progress(CaseDone(assignment="softmax", part="forward", result=case))
    return out.getvalue()


def test_in_a_terminal_the_parts_are_a_live_table() -> None:
    text = progress_of([make_case("n-1"), make_case("n-2", "failed")])
    assert "Softmax: Forward" in text
    assert "2/2" in text
    assert "1 passed" in text
    assert "1 failed" in text


def test_a_dumb_terminal_gets_the_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert progress_of([make_case("n-1")]) == "Softmax: Forward: 1 passed\n"


# Kernels --------------------------------------------------------------------------------------------------------------


def table(found: list[KernelResources], told: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=140)
    console.print(kernels_view(found, told))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def compiled(name: str, case: str, arch: str, registers: int | None = 40, **more: Any) -> KernelResources:
    return KernelResources(name=name, part="forward", case=case, arch=arch, registers=registers, **more)


def test_many_kernels_are_cut() -> None:
    shown = table([compiled(f"k{number}", "a", "sm_90", number) for number in range(MAX_KERNELS + 3)])
    assert len(shown) == MAX_KERNELS + 2
    assert shown[-1] == "... and 3 more in the report"


def test_a_kernel_in_several_configurations_has_several_rows() -> None:
    found = [compiled("k", "a", arch, registers) for arch in ("sm_90", "sm_86") for registers in (20, 30)]
    assert table(found)[1:] == ["k a 20 regs 20 regs", "k a 30 regs 30 regs"]

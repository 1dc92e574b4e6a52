"""The report in a terminal tells a student what they need, and nothing a student wrote can steer the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from grader.job import CaseDone, CaseStarted, Planned, PlannedPart
from grader.report.checking import CheckView
from grader.report.failures import EVERYTHING, Detail, case_view
from grader.report.model import (
    CaseResult,
    Environment,
    GpuTime,
    Isolation,
    KernelResources,
    KernelTime,
    Points,
    Report,
    SubmissionInfo,
)
from grader.report.terminal import (
    DETAILS,
    MAX_KERNELS,
    MAX_PROBLEMS,
    OTHER_LINES,
    SCREEN,
    Progress,
    kernels,
    print_report,
)
from grader.verdict.prints import LOG_LINES
from tests.report.building import make_case, make_part, make_report
from tests.verdict.test_causes import a_map

LOST = Points(earned=0, graded=4, possible=4)


def shown(report: Report, *, terminal: bool = False, width: int = 160, verbose: bool = False) -> str:
    """What is printed; with `terminal` as to a colour terminal, control sequences and all."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, highlight=False, force_terminal=terminal, color_system="truecolor" if terminal else None
    )
    print_report(report, console, verbose)
    return out.getvalue()


def lines(text: str) -> list[str]:
    """The lines inside the panels, without their frame and padding."""
    return [line.strip("│╭╮╰╯─ ") for line in text.splitlines()]


# What a student needs -------------------------------------------------------------------------------------------------


def test_a_failure_is_told_with_everything_that_helps() -> None:
    failed = make_case(
        "n-1025",
        "failed",
        tries="one more than a block",
        message="y[1024] is wrong",
        diagnosis=("only element 1024 of 1025 is wrong", "consistent with a missing mask"),
        traceback='  File "softmax.py", line 7, in softmax\n',
    )
    part = make_part(make_case("n-1"), failed, points=LOST)
    found = lines(shown(make_report(part, log="[n-1025] debug: 1\n[n-1025] debug: 2")))
    text = "\n".join(found)
    assert "Row softmax  softmax.py" in text
    for words in (
        "The forward pass",
        "correctness 0/4",
        "speed not graded (6)",
        "✗ n-1025  failed  (one more than a block)",
        "y[1024] is wrong",
        "only element 1024 of 1025 is wrong",
        "consistent with a missing mask",
        'File "softmax.py", line 7, in softmax',
        "your code printed:",
        "debug: 1",
        "debug: 2",
        "Score  0 of 4 points graded in this run  (of 10 in all)",
        "6 points of speed are not graded (speed was not asked for); they are not lost",
        "seed 4711",
        "CPU, no GPU (Z80)",
    ):
        assert words in text, words
    assert any("Any size" in line and "✓ ✗" in line and line.endswith("0/4") for line in found)
    # in this order: where, why, the student's own frames
    places = [
        text.index(words) for words in ("y[1024] is wrong", "only element", "missing mask", 'softmax.py", line 7')
    ]
    assert places == sorted(places)


def test_a_perfect_report_shows_no_complaint() -> None:
    text = shown(make_report(make_part(make_case("n-1"), make_case("n-2")), log="[import] hello"))
    assert "Score  4 of 4 points" in text
    assert "✗" not in text
    assert "n-1" not in text
    assert "your code printed:" in text
    assert "[import] hello" in text
    assert "could not be graded" not in text


def test_whose_kernels_took_the_gpus_time_is_told() -> None:
    named = [
        ("softmax_kernel", True, 0.7),
        ("at::native::a", False, 0.2),
        ("b", False, 0.05),
        ("c", False, 0.03),
        ("d", False, 0.02),
    ]
    kernels = tuple(KernelTime(name=name, own=own, calls=1, share=share) for name, own, share in named)
    found = GpuTime(own_share=0.7, library_share=0.2, kernels=kernels)
    text = "\n".join(lines(shown(make_report(make_part(make_case("everyday", gpu_time=found), make_case("n-1"))))))
    assert (
        "everyday: 70 % of the GPU's time in kernels of your own (softmax_kernel); 20 % in at::native::a; 5 % in b; 3 % in c and 1 more"
        in text
    )
    assert text.count("of the GPU's time") == 1


def test_points_that_could_not_be_graded_are_said_not_to_be_lost() -> None:
    part = make_part(
        make_case("n-1", "skipped", message="needs a GPU: many rows"),
        make_case("n-2", "skipped", message="needs a GPU: long rows"),
        points=Points(earned=0, graded=0, possible=4),
    )
    text = "\n".join(lines(shown(make_report(part))))
    assert "4 points of correctness could not be graded here; they are not lost" in text
    assert "correctness not graded (4)" in text
    assert "– skipped: needs a GPU: many rows" in text
    assert "– skipped: needs a GPU: long rows" in text
    assert "✗" not in text


def test_a_provisional_group_says_that_cases_are_missing() -> None:
    for message, words in (
        ("needs a GPU: long rows", "some cases need a GPU"),
        ("left out by --quick: long rows, needs a GPU: long rows", "some cases need a GPU"),
        ("needs 70 GiB of GPU memory, 64 GiB are free", "some cases were skipped"),
    ):
        part = make_part(make_case("n-1"), make_case("n-2", "skipped", message=message), provisional=True)
        assert words in shown(make_report(part))
    assert "some cases" not in shown(make_report(make_part(make_case("n-1"))))


def test_cases_that_fail_alike_are_told_once() -> None:
    same = [make_case(name, "crashed", message="segmentation fault") for name in ("n-1", "n-2")]
    part = make_part(*same, make_case("n-3"), make_case("n-4", "failed", message="y[0] is wrong"), points=LOST)
    text = shown(make_report(part))
    assert "✗ n-1, n-2  crashed" in text
    assert text.count("segmentation fault") == 1
    assert "✗ n-4  failed" in text


def test_where_every_case_ends_alike_it_is_said_once() -> None:
    for outcome, skipped in (("not_implemented", 0), ("build_failed", 1), ("skipped", 0)):
        cases = [make_case(f"n-{number}", outcome, message="the stub") for number in range(3)]
        cases += [make_case(f"gpu-{number}", "skipped", message="needs a GPU") for number in range(skipped)]
        text = shown(make_report(make_part(*cases, points=LOST)))
        assert f"every case  {outcome.replace('_', ' ')}" in text
        assert text.count("the stub") == 1
        assert "n-1" not in text


OF_FILE = (
    ("build_failed", "does not build"),
    ("timed_out", "takes too long to load"),
    ("forbidden", "is forbidden"),
    ("failed", "cannot be loaded"),
)


@pytest.mark.parametrize(("outcome", "words"), OF_FILE)
def test_a_fault_of_the_file_is_told_of_the_file_and_of_no_case(outcome: str, words: str) -> None:
    cases = [make_case(f"n-{number}", outcome, message="line 3 is wrong", of_file=True) for number in range(3)]
    parts = [make_part(*cases, points=LOST, name=name) for name in ("forward", "backward")]
    text = shown(make_report(*parts))
    assert f"✗ softmax.py {words}\n" in text.replace("│", "").replace("  ", "").replace(" \n", "\n")
    assert "✗ softmax.py: as above" in text
    assert text.count("line 3 is wrong") == 1
    assert "every case" not in text
    out = checked(cases[0], file="softmax.py", left=17)
    assert f"✗ softmax.py  {words} ─" in out
    assert not re.search("n-0|tries|not run|timed out|build failed", out)


def test_many_failures_are_cut_but_all_are_named() -> None:
    most = DETAILS[0].causes
    cases = [
        make_case(f"case-{number}", "failed", message=f"mistake {'abcdefg'[number]}") for number in range(most + 3)
    ]
    text = shown(make_report(make_part(*cases, points=LOST)))
    assert [case.message in text for case in cases] == [True] * most + [False] * 3
    assert "and more: case-4 (failed), case-5 (failed), case-6 (failed)" in text
    assert all(case.message in shown(make_report(make_part(*cases, points=LOST)), verbose=True) for case in cases)


# One cause, told once -------------------------------------------------------------------------------------------------

MASK = "only row {} of 1000 is wrong, what is left after full blocks of 64: consistent with a block that is not masked"
MAP = a_map("......", "......", "....uu", rows=1000, cell_rows=400)


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


def test_everything_is_told_where_it_is_asked_for() -> None:
    cases = many_failures()
    log = "\n".join(f"[n-{number}] printed {number}" for number in range(30))
    text = " ".join(lines(shown(make_report(make_part(*cases, points=LOST), log=log), verbose=True, width=80)))
    for case in cases:
        for words in (case.title, case.message, *case.diagnosis, *case.traceback.splitlines()):
            assert " ".join(words.split()) in " ".join(text.split())
    assert all(f"[n-{number}] printed {number}" in text for number in range(30))
    assert "report.json" not in text


def test_the_cause_of_most_cases_comes_first_with_one_example() -> None:
    few = [make_case(name, "failed", message="x: consistent with tea") for name in ("a", "b")]
    many = [make_case(f"n-{number}", "failed", diagnosis=(MASK.format(number),)) for number in range(3)]
    text = shown(make_report(make_part(*few, *many, points=LOST)))
    assert "2 more cases, the same way: n-1, n-2" in text
    assert text.index("n-0") < text.index("✗ a, b")
    assert text.count("not masked") == text.count("with tea") == 1
    assert "report.html, or --verbose" in text
    assert "or --verbose" not in shown(make_report(make_part(few[0], make_case(), points=LOST)))


def test_a_long_error_keeps_its_end_and_its_hint_where_room_is_scarce() -> None:
    """Triton shows the kernel and, below it, what is wrong with it."""
    message = "\n".join(["CompilationError: at 40:8:", *(f"    source {at}" for at in range(40)), "unsupported: Break"])
    failed = make_case("n", "failed", message=message, diagnosis=("leave no loop early", "the input of n"))
    out = io.StringIO()
    Console(file=out, width=80).print(case_view(failed, DETAILS[-1]))
    assert re.findall(
        "at 40:8|source 1\\b|source 2\\b|... 38 more lines|unsupported: Break|leave no loop|the input", out.getvalue()
    ) == ["at 40:8", "source 1", "... 38 more lines", "unsupported: Break", "leave no loop"]


def test_a_sentence_that_two_outputs_have_is_told_once_where_room_is_scarce() -> None:
    where = "only rows 64 to 99 are wrong"
    failed = make_case("n", "failed", diagnosis=(MASK.format(3), where, "dv[0] is the first wrong element", where))
    for sentences, times in ((1, 1), (2, 1), (EVERYTHING, 2)):
        out = io.StringIO()
        Console(file=out, width=100).print(case_view(failed, Detail(sentences=sentences), cause=MASK.format(3)))
        assert out.getvalue().count(where) == times, sentences


def test_a_cause_of_an_earlier_part_is_not_told_again() -> None:
    parts = [
        make_part(
            *(make_case(f"{name}-{number}", "failed", diagnosis=(MASK.format(number),)) for number in range(3)),
            points=LOST,
        )
        for name in ("n", "m")
    ]
    text = shown(make_report(*parts))
    assert text.count("not masked") == 1
    assert "✗ m-0, m-1, m-2: the same cause as above" in text


def test_the_map_of_the_first_mistake_of_a_part_is_drawn() -> None:
    cases = [make_case(name, "failed", message=f"{name} is wrong", map=MAP) for name in ("first", "second")]
    text = shown(make_report(make_part(*cases, points=LOST)))
    assert text.count("y, 1000 rows × 6 columns; a cell is 400 × 1 elements") == 1
    assert text.index("first is wrong") < text.index("a cell is") < text.index("second is wrong")
    uniform = make_case("n-1", "failed", map=a_map("99", "99"))
    assert "a cell is" not in shown(make_report(make_part(uniform, points=LOST)))


def test_a_check_draws_the_map_of_the_mistake() -> None:
    text = checked(make_case("n-1", "failed", message="y[800] is wrong", diagnosis=("why",), map=MAP))
    assert text.index("y[800] is wrong") < text.index("a cell is 400 × 1 elements") < text.index("why")


def test_a_long_log_shows_its_beginning() -> None:
    part = make_part(make_case("n-1"), make_case("n-2", "crashed"), points=LOST)
    log = "\n".join(["[n-1] " + "x" * 5000, *(f"[n-1] <{number}>" for number in range(30))])
    text = shown(make_report(part, log=log))
    assert f"your code printed ({LOG_LINES} of 31 lines; more in report.json):" in text
    assert f"<{LOG_LINES - 2}>" in text
    assert f"<{LOG_LINES - 1}>" not in text
    assert text.count("x") < 400


def test_what_was_printed_in_wrong_cases_is_shown_and_others_words_once() -> None:
    part = make_part(make_case("n-1"), make_case("n-2", "failed"), make_case("n-3", "failed"), points=LOST)
    report = make_report(part, log="[n-1] right\n[n-2] m = 3\n[n-3] m = 4")
    (result,) = report.assignments
    others = ("numpy: RuntimeWarning: invalid value (12 times)", "b", "c", "d", "e")
    told = result.model_copy(update={"log": result.log.model_copy(update={"others": others})})
    text = shown(report.model_copy(update={"assignments": (told,)}))
    assert "your code printed (2 of 3 lines; more in report.json):" in text
    assert "[n-2] m = 3" in text
    assert "[n-3] m = 4" in text
    assert "[n-1] right" not in text
    assert "beside it: numpy: RuntimeWarning: invalid value (12 times) · b · c · and 2 more" in text


HINT = "softmax.py: row_kernel spills 8 bytes to memory (sm_90): take [bold] smaller tiles"


def hinted(report: Report) -> Report:
    (one,) = report.assignments
    return report.model_copy(update={"assignments": (one.model_copy(update={"hints": (HINT,)}),)})


def test_hints_of_a_right_kernel_stand_below_its_cases() -> None:
    found = lines(shown(hinted(make_report(make_part(make_case())))))
    assert f"hint: {HINT}" in found


def planned(cases: int, file: str = "softmax.py", title: str = "") -> Planned:
    part = PlannedPart(assignment="softmax", part="forward", file=file, title=title, cases=cases)
    return Planned(device="cpu", parts=(part,), isolation=Isolation(jail="none"))


def checked(
    result: CaseResult, report: Report | None = None, file: str = "softmax.py", width: int = 80, left: int = 0
) -> str:
    """What is printed of a check of one case, with others left that are not run."""
    out = io.StringIO()
    with CheckView(Console(file=out, width=width), "grader check mine") as view:
        view(planned(1 + left, file))
        view(CaseDone(assignment="softmax", part="forward", result=result))
        if report is not None:
            view.finish(report)
    return out.getvalue()


@pytest.mark.parametrize(
    ("outcome", "time_s", "seed", "unknown"),
    [
        ("passed", 0.1, False, True),
        ("failed", 0.1, True, False),
        ("crashed", 0.1, True, False),
        ("failed", 0.0, False, False),
        ("forbidden", 0.1, False, False),
        ("not_implemented", 0.1, False, False),
        ("build_failed", 0.0, False, False),
        ("skipped", 0.0, False, False),
    ],
)
def test_a_check_names_the_seed_where_inputs_matter_and_the_gpu_where_a_file_is_right(
    outcome: str,
    time_s: float,
    seed: bool,
    unknown: bool,
) -> None:
    case = make_case("n-1", outcome, time_s=time_s)
    text = checked(case, make_report(make_part(case)), width=60)
    assert ("the same inputs again: grader check mine -a softmax --seed 4711\n" in text) == seed
    assert ("--seed" in text) == seed
    assert ("not part of this check" in text) == unknown


@pytest.mark.parametrize(("width", "marked"), [(100, True), (60, False)])
def test_marks_below_a_line_are_there_where_the_line_has_one_row(width: int, marked: bool) -> None:
    source = "    x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride)"
    traceback = f'  File "softmax.py", line 7, in softmax_kernel\n{source}\n        ^^^^^^^~~~\n'
    case = make_case("n-1", "failed", traceback=traceback)
    for text in (checked(case, width=width), shown(make_report(make_part(case, points=LOST)), width=width)):
        assert "x_col_stride)" in text
        assert ("^^^~~~" in text) == marked


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_prints_of_a_right_file_are_to_be_taken_out(outcome: str) -> None:
    text = shown(make_report(make_part(make_case("n-1", outcome)), log="[n-1] m = 3"))
    assert "m = 3" in text
    assert ("take them out before you hand in" in text) == (outcome == "passed")


def test_a_check_says_whose_kernel_has_these_registers() -> None:
    report = make_report(make_part(make_case()))
    kernel = KernelResources(name="row_kernel", arch="sm_90", registers=28)
    (one,) = report.assignments
    report = report.model_copy(update={"assignments": (one.model_copy(update={"kernels": (kernel,)}),)})
    assert "softmax.py, row_kernel: 28 registers, no spills (sm_90)" in lines(checked(make_case(), report))


@pytest.mark.parametrize(("file", "triton"), [("softmax.py", True), ("softmax.cu", False)])
def test_a_check_shows_hints_and_what_it_leaves_open(file: str, triton: bool) -> None:
    far = make_case("far", "skipped", message="needs a GPU: rows so far apart that their offsets need 64 bits")
    report = hinted(make_report(make_part(make_case(), far)))
    (one,) = report.assignments
    report = report.model_copy(update={"assignments": (one.model_copy(update={"file": file}),)})
    text = checked(make_case(), report, file, width=160)
    assert f"hint: {HINT}" in text
    assert "not part of this check: speed, which needs a GPU" in text
    assert ("whether Triton kernels compile for a GPU" in text) == triton
    assert "skipped without a GPU:\n  rows so far apart that their offsets need 64 bits (1 case)\n" in text


def test_a_property_is_called_by_what_it_tries() -> None:
    title = "every row of y sums to 1"
    failed = make_case("test_rows_sum_to_1", "failed", tries=title, message="row 0 of y sums to 2 and not to 1")
    like = make_case("test_other", "failed", tries="f(-x) = -f(x)", message="row 0 of y sums to 2 and not to 1")
    text = shown(make_report(make_part(make_case("n-1"), failed, points=LOST), log=f"[{title}] m = 3\n[n-1] m = 4"))
    assert f"✗ {title}  failed" in text
    assert f"[{title}] m = 3" in text
    assert "m = 4" not in text
    assert text.count(title) == 2
    text += shown(make_report(make_part(make_case("n-1"), failed, like, points=LOST)))
    assert f'✗ "{title}", "f(-x) = -f(x)"  failed' in text
    assert "test_" not in text


def test_prints_of_parts_with_cases_of_the_same_name_are_told_apart() -> None:
    wrong = make_part(make_case("n-2"), make_case("n-1", "failed"), points=LOST)
    parts = [make_part(make_case("n-1"), make_case("n-2")), wrong.model_copy(update={"name": "backward"})]
    text = shown(make_report(*parts, log=f"[{parts[0].name} n-1] right\n[backward n-1] wrong"))
    assert "[backward n-1] wrong" in text
    assert "right" not in text


def test_notes_faults_and_the_machine_are_named() -> None:
    report = make_report(
        make_part(make_case("n-1")),
        infra_errors=("driver lost",),
        submission=SubmissionInfo(path="s", sha256="0", files=(), notes=("big.py: ignored, larger than 1 MiB",)),
        environment=Environment(grader="0.1", python="3", torch="2.13", triton=None, device="cuda", gpu="NVIDIA H200"),
        isolation=Isolation(jail="none", note="graded on this host: no daemon answers"),
    )
    text = shown(report)
    assert "note: big.py: ignored, larger than 1 MiB" in text
    assert "note: graded on this host: no daemon answers" in text
    assert "not graded: driver lost" in text
    assert "NVIDIA H200 · torch 2.13 · triton none" in text


def test_every_outcome_can_be_shown() -> None:
    from grader.report.model import SEVERITY

    cases = [make_case(f"case-{outcome}", outcome, message=f"as {outcome}") for outcome in SEVERITY]
    text = shown(make_report(make_part(*cases, points=LOST)))
    for outcome in set(SEVERITY) - {"passed", "skipped"}:
        assert f"case-{outcome}" in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_breaks_lines_but_loses_no_words(width: int) -> None:
    part = make_part(
        make_case("n-1"), make_case("n-2", "failed", message="alpha beta gamma delta epsilon zeta"), points=LOST
    )
    text = " ".join(lines(shown(make_report(part), width=width)))
    assert " ".join(text.split()).count("alpha beta gamma delta epsilon zeta") == 1


# Nothing a student wrote steers the terminal --------------------------------------------------------------------------

PLACES: dict[str, Callable[[str], tuple[dict[str, Any], dict[str, Any]]]] = {
    "message": lambda text: ({"message": text}, {}),
    "diagnosis": lambda text: ({"diagnosis": (text,)}, {}),
    "traceback": lambda text: ({"traceback": text}, {}),
    "log": lambda text: ({}, {"log": f"[n-1] {text}"}),
    "tries": lambda text: ({"tries": text}, {}),
    "note": lambda text: ({}, {"submission": SubmissionInfo(path="s", sha256="0", files=(), notes=(text,))}),
    "fault": lambda text: ({}, {"infra_errors": (text,)}),
}


def shown_with(place: str, text: str) -> str:
    """What a terminal gets when a failed report has `text` in one of its places."""
    case, report = PLACES[place](text)
    part = make_part(make_case("n-1"), make_case("n-2", "failed", **case), points=LOST)
    return shown(make_report(part, **report), terminal=True)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "text", ["[red]angry[/red]", "[/]", "[/red]", "[link=http://x]y[/link]", "a[bold", ":boom:", "\\[x]"]
)
def test_markup_is_shown_as_it_was_written(place: str, text: str) -> None:
    assert text in shown_with(place, text)


@pytest.mark.parametrize("title", ["[red]Softmax[/red]", "[/]", "Softmax [x", "back\\"])
def test_markup_in_an_assignments_title_is_shown_as_it_was_written(title: str) -> None:
    assert f"{title}  softmax.py" in shown(make_report(make_part(make_case("n-1")), title=title))


CONTROLS = {
    "colour": "\x1b[31m",
    "clear the screen": "\x1b[2J",
    "cursor up": "\x1b[5A",
    "window title": "\x1b]0;A+\x07",
    "hyperlink": "\x1b]8;;http://x\x1b\\",
    "clipboard": "\x1b]52;c;eA==\x07",
    "C1 introducer": "\x9b31m",
    "NUL": "\x00",
    "delete": "\x7f",
    "right-to-left override": "\u202e",
}


@pytest.mark.parametrize("place", [place for place in PLACES if place != "tries"])
@pytest.mark.parametrize("kind", CONTROLS)
def test_control_characters_do_not_reach_the_terminal(place: str, kind: str) -> None:
    text = shown_with(place, f"⟦{CONTROLS[kind]}⟧ and on")
    (where,) = [position for position, letter in enumerate(text) if letter == "⟦"]
    assert text[where + 1] != CONTROLS[kind][0]
    assert "⟧ and on" in text


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("character", ["\r", "\b", "\a", "\v", "\f"])
def test_nothing_is_overwritten_by_returning_or_stepping_back(place: str, character: str) -> None:
    text = shown_with(place, f"Score 100{character}of 100")
    assert character not in text


# Progress -------------------------------------------------------------------------------------------------------------


def progress_of(cases: list[CaseResult], *, terminal: bool, title: str = "Softmax: Forward") -> str:
    out = io.StringIO()
    with Progress(Console(file=out, width=120, force_terminal=terminal, highlight=False)) as progress:
        progress(planned(len(cases), title=title))
        for case in cases:
            progress(CaseStarted(assignment="softmax", part="forward", case=case.name))
            progress(CaseDone(assignment="softmax", part="forward", result=case))
    return out.getvalue()


def test_without_a_terminal_each_finished_part_is_one_plain_line() -> None:
    cases = [make_case("n-1"), make_case("n-2"), make_case("n-3", "timed_out")]
    assert progress_of(cases, terminal=False) == "Softmax: Forward: 2 passed, 1 timed out\n"


def test_a_part_that_is_not_finished_prints_no_line() -> None:
    out = io.StringIO()
    with Progress(Console(file=out, width=120)) as progress:
        progress(planned(2))
        progress(CaseDone(assignment="softmax", part="forward", result=make_case("n-1")))
        progress(CaseDone(assignment="softmax", part="unplanned", result=make_case("n-1")))
    assert out.getvalue() == ""


def test_in_a_terminal_the_parts_are_a_live_table() -> None:
    text = progress_of([make_case("n-1"), make_case("n-2", "failed")], terminal=True)
    assert "Softmax: Forward" in text
    assert "2/2" in text
    assert "1 passed" in text
    assert "1 failed" in text


def test_a_dumb_terminal_gets_the_lines_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert progress_of([make_case("n-1")], terminal=True) == "Softmax: Forward: 1 passed\n"


def test_brackets_in_an_assignments_title_do_not_end_the_run() -> None:
    assert "Softmax [/]" in progress_of([make_case("n-1")], terminal=True, title="Softmax [/]: Forward")


# Kernels --------------------------------------------------------------------------------------------------------------


def table(found: list[KernelResources], told: tuple[str, ...] = ()) -> list[str]:
    console = Console(file=io.StringIO(), width=140)
    console.print(kernels(found, told))
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def compiled(name: str, case: str, arch: str, registers: int | None = 40, **more: Any) -> KernelResources:
    return KernelResources(name=name, part="forward", case=case, arch=arch, registers=registers, **more)


def test_kernels_that_take_the_same_share_a_row() -> None:
    found = [compiled("k", case, arch) for case in ("a", "b") for arch in ("sm_90", "sm_86")]
    found += [compiled("k", "c", "sm_90", 255, shared_bytes=49152, spill_store_bytes=8, spill_load_bytes=4)]
    assert table(found) == [
        "compiled for sm_90 sm_86",
        "k a, b 40 regs 40 regs",
        "k c 255 regs, 48 KiB, 12 B spilled –",
    ]


def test_what_cannot_be_launched_is_told_once() -> None:
    problem = "needs 9 bytes of shared memory for a block, an A100 has 8"
    found = [compiled("k", case, arch, problem=problem) for case in ("a", "b") for arch in ("sm_90", "sm_80")]
    assert table(found)[1:] == ["k a, b ✗ 40 regs ✗ 40 regs", f"✗ k, compiled for sm_90, sm_80: {problem} (a, b)"]
    assert table(found, (f"k {problem}: it cannot be launched",))[1:] == ["k a, b ✗ 40 regs ✗ 40 regs"]


def test_what_does_not_compile_is_told_once() -> None:
    found = [compiled("k", "a", "sm_90", None, problem="does not compile: bad")]
    assert table(found)[1:] == ["k a ✗ not compiled", "✗ k, compiled for sm_90: does not compile: bad (a)"]
    assert table(found, ("k does not compile for sm_90: bad",))[1:] == ["k a ✗ not compiled"]


def test_many_kernels_are_cut() -> None:
    shown = table([compiled(f"k{number}", "a", "sm_90", number) for number in range(MAX_KERNELS + 3)])
    assert len(shown) == MAX_KERNELS + 2
    assert shown[-1] == "... and 3 more in the report"


def test_a_kernel_in_several_configurations_has_several_rows() -> None:
    found = [compiled("k", "a", arch, registers) for arch in ("sm_90", "sm_86") for registers in (20, 30)]
    assert table(found)[1:] == ["k a 20 regs 20 regs", "k a 30 regs 30 regs"]


def test_a_kernel_of_which_nothing_was_told_is_compiled_all_the_same() -> None:
    assert table([compiled("k", "a", "sm_90", None)])[1:] == ["k a compiled"]


def test_many_problems_are_cut() -> None:
    found = [compiled(f"k{number}", "a", "sm_90", problem=f"problem {number}") for number in range(MAX_PROBLEMS + 2)]
    assert table(found)[-1] == "... and 2 more in the report"
    assert sum("✗ k" in line and "compiled for" in line for line in table(found)) == MAX_PROBLEMS

"""What a worker printed is sorted: the student's lines are kept, libraries' and Python's are folded and counted."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from grader.verdict.prints import (
    CASE_LINES,
    LOG_LINES,
    all_shortened,
    counted,
    first_lines,
    heading,
    shortened,
    sort_out,
    with_case,
    without_places,
)

SEGFAULT = "import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nctypes.string_at(0)\n"
LATE = """
import time
from grader.worker.late import told_where
with told_where(0.1):
    print("mine", flush=True)
    time.sleep(0.5)
"""


def run(source: str) -> str:
    command = [sys.executable, "-X", "faulthandler", "-c", source]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, input="").stdout


@pytest.mark.parametrize(
    ("source", "own", "others"),
    [(SEGFAULT, "", ("Python: Segmentation fault",)), (LATE, "mine", ())],
    ids=["a process that crashes", "a process whose time is up"],
)
def test_pythons_own_reports_of_an_end_are_folded(source: str, own: str, others: tuple[str, ...]) -> None:
    text = run(source)
    assert "File" in text
    found, beside = sort_out(text)
    assert (found.strip(), counted(beside)) == (own, others)


def test_warnings_of_libraries_are_counted_and_have_no_path() -> None:
    places = (
        "/home/x/.venv/lib/python3.12/site-packages/numpy/_core/m.py",
        "/usr/lib/python3.12/threading.py",
        "<frozen x>",
    )
    said = [
        warnings.formatwarning("invalid value in log", RuntimeWarning, place, 7, "    return np.log(x)")
        for place in places
    ]
    found, beside = sort_out("m = 1\n" + "".join(said) + said[0] + "l = 2")
    assert found == "m = 1\nl = 2\n"
    assert counted(beside) == (
        "numpy: RuntimeWarning: invalid value in log (2 times)",
        "Python: RuntimeWarning: invalid value in log (2 times)",
    )


def test_the_students_own_words_are_kept() -> None:
    own = (
        "softmax.py:12: RuntimeWarning: divide by zero\n  y = x / 0\nTimeout (of mine)!\n"
        '  File "softmax.py", line 3, in f\nThread 7 has m = 3\nFatal Python errors are bad\n'
    )
    assert sort_out(own) == (own, {})


def test_each_line_has_its_case() -> None:
    assert with_case("n-1", "m = 1\n\nl = 2\n") == ["[n-1] m = 1", "[n-1] l = 2"]
    assert with_case("", "hello") == ["[import] hello"]


def test_what_is_long_loses_its_middle() -> None:
    text = shortened(["x" * 100] * 100, 1000)
    assert len(text) < 1100
    assert "characters left out" in text
    assert set(map(len, text.splitlines()[:2] + text.splitlines()[-2:])) == {100}
    assert shortened(["a", "b"], 1000) == "a\nb"


def test_of_many_sections_each_keeps_its_beginning() -> None:
    sections = [with_case(f"n-{number}", "x" * 50 + "\n" + "y" * 3000) for number in range(20)]
    text = all_shortened([*sections, with_case("short", "z")], 10_000)
    assert len(text) < 12_000
    assert all(f"[n-{number}] {'x' * 50}\n" in text for number in range(20))
    assert text.endswith("\n[short] z")


def test_the_first_lines_of_the_first_cases_are_shown() -> None:
    cases = [f"n-{number}" for number in range(9)]
    lines = [
        line for case in reversed(cases) for line in with_case(case, "\n".join(f"{case} {row}" for row in range(50)))
    ]
    lines = [*with_case("", "hello"), *lines]
    shown, stand_for = first_lines(lines, cases, [])
    assert shown[0] == "[import] hello"
    assert shown[1 : 1 + CASE_LINES] == [f"[n-0] n-0 {row}" for row in range(CASE_LINES)]
    assert (len(shown), stand_for) == (LOG_LINES, LOG_LINES)
    wrong, _ = first_lines(lines, cases, ["n-3", "n-7"])
    assert [line.partition("]")[0] for line in wrong] == ["[n-3"] * 6 + ["[n-7"] * 6
    assert first_lines(lines, cases, ["of which nothing is printed"]) == (shown, stand_for)
    assert first_lines(lines, cases, ["n-8"])[0] == [f"[n-8] n-8 {row}" for row in range(LOG_LINES)]


def test_equal_lines_are_shown_once_and_counted() -> None:
    lines = ["[a] called", "[a] called", "[a] m = 1", "[b] called", "[c] called", "[c] m = 2", "[c] m = 2", "[d] m = 1"]
    assert first_lines(lines, ["a", "b", "c", "d"], []) == (
        [
            "[a] called  (2 times, and in 2 more cases)",
            "[a] m = 1  (the same in 1 more case)",
            "[c] m = 2  (2 times)",
        ],
        len(lines),
    )


def test_a_part_is_named_where_there_are_several() -> None:
    assert (heading("n-1", "forward", 1), heading("n-1", "forward", 2)) == ("n-1", "forward n-1")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ('  File "/tmp/grader-run-x8/submission/softmax.py", line 3', '  File "softmax.py", line 3'),
        ("/tmp/grader-run-x8/scratch/7-0af3/cache: full", "cache: full"),
        ('File "/tmp/grader-run-x8/runtime/grader/worker/run.py"', 'File "grader/worker/run.py"'),
        ("at /home/me/.venv/lib/python3.12/site-packages/torch/nn/functional.py:12", "at torch/nn/functional.py:12"),
        ("(/usr/lib/python3/dist-packages/numpy/a.py)", "(numpy/a.py)"),
        ('File "/usr/lib/python3.12/threading.py", line 9', 'File "threading.py", line 9'),
        ("y = a/b // lib/python and /dev/null, 3/4", "y = a/b // lib/python and /dev/null, 3/4"),
    ],
)
def test_paths_begin_where_a_student_knows_them(printed: str, shown: str) -> None:
    assert without_places(printed) == shown

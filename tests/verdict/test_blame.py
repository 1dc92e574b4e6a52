"""The lines of a student's files that results name, and the excerpts around them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from grader.report.model import MAX_SOURCE_LINES, MAX_SOURCE_WIDTH, MAX_SOURCES, AssignmentResult
from grader.submission import read_staged, stage
from grader.verdict.blame import AROUND, OF_A_RESULT, blamed, with_sources
from tests.report.building import make_case, make_part, make_report

FILES = ("softmax.py", "gelu.cu", "tools/row sums.py", "helper.cuh")
TRACEBACK = '  File "softmax.py", line 9, in softmax\n    raise_it()\n  File "softmax.py", line 2, in raise_it\n'


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("out of bounds: thread (1, 0, 0) reads x[1] (line 10): no check", [("gelu.cu", 10)]),
        ("gelu.cu(12): error: identifier is undefined", [("gelu.cu", 12)]),
        ("gelu.cu:12:5: error: expected ';'", [("gelu.cu", 12)]),
        ("softmax.py, line 3: a curly quote", [("softmax.py", 3)]),
        ("a race with line 30 of helper.cuh", [("helper.cuh", 30)]),
        ('File "tools/row sums.py", line 7, in f', [("tools/row sums.py", 7)]),
        ("lines 4 and 8 of a matrix", [("gelu.cu", 4)]),
        ('File "/usr/lib/python3/torch/nn.py", line 7, in forward', []),
        ("other/softmax.py:7: of somebody else", []),
        ("3 lines were printed; underline 4; deadline 5", []),
        ("softmax.py:99999999999999999999", []),
    ],
)
def test_a_line_is_found_in_the_words_of_a_result(words: str, places: list[tuple[str, int]]) -> None:
    assert blamed(make_case(outcome="failed", message=words), "gelu.cu", FILES) == places


def test_the_innermost_frame_comes_first_but_after_the_message() -> None:
    case = make_case(outcome="failed", message="IndexError: see line 5", traceback=TRACEBACK)
    assert blamed(case, "softmax.py", FILES) == [("softmax.py", 5), ("softmax.py", 2), ("softmax.py", 9)]
    many = make_case(outcome="failed", message=" ".join(f"line {number}" for number in range(1, 50)))
    assert len(blamed(many, "softmax.py", FILES)) == OF_A_RESULT


def told(messages: list[str], source: bytes | Mapping[str, bytes]) -> AssignmentResult:
    """The assignment, with the excerpts of a file, of cases with these messages."""
    cases = [make_case(f"n-{at}", "failed", message=one) for at, one in enumerate(messages)]
    (result,) = make_report(make_part(*cases)).assignments
    sources = {"softmax.py": source} if isinstance(source, bytes) else source

    def read(file: str) -> bytes:
        if file not in sources:
            raise FileNotFoundError(file)
        return sources[file]

    return with_sources(result, FILES, read)


def test_lines_that_lie_near_share_an_excerpt() -> None:
    source = "\r\n".join(f"line {number}" for number in range(1, 101)).encode()
    first, second = told(["line 2", "line 9", "line 50", "line 50"], source).sources
    assert (first.first, first.blamed, first.lines) == (1, (2, 9), tuple(f"line {one}" for one in range(1, 14)))
    assert (second.first, second.blamed, len(second.lines)) == (50 - AROUND, (50,), 2 * AROUND + 1)


def test_excerpts_are_bounded_whatever_the_file_holds() -> None:
    wide = told(["line 1"], b"\x00\x1b[31m" + b"\xff" * 100_000).sources[0]
    assert (len(wide.lines[0]), "\x1b" in wide.lines[0]) == (MAX_SOURCE_WIDTH, False)
    every = told([f"softmax.py:{3 * number}" for number in range(1, 400)], b"\n" * 2000).sources
    assert len(every) == MAX_SOURCES
    assert max(len(one.lines) for one in every) <= MAX_SOURCE_LINES
    assert all(set(one.blamed) <= set(range(one.first, one.first + len(one.lines))) for one in every)


@pytest.mark.parametrize("source", [b"", b"one line"])
def test_a_line_that_the_file_does_not_have_has_no_excerpt(source: bytes) -> None:
    assert told(["line 7", "line 0"], source).sources == ()
    assert told(["line 7 of helper.cuh"], source).sources == ()


def test_a_staged_file_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    """Code that is not isolated can do that; the excerpt must not show another file of the machine."""
    (tmp_path / "sub/inside").mkdir(parents=True)
    for name in ("a.py", "inside/b.py"):
        (tmp_path / "sub" / name).write_text("x = 1\n")
    folder = stage(tmp_path / "sub", tmp_path / "staged", ("a.py",)).folder
    assert read_staged(folder, "a.py") == read_staged(folder, "inside/b.py") == b"x = 1\n"
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "b.py").write_text("key")
    (folder / "a.py").unlink()
    (folder / "a.py").symlink_to(secret / "b.py")
    (folder / "inside").rename(folder / "was")
    (folder / "inside").symlink_to(secret)
    os.mkfifo(folder / "pipe.py")
    for name in ("a.py", "inside/b.py", "pipe.py", "gone.py"):
        with pytest.raises(OSError):
            read_staged(folder, name)

"""CSV files of platforms: single cells are replaced, and every other byte stays. Python's csv module is the judge of what a file says."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grader.classroom.folder import ClassError
from grader.classroom.sheet import FORMULA, parsed, written

CELL = st.text(alphabet='ab,;"\n\r\t é=0.\udcff', max_size=6)
QUOTED_CELL = CELL.map(lambda text: '"' + text.replace('"', '""') + '"')
BARE_CELL = st.text(alphabet='ab é=0."\udcff', max_size=5).filter(lambda text: not text.startswith('"'))
ROWS = st.lists(st.lists(st.one_of(QUOTED_CELL, BARE_CELL), min_size=3, max_size=3), min_size=1, max_size=5)


@given(
    ROWS,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(",;\t"),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(1, 4)),
)
@example([['"a""b"', "c", ""], ["", '"x\r\ny"', "1"]], "\r\n", ",", True, False, {1})
def test_only_the_cells_that_are_filled_change(
    rows: list[list[str]], end: str, delimiter: str, bom: bool, last: bool, filled: set[int]
) -> None:
    rows = [["h1", "h2", "h3"], *rows]
    lines = [delimiter.join(row) + end for row in rows]
    text = "\ufeff" * bom + "".join(lines)
    if not last:
        text = text.removesuffix(end)
    content = text.encode("utf-8", "surrogateescape")
    sheet = parsed(content, "grades.csv")
    assert sheet.delimiter == delimiter
    assert sheet.filled(1, {}) == content
    places = {at for at in filled if at < len(rows)}
    changed = sheet.filled(1, {sheet.all_rows[at].line: "87,5" for at in places})
    quoted = '"87,5"' if delimiter == "," else "87,5"
    expected = [[row[0], quoted, row[2]] if at in places else row for at, row in enumerate(rows)]
    wanted = "\ufeff" * bom + "".join(delimiter.join(row) + end for row in expected)
    wanted = wanted if last else wanted.removesuffix(end)
    assert changed == wanted.encode("utf-8", "surrogateescape")


@given(ROWS, st.sampled_from(["\n", "\r\n"]))
def test_the_values_are_those_that_csv_reads(rows: list[list[str]], end: str) -> None:
    rows = [["h1", "h2", "h3"], *rows]
    text = "".join(",".join(row) + end for row in rows)
    assume("\r" not in text.replace("\r\n", ""))
    sheet = parsed(text.encode("utf-8", "surrogateescape"), "grades.csv")
    assert [row.values for row in sheet.all_rows] == list(csv.reader(io.StringIO(text, newline="")))


def test_rows_have_the_numbers_of_their_lines() -> None:
    sheet = parsed(b'a,b\r\n"x\ny",1\r\n\r\nlast,2', "grades.csv")
    assert [(row.line, tuple(row.values)) for row in sheet.rows] == [(2, ("x\ny", "1")), (5, ("last", "2"))]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "grades.csv: is empty"),
        (b"\xef\xbb\xbf \r\n", "grades.csv: is empty"),
        ("a,b\n".encode("utf-16"), "grades.csv: is not in UTF-8"),
        (b'a,b\n1,"2\n3,4\n', "grades.csv:2: a quoted cell has no end"),
        (b'a,b\n1,"2""3\n', "grades.csv:2: a quoted cell has no end"),
    ],
)
def test_what_is_no_csv_file_is_refused_with_its_line(content: bytes, words: str) -> None:
    with pytest.raises(ClassError) as refused:
        parsed(content, "grades.csv")
    assert str(refused.value).startswith(words)


def test_a_row_that_is_too_short_for_its_grade_is_refused() -> None:
    with pytest.raises(ClassError, match=r"grades.csv:2: the row has 1 cells, and the grade belongs into cell 2"):
        parsed(b"a,b\n1\n", "grades.csv").filled(1, {2: "5"})


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.floats(-1e6, 1e6))
@example(["=1+1", "\t=1", "\r@x", "-2"], -3.5)
def test_our_own_cells_are_no_formulas_and_numbers_stay_numbers(texts: list[str], value: float) -> None:
    text = written(["h"] * (len(texts) + 2), [[*texts, value, None]])
    (_, row) = csv.reader(io.StringIO(text, newline=""))
    assert [cell.removeprefix("'") for cell in row[:-2]] == [one.removeprefix("'") for one in texts]
    assert not any(cell.startswith(FORMULA) for cell in row[:-2])
    assert float(row[-2]) == value
    assert row[-1] == ""

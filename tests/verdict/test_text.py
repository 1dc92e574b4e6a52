"""A file that is no text is told with its line and what to do about it; whatever Python imports, and reads back, is text."""

from __future__ import annotations

import ast

import pytest

from grader.verdict.text import fault, left_over

MERGE = (
    "a mark of git's, of a merge with a conflict: keep one of the two versions, and delete the lines that begin with "
    "<<<<<<<, ======= and >>>>>>>"
)
MARKDOWN = "``` is Markdown's, as in a chat: keep the lines of code alone, without those around them"
NOTEBOOKS = "this is a command to a notebook, which no program can have: delete the line"
FAULTS = {
    b"x = 1\n# J\xf6rg\n": "line 2: the byte 0xF6 is not UTF-8: save the file as UTF-8",
    b"x = 1\r# J\xf6rg\r": "line 2: the byte 0xF6 is not UTF-8: save the file as UTF-8",
    b"# coding: utf8\n# J\xf6rg\n": "line 2: the byte 0xF6 is not UTF-8: save the file as UTF-8",
    b"# coding: ascii\n\nx = '\xf6'\n": "line 3: the byte 0xF6 is not ascii, the encoding that a comment at the top names: "
    "save the file as UTF-8, and take that comment out",
    b"#!python\n# coding: nope\n": "line 2: the comment names the encoding nope, in which Python cannot read the file: "
    "save the file as UTF-8, and take that out",
    b"\xef\xbb\xbf# coding: latin-1\n": "line 1: the comment names the encoding latin-1, in which Python cannot read the file: "
    "save the file as UTF-8, and take that out",
    b"x = 1\n\0": "line 2: there is a NUL byte, which no text has: save the file as UTF-8",
    "x = 1".encode("utf-16"): "line 1: the file is saved as UTF-16: save the file as UTF-8",
    "x = 1".encode("utf-32"): "line 1: the file is saved as UTF-32: save the file as UTF-8",
    "x = 1".encode("utf-16-le"): "line 1: the file looks as if it were saved as UTF-16: save the file as UTF-8",
    "\nx = “a”\n".encode(): "line 2: a curly quote “ (U+201C): type a straight one",
    "x = f'{‘a’}'\n".encode(): "line 1: a curly quote ‘ (U+2018): type a straight one",
    "x = 2 – 1\n".encode(): "line 1: a long dash – (U+2013): type a hyphen, -",
    "x = 2 × 1\n".encode(): "line 1: a multiplication sign × (U+00D7): type *",
    "def f(*a): …\n".encode(): "line 1: an ellipsis … (U+2026): type three dots",
    "x\u00a0= 2\n".encode(): "line 1: an invisible character (U+00A0, no-break space): delete it, or type a plain space",
    b"x = 1\n<<<<<<< HEAD\nx = 2\n=======\nx = 3\n>>>>>>> other\n": f"line 2: {MERGE}",
    b"```python\nx = 1\n```\n": f"line 1: {MARKDOWN}",
    b"\nHere is the kernel:\n\n```python\nx = 1\n```\n": f"line 4: {MARKDOWN}",
    b"x = 1\n```\n\nIt needs no shared memory.\n": f"line 2: {MARKDOWN}",
    b"import torch\n\n!pip install triton\nx = 1\n": f"line 3: {NOTEBOOKS}",
    b"%%writefile softmax.py\nimport torch\n": f"line 1: {NOTEBOOKS}",
    b"%matplotlib inline\n": f"line 1: {NOTEBOOKS}",
    b"try:\n    import triton\nexcept ImportError:\n    !pip install triton\n": f"line 4: {NOTEBOOKS}",
    b'\n{"cells": [], "metadata": {}, "nbformat": 4}\n': "line 1: this is a Jupyter notebook and no program: export it as a script, "
    "or copy the code of its cells",
    "x = 2 € 3\n".encode(): "line 1: the character € (U+20AC, euro sign) means nothing in a program: delete it, or type what "
    "ASCII has for it",
}


@pytest.mark.parametrize("source", FAULTS)
def test_the_line_and_the_mend_are_told(source: bytes) -> None:
    assert fault("softmax.py", source) == f"softmax.py, {FAULTS[source]}"


@pytest.mark.parametrize(
    "source",
    [
        "x = '“a” – € \u00a0'  # “b”\n".encode(),
        b"\xef\xbb\xbfx = 1\n",
        b"\xef\xbb\xbf# coding: utf-8\nx = 1\n",
        b"# coding: latin-1\nx = '\xf6'\n",
        b"",
        b'"""\n```\nsoftmax(x)\n```\n<<<<<<< HEAD\n"""\n',
    ],
)
def test_text_is_left_alone(source: bytes) -> None:
    ast.parse(source)
    assert fault("softmax.py", source) == ""


def test_other_mistakes_are_pythons_to_tell() -> None:
    assert fault("softmax.py", b"x = (") == ""
    assert fault("softmax.py", b"x = (7\n% y)\nz = = 1\n") == ""
    assert fault("softmax.py", b'import torch\n\ndef f(:\n    """\n```\nf(x)\n```\n"""\n') == ""
    assert fault("gelu.cu", "// “a” J\xf6rg".encode("latin-1", errors="replace")) == ""


def test_marks_of_git_markdown_and_notebooks_in_cpp_are_told() -> None:
    assert left_over("gelu.cu", "int x;\n=======\nint y;\n") == f"gelu.cu, line 2: {MERGE}"
    assert left_over("gelu.cu", "```cpp\nint x;\n```\n") == f"gelu.cu, line 1: {MARKDOWN}"
    assert left_over("gelu.cu", "%%writefile gelu.cu\nint x;\n") == f"gelu.cu, line 1: {NOTEBOOKS}"
    assert left_over("gelu.cu", "k<<<1, 2\n>>>(x);\n") == ""
    assert left_over("gelu.cu", "if (a &&\n!b || c\n% d) return;\n") == ""


@pytest.mark.parametrize("line", [b"%a\n", b"```\n"])
def test_many_lines_with_marks_are_read_once(line: bytes) -> None:
    """One by one would be an hour."""
    told = fault("softmax.py", b"y = 1\nx = = 1\n" + line * 200_000)
    assert told == ""

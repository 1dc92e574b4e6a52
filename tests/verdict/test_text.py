"""A file that is no text is told with its line and what to do about it; whatever Python imports, and reads back, is text."""

from __future__ import annotations

import ast

import pytest

from grader.verdict.text import fault

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
    ],
)
def test_text_is_left_alone(source: bytes) -> None:
    ast.parse(source)
    assert fault("softmax.py", source) == ""


def test_other_mistakes_are_pythons_to_tell() -> None:
    assert fault("softmax.py", b"x = (") == ""
    assert fault("gelu.cu", "// “a” J\xf6rg".encode("latin-1", errors="replace")) == ""

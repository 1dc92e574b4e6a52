"""Checks that a source file is text that Python, Triton and compilers can read; if not, names the line and the mend."""

from __future__ import annotations

import codecs
import io
import re
import tokenize
import unicodedata
import warnings

from grader.verdict.sources import parsed

SAVE = "save the file as UTF-8"
# UTF-32 first: its little-endian mark begins with that of UTF-16.
MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
# Characters that word processors and web pages put in place of ASCII, each with the ASCII to type instead.
STANDS_FOR = {
    "curly quote": ("type a straight one", "‘’‚‛“”„‟‹›«»′″"),
    "long dash": ("type a hyphen, -", "‐‑‒–—―−"),
    "multiplication sign": ("type *", "×"),
    "ellipsis": ("type three dots", "…"),
}
MERGE = re.compile(r"^(<{7}|={7}|>{7})( |$)", re.MULTILINE)  # git marks a conflict so.
FENCE = re.compile(r"^```", re.MULTILINE)  # Markdown marks code so.
MAGIC = re.compile(r"^(%%?[ \t]*[a-z]|[ \t]*!(?!=))", re.MULTILINE)  # A notebook's commands begin so, as !pip.
# Commands of a notebook's cell begin so, as %%writefile; a line of C++ may begin with ! or %.
CELL_MAGIC = re.compile(r"^%%[a-z]", re.MULTILINE)
NOTEBOOKS = "this is a command to a notebook, which no program can have: delete the line"
INVALID = re.compile(r"invalid (?:non-printable )?character (?:'.' \()?U\+(?P<code>[0-9A-F]{4,6})")


def decoded(source: bytes) -> str:
    """A file's text for showing and searching, without a byte order mark; invalid UTF-8 is replaced."""
    return source.decode("utf-8", errors="replace").removeprefix("\ufeff")


def lines(text: str) -> list[str]:
    """A text's lines, split as Python and compilers count them."""
    return re.split(r"\r\n|\r|\n", text)


def fault(file: str, source: bytes) -> str:
    """Why a file cannot be read, in one sentence with the line and the mend; "" if it can, or if only a compiler can tell.

    A file that Python imports but that cannot be read back as text counts too: Triton compiles kernels from their text.
    """
    if told := _of_any(source) or (_of_python(source) if file.endswith(".py") else ""):
        return f"{file}, {told}"
    return ""


def _of_any(source: bytes) -> str:
    for mark, name in MARKS.items():
        if source.startswith(mark):
            return f"line 1: the file is saved as {name}: {SAVE}"
    if source.lstrip().startswith(b"{") and b'"nbformat"' in source:
        return "line 1: this is a Jupyter notebook and no program: export it as a script, or copy the code of its cells"
    if (at := source.find(b"\0")) < 0:
        return ""
    wide = source.count(b"\0") > len(source) // 4
    what = "the file looks as if it were saved as UTF-16" if wide else "there is a NUL byte, which no text has"
    return f"line {_line_of_byte(source, at)}: {what}: {SAVE}"


def _of_python(source: bytes) -> str:
    """The fault of a Python file: in parsing it, or in reading it back as text."""
    try:
        with warnings.catch_warnings(action="ignore"):
            parsed(source)
        why: SyntaxError | None = None
    except SyntaxError as error:
        why = error
    except (ValueError, RecursionError, MemoryError):
        return ""
    if (told := _of_encoding(source)) or why is None:
        return told
    if found := INVALID.search(why.msg):
        return f"line {why.lineno}: {_character(chr(int(found['code'], 16)))}"
    text = decoded(source)
    at = "".join(lines(text)[(why.lineno or 1) - 1 :][:1])
    if MAGIC.match(at):
        return f"line {why.lineno}: {NOTEBOOKS}"
    first = _line(text, len(text) - len(text.lstrip()))
    is_of_it = why.lineno == first or FENCE.match(at) is not None
    return _left_over(text, fences=is_of_it)


def _left_over(text: str, fences: bool = True) -> str:
    """The line of git or, with `fences`, of Markdown that was left in a program, with the mend; "" if there is none."""
    if found := MERGE.search(text):
        return (
            f"line {_line(text, found.start())}: a mark of git's, of a merge with a conflict: keep one of the two versions, and "
            "delete the lines that begin with <<<<<<<, ======= and >>>>>>>"
        )
    if fences and (found := FENCE.search(text)):
        where = f"line {_line(text, found.start())}"
        return f"{where}: ``` is Markdown's, as in a chat: keep the lines of code alone, without those around them"
    return ""


def _of_encoding(source: bytes) -> str:
    line, declared = _declared(source)
    name = declared or "utf-8"
    try:
        source.decode(name)
        tokenize.detect_encoding(io.BytesIO(source).readline)
    except UnicodeDecodeError as error:
        what = "UTF-8" if declared is None else f"{declared}, the encoding that a comment at the top names"
        mend = SAVE if declared is None else f"{SAVE}, and take that comment out"
        return f"line {_line_of_byte(source, error.start)}: the byte 0x{source[error.start]:02X} is not {what}: {mend}"
    except (SyntaxError, LookupError, UnicodeError):
        return f"line {line}: the comment names the encoding {name}, in which Python cannot read the file: {SAVE}, and take that out"
    return ""


def _declared(source: bytes) -> tuple[int, str | None]:
    """The line of a comment in one of the first two lines that names an encoding, else 1; and the encoding, unless it is UTF-8."""
    for number, line in enumerate(source.removeprefix(codecs.BOM_UTF8).splitlines()[:2], 1):
        if found := tokenize.cookie_re.match(line.decode("latin-1")):
            is_usual = found[1].lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig")
            return number, None if is_usual else found[1][:40]
        if not re.match(rb"^[ \t\f]*(?:[#\r\n]|$)", line):
            break
    return 1, None


def _line(text: str, at: int) -> int:
    return len(lines(text[:at]))


def _line_of_byte(source: bytes, at: int) -> int:
    return _line(source.decode("latin-1"), at)


def _character(character: str) -> str:
    """Words for a character that programs cannot have outside strings and comments, with the character to type
    instead.
    """
    code = f"U+{ord(character):04X}"
    for what, (mend, characters) in STANDS_FOR.items():
        if character in characters:
            return f"a {what} {character} ({code}): {mend}".replace("a ellipsis", "an ellipsis")
    name = unicodedata.name(character, "a character without a name").lower()
    if unicodedata.category(character)[0] in "CZ":
        return f"an invisible character ({code}, {name}): delete it, or type a plain space"
    return f"the character {character} ({code}, {name}) means nothing in a program: delete it, or type what ASCII has for it"


def left_over(file: str, code: str) -> str:
    """A sentence about the marks of git, Markdown or a notebook in C++ `code` without comments and strings; "" if there are none."""
    if found := CELL_MAGIC.search(code):
        return f"{file}, line {_line(code, found.start())}: {NOTEBOOKS}"
    return f"{file}, {told}" if (told := _left_over(code)) else ""


def stray_character(file: str, code: str) -> str:
    """A sentence about the first of a word processor's characters in C++ `code` without comments and strings; "" if there is none."""
    characters = "".join(characters for _, characters in STANDS_FOR.values()) + "\u00a0\u200b\u2028\ufeff"
    if (found := re.search(f"[{re.escape(characters)}]", code)) is None:
        return ""
    return f"{file}, line {_line(code, found.start())}: {_character(found.group())}"

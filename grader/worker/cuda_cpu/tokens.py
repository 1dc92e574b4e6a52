"""Reads CUDA C++ as tokens: what stands where, and which brackets belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass

from grader.protocol import code_of

TOKEN = re.compile(
    r"""
      (?P<space>\s+|\\\n)
    | (?P<directive>(?m:^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*))
    | (?P<string>R"(?P<delimiter>[^()\\\s"]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
    | (?P<number>\.?\d(?:[\w.']|[eEpP][+-])*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<launch><<<|>>>)
    | (?P<other>::|->|[<>]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
NAMELESS = ("else", "do", "return")  # An expression, not a name, follows these keywords.
OPENING, CLOSING = {"(", "[", "{"}, {")", "]", "}"}


class RewriteError(Exception):
    """CUDA syntax that cannot be read or rewritten, in the student's `line`."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass
class Token:
    """A piece of a source: `kind` is a group of TOKEN, or what a rewriter makes of it."""

    kind: str
    text: str
    line: int

    @property
    def blank(self) -> bool:
        return self.kind in ("space", "directive")

    @property
    def is_identifier(self) -> bool:
        """Whether it is a name, and none of the keywords that may come before a kernel's."""
        return self.kind == "name" and self.text not in NAMELESS


def tokenize(source: str) -> list[Token]:
    """All of a source in tokens, without comments and what `#if 0` leaves out: that need not be C++."""
    tokens, line = [], 1
    for match in TOKEN.finditer(code_of(source, strings=True)):
        kind = match.lastgroup or "other"
        tokens.append(Token("string" if kind == "delimiter" else kind, match.group(), line))
        line += match.group().count("\n")
    return tokens


def text_of(tokens: list[Token]) -> str:
    """The text of these tokens, with a space for all that is blank."""
    return "".join(" " if token.blank else token.text for token in tokens)


def next_of(tokens: list[Token], position: int) -> int | None:
    """The position of the next token that is not blank."""
    return next((at for at in range(position + 1, len(tokens)) if not tokens[at].blank and tokens[at].text), None)


def previous_of(tokens: list[Token], position: int) -> int | None:
    """The position of the token before that is not blank."""
    return next((at for at in range(position - 1, -1, -1) if not tokens[at].blank and tokens[at].text), None)


def partner_of(tokens: list[Token], bracket: int) -> int:
    """The position of the bracket that belongs to the one at `bracket`. Raises RewriteError."""
    opens = tokens[bracket].text in OPENING
    depth = 0
    for position in range(bracket, len(tokens)) if opens else range(bracket, -1, -1):
        depth += (tokens[position].text in OPENING) - (tokens[position].text in CLOSING)
        if depth == 0:
            return position
    words = "that is never closed" if opens else "without its opening"
    raise RewriteError(tokens[bracket].line, f"a {tokens[bracket].text} {words}")


def launch_end_of(tokens: list[Token], opening: int) -> int:
    """The position of the `>>>` of the launch that opens at `opening`: the first outside all brackets. Raises RewriteError."""
    depth = 0
    for position in range(opening + 1, len(tokens)):
        text = tokens[position].text
        depth += (text in OPENING) - (text in CLOSING)
        if text == ">>>" and depth == 0:
            return position
        if depth < 0 or (text == ";" and depth == 0):
            break
    raise RewriteError(tokens[opening].line, "<<< without its >>>")


def split(tokens: list[Token], start: int, end: int) -> list[list[int]]:
    """Positions between `start` and `end`, split at commas outside brackets and template arguments."""
    pieces: list[list[int]] = [[]]
    depth = angle = 0
    for position in range(start, end):
        text = tokens[position].text
        depth += (text in OPENING) - (text in CLOSING)
        if text == "<" and _opens_template(tokens, position, end):
            angle += 1
        elif text == ">" and angle:
            angle -= 1
        if text == "," and depth == 0 and angle == 0:
            pieces.append([])
        else:
            pieces[-1].append(position)
    return pieces


def _opens_template(tokens: list[Token], position: int, end: int) -> bool:
    """Whether the `<` at `position` begins template arguments: a name precedes it, and only a list comes before its `>`."""
    before = previous_of(tokens, position)
    if before is None or tokens[before].kind != "name":
        return False
    depth = 0
    for at in range(position + 1, end):
        text = tokens[at].text
        depth += (text in OPENING) - (text in CLOSING)
        if depth < 0 or (depth == 0 and text in (";", "&", "|", "=", "<=", ">=", "?")):
            return False
        if depth == 0 and text == ">":
            return True
    return False

"""CUDA C++ → C++ that g++ and clang take: launches and shared variables, the two things that macros cannot do.

    name<T><<<grid, block>>>(a, b)        →   ::cuda_cpu::launch(LINE, "name<T>", [=](auto... p) { name<T>(p...); }, grid, block)(a, b)
    __shared__ float tile[32][33], sum;   →   references into the block's shared memory
    extern __shared__ float dynamic[];    →   a pointer to what the launch asked for

Every newline stays where it is, so line numbers are the student's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""
      (?P<space>\s+|\\\n)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<directive>(?m:^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*))
    | (?P<string>R"(?P<delimiter>[^(\s]*)\(.*?\)(?P=delimiter)"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)+')
    | (?P<number>\.?\d(?:[\w.']|[eEpP][+-])*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<launch><<<|>>>)
    | (?P<other>::|->|.)
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class RewriteError(Exception):
    """Source that looks like CUDA and cannot be read; `line` is the student's."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass
class Token:
    kind: str
    text: str
    line: int

    @property
    def blank(self) -> bool:
        return self.kind in ("space", "comment", "directive")


def tokenize(source: str) -> list[Token]:
    tokens, line = [], 1
    for match in TOKEN.finditer(source):
        kind = match.lastgroup or "other"
        tokens.append(Token("string" if kind == "delimiter" else kind, match.group(), line))
        line += match.group().count("\n")
    return tokens


def rewrite(source: str) -> str:
    """The whole source. Raises RewriteError."""
    tokens = tokenize(source)
    _shared_variables(tokens)
    _launches(tokens)
    return "".join(token.text for token in tokens)


# Launches ------------------------------------------------------------------------------------------------------------


def _launches(tokens: list[Token]) -> None:
    """Rewrite every launch in place; the innermost callee is the expression just before `<<<`."""
    index = 0
    while index < len(tokens):
        if tokens[index].text == "<<<":
            index = _launch(tokens, index)
        index += 1


def _launch(tokens: list[Token], opening: int) -> int:
    start = _callee_start(tokens, opening)
    closing = _matching(tokens, opening, ">>>")
    line = tokens[opening].line
    call = _next(tokens, closing)
    if call is None or tokens[call].text != "(":
        raise RewriteError(line, "after <<<...>>> the kernel's arguments in ( ) are missing")
    callee = "".join(" " if token.blank else token.text for token in tokens[start:opening]).strip()
    arguments = _split(tokens, opening + 1, closing)
    if not 2 <= len(arguments) <= 4:
        raise RewriteError(
            line, f"<<<...>>> takes 2 to 4 values (grid, block, shared bytes, stream), here are {len(arguments)}"
        )
    quoted = callee.replace("\\", "\\\\").replace('"', '\\"')
    newlines = "".join("\n" * token.text.count("\n") for token in tokens[start:opening])
    tokens[start].text = (
        f'::cuda_cpu::launch({line}, "{quoted}", '
        f"[=](auto... cuda_cpu_argument) {{ {callee}(cuda_cpu_argument...); }}, {newlines}"
    )
    for position in range(start + 1, opening + 1):
        tokens[position].text = ""
    tokens[closing].text = ")"
    return closing


def _callee_start(tokens: list[Token], end: int) -> int:
    """Where `a::b<T, (x > y)>` before position `end` begins."""
    position = _previous(tokens, end)
    if position is not None and tokens[position].text == ">":
        depth = 0
        while position is not None:
            text = tokens[position].text
            if text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    break
            elif text in CLOSING:
                position = _opening_of(tokens, position)
            position = _previous(tokens, position)
        position = None if position is None else _previous(tokens, position)
    if position is None or tokens[position].kind != "name":
        raise RewriteError(tokens[end].line, "before <<< the name of a kernel is missing")
    while (before := _previous(tokens, position)) is not None and tokens[before].text == "::":
        earlier = _previous(tokens, before)
        if earlier is None or tokens[earlier].kind != "name":
            return before
        position = earlier
    return position


# Shared variables ----------------------------------------------------------------------------------------------------


def _shared_variables(tokens: list[Token]) -> None:
    index = 0
    while index < len(tokens):
        if tokens[index].text == "__shared__":
            index = _shared_declaration(tokens, index)
        index += 1


def _shared_declaration(tokens: list[Token], index: int) -> int:
    """`__shared__ T a[2], b;` → one reference for each declarator, on the line where it stood."""
    line = tokens[index].line
    end = index
    while end < len(tokens) and tokens[end].text != ";":
        end += 1
    if end == len(tokens):
        raise RewriteError(line, "a __shared__ declaration without a ;")
    before = _previous(tokens, index)
    extern = False
    while before is not None and tokens[before].text in ("extern", "static", "volatile"):
        extern = extern or tokens[before].text == "extern"
        if tokens[before].text != "volatile":
            tokens[before].text = ""
        before = _previous(tokens, before)
    type_tokens, declarators = _declaration(tokens, index + 1, end)
    words = [token.text for token in type_tokens if not token.blank]
    dynamic = extern or "extern" in words
    written = " ".join(word for word in words if word not in ("extern", "static"))
    alignment = ""
    if found := re.search(r"(?:__align__|alignas)\s*\(\s*(.+?)\s*\)", written):
        alignment = found.group(1)
        written = written.replace(found.group(), "")
    pieces = []
    for name, dimensions in declarators:
        if dynamic:
            pieces.append(f"{written}* const {name} = static_cast<{written}*>(::cuda_cpu::dynamic_shared());")
            continue
        shape = dimensions.strip()
        whole = f"{written}{shape}" if shape else written
        pieces.append(
            f"using cuda_cpu_{name} = {whole}; cuda_cpu_{name}& {name} = *static_cast<cuda_cpu_{name}*>("
            f'::cuda_cpu::static_shared("{name}", {line}, sizeof(cuda_cpu_{name}), {alignment or f"alignof(cuda_cpu_{name})"}));'
        )
    newlines = "\n" * sum(token.text.count("\n") for token in tokens[index : end + 1])
    tokens[index].text = " ".join(pieces) + newlines
    for position in range(index + 1, end + 1):
        tokens[position].text = ""
    return end


def _declaration(tokens: list[Token], start: int, end: int) -> tuple[list[Token], list[tuple[str, str]]]:
    """The type's tokens, and name and dimensions of each declarator."""
    pieces = _split(tokens, start, end)
    first = [position for position in pieces[0] if not tokens[position].blank]
    bracket = next((at for at, position in enumerate(first) if tokens[position].text == "["), len(first))
    if bracket < 2 or tokens[first[bracket - 1]].kind != "name":
        raise RewriteError(
            tokens[start].line,
            "this form of a __shared__ declaration is not understood: write `__shared__ type name[size];`",
        )
    types = [tokens[position] for position in first[: bracket - 1]]
    declarators = [(tokens[first[bracket - 1]].text, "".join(tokens[position].text for position in first[bracket:]))]
    for piece in pieces[1:]:
        words = [position for position in piece if not tokens[position].blank]
        if not words or tokens[words[0]].kind != "name":
            raise RewriteError(
                tokens[start].line,
                "this form of a __shared__ declaration is not understood: declare one variable a line",
            )
        declarators.append((tokens[words[0]].text, "".join(tokens[position].text for position in words[1:])))
    return types, declarators


# Finding one's way ---------------------------------------------------------------------------------------------------


def _next(tokens: list[Token], position: int) -> int | None:
    return next((at for at in range(position + 1, len(tokens)) if not tokens[at].blank and tokens[at].text), None)


def _previous(tokens: list[Token], position: int) -> int | None:
    return next((at for at in range(position - 1, -1, -1) if not tokens[at].blank and tokens[at].text), None)


def _opening_of(tokens: list[Token], closing: int) -> int:
    depth = 0
    for position in range(closing, -1, -1):
        if tokens[position].text in CLOSING:
            depth += 1
        elif tokens[position].text in OPENING:
            depth -= 1
            if depth == 0:
                return position
    raise RewriteError(tokens[closing].line, f"a {tokens[closing].text} without its opening")


def _matching(tokens: list[Token], opening: int, closing: str) -> int:
    """The `>>>` that ends a launch: the first one outside all brackets."""
    depth = 0
    for position in range(opening + 1, len(tokens)):
        text = tokens[position].text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
        elif text == closing and depth == 0:
            return position
        if depth < 0 or (text == ";" and depth == 0):
            break
    raise RewriteError(tokens[opening].line, "<<< without its >>>")


def _split(tokens: list[Token], start: int, end: int) -> list[list[int]]:
    """Positions between `start` and `end`, split at commas outside brackets and template arguments."""
    pieces: list[list[int]] = [[]]
    depth = angle = 0
    for position in range(start, end):
        text = tokens[position].text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
        elif text == "<" and _opens_template(tokens, position, end):
            angle += 1
        elif text == ">" and angle:
            angle -= 1
        if text == "," and depth == 0 and angle == 0:
            pieces.append([])
        else:
            pieces[-1].append(position)
    return pieces


def _opens_template(tokens: list[Token], position: int, end: int) -> bool:
    """Whether a `<` after a name begins template arguments: it has its `>` before `end`, with nothing but a list between."""
    before = _previous(tokens, position)
    if before is None or tokens[before].kind != "name":
        return False
    depth = 0
    for at in range(position + 1, end):
        text = tokens[at].text
        if text in OPENING:
            depth += 1
        elif text in CLOSING:
            depth -= 1
            if depth < 0:
                return False
        elif depth == 0 and text in (";", "&", "|", "=", "?"):
            return False
        elif depth == 0 and text == ">":
            return True
    return False

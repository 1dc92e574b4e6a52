"""Reads what a CUDA source declares: its kernels' parameters, and shared variables."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass

from grader.worker.cuda_cpu.tokens import (
    CLOSING,
    OPENING,
    RewriteError,
    Token,
    next_of,
    partner_of,
    previous_of,
    split,
    text_of,
    tokenize,
)

BOUNDS = ("__launch_bounds__", "C10_LAUNCH_BOUNDS_1", "C10_LAUNCH_BOUNDS_2")
ATTRIBUTES = ("alignas", "__align__", "__attribute__")
# What __attribute__ has in its outer brackets.
ALIGNED = re.compile(r"^\(\s*(?:__)?aligned(?:__)?\s*\((.+)\)\s*\)$")


def device_code(source: str) -> dict[int, str]:
    """The code of the functions that run on the GPU, without comments and strings, by line."""
    tokens, lines, end = tokenize(source), dict[int, str](), 0
    for index, token in enumerate(tokens):
        if index < end or token.text not in ("__global__", "__device__"):
            continue
        with contextlib.suppress(RewriteError, StopIteration):  # brackets that only the branches of #if make whole
            body = next(at for at in range(index, len(tokens)) if tokens[at].text in ("{", ";"))
            end = partner_of(tokens, body) if tokens[body].text == "{" else index
            for one in tokens[index:end]:
                if one.kind not in ("directive", "string"):
                    lines[one.line] = lines.get(one.line, "") + one.text
    return lines


def parameters(source: str) -> dict[str, list[str]]:
    """The names of each kernel's parameters, by the kernel's name; of kernels with one name, the last."""
    tokens, found = tokenize(source), dict[str, list[str]]()
    for index, token in enumerate(tokens):
        if token.text != "__global__":
            continue
        with contextlib.suppress(RewriteError):
            at = next_of(tokens, index)
            while at is not None and tokens[at].text not in (";", "{"):
                name = previous_of(tokens, at)
                if tokens[at].text == "(" and name is not None:
                    end = partner_of(tokens, at)
                    if not is_attribute(tokens[name]):
                        found[tokens[name].text] = [_declared(tokens, one) for one in split(tokens, at + 1, end)]
                        break
                    at = end
                at = next_of(tokens, at)
    return found


def _declared(tokens: list[Token], positions: list[int]) -> str:
    """The name that a parameter declares."""
    texts = [tokens[at].text for at in positions]
    end = next((at for at, text in enumerate(texts) if text in ("=", "[")), len(texts))
    return next((tokens[at].text for at in reversed(positions[:end]) if tokens[at].kind == "name"), "")


def is_attribute(token: Token) -> bool:
    """Whether the name before a bracket is an attribute's, as __maxnreg__(...), and not the function's."""
    return token.text.startswith("__") or token.text in BOUNDS


def dynamic_shared(source: str) -> list[str]:
    """The names of variables in dynamic shared memory."""
    tokens, found = tokenize(source), list[str]()
    for index, token in enumerate(tokens):
        if token.text == "__shared__":
            with contextlib.suppress(RewriteError):  # a part of a macro
                declared = shared_at(tokens, index)
                found += [name for name, *_ in declared.declarators if "extern" in declared.words]
    return found


@dataclass(frozen=True)
class Shared:
    """A declaration of shared variables.

    Attributes:
        start, end: the positions of its first token and of its semicolon.
        words: of its type, with `extern` and `static`.
        declarators: each variable's name, stars and dimensions.
        alignment: an expression, as its attributes have it; "" if none does.
    """

    start: int
    end: int
    words: list[str]
    declarators: list[tuple[str, str, str]]
    alignment: str


def shared_at(tokens: list[Token], index: int) -> Shared:
    """The declaration with the `__shared__` at `index`. Raises RewriteError."""
    start, end = _statement_start(tokens, index), _semicolon(tokens, index)
    kept, alignment = _without_attributes(tokens, [at for at in range(start, end) if at != index])
    words, declarators = _declaration(tokens, kept, tokens[index].line)
    return Shared(start, end, words, declarators, alignment)


def _statement_start(tokens: list[Token], index: int) -> int:
    """The first position of the declaration with the `__shared__` at `index`, as in `float __shared__ t[2]`."""
    start = index
    while (before := previous_of(tokens, start)) is not None and (
        tokens[before].kind == "name" or tokens[before].text in ("::", ">", "]", ")")
    ):
        if tokens[before].text in (">", "]", ")"):
            if not _in_declaration(tokens, before):
                break
            before = partner_of(tokens, before)
        start = before
    return start


def _in_declaration(tokens: list[Token], position: int) -> bool:
    """Whether the bracket that closes at `position` belongs to an attribute, as alignas(16), and not to if (...) or the like."""
    opening = partner_of(tokens, position)
    if tokens[position].text == "]":  # [[maybe_unused]]
        return tokens[next_of(tokens, opening) or opening].text == "["
    before = previous_of(tokens, opening)
    return tokens[position].text == ")" and before is not None and tokens[before].text in ATTRIBUTES


def _without_attributes(tokens: list[Token], positions: list[int]) -> tuple[list[int], str]:
    """A declaration's positions without its attributes, and the alignment that these ask for; "" if none."""
    kept, alignment, end, depth = list[int](), "", -1, 0
    for at in positions:
        if at <= end:
            continue
        opening = next_of(tokens, at)
        if depth == 0 and tokens[at].text in ATTRIBUTES and opening is not None and tokens[opening].text == "(":
            end = partner_of(tokens, opening)
            inside = text_of(tokens[opening + 1 : end])
            found = ALIGNED.search(inside)
            asked = inside if tokens[at].text != "__attribute__" else found[1] if found else ""
            alignment = asked.strip() or alignment
            continue
        if depth == 0 and tokens[at].text == "[" and opening is not None and tokens[opening].text == "[":
            end = partner_of(tokens, at)
            continue
        depth += (tokens[at].text in OPENING) - (tokens[at].text in CLOSING)
        kept.append(at)
    return kept, alignment


def _semicolon(tokens: list[Token], index: int) -> int:
    depth = 0
    for position in range(index, len(tokens)):
        depth += (tokens[position].text in OPENING) - (tokens[position].text in CLOSING)
        if tokens[position].text == ";" and depth <= 0:
            return position
    raise RewriteError(tokens[index].line, "a __shared__ declaration without a ;")


def _declaration(tokens: list[Token], kept: list[int], line: int) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The words of a declaration's type, and each declarator. `kept`: positions of the declaration's tokens."""
    pieces = split(tokens, kept[0], kept[-1] + 1) if kept else [[]]
    inside = set(kept)
    pieces = [[position for position in piece if position in inside and not tokens[position].blank] for piece in pieces]
    first, depth = pieces[0], 0
    bracket = len(first)
    for at, position in enumerate(first):
        if tokens[position].text == "[" and depth == 0:
            bracket = at
            break
        depth += (tokens[position].text in OPENING) - (tokens[position].text in CLOSING)
    if bracket < 2 or tokens[first[bracket - 1]].kind != "name":
        raise RewriteError(
            line, "this form of a __shared__ declaration is not understood: write `__shared__ type name[size];`"
        )
    end = bracket - 1  # of the type
    while end > 1 and tokens[first[end - 1]].text == "*":
        end -= 1
    declarators = []
    for words in [first[end:], *pieces[1:]]:
        texts = [tokens[position].text for position in words]
        stars = next((at for at, text in enumerate(texts) if text != "*"), len(texts))
        if stars == len(texts) or tokens[words[stars]].kind != "name":
            raise RewriteError(
                line, "this form of a __shared__ declaration is not understood: declare one variable a line"
            )
        shape = text_of(tokens[words[stars] + 1 : words[-1] + 1])
        declarators.append((texts[stars], "*" * stars, shape))
    return [tokens[position].text for position in first[:end]], declarators

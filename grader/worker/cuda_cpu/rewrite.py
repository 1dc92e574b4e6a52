"""Rewrites CUDA C++ into C++ for g++ and clang: launches and shared variables, which macros cannot translate.

    name<T><<<grid, block>>>(a, b)        →   ::cuda_cpu::launch("name<T>", [=](auto... p) { name<T>(p...); }, grid, block)(a, b)
    cudaLaunchKernel((void*)name, ...)    →   cudaLaunchKernel(name, ...), which knows the parameters' types
    __shared__ float tile[32][33], sum;   →   references into the block's shared memory
    extern __shared__ float dynamic[];    →   a pointer to the launch's dynamic shared memory
    asm("tanh.approx.f32 ...")            →   an error that `build.py` knows, where the preprocessor leaves the line in

Macro bodies are rewritten too. Newlines keep their places, so line numbers are the student's.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable
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
MACRO = re.compile(r"\s*#\s*define\s+(?P<name>\w+)(?:\((?P<parameters>[^)]*)\))?")
ASM = ("asm", "__asm__", "__asm")
DEAD = re.compile(r"\s*#\s*if\s+(?:0|false)\s*(?://.*|/\*.*)?$", re.DOTALL)
BRANCH = re.compile(r"\s*#\s*(if|elif|else|endif)")
NEEDED = re.compile(r"<<<|__shared__|LAUNCH_BOUNDS|cudaLaunchKernel|\basm\b|\b__asm", re.IGNORECASE)
INCLUDE = re.compile(r'\s*#\s*include\s*"([^"\n]+)"')
BOUNDS = ("__launch_bounds__", "C10_LAUNCH_BOUNDS_1", "C10_LAUNCH_BOUNDS_2")
ATTRIBUTES = ("alignas", "__align__", "__attribute__")
# What __attribute__ has in its outer brackets.
ALIGNED = re.compile(r"^\(\s*(?:__)?aligned(?:__)?\s*\((.+)\)\s*\)$")
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class RewriteError(Exception):
    """CUDA syntax that cannot be rewritten, in the student's `line`."""

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
    return _without_dead_branches(tokens)


def _without_dead_branches(tokens: list[Token]) -> list[Token]:
    """Blank what stands between `#if 0` and its #else, #elif or #endif: it need not be C++."""
    depth = 0
    for token in tokens:
        found = BRANCH.match(token.text) if token.kind == "directive" else None
        if not depth:
            depth = int(found is not None and DEAD.match(token.text) is not None)
            continue
        word = found[1] if found else ""
        depth += (word == "if") - (word == "endif")
        if not depth or (depth == 1 and word in ("else", "elif")):
            depth = 0
            continue
        token.kind, token.text = "space", "\n" * token.text.count("\n")
    return tokens


def rewrite(source: str) -> str:
    """The rewritten source. Raises RewriteError."""
    tokens = tokenize(source)
    parts = _parts(tokens)
    for token in tokens:
        found = MACRO.match(token.text) if token.kind == "directive" else None
        body = token.text[found.end() :] if found and found["name"] not in parts else ""
        if found and (NEEDED.search(body) or any(name in body for name in parts)):
            token.text = found.group() + _macro_body(body, token.line, parts)
    tokens = _with_parts(tokens, parts)
    _rewrite(tokens)
    return "".join(token.text for token in tokens)


@dataclass(frozen=True)
class PartMacro:
    """A macro that stands for a part of a declaration or launch, as `__shared__` or `<<<grid, block>>>`: rewritten where it is used."""

    parameters: list[str] | None  # None: a macro without brackets
    body: list[Token]


def _parts(tokens: list[Token]) -> dict[str, PartMacro]:
    """Such macros by their names; not those that are defined in more than one way, but for an empty one."""
    parts, ways = dict[str, PartMacro](), Counter[str]()
    for token in tokens:
        found = MACRO.match(token.text) if token.kind == "directive" else None
        if found is None:
            continue
        body = [one for one in tokenize(token.text[found.end() :]) if not one.blank or one.kind == "space"]
        words = [one.text for one in body if not one.blank]
        ways[found["name"]] += bool(words)
        declares = any(word == "__shared__" or word in BOUNDS for word in words) and not {"{", ";", "[", "#"} & {*words}
        if declares or words[:1] == ["<<<"] or words[-1:] == [">>>"]:
            names = found["parameters"]
            parts[found["name"]] = PartMacro(None if names is None else re.findall(r"\w+|\.\.\.", names), body)
    return {name: part for name, part in parts.items() if ways[name] == 1}


def _with_parts(tokens: list[Token], parts: dict[str, PartMacro]) -> list[Token]:
    """The tokens with the body of such a macro in place of each use."""
    expanded, end = list[Token](), -1
    for index, token in enumerate(tokens):
        part = parts.get(token.text)
        opening = _next(tokens, index) if part and part.parameters is not None else None
        if index <= end:
            continue
        if part is None or (part.parameters is not None and (opening is None or tokens[opening].text != "(")):
            expanded.append(token)
            continue
        given = dict[str, list[Token]]()
        if opening is not None:
            end = _closing_of(tokens, opening)
            for name, piece in zip(part.parameters or [], _split(tokens, opening + 1, end), strict=False):
                first, last = (piece[0], end if name == "..." else piece[-1] + 1) if piece else (end, end)
                given[name.replace("...", "__VA_ARGS__")] = tokens[first:last]
        for one in (two for name in part.body for two in given.get(name.text, [name])):
            expanded.append(Token(one.kind, one.text.replace("\\\n", " "), token.line))
    return expanded


def _macro_body(source: str, line: int, parts: dict[str, PartMacro]) -> str:
    tokens = tokenize(source)
    for token in tokens:
        token.line += line - 1
    tokens = _with_parts(tokens, parts)
    tokens.append(Token("other", ";", line))  # a declaration may have its own where the macro is used
    _rewrite(tokens)
    if tokens[-1].text == ";":
        tokens.pop()
    return re.sub(r"(?<!\\)\n", r"\\\n", "".join(token.text for token in tokens))


def _rewrite(tokens: list[Token]) -> None:
    for token in tokens:
        if token.kind == "name" and token.text in ASM:
            token.text = f'static_assert(false, "not on the CPU: PTX in asm()"); {token.text}'
    _split_closers(tokens)
    _rewrite_each(tokens, "__shared__", _shared_declaration)
    _launch_bounds(tokens)
    _rewrite_each(tokens, "<<<", _launch)
    _launch_calls(tokens)


def _split_closers(tokens: list[Token]) -> None:
    """Make three tokens of a `>>>` that closes template arguments, as in `k<A<B<int>>><<<grid, block>>>(x)`."""
    pending, index = [0], 0  # template arguments that are open, for each bracket that is open
    while index < len(tokens):
        text = tokens[index].text
        if text in OPENING:
            pending.append(0)
        elif text in CLOSING and len(pending) > 1:
            pending.pop()
        elif text == "<" and (before := _previous(tokens, index)) is not None and tokens[before].kind == "name":
            pending[-1] += 1
        elif text == ">" and pending[-1]:
            pending[-1] -= 1
        elif text == ">>>" and pending[-1] >= 3:
            tokens[index : index + 1] = [Token("other", ">", tokens[index].line) for _ in range(3)]
            continue
        if text in (";", "&", "|", "?", "}"):  # what was counted were comparisons
            pending[-1] = 0
        index += 1


def included(source: str) -> list[str]:
    """The names that the source includes with quotes."""
    found = (INCLUDE.match(token.text) for token in tokenize(source) if token.kind == "directive")
    return [match.group(1) for match in found if match]


def device_code(source: str) -> dict[int, str]:
    """The code of the functions that run on the GPU, without comments and strings, by line."""
    tokens, lines, end = tokenize(source), dict[int, str](), 0
    for index, token in enumerate(tokens):
        if index < end or token.text not in ("__global__", "__device__"):
            continue
        with contextlib.suppress(RewriteError, StopIteration):  # brackets that only the branches of #if make whole
            body = next(at for at in range(index, len(tokens)) if tokens[at].text in ("{", ";"))
            end = _closing_of(tokens, body) if tokens[body].text == "{" else index
            for one in tokens[index:end]:
                if one.kind not in ("comment", "directive", "string"):
                    lines[one.line] = lines.get(one.line, "") + one.text
    return lines


def parameters(source: str) -> dict[str, list[str]]:
    """The names of each kernel's parameters, by the kernel's name; of kernels with one name, the last."""
    tokens, found = tokenize(source), dict[str, list[str]]()
    for index, token in enumerate(tokens):
        if token.text != "__global__":
            continue
        with contextlib.suppress(RewriteError):
            at = _next(tokens, index)
            while at is not None and tokens[at].text not in (";", "{"):
                name = _previous(tokens, at)
                if tokens[at].text == "(" and name is not None:
                    end = _closing_of(tokens, at)
                    if not _is_attribute(tokens[name]):
                        found[tokens[name].text] = [_declared(tokens, one) for one in _split(tokens, at + 1, end)]
                        break
                    at = end
                at = _next(tokens, at)
    return found


def _declared(tokens: list[Token], positions: list[int]) -> str:
    """The name that a parameter declares."""
    texts = [tokens[at].text for at in positions]
    end = next((at for at, text in enumerate(texts) if text in ("=", "[")), len(texts))
    return next((tokens[at].text for at in reversed(positions[:end]) if tokens[at].kind == "name"), "")


def dynamic_shared(source: str) -> list[str]:
    """The names of variables in dynamic shared memory."""
    tokens, found = tokenize(source), []
    for index, token in enumerate(tokens):
        if token.text == "__shared__":
            start = _statement_start(tokens, index)
            kept = [at for at in range(start, _semicolon(tokens, index)) if at != index]
            if any(tokens[at].text == "extern" for at in kept):
                found += [
                    name for name, *_ in _declaration(tokens, _without_attributes(tokens, kept)[0], token.line)[1]
                ]
    return found


def _rewrite_each(tokens: list[Token], word: str, rewrite_at: Callable[[list[Token], int], int]) -> None:
    """Call `rewrite_at`, which returns the position of its last token, at every token `word`."""
    index = 0
    while index < len(tokens):
        if tokens[index].text == word:
            index = rewrite_at(tokens, index)
        index += 1


# Launches ------------------------------------------------------------------------------------------------------------


def _launch(tokens: list[Token], opening: int) -> int:
    """Rewrite a launch in place; the callee is the expression just before `<<<`."""
    start = _callee_start(tokens, opening)
    closing = _matching(tokens, opening, ">>>")
    line = tokens[opening].line
    call = _next(tokens, closing)
    branches = any(token.kind == "directive" for token in tokens[closing:call])  # #else has another for these arguments
    if (call is None or tokens[call].text != "(") and not branches:
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
        f'::cuda_cpu::launch("{quoted}", '
        f"[=](auto... cuda_cpu_argument) {{ {callee}(cuda_cpu_argument...); }}, {newlines}"
    )
    for position in range(start + 1, opening + 1):
        tokens[position].text = ""
    tokens[closing].text = ")"
    if call is not None and tokens[call].text == "(":
        _kernel_arguments(tokens, call, callee)
    return closing


def _kernel_arguments(tokens: list[Token], opening: int, callee: str) -> None:
    """Give a type to those of a launch's arguments that have none of their own: NULL, which is a number in C++, and {...}."""
    for number, argument in enumerate(_split(tokens, opening + 1, _closing_of(tokens, opening))):
        words = [position for position in argument if not tokens[position].blank]
        if [tokens[position].text for position in words] == ["NULL"]:
            tokens[words[0]].text = "nullptr"
        elif words and tokens[words[0]].text == "{":
            tokens[words[0]].text = f"::cuda_cpu::parameter_t<{number}, decltype({callee})>{{"


def _callee_start(tokens: list[Token], end: int) -> int:
    """The first position of the callee, as `a::b<T, (x > y)>`, before position `end`."""
    position = _previous(tokens, end)
    while position is not None and tokens[position].text in (")", "]"):  # (*pointer)<<<, table[i]<<<
        opening = _opening_of(tokens, position)
        position = _previous(tokens, opening)
        if tokens[opening].text == "(" and (position is None or tokens[position].kind != "name"):
            return opening
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
    while (before := _previous(tokens, position)) is not None and tokens[before].text in ("::", "#", ".", "->"):
        earlier = _previous(tokens, before)
        if tokens[before].text in (".", "->") and earlier is not None and tokens[earlier].text in (")", "]"):
            earlier = _opening_of(tokens, earlier)  # (*this).kernel<<<, table[i].kernel<<<
            owner = _previous(tokens, earlier)
            if owner is None or tokens[owner].kind != "name":
                return earlier
            earlier = owner
        if tokens[before].text == "#" and earlier is not None and tokens[earlier].text == "#":  # scale_##width<<<
            earlier = _previous(tokens, earlier)
        if earlier is None or tokens[earlier].kind != "name":
            return before
        position = earlier
    return position


def _launch_calls(tokens: list[Token]) -> None:
    """Remove the cast to void* from the kernel in calls of cudaLaunchKernel and cudaLaunchKernelExC."""
    for index, token in enumerate(tokens):
        opening = _next(tokens, index) if token.text in ("cudaLaunchKernel", "cudaLaunchKernelExC") else None
        if opening is None or tokens[opening].text != "(":
            continue
        arguments = _split(tokens, opening + 1, _closing_of(tokens, opening))
        which = 0 if token.text == "cudaLaunchKernel" else 1
        words = (
            [position for position in arguments[which] if not tokens[position].blank] if which < len(arguments) else []
        )
        texts = [tokens[position].text for position in words]
        if texts[:1] == ["("] and "void" in texts[1:3] and texts.index("void") + 2 < len(texts):
            end = texts.index("void") + 2  # (const void*), (void*)
            if texts[end - 1 : end + 1] != ["*", ")"]:
                continue
            stripped = words[: end + 1]
        elif texts[:1] == ["reinterpret_cast"] and ">" in texts:
            stripped = words[: texts.index(">") + 1]
        else:
            continue
        for position in stripped:
            tokens[position].text = ""


# Launch bounds -------------------------------------------------------------------------------------------------------


def _launch_bounds(tokens: list[Token]) -> None:
    """Let the body of a kernel with `__launch_bounds__(most)` pass `most` to the runtime: `most` may be a template's parameter."""
    for index, token in enumerate(tokens):
        opening = _next(tokens, index) if token.text in BOUNDS else None
        if opening is None or tokens[opening].text != "(":
            continue
        closing = _closing_of(tokens, opening)
        most = "".join(" " if tokens[at].blank else tokens[at].text for at in _split(tokens, opening + 1, closing)[0])
        body = _body_after(tokens, closing)
        if body is not None:
            tokens[body].text = f"{{ ::cuda_cpu::cuda_cpu_bounds({most.strip()});"


def _body_after(tokens: list[Token], position: int) -> int | None:
    """The `{` of the function whose name and parameters come after `position`; None if the function is only declared."""
    at = _next(tokens, position)
    while at is not None and (tokens[at].kind == "name" or tokens[at].text in ("(", "::", "*", "&")):
        if tokens[at].text == "(":
            before, at = _previous(tokens, at), _next(tokens, _closing_of(tokens, at))
            if before is None or not _is_attribute(tokens[before]):
                break
        else:
            at = _next(tokens, at)
    return at if at is not None and tokens[at].text == "{" else None


def _is_attribute(token: Token) -> bool:
    """Whether the name before a bracket is an attribute's, as __maxnreg__(...), and not the function's."""
    return token.text.startswith("__") or token.text in BOUNDS


# Shared variables ----------------------------------------------------------------------------------------------------


def _shared_declaration(tokens: list[Token], index: int) -> int:
    """Rewrite `__shared__ T a[2], b;` into a reference for each declarator, on the declaration's first line."""
    line = tokens[index].line
    start, end = _statement_start(tokens, index), _semicolon(tokens, index)
    kept, alignment = _without_attributes(tokens, [position for position in range(start, end) if position != index])
    type_tokens, declarators = _declaration(tokens, kept, line)
    words = [token.text for token in type_tokens if not token.blank]
    dynamic = "extern" in words
    written = " ".join(word for word in words if word not in ("extern", "static"))
    pieces = []
    if "{" in words:  # the declaration defines its type
        name = f"cuda_cpu_{declarators[0][0]}_type" if declarators else ""
        pieces.append(f"using {name} = {written};")
        written = name
    for name, stars, dimensions in declarators:
        if dynamic:
            pieces.append(
                f"{written}{stars}* const {name} = static_cast<{written}{stars}*>(::cuda_cpu::cuda_cpu_dynamic_shared());"
            )
            continue
        shape = dimensions.strip()
        whole = f"{written}{stars}{shape}"
        pieces.append(
            f"using cuda_cpu_{name} = {whole}; cuda_cpu_{name}& {name} = *static_cast<cuda_cpu_{name}*>(::cuda_cpu::cuda_cpu_static_shared("
            f'"{name}", {line}, sizeof(cuda_cpu_{name}), {alignment or f"alignof(cuda_cpu_{name})"}));'
        )
    newlines = "\n" * sum(token.text.count("\n") for token in tokens[start : end + 1])
    tokens[start] = Token("rewritten", " ".join(pieces) + newlines, tokens[start].line)
    for position in range(start + 1, end + 1):
        tokens[position].text = ""
    return end


def _statement_start(tokens: list[Token], index: int) -> int:
    """The first position of the declaration with the `__shared__` at `index`, as in `float __shared__ t[2]`."""
    start = index
    while (before := _previous(tokens, start)) is not None and (
        tokens[before].kind == "name" or tokens[before].text in ("::", ">", "]", ")")
    ):
        if tokens[before].text in (">", "]", ")"):
            if not _in_declaration(tokens, before):
                break
            before = _opening_of(tokens, before)
        start = before
    return start


def _in_declaration(tokens: list[Token], position: int) -> bool:
    """Whether the bracket that closes at `position` belongs to an attribute, as alignas(16), and not to if (...) or the like."""
    opening = _opening_of(tokens, position)
    if tokens[position].text == "]":  # [[maybe_unused]]
        return tokens[_next(tokens, opening) or opening].text == "["
    before = _previous(tokens, opening)
    return tokens[position].text == ")" and before is not None and tokens[before].text in ATTRIBUTES


def _without_attributes(tokens: list[Token], positions: list[int]) -> tuple[list[int], str]:
    """A declaration's positions without its attributes, and the alignment that these ask for; "" if none."""
    kept, alignment, end, depth = list[int](), "", -1, 0
    for at in positions:
        if at <= end:
            continue
        opening = _next(tokens, at)
        if depth == 0 and tokens[at].text in ATTRIBUTES and opening is not None and tokens[opening].text == "(":
            end = _closing_of(tokens, opening)
            inside = "".join(" " if token.blank else token.text for token in tokens[opening + 1 : end])
            found = ALIGNED.search(inside)
            asked = inside if tokens[at].text != "__attribute__" else found[1] if found else ""
            alignment = asked.strip() or alignment
            continue
        if depth == 0 and tokens[at].text == "[" and opening is not None and tokens[opening].text == "[":
            end = _closing_of(tokens, at)
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


def _declaration(tokens: list[Token], kept: list[int], line: int) -> tuple[list[Token], list[tuple[str, str, str]]]:
    """A declaration's type, and each declarator's name, stars and dimensions. `kept`: positions of the declaration's tokens."""
    pieces = _split(tokens, kept[0], kept[-1] + 1) if kept else [[]]
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
        shape = "".join(" " if token.blank else token.text for token in tokens[words[stars] + 1 : words[-1] + 1])
        declarators.append((texts[stars], "*" * stars, shape))
    return [tokens[position] for position in first[:end]], declarators


# Positions -----------------------------------------------------------------------------------------------------------


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


def _closing_of(tokens: list[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        if tokens[position].text in OPENING:
            depth += 1
        elif tokens[position].text in CLOSING:
            depth -= 1
            if depth == 0:
                return position
    raise RewriteError(tokens[opening].line, f"a {tokens[opening].text} that is never closed")


def _matching(tokens: list[Token], opening: int, closing: str) -> int:
    """The `>>>` of the launch that opens at `opening`: the first outside all brackets."""
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
    """Whether the `<` at `position` begins template arguments: a name precedes it, and only a list comes before its `>`."""
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

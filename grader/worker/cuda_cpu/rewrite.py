"""Rewrites CUDA C++ into C++ for g++ and clang: launches and shared variables, which macros cannot translate.

    name<T><<<grid, block>>>(a, b)        →   ::cuda_cpu::launch("name<T>", [=](auto... p) { name<T>(p...); }, grid, block)(a, b)
    cudaLaunchKernel((void*)name, ...)    →   cudaLaunchKernel(name, ...), which knows the parameters' types
    __shared__ float tile[32][33], sum;   →   references into the block's shared memory
    extern __shared__ float dynamic[];    →   a pointer to the launch's dynamic shared memory
    asm("tanh.approx.f32 ...")            →   an error that `build.py` knows, where the preprocessor leaves the line in

Macro bodies are rewritten too. Newlines keep their places, so line numbers are the student's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from grader.worker.cuda_cpu.declarations import BOUNDS, is_attribute, shared_at
from grader.worker.cuda_cpu.tokens import (
    CLOSING,
    OPENING,
    RewriteError,
    Token,
    launch_end_of,
    next_of,
    partner_of,
    previous_of,
    split,
    text_of,
    tokenize,
)

MACRO = re.compile(r"\s*#\s*define\s+(?P<name>\w+)(?:\((?P<parameters>[^)]*)\))?")
ASM = ("asm", "__asm__", "__asm")
NEEDED = re.compile(r"<<<|__shared__|LAUNCH_BOUNDS|cudaLaunchKernel|\basm\b|\b__asm", re.IGNORECASE)


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
    found = [(token, macro) for token in tokens if token.kind == "directive" and (macro := MACRO.match(token.text))]
    macros = [(macro, _body_of(token.text[macro.end() :], token.line)) for token, macro in found]
    ways = Counter(macro["name"] for macro, body in macros if not all(one.blank for one in body))
    parts = dict[str, PartMacro]()
    for macro, whole in macros:
        if ways[macro["name"]] != 1:
            continue
        body = _with_parts([one for one in whole if not one.blank or one.kind == "space"], parts)
        words = [one.text for one in body if not one.blank]
        declares = any(word == "__shared__" or word in BOUNDS for word in words) and not {"{", ";", "[", "#"} & {*words}
        if declares or words[:1] == ["<<<"] or words[-1:] == [">>>"]:
            names = macro["parameters"]
            parts[macro["name"]] = PartMacro(None if names is None else re.findall(r"\w+|\.\.\.", names), body)
    return parts


def _body_of(source: str, line: int) -> list[Token]:
    """The tokens of a macro's body, which begins in this line."""
    return [replace(token, line=token.line + line - 1) for token in tokenize(source)]


def _with_parts(tokens: list[Token], parts: dict[str, PartMacro]) -> list[Token]:
    """The tokens with the body of such a macro in place of each use."""
    expanded, end = list[Token](), -1
    for index, token in enumerate(tokens):
        part = parts.get(token.text)
        opening = next_of(tokens, index) if part and part.parameters is not None else None
        if index <= end:
            continue
        if part is None or (part.parameters is not None and (opening is None or tokens[opening].text != "(")):
            expanded.append(token)
            continue
        given = dict[str, list[Token]]()
        if opening is not None:
            end = partner_of(tokens, opening)
            for name, piece in zip(part.parameters or [], split(tokens, opening + 1, end), strict=False):
                first, last = (piece[0], end if name == "..." else piece[-1] + 1) if piece else (end, end)
                given[name.replace("...", "__VA_ARGS__")] = tokens[first:last]
        for one in (two for name in part.body for two in given.get(name.text, [name])):
            expanded.append(Token(one.kind, one.text.replace("\\\n", " "), token.line))
    return expanded


def _macro_body(source: str, line: int, parts: dict[str, PartMacro]) -> str:
    tokens = _with_parts(_body_of(source, line), parts)
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
        elif text == "<" and (before := previous_of(tokens, index)) is not None and tokens[before].kind == "name":
            pending[-1] += 1
        elif text == ">" and pending[-1]:
            pending[-1] -= 1
        elif text == ">>>" and pending[-1] >= 3:
            tokens[index : index + 1] = [Token("other", ">", tokens[index].line) for _ in range(3)]
            continue
        if text in (";", "&", "|", "?", "}"):  # what was counted were comparisons
            pending[-1] = 0
        index += 1


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
    closing = launch_end_of(tokens, opening)
    line = tokens[opening].line
    call = next_of(tokens, closing)
    branches = any(token.kind == "directive" for token in tokens[closing:call])  # #else has another for these arguments
    if (call is None or tokens[call].text != "(") and not branches:
        raise RewriteError(line, "after <<<...>>> the kernel's arguments in ( ) are missing")
    callee = text_of(tokens[start:opening]).strip()
    arguments = split(tokens, opening + 1, closing)
    if not 2 <= len(arguments) <= 4:
        raise RewriteError(
            line, f"<<<...>>> takes 2 to 4 values (grid, block, shared bytes, stream), here are {len(arguments)}"
        )
    quoted = callee.replace("\\", "\\\\").replace('"', '\\"')
    newlines = "".join("\n" * token.text.count("\n") for token in tokens[start:opening])
    # What returns the kernel, as `table[next()]`, is evaluated once, and not by each thread.
    once = tokens[previous_of(tokens, opening) or start].text in (")", "]") and tokens[start].text != "("
    captured, kernel = (f"=, cuda_cpu_kernel = {callee}", "cuda_cpu_kernel") if once else ("=", callee)
    tokens[start].text = (
        f'::cuda_cpu::launch("{quoted}", '
        f"[{captured}](auto... cuda_cpu_argument) {{ {kernel}(cuda_cpu_argument...); }}, {newlines}"
    )
    for position in range(start + 1, opening + 1):
        tokens[position].text = ""
    tokens[closing].text = ")"
    if call is not None and tokens[call].text == "(":
        _kernel_arguments(tokens, call, callee)
    return closing


def _kernel_arguments(tokens: list[Token], opening: int, callee: str) -> None:
    """Give a type to those of a launch's arguments that have none of their own: NULL, which is a number in C++, and {...}."""
    for number, argument in enumerate(split(tokens, opening + 1, partner_of(tokens, opening))):
        words = [position for position in argument if not tokens[position].blank]
        if [tokens[position].text for position in words] == ["NULL"]:
            tokens[words[0]].text = "nullptr"
        elif words and tokens[words[0]].text == "{":
            tokens[words[0]].text = f"::cuda_cpu::parameter_t<{number}, decltype({callee})>{{"


def _callee_start(tokens: list[Token], end: int) -> int:
    """The first position of the callee, as `a::b<T, (x > y)>`, before position `end`."""
    position = previous_of(tokens, end)
    while position is not None and tokens[position].text in (")", "]"):  # (*pointer)<<<, table[i]<<<
        opening = partner_of(tokens, position)
        position = previous_of(tokens, opening)
        if tokens[opening].text == "(" and (
            position is None or not (tokens[position].is_identifier or tokens[position].text == ">")
        ):
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
                position = partner_of(tokens, position)
            position = previous_of(tokens, position)
        position = None if position is None else previous_of(tokens, position)
    if position is None or not tokens[position].is_identifier:
        raise RewriteError(tokens[end].line, "before <<< the name of a kernel is missing")
    while (before := previous_of(tokens, position)) is not None and tokens[before].text in ("::", "#", ".", "->"):
        earlier = previous_of(tokens, before)
        if tokens[before].text in (".", "->") and earlier is not None and tokens[earlier].text in (")", "]"):
            earlier = partner_of(tokens, earlier)  # (*this).kernel<<<, table[i].kernel<<<
            owner = previous_of(tokens, earlier)
            if owner is None or not tokens[owner].is_identifier:
                return earlier
            earlier = owner
        if tokens[before].text == "#" and earlier is not None and tokens[earlier].text == "#":  # scale_##width<<<
            earlier = previous_of(tokens, earlier)
        if earlier is None or not tokens[earlier].is_identifier:
            return before
        position = earlier
    return position


def _launch_calls(tokens: list[Token]) -> None:
    """Remove the cast to void* from the kernel in calls of cudaLaunchKernel and cudaLaunchKernelExC."""
    for index, token in enumerate(tokens):
        opening = next_of(tokens, index) if token.text in ("cudaLaunchKernel", "cudaLaunchKernelExC") else None
        if opening is None or tokens[opening].text != "(":
            continue
        arguments = split(tokens, opening + 1, partner_of(tokens, opening))
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
        opening = next_of(tokens, index) if token.text in BOUNDS else None
        if opening is None or tokens[opening].text != "(":
            continue
        closing = partner_of(tokens, opening)
        most = text_of([tokens[at] for at in split(tokens, opening + 1, closing)[0]])
        body = _body_after(tokens, closing)
        if body is not None:
            tokens[body].text = f"{{ ::cuda_cpu::cuda_cpu_bounds({most.strip()});"


def _body_after(tokens: list[Token], position: int) -> int | None:
    """The `{` of the function whose name and parameters come after `position`; None if the function is only declared."""
    at = next_of(tokens, position)
    while at is not None and (tokens[at].kind == "name" or tokens[at].text in ("(", "::", "*", "&")):
        if tokens[at].text == "(":
            before, at = previous_of(tokens, at), next_of(tokens, partner_of(tokens, at))
            if before is None or not is_attribute(tokens[before]):
                break
        else:
            at = next_of(tokens, at)
    return at if at is not None and tokens[at].text == "{" else None


# Shared variables ----------------------------------------------------------------------------------------------------


def _shared_declaration(tokens: list[Token], index: int) -> int:
    """Rewrite `__shared__ T a[2], b;` into a reference for each declarator, on the declaration's first line."""
    line, declared = tokens[index].line, shared_at(tokens, index)
    start, end, words, declarators = declared.start, declared.end, declared.words, declared.declarators
    written = " ".join(word for word in words if word not in ("extern", "static"))
    pieces = []
    if "{" in words:  # the declaration defines its type
        name = f"cuda_cpu_{declarators[0][0]}_type" if declarators else ""
        pieces.append(f"using {name} = {written};")
        written = name
    for name, stars, dimensions in declarators:
        if "extern" in words:
            pieces.append(
                f"{written}{stars}* const {name} = static_cast<{written}{stars}*>(::cuda_cpu::cuda_cpu_dynamic_shared());"
            )
            continue
        shape = dimensions.strip()
        whole = f"{written}{stars}{shape}"
        pieces.append(
            f"using cuda_cpu_{name} = {whole}; cuda_cpu_{name}& {name} = *static_cast<cuda_cpu_{name}*>(::cuda_cpu::cuda_cpu_static_shared("
            f'"{name}", {line}, sizeof(cuda_cpu_{name}), {declared.alignment or f"alignof(cuda_cpu_{name})"}));'
        )
    newlines = "\n" * sum(token.text.count("\n") for token in tokens[start : end + 1])
    tokens[start] = Token("rewritten", " ".join(pieces) + newlines, tokens[start].line)
    for position in range(start + 1, end + 1):
        tokens[position].text = ""
    return end

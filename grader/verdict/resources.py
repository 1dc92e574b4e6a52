"""Registers, spills and shared memory of compiled kernels, from the output of `ptxas -v`; and kernels that need more
shared memory than a GPU has.
"""

from __future__ import annotations

import re

from grader.gpu_table import gpus_of, with_article
from grader.report.model import KernelResources

COMPILING = "Compiling entry function "
ENTRY = re.compile(r"'([^'\n]{1,2000})' for '(sm_\w{1,10})'")
SPILLS = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
USED = re.compile(r"Used (\d{1,4}) registers(?:[^\n]{0,200}?(\d{1,9}) bytes smem)?")
MAX_KERNELS = 32


def misfit(arch: str, shared_bytes: int) -> str:
    """Why a kernel with so many bytes of shared memory cannot be launched on this architecture; "" if it can, or if the
    architecture is unknown.
    """
    known = gpus_of(arch)
    limit = max((one.shared_bytes for one in known.values()), default=shared_bytes)
    if shared_bytes <= limit:
        return ""
    return f"needs {shared_bytes} bytes of shared memory for a block, {with_article(known)} has {limit}"


def kernel_resources(ptxas: str) -> tuple[KernelResources, ...]:
    """The kernels that `ptxas -v` names, in its order; none if the text has another form."""
    kernels: list[KernelResources] = []
    for told in ptxas.split(COMPILING)[1 : MAX_KERNELS + 1]:
        entry, used = ENTRY.match(told), USED.search(told)
        if entry is None or used is None:
            continue
        spilled = SPILLS.search(told, 0, used.start())
        stack, stored, loaded = map(int, spilled.groups() if spilled else (0, 0, 0))
        kernels.append(
            KernelResources(
                name=kernel_name(entry[1]),
                arch=entry[2],
                registers=int(used[1]),
                stack_bytes=stack,
                spill_store_bytes=stored,
                spill_load_bytes=loaded,
                shared_bytes=int(used[2] or 0),
            )
        )
    return tuple(kernels)


def kernel_name(symbol: str) -> str:
    """The function's own name in a mangled symbol, without namespace and arguments: `_Z5scalePKfPfl` is `scale`.

    In the Itanium C++ ABI a name is its length and its letters; a nested name is several of them after an N.
    """
    rest = symbol.removeprefix("_Z")
    if rest == symbol:
        return symbol[:200]
    rest = rest.removeprefix("L")  # of a static function
    nested, name = rest.startswith("N"), ""
    rest = rest.removeprefix("N")
    while found := re.match(r"(\d{1,4})", rest):
        start, length = found.end(), int(found[1])
        name, rest = rest[start : start + length], rest[start + length :]
        if not nested:
            break
    return (name or symbol)[:200]

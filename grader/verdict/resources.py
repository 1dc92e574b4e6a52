"""Registers, spills and shared memory of compiled kernels, from the output of `ptxas -v`; and kernels that need more
shared memory than a GPU has.
"""

from __future__ import annotations

import re

from grader.gpu_table import gpus_of, with_article
from grader.report.model import KernelResources

COMPILING = re.compile(r"Compiling entry function '([^']{1,2000})' for '(sm_\w{1,10})'")
SPILLS = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
USED = re.compile(r"Used (\d{1,4}) registers")
SHARED = re.compile(r"(\d{1,9}) bytes smem")
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
    name, arch, spilled = "", "", (0, 0, 0)
    for line in ptxas.splitlines():
        if found := COMPILING.search(line):
            name, arch, spilled = kernel_name(found[1]), found[2], (0, 0, 0)
        elif found := SPILLS.search(line):
            spilled = (int(found[1]), int(found[2]), int(found[3]))
        elif name and (found := USED.search(line)):
            shared = SHARED.search(line)
            kernels.append(
                KernelResources(
                    name=name,
                    arch=arch,
                    registers=int(found[1]),
                    stack_bytes=spilled[0],
                    spill_store_bytes=spilled[1],
                    spill_load_bytes=spilled[2],
                    shared_bytes=int(shared[1]) if shared else 0,
                )
            )
            name = ""
    return tuple(kernels[:MAX_KERNELS])


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

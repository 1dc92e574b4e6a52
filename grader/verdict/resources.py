"""Registers, spills and shared memory of a compiled kernel, from the output of `ptxas -v`; and the GPUs' limits of shared memory."""

from __future__ import annotations

import re

from grader.report.model import KernelResources

COMPILING = re.compile(r"Compiling entry function '([^']{1,2000})' for '(sm_\w{1,10})'")
SPILLS = re.compile(r"(\d{1,9}) bytes stack frame, (\d{1,9}) bytes spill stores, (\d{1,9}) bytes spill loads")
USED = re.compile(r"Used (\d{1,4}) registers")
SHARED = re.compile(r"(\d{1,9}) bytes smem")
MAX_KERNELS = 32
# By architecture: bytes of shared memory that a block may have, and a GPU of that architecture (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability").
SHARED_LIMITS = {
    "sm_75": (65_536, "a T4"),
    "sm_80": (166_912, "an A100"),
    "sm_86": (101_376, "an A10G or RTX 30"),
    "sm_89": (101_376, "an L4 or RTX 40"),
    "sm_90": (232_448, "an H100 or H200"),
    "sm_100": (232_448, "a B200"),
    "sm_120": (101_376, "an RTX 50"),
}


def shared_limit(arch: str) -> int:
    """Bytes of shared memory that a block may have on a GPU of this architecture; 0 if unknown."""
    return SHARED_LIMITS.get(arch, (0, ""))[0]


def misfit(arch: str, shared_bytes: int) -> str:
    """Why a kernel with `shared_bytes` of shared memory for a block cannot be launched on this architecture; "" if it can."""
    limit, who = SHARED_LIMITS.get(arch.rstrip("af"), (None, ""))
    if limit is None or shared_bytes <= limit:
        return ""
    return f"needs {shared_bytes} bytes of shared memory for a block, {who} has {limit}"


def kernel_resources(ptxas: str) -> tuple[KernelResources, ...]:
    """The kernels that `ptxas -v` names, in its order; none if the text has another form."""
    kernels: list[KernelResources] = []
    name, arch, spilled = "", "", (0, 0)
    for line in ptxas.splitlines():
        if found := COMPILING.search(line):
            name, arch, spilled = kernel_name(found[1]), found[2], (0, 0)
        elif found := SPILLS.search(line):
            spilled = (int(found[2]), int(found[3]))
        elif name and (found := USED.search(line)):
            shared = SHARED.search(line)
            kernels.append(
                KernelResources(
                    name=name,
                    arch=arch,
                    registers=int(found[1]),
                    spill_store_bytes=spilled[0],
                    spill_load_bytes=spilled[1],
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

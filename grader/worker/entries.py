"""Errors about a file without its entry, which name the functions that the file has instead."""

from __future__ import annotations

import re
from pathlib import Path
from types import FunctionType, ModuleType

from grader.protocol import code_of, missing_function
from grader.worker.errors import LoadError
from grader.worker.lines import output_of

HEADERS = {".cuh", ".h", ".hpp"}
UNDEFINED = re.compile(r"(?:undefined symbol: |Unresolved extern function '|undefined reference to `)([^'\n]+)")
KERNEL = r"__global__\b[^;{{]{{0,1000}}\b{}\s*\("  # The source declares a kernel so.


def missing_in_module(path: Path, entry: str, module: ModuleType) -> LoadError:
    """The error for a Python file without its entry."""
    kinds = type | FunctionType
    values = {name: value for name, value in vars(module).items() if isinstance(value, kinds)}
    own = [name for name, value in values.items() if value.__module__ == module.__name__]
    return LoadError("failed", missing_function(path.name, entry, own))


def undefined(said: str, path: Path) -> str:
    """An error in a compiler's form for a function that ptxas, the linker or the loader lacks; "" if `said` is about something else."""
    if (found := UNDEFINED.search(said)) is None:
        return ""
    name = re.split(r"[(<]", output_of("c++filt", found[1]).strip() or found[1])[0].split()[-1]
    use = re.compile(rf"\b{re.escape(name.rpartition('::')[2])}\s*[(<;\[]")
    mend = f"its body must stand in {path.name} or in a header that is included there"
    for file in [*sorted(one for one in path.parent.rglob("*") if one.suffix in HEADERS), path]:
        source = file.read_text(encoding="utf-8-sig", errors="replace")
        for number, line in enumerate(code_of(source).split("\n"), 1):
            if use.search(line):
                place = file.relative_to(path.parent)
                return f"{place}:{number}: error: {name} is declared and nowhere defined: {mend}"
    return f"{path.name}: error: {name} is declared and nowhere defined: {mend}"


def missing_in_library(path: Path, entry: str, built: Path) -> LoadError:
    """The error for a `.cu` file without its entry.

    Args:
        built: the library, or the object file of the student's file, which lists the functions.
    """
    told = output_of("nm", "--defined-only", "--extern-only", *(["-D"] if built.suffix == ".so" else []), str(built))
    symbols = re.findall(r"^[0-9a-f]+ T (\w+)$", told, re.MULTILINE)
    plain = dict(zip(symbols, output_of("c++filt", "-p", *symbols).split("\n"), strict=False)) if symbols else {}
    source = code_of(path.read_text(encoding="utf-8-sig", errors="replace"))
    names = {symbol: name for symbol, name in plain.items() if re.search(rf"\b{re.escape(name)}\s*\(", source)}
    if any(name == entry and symbol != entry for symbol, name in names.items()):
        words = f'{path.name} was built, but exports no function {entry!r}: is it declared extern "C"? C++ adds the parameters to a name'
        return LoadError("failed", words)
    own = [name for name in names.values() if not re.search(KERNEL.format(re.escape(name)), source)]
    return LoadError("failed", missing_function(f"{path.name} was built, but", entry, own, "exports"))

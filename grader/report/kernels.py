"""What compilers say of kernels, for a terminal and a page: a row for each kernel and what it takes of each architecture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from grader.report.model import NOT_COMPILED, KernelResources
from grader.report.style import plain

MAX_KERNELS = 12  # on a terminal
MAX_PROBLEMS = 6


def kernel_rows(found: Sequence[KernelResources]) -> tuple[list[str], list[tuple[str, ...]]]:
    """The architectures; and rows of a kernel's name, its cases, and what it takes of each architecture.

    Cases in which a kernel takes the same share a row. A case may have a kernel in several configurations: the first of one architecture
    shares a row with the first of another.
    """
    architectures = list(dict.fromkeys(one.arch for one in found))
    cells: dict[tuple[str, str, str, int], dict[str, str]] = {}
    times: Counter[tuple[str, str, str, str]] = Counter()
    for one in found:
        which = (one.name, one.part, one.case)
        times[*which, one.arch] += 1
        cells.setdefault((*which, times[*which, one.arch]), {})[one.arch] = _taken(one)
    rows: dict[tuple[str, ...], dict[str, None]] = {}
    for (name, _, case, _), taken in cells.items():
        rows.setdefault((name, *(taken.get(arch, "–") for arch in architectures)), {})[case] = None
    return architectures, [(name, ", ".join(cases), *takes) for (name, *takes), cases in rows.items()]


def _taken(one: KernelResources) -> str:
    if one.registers is None:
        return "✗ not compiled" if one.problem else "compiled"
    spilled = one.spill_store_bytes + one.spill_load_bytes
    pieces = [f"{'✗ ' if one.problem else ''}{one.registers} regs"]
    if shared := one.shared_bytes:
        pieces.append(f"{shared / 1024:.0f} KiB" if shared >= 1024 else f"{shared} B shared")
    pieces += [f"{spilled} B spilled"] if spilled else [f"{one.stack_bytes} B of stack"] if one.stack_bytes else []
    return ", ".join(pieces)


def problems(found: Sequence[KernelResources], told: Collection[str] = ()) -> list[str]:
    """A sentence for each kernel and problem, but not for a problem that one of the messages `told` contains."""
    alike: dict[tuple[str, str], list[KernelResources]] = {}
    for one in found:
        if one.problem and not any(one.problem.removeprefix(NOT_COMPILED) in message for message in told):
            alike.setdefault((one.name, one.problem), []).append(one)
    return [
        f"{name}, compiled for {', '.join(dict.fromkeys(one.arch for one in ones))}: {problem} "
        f"({', '.join(dict.fromkeys(one.case for one in ones))})"
        for (name, problem), ones in alike.items()
    ]


def kernels_view(found: Sequence[KernelResources], told: Collection[str] = (), file: str = "") -> RenderableType:
    """The terminal view, with the kernels' file where that is given."""
    architectures, rows = kernel_rows(found)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for row in [(f"{file}, compiled for" if file else "compiled for", "", *architectures), *rows[:MAX_KERNELS]]:
        table.add_row(*(plain(text, "dim") for text in row))
    more = [f"... and {len(rows) - MAX_KERNELS} more in the report"] if len(rows) > MAX_KERNELS else []
    lines = [f"✗ {words}" for words in problems(found, told)]
    blocks: list[RenderableType] = [table, *(plain(words, "dim") for words in more)]
    blocks += [plain(words, "yellow") for words in lines[:MAX_PROBLEMS]]
    if len(lines) > MAX_PROBLEMS:
        blocks.append(plain(f"... and {len(lines) - MAX_PROBLEMS} more in the report", "dim"))
    return Group(*blocks)

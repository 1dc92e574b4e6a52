"""A profile in words and tables, which the terminal and the page both show; and the terminal's view of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table as RichTable
from rich.text import Text

from grader.messages import CaseNote, CaseStarted, Event, Planned, Profiled
from grader.profile.model import (
    CaseProfile,
    GpuRun,
    KernelCounters,
    LaunchProfile,
    LineTraffic,
    Profile,
    Remark,
    bytes_words,
)
from grader.report.speed import name_of
from grader.report.style import LiveView, counted, headline, plain, shortened

NAME_LETTERS, SOURCE_LETTERS = 24, 34
MAX_NOTES = 3  # The terminal shows at most this many notes on compiled code.


@dataclass(frozen=True)
class Table:
    """Facts of a case.

    Attributes:
        title: of the table on the page; on the terminal its first heading says what it is.
        head: headings; the first and the last `words` of them are of words, all others of numbers.
        shown, columns: rows and columns on the terminal; the page has all.
        under: sentences below it.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    shown: int
    columns: int
    first_words: int = 1
    last_words: int = 0
    under: tuple[str, ...] = ()

    def is_number(self, column: int) -> bool:
        return self.first_words <= column < len(self.head) - self.last_words


def tables(case: CaseProfile) -> Iterator[Table]:
    """What a case's trace, its compiler and a GPU told, as far as there is any."""
    head: tuple[str, ...]
    if case.launches:
        head = ("kernel", "grid × block", "regs", "shared", "occupancy", "waves", "moves", "limited by")
        yield Table("Launches", head, tuple(map(_launch, case.launches)), 5, 7, last_words=1)
    if case.operators:
        head = ("PyTorch", "where", "calls", "reads", "writes")
        costly = sorted(case.operators, key=lambda one: -(one.read_bytes + one.written_bytes))
        moved = tuple(
            (one.name, one.place, str(one.calls), bytes_words(one.read_bytes), bytes_words(one.written_bytes))
            for one in costly
        )
        yield Table("Operators of PyTorch", head, moved, 3, 5, first_words=2)
    if lines := [line for launch in case.launches for line in launch.lines]:
        # Bytes that a line moves, in whole sectors or in passes through the banks of shared memory.
        lines.sort(key=lambda one: -one.bytes * max(one.sectors_ratio or 1.0, 1.0) * (one.conflicts or 1.0))
        head = ("what", "line", "bytes", "", "source")
        yield Table("What each line moves", head, tuple(map(_line, lines)), 7, 5, last_words=2)
    if case.ran is not None:
        yield _ran("On the GPU", "ran on the GPU", case.ran)
    if case.counters:
        head = ("counted on the GPU", "ms", "DRAM", "sectors, load / store", "hits, L1 / L2", "occupancy")
        busy = tuple(f"{one.name}: {words}" for one in case.counters if (words := _busy(one)))
        yield Table("Counted on the GPU", head, tuple(map(_counters, case.counters)), 6, 6, under=busy)
    if case.compiled is not None:
        yield _ran("What torch.compile runs", "torch.compile runs", case.compiled)


def _launch(one: LaunchProfile) -> tuple[str, ...]:
    spills = f"+{one.spilled_bytes}B" if one.spilled_bytes else ""
    return (
        f"{one.launches} × {one.kernel}" if one.launches > 1 else one.kernel,
        _grid(one.grid, one.threads),
        "?" if one.registers is None else f"{one.registers}{spills}",
        bytes_words(one.shared_bytes) if one.shared_bytes else "0",
        _share(one.occupancy.share if one.occupancy else None),
        "?" if one.waves is None else ms_words(one.waves.waves),
        bytes_words(one.moved_bytes),
        ", ".join(one.occupancy.limits) if one.occupancy else "",
    )


def _line(one: LineTraffic) -> tuple[str, ...]:
    what = f"{one.verb} {one.tensor or 'memory'}{' (shared)' if one.space == 'shared' else ''}"
    bad = []
    if one.sectors_ratio is not None and one.sectors_ratio >= 1.05:
        bad.append(f"{one.sectors_ratio:.1f} × the sectors")
    if one.conflicts is not None and one.conflicts >= 1.05:
        bad.append(f"{one.conflicts:.1f} × the passes")
    if one.idle_share >= 0.005:
        bad.append(f"{one.idle_share:.0%} idle")
    if one.atomic:
        bad.append("atomic")
    return what, str(one.line) if one.line else "?", bytes_words(one.bytes), ", ".join(bad), one.source


def _grid(grid: tuple[int, int, int], threads: int) -> str:
    """As `64×1×48 × 128`; "" for a copy or fill, which has neither blocks nor threads."""
    lengths = grid[: 1 + max(i for i in range(3) if i == 0 or grid[i] > 1)]
    return f"{'×'.join(map(str, lengths))} × {threads}" if threads else ""


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"


def _ran(title: str, heading: str, ran: GpuRun) -> Table:
    rows = tuple(
        (
            one.name,
            str(one.calls),
            ms_words(one.time_ms),
            f"{one.share:.0%}",
            "yours" if one.own else "a library's",
            _grid(one.grid, one.threads),
            f"{one.registers}" if one.threads else "",
            "" if one.occupancy is None else f"{one.occupancy:.0%}",
        )
        for one in ran.kernels
    )
    head = (heading, "calls", "ms", "share", "whose", "grid × block", "regs", "occupancy")
    words = f"{ran.gpu}: {ms_words(ran.device_ms)} ms on the GPU, busy for {ms_words(ran.busy_ms)} of them"
    if ran.host_ms:
        bound = ": the host is what takes the time" if ran.host_ms > ran.device_ms else ""
        words += f"; {ms_words(ran.host_ms)} ms on the host{bound}"
    more = (f"and {ran.missing} more",) if ran.missing else ()
    return Table(title, head, rows, 6, 5, under=(*more, words))


def _counters(one: KernelCounters) -> tuple[str, ...]:
    dram = [found for found in (one.dram_read_bytes, one.dram_written_bytes) if found is not None]
    sectors = [
        "?" if found is None else f"{found:.3g}" if found else "none" for found in (one.load_sectors, one.store_sectors)
    ]
    return (
        one.name,
        ms_words(one.time_ms),
        bytes_words(sum(dram)) if dram else "?",
        " / ".join(sectors),
        f"{_share(one.l1_hits)} / {_share(one.l2_hits)}",
        _share(one.occupancy),
    )


def _busy(one: KernelCounters) -> str:
    """As `busy are DRAM 93 %, tensor cores 0 %; a warp waits for data from memory (81 %)`."""
    parts = {"DRAM": one.dram_busy, "L2": one.l2_busy, "tensor cores": one.tensor_busy, "schedulers": one.issue_busy}
    busy = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share is not None)
    waits = ", ".join(f"{what} ({share:.0%})" for what, share in one.stalls)
    return "; ".join(filter(None, (busy and f"busy are {busy}", waits and f"a warp waits for {waits}")))


def ms_words(ms: float) -> str:
    return f"{ms:.0f}" if 100 <= ms < 1e9 else f"{ms:.3g}"


def title(case: CaseProfile) -> str:
    """As `scale: long`; with the part's name where it is another."""
    part = "" if case.part == case.assignment else f" {case.part}"
    return f"{case.assignment}{part}: {case.case}"


def size_words(case: CaseProfile) -> str:
    return f"{case.size}, {case.dtype}; for {case.gpu}"


def moved_words(case: CaseProfile) -> str:
    """As `moves 4.29 GB through L2, needed 2.15 GB: 2.0 ×`; without a factor if counts are too low."""
    least = "at least " if case.is_cut else ""
    return f"moves {least}{bytes_words(case.moved_bytes)} through L2, needed {bytes_words(case.needed_bytes)}" + (
        _times(case.moved_bytes, case.needed_bytes, case)
    )


def products_words(case: CaseProfile) -> str:
    """As `106 GFLOP of products, needed 103: 1.0 ×`; "" of a case whose kernels multiply no tiles."""
    flops = sum(one.flops for one in case.launches)
    if not flops:
        return ""
    return f"{flops / 1e9:.0f} GFLOP of products, needed {case.needed_flops / 1e9:.0f}" + (
        _times(flops, case.needed_flops, case)
    )


def _times(moved: float, needed: float, case: CaseProfile) -> str:
    return f": {moved / needed:.1f} ×" if needed and not case.is_cut else ""


def praise(case: CaseProfile) -> str:
    """What is said of launches without a remark whose registers and counts are known; "" of others."""
    if not case.launches or case.remarks or case.is_cut or any(one.registers is None for one in case.launches):
        return ""
    return "none of the known causes of slow kernels was found"


def missing_words(cases: Sequence[CaseProfile]) -> str:
    return f"no profile of {', '.join(map(title, cases))}:"


def place_words(remark: Remark) -> str:
    return f"{remark.file}:{remark.line}" if remark.line else remark.file


def notes(case: CaseProfile) -> list[str]:
    """What the compiled code shows."""
    return [f"{one.kernel}: {note}" for one in case.launches for note in one.notes]


def timed_words(case: CaseProfile) -> Iterator[str]:
    """A line for each size that was timed, or why it was not."""
    for one in case.timed:
        if one.measured is None:
            yield f"{one.size}: {one.unknown}"
            continue
        times = (f"{name_of(it.name)} {ms_words(it.time_s.median * 1e3)} ms" for it in one.measured.entrants)
        yield f"{one.size}: {', '.join(times)}"


# The terminal ---------------------------------------------------------------------------------------------------------


class ProfileProgress(LiveView):
    """A line that says which case is profiled."""

    def __init__(self, console: Console) -> None:
        self._spinner = Spinner("dots", "starting the judge ...")
        self._now, self._done = "", 0
        super().__init__(console, lambda: self._spinner)

    def __call__(self, event: Event) -> None:
        match event:
            case Planned() if event.isolation.note:
                self._console.print(plain(f"warning: {event.isolation.note}", "bold yellow"), soft_wrap=True)
            case CaseStarted():
                self._now = f"{event.assignment} {event.part} {event.case}"
                self._say("is traced")
            case CaseNote():
                self._say(event.text)
            case Profiled():
                self._done += 1
                if not self._is_live:
                    done = "no profile" if event.profile.is_empty else "profiled"
                    self._console.print(plain(f"{title(event.profile)}: {done}"), soft_wrap=True)
            case _:
                pass

    def _say(self, words: str) -> None:
        done = f"{counted(self._done, 'case')} profiled; " if self._done else ""
        self._spinner.update(text=plain(f"{done}{self._now} {words}", "dim"))


def print_profile(profile: Profile, console: Console) -> None:
    """Print a screen for each case, and for cases without numbers their names once for each reason, as an absent file."""
    for case in profile.cases:
        if not case.is_empty:
            console.print(_case(case))
    for reason, cases in profile.missing.items():
        console.print(plain(missing_words(cases), "bold"), soft_wrap=True)
        console.print(Padding(plain(reason, "yellow"), (0, 0, 0, 2), expand=False))


def _case(case: CaseProfile) -> RenderableType:
    """A case on a screen: what it moves, why it is slow, its launches, and its costliest lines."""
    blocks: list[RenderableType] = [plain(size_words(case), "dim")]
    if case.launches or case.operators:
        blocks.append(headline(plain(moved_words(case)), plain(products_words(case))))
    if case.unknown:
        blocks.append(plain(case.unknown, "yellow"))
    for number, one in enumerate(case.remarks, 1):
        row = RichTable.grid("", "", padding=(0, 1))
        row.columns[0].width = 2
        where = plain(f"{place_words(one)} ", "bold") if one.file else Text()
        row.add_row(f"{number}.", Text.assemble(where, plain(one.sentence)))
        blocks.append(row)
    if words := praise(case):
        blocks.append(plain(words, "green"))
    blocks += [plain(note, "dim") for note in notes(case)[:MAX_NOTES]]
    for table in tables(case):
        blocks += ["", _rich(table), *(plain(words, "dim") for words in table.under[: table.shown])]
    blocks += [plain(words, "dim") for words in timed_words(case)]
    return Panel(Group(*blocks), title=plain(title(case), "bold"), title_align="left", border_style="blue")


def _rich(table: Table) -> RenderableType:
    found = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False)
    for column, heading in enumerate(table.head[: table.columns]):
        justify = "right" if table.is_number(column) else "left"
        found.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    if table.head[-1] == "source":
        found.expand, found.columns[-1].ratio = True, 1  # what the other columns leave is for the source
    for row in table.rows[: table.shown]:
        letters = (NAME_LETTERS, *[SOURCE_LETTERS] * (table.columns - 1))
        found.add_row(*(plain(shortened(one, most)) for one, most in zip(row, letters, strict=False)))
    more = len(table.rows) - table.shown
    return Group(found, plain(f"and {more} more", "dim")) if more > 0 else found

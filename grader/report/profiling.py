"""The terminal views of a profile: its progress, and one screen for each case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from grader.job import CaseNote, CaseStarted, Event, Planned, Profiled
from grader.report.profile import (
    CaseProfile,
    GpuRun,
    KernelCounters,
    LaunchProfile,
    LineTraffic,
    OperatorTraffic,
    Profile,
    Remark,
)
from grader.report.speed import name_of
from grader.report.style import LiveView, counted, headline, plain, shortened
from grader.verdict.units import bytes_words, ms_words

MAX_LAUNCHES, MAX_LINES, MAX_OPERATORS, MAX_RAN, MAX_NOTES = 5, 7, 3, 6, 3  # of a case on its screen
SLOW = 1.5  # predicted by least time
NAME_LETTERS, SOURCE_LETTERS = 24, 34
COUNTED = ("ms", "DRAM", "predicted", "sectors, load / store", "hits, L1 / L2", "occupancy")


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
                    one = event.profile
                    done = "no profile" if one.is_empty else "profiled"
                    self._console.print(plain(f"{title(one)}: {done}"), soft_wrap=True)
            case _:
                pass

    def _say(self, words: str) -> None:
        done = f"{counted(self._done, 'case')} profiled; " if self._done else ""
        self._spinner.update(text=plain(f"{done}{self._now} {words}", "dim"))


def print_profile(profile: Profile, console: Console) -> None:
    """Print a screen for each case, and for cases without numbers their names once for each reason, as an absent file."""
    for case in profile.cases:
        if not case.is_empty:
            console.print(case_view(case))
    for reason, cases in profile.missing.items():
        console.print(plain(missing_words(cases), "bold"), soft_wrap=True)
        console.print(Padding(plain(reason, "yellow"), (0, 0, 0, 2), expand=False))


def missing_words(cases: Sequence[CaseProfile]) -> str:
    return f"no profile of {', '.join(map(title, cases))}:"


def title(case: CaseProfile) -> str:
    """As `scale: long`; with the part's name where it is another."""
    part = "" if case.part == case.assignment else f" {case.part}"
    return f"{case.assignment}{part}: {case.case}"


def case_view(case: CaseProfile) -> RenderableType:
    """A case on a screen: what it moves and takes, why, its launches, and its costliest lines."""
    blocks: list[RenderableType] = [plain(f"{case.size}, {case.dtype}; for {case.gpu}", "dim")]
    if case.launches or case.operators:
        blocks.append(headline(plain(moved_words(case)), plain(time_words(case))))
    if case.unknown:
        blocks.append(plain(case.unknown, "yellow"))
    blocks += [_remark(number, one) for number, one in enumerate(case.remarks, 1)]
    if words := praise(case):
        blocks.append(plain(words, "green"))
    if case.launches:
        blocks += ["", _launches(case.launches, case.prediction_error is not None)]
        blocks += [plain(f"{one.kernel}: {note}", "dim") for one in case.launches for note in one.notes][:MAX_NOTES]
    if case.operators:
        blocks += ["", _operators(case.operators)]
    if lines := costliest(case):
        blocks += ["", _lines(lines[:MAX_LINES])]
    if case.ran is not None:
        blocks += ["", *_ran(case.ran, "ran on the GPU")]
    if case.counters:
        blocks += ["", *_counters(case)]
    if case.compiled is not None:
        blocks += ["", *_ran(case.compiled, "torch.compile runs")]
    blocks += [plain(words, "dim") for words in timed_words(case)]
    return Panel(Group(*blocks), title=plain(title(case), "bold"), title_align="left", border_style="blue")


def praise(case: CaseProfile) -> str:
    """What is said of launches without a remark whose registers and counts are known; "" of others."""
    if not case.launches or case.remarks or any(one.registers is None for one in case.launches):
        return ""
    if case.predicted_ms is None:
        return ""
    if case.predicted_ms > SLOW * case.least_ms:
        return "no known cause of a longer time was found"
    return "nothing here takes much more time than it must"


def moved_words(case: CaseProfile) -> str:
    """As `DRAM 4.29 GB, needed 2.15 GB: 2.0 ×`; without a factor if counts are too low."""
    whole = case.predicted_ms is not None
    times = f": {case.moved_bytes / case.needed_bytes:.1f} ×" if case.needed_bytes and whole else ""
    return f"DRAM {'' if whole else 'at least '}{bytes_words(case.moved_bytes)}, needed {bytes_words(case.needed_bytes)}{times}"


def time_words(case: CaseProfile) -> str:
    least = f"at best {ms_words(case.least_ms)} ms"
    if case.predicted_ms is None:
        return least
    if case.prediction_error is None:
        return f"{least}; predictions are too far off for such a kernel"
    return f"predicted {ms_words(case.predicted_ms)} ms ± {case.prediction_error:.0%}, {least}"


def place_words(remark: Remark) -> str:
    return f"{remark.file}:{remark.line}" if remark.line else remark.file


def _remark(number: int, remark: Remark) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=2)
    table.add_column()
    where = plain(f"{place_words(remark)} ", "bold") if remark.file else Text()
    table.add_row(f"{number}.", Text.assemble(where, plain(remark.sentence)))
    return table


def _table(*columns: tuple[str, bool]) -> Table:
    """A table with these headings; those with True hold numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", expand=False)
    for heading, is_number in columns:
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis")
    return table


def _launches(launches: Iterable[LaunchProfile], predicted: bool) -> RenderableType:
    table = _table(
        ("kernel", False), ("grid × block", True), ("regs", True), ("shared", True), ("occupancy", True), ("waves", True), ("ms", True)
    )  # fmt: skip
    every = list(launches)
    for one in every[:MAX_LAUNCHES]:
        table.add_row(plain(shortened(kernel_words(one), NAME_LETTERS)), *map(plain, launch_words(one, predicted)))
    more = len(every) - MAX_LAUNCHES
    return Group(table, plain(f"and {counted(more, 'launch')} more", "dim")) if more > 0 else table


def kernel_words(one: LaunchProfile) -> str:
    times = f"{one.launches} × " if one.launches > 1 else ""
    return f"{times}{one.kernel}"


def launch_words(one: LaunchProfile, predicted: bool) -> tuple[str, ...]:
    """Grid and block, registers with spills, shared memory, occupancy with its limit, waves, and the `predicted` milliseconds."""
    spills = f"+{one.spilled_bytes}B" if one.spilled_bytes else ""
    return (
        grid_words(one.grid, one.threads),
        "?" if one.registers is None else f"{one.registers}{spills}",
        bytes_words(one.shared_bytes) if one.shared_bytes else "0",
        "?" if one.occupancy is None else f"{one.occupancy.share:.0%}",
        "?" if one.waves is None else ms_words(one.waves.waves),
        "?" if one.predicted_ms is None or not predicted else ms_words(one.predicted_ms),
    )


def grid_words(grid: tuple[int, int, int], threads: int) -> str:
    """As `64×1×48 × 128`; "" for a copy or fill, which has neither blocks nor threads."""
    lengths = grid[: 1 + max(i for i in range(3) if i == 0 or grid[i] > 1)]
    return f"{'×'.join(map(str, lengths))} × {threads}" if threads else ""


def _operators(operators: tuple[OperatorTraffic, ...]) -> RenderableType:
    table = _table(("PyTorch", False), ("where", False), ("calls", True), ("reads", True), ("writes", True))
    costly = sorted(operators, key=lambda one: -(one.read_bytes + one.written_bytes))
    for one in costly[:MAX_OPERATORS]:
        moved = bytes_words(one.read_bytes), bytes_words(one.written_bytes)
        table.add_row(plain(shortened(one.name, NAME_LETTERS)), plain(one.place), str(one.calls), *moved)
    return table


def costliest(case: CaseProfile) -> list[tuple[LaunchProfile, LineTraffic]]:
    """Lines of all launches; first those that move the most."""
    found = [(launch, line) for launch in case.launches for line in launch.lines]
    return sorted(found, key=lambda one: -line_cost(one[1]))


def line_cost(line: LineTraffic) -> float:
    return line.bytes * max(line.sectors_ratio or 1.0, 1.0) * (line.conflicts or 1.0)


def line_notes(line: LineTraffic) -> str:
    """What is bad about a line: sectors, idle lanes, bank conflicts."""
    notes = []
    if line.sectors_ratio is not None and line.sectors_ratio >= 1.05:
        notes.append(f"{line.sectors_ratio:.1f} × the sectors")
    if line.conflicts is not None and line.conflicts >= 1.05:
        notes.append(f"{line.conflicts:.1f} × the passes")
    if line.idle_share >= 0.005:
        notes.append(f"{line.idle_share:.0%} idle")
    if line.atomic:
        notes.append("atomic")
    return ", ".join(notes)


def line_words(line: LineTraffic) -> str:
    """As `reads x`; `writes tile (shared)`."""
    where = " (shared)" if line.space == "shared" else ""
    return f"{line.verb} {line.tensor or 'memory'}{where}"


def _lines(found: Iterable[tuple[LaunchProfile, LineTraffic]]) -> Table:
    table = _table(("line", True), ("", False), ("bytes", True), ("", False), ("", False))
    table.expand, table.columns[-1].ratio = True, 1  # what the other columns leave is for the source
    for _, one in found:
        source = plain(shortened(one.source, SOURCE_LETTERS), "dim")
        number = str(one.line) if one.line else "?"
        cells = (
            plain(shortened(line_words(one), NAME_LETTERS)),
            bytes_words(one.bytes),
            plain(line_notes(one), "yellow"),
        )
        table.add_row(number, *cells, source)
    return table


def _ran(ran: GpuRun, heading: str) -> Iterator[RenderableType]:
    table = _table((heading, False), ("calls", True), ("ms", True), ("share", True), ("whose", False))
    for one in ran.kernels[:MAX_RAN]:
        cells = str(one.calls), ms_words(one.time_ms), f"{one.share:.0%}", "yours" if one.own else "a library's"
        table.add_row(plain(shortened(one.name, NAME_LETTERS)), *cells)
    yield table
    yield plain(ran_words(ran), "dim")


def ran_words(ran: GpuRun) -> str:
    words = f"{ran.gpu}: {ms_words(ran.device_ms)} ms on the GPU, busy for {ms_words(ran.busy_ms)} of them"
    if not ran.host_ms:
        return words
    bound = ": the host is what takes the time" if ran.host_ms > ran.device_ms else ""
    return f"{words}; {ms_words(ran.host_ms)} ms on the host{bound}"


def _counters(case: CaseProfile) -> Iterator[RenderableType]:
    table = _table(("counted on the GPU", False), *((heading, True) for heading in COUNTED))
    for one in case.counters[:MAX_RAN]:
        table.add_row(plain(shortened(one.name, NAME_LETTERS)), *map(plain, counters_words(case, one)))
    yield table
    yield from (plain(f"{one.name}: {busy_words(one)}", "dim") for one in case.counters[:MAX_RAN])


def counters_words(case: CaseProfile, one: KernelCounters) -> tuple[str, ...]:
    """A cell for each heading of `COUNTED`. The predicted bytes are those of the launch of this name, whatever its template arguments, and
    this grid; none are told where there is no such launch, or several that differ.
    """
    alike = [found for found in case.launches if (found.kernel.partition("<")[0], found.grid) == (one.name, one.grid)]
    predicted = {bytes_words(found.dram_bytes / found.launches) for found in alike}
    dram = [found for found in (one.dram_read_bytes, one.dram_written_bytes) if found is not None]
    sectors = [
        "?" if found is None else f"{found:.3g}" if found else "none" for found in (one.load_sectors, one.store_sectors)
    ]
    hits = [_share(found) for found in (one.l1_hits, one.l2_hits)]
    return (
        ms_words(one.time_ms),
        bytes_words(sum(dram)) if dram else "?",
        predicted.pop() if len(predicted) == 1 else "?",
        " / ".join(sectors),
        " / ".join(hits),
        _share(one.occupancy),
    )


def busy_words(one: KernelCounters) -> str:
    """As `busy are DRAM 93 %, tensor cores 0 %; a warp waits for data from memory (81 %)`."""
    parts = {"DRAM": one.dram_busy, "L2": one.l2_busy, "tensor cores": one.tensor_busy, "schedulers": one.issue_busy}
    busy = ", ".join(f"{name} {share:.0%}" for name, share in parts.items() if share is not None)
    waits = ", ".join(f"{what} ({share:.0%})" for what, share in one.stalls)
    return "; ".join(filter(None, (busy and f"busy are {busy}", waits and f"a warp waits for {waits}")))


def _share(share: float | None) -> str:
    return "?" if share is None else f"{share:.0%}"


def timed_words(case: CaseProfile) -> Iterator[str]:
    """A line for each size that was timed, or why it was not."""
    for one in case.timed:
        if one.measured is None:
            yield f"{one.size}: {one.unknown}"
            continue
        times = (f"{name_of(it.name)} {ms_words(it.time_s.median * 1e3)} ms" for it in one.measured.contenders)
        yield f"{one.size}: {', '.join(times)}"

"""The views of a speed case: its times, shares of the machine's limit and bands on a terminal; on a page the speed-ups against the
bands, and the roofline of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.report.model import BandResult, EntrantTime, Report, SpeedCaseResult, SpeedMeasurement
from grader.report.style import STYLE, headline, indented, plain, points_text
from grader.report.svg import WIDTH, Mark, Plot, dot, grid, label, levels, line, spanning

NAMES = {
    "submission": "your code",
    "eager": "PyTorch",
    "compile": "torch.compile",
    "reference": "reference",
    "unfused": "unfused PyTorch",
    "sdpa_flash": "FlashAttention-2 in PyTorch",
    "sdpa_cudnn": "cuDNN",
    "copy": "device copy",
    "matmul": "matrix product",
}


def name_of(entrant: str) -> str:
    return NAMES.get(entrant, entrant)


def speed_case(result: SpeedCaseResult) -> RenderableType:
    """The case's times as a table, then its bands and flags; or the reason for their absence."""
    mark, style = STYLE[result.outcome]
    title = Text.assemble(plain(f"{mark} speed: {result.name}", style), plain(f"  {result.size}", "dim"))
    if result.outcome != "passed":
        title.append(f"  {result.outcome.replace('_', ' ')}", style)
    lines: list[RenderableType] = []
    lines += [plain(line) for line in (result.message, *result.diagnosis) if line]
    if result.traceback:
        lines.append(plain(result.traceback.rstrip(), "dim"))
    if result.measured is not None:
        lines.append(_times(result.measured))
    if result.bands:
        lines.append(_bands(result.bands))
    if result.measured is not None:
        lines += [plain(f"! {flag}", "yellow") for flag in result.measured.flags]
    return Group(headline(title, points_text(result.points)), *map(indented, lines))


def _times(measured: SpeedMeasurement) -> Table:
    by_flops = measured.roofline == "matmul"
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    table.add_column()
    for one in measured.entrants:
        if one.name == "matmul":
            continue  # Skip matmul: it multiplies its own matrices.
        rate = f"{one.flops_per_s / 1e12:.0f} TFLOP/s" if by_flops else f"{one.bytes_per_s / 1e12:.2f} TB/s"
        own, ratio = one.name == "submission", one.speedup
        told = f"you are {ratio.median:.3g} × as fast  ({ratio.low:.3g} to {ratio.high:.3g})" if ratio else ""
        table.add_row(
            plain(name_of(one.name), "bold" if own else ""),
            f"{one.time_s.median * 1e3:.4g} ms",
            rate,
            f"{one.roofline_share:.0%}",
            plain(f"of a {name_of(measured.roofline)}" if own else told, "dim"),
        )
    return table


def _bands(bands: tuple[BandResult, ...]) -> Text:
    pieces = []
    for band in bands:
        sign, style = ("✓", "green") if band.reached else ("✗", "red")
        doubt = ", in doubt" if band.undecided else ""
        pieces.append(plain(f"{sign} {band.speedup:g} × {name_of(band.vs)}: {band.points:g} p.{doubt}", style))
    return Text("   ").join(pieces)


# On a page ------------------------------------------------------------------------------------------------------------

YARDSTICKS = ("copy", "matmul")
LOOKS = {"submission": "own", "eager": "eager", "compile": "compile", "reference": "staff"}  # else: others


@dataclass(frozen=True)
class Timed:
    """The measurement of a speed case at one size, with its title on the page and the bands of its case."""

    title: str
    measured: SpeedMeasurement
    bands: tuple[BandResult, ...] = ()

    def of(self, name: str) -> EntrantTime | None:
        return next((one for one in self.measured.entrants if one.name == name), None)


def timed_cases(report: Report) -> list[Timed]:
    """The speed cases that were measured."""
    cases = ((one.title_of(part), case) for one, part in report.parts for case in part.speed.cases)
    return [
        Timed(f"{head}: {case.name}", case.measured, case.bands) for head, case in cases if case.measured is not None
    ]


def speedups(cases: Sequence[Timed]) -> Plot | None:
    """A row for each speed case and each entrant that its bands or its submission are held against, with the edges of the bands."""
    pairs = [
        (timed, other.name, other.speedup, [band for band in timed.bands if band.vs == other.name])
        for timed in cases
        for other in timed.measured.entrants
        if other.speedup is not None and other.name not in YARDSTICKS
    ]
    if not pairs:
        return None
    values = [one for *_, ratio, bands in pairs for one in (ratio.low, ratio.high, *(band.speedup for band in bands))]
    axis = spanning([*(one for one in values if 0 < one < math.inf), 1.0], 1.3, 250, WIDTH - 90)
    marks: list[Mark] = []
    rows: list[tuple[str, ...]] = []
    y, seen = 10.0, ""
    for timed, other, ratio, bands in pairs:
        if timed.title != seen:
            seen, y = timed.title, y + 16
            marks.append(label(0, y, seen, "strong"))
            y += 22
        interval = f"{ratio.low:.4g} to {ratio.high:.4g}"
        told = seen, name_of(other), f"{ratio.median:.4g} ×", interval
        marks += [label(12, y, f"against {name_of(other)}"), line(axis.start, y, axis.end, y, "grid")]
        for band in bands:
            off = ratio.median / band.speedup - 1 if band.speedup > 0 else math.inf
            if band.undecided:
                look, verdict = "odd", f"in doubt, and paid: {abs(off):.1%} {'over' if off >= 0 else 'under'}"
            else:
                look, verdict = ("good", "yes") if band.reached else ("bad", "no")
                verdict += f", by {abs(off):.1%}"
            at, tip = axis.at(band.speedup), f"{band.points:g} points from {band.speedup:g} ×: {verdict}"
            marks.append(line(at, y - 8, at, y + 8, f"edge {look}", tip))
            rows.append((*told, f"{band.speedup:g} ×", f"{band.points:g}", verdict))
        if not bands:
            rows.append((*told, "", "", ""))
        marks.append(line(axis.at(ratio.low), y, axis.at(ratio.high), y, "interval"))
        marks.append(dot(axis.at(ratio.median), y, "own", f"{interval} ×"))
        marks.append(label(WIDTH, y, f"{ratio.median:#.3g} ×".replace(". ", " "), "strong", "end"))
        if missed := min((band.speedup for band in bands if not band.reached), default=0.0):
            words = f"{1 - ratio.median / missed:.1%} short of {missed:g} ×"
            marks.append(label(WIDTH, y - 16, words, "tick", "end"))
        y += 24
    bottom = y - 6
    marks[:0] = [*grid(axis, 12, bottom, " ×"), line(axis.at(1), 8, axis.at(1), bottom, "limit")]
    marks.append(label(axis.at(1), bottom + 28, "as fast", "tick", "middle"))
    return Plot(
        "speedups",
        "Speed-ups against the bands",
        "A dot with its 95 % interval says how many times as fast your code is, on a logarithmic scale; upright strokes are the edges of "
        "the bands, green where they are reached.",
        WIDTH,
        int(bottom + 36),
        marks,
        ("speed case", "against", "speed-up", "95 % interval", "band", "points", "reached"),
        rows,
    )


def roofline(cases: Sequence[Timed]) -> Plot | None:
    """All entrants by operations per byte and per second, under the machine's limits by the yardsticks."""
    copies = [one.bytes_per_s for timed in cases if (one := timed.of("copy"))]
    products = [one.flops_per_s for timed in cases if (one := timed.of("matmul"))]
    points = [
        (number, timed, one)
        for number, timed in enumerate(cases, 1)
        for one in timed.measured.entrants
        if one.name not in YARDSTICKS and one.bytes_per_s > 0 and one.flops_per_s > 0
    ]
    if not points or not (copies or products):
        return None
    bandwidth, peak = max(copies, default=math.inf), max(products, default=math.inf)
    intensities = [one.flops_per_s / one.bytes_per_s for *_, one in points]
    if bandwidth < math.inf and peak < math.inf:
        intensities.append(peak / bandwidth)  # the ridge: both limits meet there
    x = spanning(intensities, 2.5, 70, WIDTH - 20)
    y = spanning([*(one.flops_per_s for *_, one in points), min(bandwidth * x.high, peak)], 1.8, 330, 24)
    marks = [*grid(x, 24, 330), *levels(replace(y, low=y.low / 1e12, high=y.high / 1e12), 70, WIDTH - 20)]
    ridge = min(max(peak / bandwidth, x.low), x.high) if bandwidth < math.inf else x.low
    if bandwidth < math.inf:
        low = max(x.low, y.low / bandwidth)
        marks.append(line(x.at(low), y.at(low * bandwidth), x.at(ridge), y.at(ridge * bandwidth), "roof"))
        marks.append(label(x.at(low) + 4, 14, f"device copy: {bandwidth / 1e12:.3g} TB/s", "tick"))
    if peak < math.inf:
        marks.append(line(x.at(ridge), y.at(peak), x.end, y.at(peak), "roof"))
        marks.append(label(x.end, 14, f"matrix product: {peak / 1e12:.0f} TFLOP/s", "tick", "end"))
    marks.append(label((x.start + x.end) / 2, 362, "operations for each byte that must be moved", "tick", "middle"))
    marks.append(label(0, 8, "TFLOP/s", "tick"))
    taken: list[tuple[float, float, set[int]]] = []
    for number, timed, one in points:
        place = x.at(one.flops_per_s / one.bytes_per_s), y.at(one.flops_per_s)
        tip = f"{timed.title}, {name_of(one.name)}: {one.flops_per_s / 1e12:.3g} TFLOP/s"
        marks.append(_point(one.name, *place, tip))
        if one.name == "submission":
            near = next((found for found in taken if math.dist(found[:2], place) < 16), None)
            taken.append((*place, {number})) if near is None else near[2].add(number)
    marks += [label(at - 7, up - 9, ", ".join(map(str, sorted(ones))), "strong", "end") for at, up, ones in taken]
    return Plot(
        "roofline",
        "The roofline of this machine, as measured",
        "The operations a second that each entrant does, over the operations of its case for each byte that must be moved. The slope "
        "is the bandwidth of a device copy, the level the rate of a matrix product in bfloat16, both measured in the same rounds. "
        "Numbers are those of the speed cases in the table.",
        WIDTH,
        372,
        marks,
        ("", "speed case", "entrant", "a call", "TFLOP/s", "TB/s", "FLOP per byte", "of the limit"),
        [
            (
                str(number),
                timed.title,
                name_of(one.name),
                f"{one.time_s.median * 1e3:.4g} ms",
                f"{one.flops_per_s / 1e12:.3g}",
                f"{one.bytes_per_s / 1e12:.3g}",
                f"{one.flops_per_s / one.bytes_per_s:.3g}",
                f"{one.roofline_share:.0%} of a {name_of(timed.measured.roofline)}",
            )
            for number, timed, one in points
        ],
        [(name_of(one), _point(one, 6, 6)) for one in dict.fromkeys(one.name for *_, one in points)],
    )


def _point(entrant: str, x: float, y: float, tip: str = "") -> Mark:
    return dot(x, y, LOOKS.get(entrant, "others"), tip, 4.5 if entrant == "submission" else 3.5)

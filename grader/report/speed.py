"""The terminal view of a speed case: the contenders' times, their shares of the machine's limit, and the bands."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from grader.report.model import BandResult, ContenderTime, SpeedCaseResult, SpeedMeasurement
from grader.report.style import STYLE, headline, indented, plain, points_text

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


def name_of(contender: str) -> str:
    return NAMES.get(contender, contender)


def speed_case(result: SpeedCaseResult) -> RenderableType:
    """The case's times as a table, then its bands and flags; or the reason for their absence."""
    mark, style = STYLE[result.outcome]
    title = Text.assemble((f"{mark} speed: {result.name}", style), (f"  {result.size}", "dim"))
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
    for one in measured.contenders:
        if one.name == "matmul":
            continue  # Skip matmul: it multiplies its own matrices.
        rate = f"{one.flops_per_s / 1e12:.0f} TFLOP/s" if by_flops else f"{one.bytes_per_s / 1e12:.2f} TB/s"
        own = one.name == "submission"
        table.add_row(
            plain(name_of(one.name), "bold" if own else ""),
            f"{one.time_s.median * 1e3:.4g} ms",
            rate,
            f"{one.roofline_share:.0%}",
            _speedup(one) if not own else Text(f"of a {NAMES[measured.roofline]}", style="dim"),
        )
    return table


def _speedup(one: ContenderTime) -> Text:
    if one.speedup is None:
        return Text("")
    ratio = one.speedup
    return Text(f"you are {ratio.median:.3g} × as fast  ({ratio.low:.3g} to {ratio.high:.3g})", style="dim")


def _bands(bands: tuple[BandResult, ...]) -> Text:
    pieces = []
    for band in bands:
        sign, style = ("✓", "green") if band.reached else ("✗", "red")
        doubt = ", in doubt" if band.undecided else ""
        pieces.append(Text(f"{sign} {band.speedup:g} × {name_of(band.vs)}: {band.points:g} p.{doubt}", style=style))
    return Text("   ").join(pieces)

"""The plots of speed cases: speed-ups against their bands, the roofline of the machine, and the rounds of each race."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from grader.report.model import (
    BandResult,
    ContenderTime,
    Interval,
    Report,
    Round,
    SpeedMeasurement,
)
from grader.report.speed import name_of
from grader.report.svg import WIDTH, Axis, Mark, Plot, dot, grid, label, levels, line, path, spanning, square
from grader.verdict.rounds import judged_times_s

YARDSTICKS = ("copy", "matmul")
# The colour of each entrant's line; all others look like `others`.
KEY = {"submission": "own", "eager": "eager", "compile": "compile", "reference": "staff"}


@dataclass(frozen=True)
class Timed:
    """The measurement of a speed case at one size, with its title on the page and the bands of its case."""

    title: str
    measured: SpeedMeasurement
    bands: tuple[BandResult, ...] = ()

    def of(self, name: str) -> ContenderTime | None:
        return next((one for one in self.measured.contenders if one.name == name), None)


def timed_cases(report: Report) -> list[Timed]:
    """The speed cases that were measured."""
    cases = ((one.title_of(part), case) for one, part in report.parts for case in part.speed.cases)
    return [
        Timed(f"{head}: {case.name}", case.measured, case.bands) for head, case in cases if case.measured is not None
    ]


# Speed-ups against bands ----------------------------------------------------------------------------------------------


def speedups(cases: Sequence[Timed]) -> Plot | None:
    """A row for each speed case and each other contender of its race, with the edges of the bands."""
    rows = [
        (one, contender, [band for band in one.bands if band.vs == contender.name])
        for one in cases
        for contender in one.measured.contenders
        if contender.speedup is not None and contender.name not in YARDSTICKS
    ]
    if not rows:
        return None
    values = [value for _, contender, bands in rows for value in _extent(contender, bands)]
    axis = spanning([*values, 1.0], 1.3, 250, WIDTH - 90)
    marks: list[Mark] = []
    y, seen = 10.0, ""
    for one, contender, bands in rows:
        if one.title != seen:
            seen, y = one.title, y + 16
            marks.append(label(0, y, one.title, "strong"))
            y += 22
        assert contender.speedup is not None
        marks.append(label(12, y, f"against {name_of(contender.name)}"))
        marks.append(line(axis.start, y, axis.end, y, "grid"))
        for band in bands:
            tip = f"{band.points:g} points from {band.speedup:g} ×: {_verdict(band, contender.speedup)}"
            marks.append(line(axis.at(band.speedup), y - 8, axis.at(band.speedup), y + 8, f"edge {_look(band)}", tip))
        low, high = axis.at(contender.speedup.low), axis.at(contender.speedup.high)
        marks.append(line(low, y, high, y, "interval"))
        marks.append(dot(axis.at(contender.speedup.median), y, "own", f"{_interval(contender.speedup)} ×"))
        marks.append(label(WIDTH, y, f"{contender.speedup.median:#.3g} ×".replace(". ", " "), "strong", "end"))
        if missed := min((band.speedup for band in bands if not band.reached), default=0.0):
            words = f"{1 - contender.speedup.median / missed:.1%} short of {missed:g} ×"
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
        [row for one, contender, bands in rows for row in _band_rows(one, contender, bands)],
    )


def _extent(contender: ContenderTime, bands: Iterable[BandResult]) -> Iterator[float]:
    """The values of a row that a logarithmic axis can have."""
    interval = [contender.speedup.low, contender.speedup.high] if contender.speedup else []
    yield from (one for one in (*interval, *(band.speedup for band in bands)) if 0 < one < math.inf)


def _band_rows(one: Timed, contender: ContenderTime, bands: Sequence[BandResult]) -> Iterator[tuple[str, ...]]:
    assert contender.speedup is not None
    told = (one.title, name_of(contender.name), f"{contender.speedup.median:.4g} ×", _interval(contender.speedup))
    for band in bands:
        yield (*told, f"{band.speedup:g} ×", f"{band.points:g}", _verdict(band, contender.speedup))
    if not bands:
        yield (*told, "", "", "")


def _interval(interval: Interval) -> str:
    return f"{interval.low:.4g} to {interval.high:.4g}"


def _look(band: BandResult) -> str:
    return "odd" if band.undecided else "good" if band.reached else "bad"


def _verdict(band: BandResult, speedup: Interval) -> str:
    """Whether a band is reached, and by how much."""
    off = speedup.median / band.speedup - 1 if band.speedup > 0 else math.inf
    if band.undecided:
        return f"in doubt, and paid: {abs(off):.1%} {'over' if off >= 0 else 'under'}"
    return f"{'yes' if band.reached else 'no'}, by {abs(off):.1%}"


# The roofline ---------------------------------------------------------------------------------------------------------


def roofline(cases: Sequence[Timed]) -> Plot | None:
    """All contenders by operations per byte and per second, under the machine's limits by the yardsticks."""
    copies = [one.bytes_per_s for timed in cases if (one := timed.of("copy"))]
    products = [one.flops_per_s for timed in cases if (one := timed.of("matmul"))]
    points = [
        (number, timed, one)
        for number, timed in enumerate(cases, 1)
        for one in timed.measured.contenders
        if one.name not in YARDSTICKS and one.bytes_per_s > 0 and one.flops_per_s > 0
    ]
    if not points or not (copies or products):
        return None
    bandwidth, peak = max(copies, default=math.inf), max(products, default=math.inf)
    intensities = [one.flops_per_s / one.bytes_per_s for *_, one in points]
    if bandwidth < math.inf and peak < math.inf:
        intensities.append(peak / bandwidth)  # the ridge: both limits meet there
    x = spanning(intensities, 2.5, 70, WIDTH - 20)
    rates = [one.flops_per_s for *_, one in points]
    y = spanning([*rates, min(bandwidth * x.high, peak)], 1.8, 330, 24)
    marks = [
        *grid(x, 24, 330),
        *levels(replace(y, low=y.low / 1e12, high=y.high / 1e12), 70, WIDTH - 20),
        *_roofs(x, y, bandwidth, peak),
    ]
    marks.append(label((x.start + x.end) / 2, 362, "operations for each byte that must be moved", "tick", "middle"))
    marks.append(label(0, 8, "TFLOP/s", "tick"))
    taken: list[tuple[float, float, set[int]]] = []
    for number, timed, one in points:
        place = x.at(one.flops_per_s / one.bytes_per_s), y.at(one.flops_per_s)
        tip = f"{timed.title}, {name_of(one.name)}: {one.flops_per_s / 1e12:.3g} TFLOP/s"
        marks.append(symbol(one.name, *place, tip))
        if one.name == "submission":
            near = next((found for found in taken if math.dist(found[:2], place) < 16), None)
            taken.append((*place, {number})) if near is None else near[2].add(number)
    marks += [label(at - 7, up - 9, ", ".join(map(str, sorted(ones))), "strong", "end") for at, up, ones in taken]
    return Plot(
        "roofline",
        "The roofline of this machine, as measured",
        "The operations a second that each contender does, over the operations of its case for each byte that must be moved. The slope "
        "is the bandwidth of a device copy, the level the rate of a matrix product in bfloat16, both measured in the same rounds. "
        "Numbers are those of the speed cases in the table.",
        WIDTH,
        372,
        marks,
        ("", "speed case", "contender", "a call", "TFLOP/s", "TB/s", "FLOP per byte", "of the limit"),
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
        key(one.name for *_, one in points),
    )


def _roofs(x: Axis, y: Axis, bandwidth: float, peak: float) -> list[Mark]:
    """The limits: the slope of the bandwidth up to the ridge, then the level of the operations."""
    ridge = min(max(peak / bandwidth, x.low), x.high) if bandwidth < math.inf else x.low
    marks = []
    if bandwidth < math.inf:
        low = max(x.low, y.low / bandwidth)
        marks.append(line(x.at(low), y.at(low * bandwidth), x.at(ridge), y.at(ridge * bandwidth), "roof"))
        marks.append(label(x.at(low) + 4, 14, f"device copy: {bandwidth / 1e12:.3g} TB/s", "tick"))
    if peak < math.inf:
        marks.append(line(x.at(ridge), y.at(peak), x.end, y.at(peak), "roof"))
        marks.append(label(x.end, 14, f"matrix product: {peak / 1e12:.0f} TFLOP/s", "tick", "end"))
    return marks


def symbol(contender: str, x: float, y: float, tip: str = "") -> Mark:
    """The mark of a contender's point."""
    look = KEY.get(contender, "others")
    if look in ("own", "others"):
        return dot(x, y, look, tip, 4.5 if look == "own" else 3)
    return square(x, y, look, tip, turned=look == "staff")


def key(contenders: Iterable[str]) -> tuple[tuple[str, Mark], ...]:
    """What the marks of these contenders mean, each once."""
    return tuple((name_of(one), symbol(one, 6, 6)) for one in dict.fromkeys(contenders))


# The rounds of a race -------------------------------------------------------------------------------------------------

LANE = 40
LEAST_SPAN = 0.005  # The axis spans at least this share of the time: smaller differences look alike.
MOST_SPAN = 100.0
MAX_TEXTS = 16  # At most this many numbers stand beside each other.


def rounds(timed: Timed, name: str) -> Plot | None:
    """Each contender's times around its median, by round, with the GPU's clock and temperature and the number of
    repeats.
    """
    records = timed.measured.rounds
    names = [one.name for one in timed.measured.contenders if all(one.name in record.times_s for record in records)]
    if not records or not names:
        return None
    series = {one: [record.times_s[one] for record in records] for one in names}
    lanes = [(name_of(one), series[one], KEY.get(one, "others")) for one in names]
    if "submission" in series:
        calls = next(one.calls for one in timed.measured.contenders if one.name == "submission")
        judged_s = judged_times_s(records, timed.measured.alone, calls)
        lanes.append(("your code, by the judge's clock", judged_s, "judged"))
    x = Axis(0, max(len(records) - 1, 1), 230, WIDTH - 100)
    span = min(max(LEAST_SPAN, *(abs(share) for _, times, _ in lanes for share in _around(times))), MOST_SPAN)
    marks: list[Mark] = []
    top = 6.0
    for title, times, look in lanes:
        y = Axis(-span, span, top + LANE - 6, top + 6)
        middle = (y.start + y.end) / 2
        marks += [label(0, middle, title), line(x.start - 10, middle, x.end + 10, middle, "grid")]
        places = [(x.at(at), y.at(share)) for at, share in enumerate(_around(times))]
        marks.append(path("M" + "L".join(f"{left} {up}" for left, up in places), f"trace {look}"))
        for place, time_s in zip(places, times, strict=True):
            marks.append(dot(*place, look, f"{time_s * 1e3:.4g} ms", 2.5))
        marks.append(label(WIDTH, middle, f"{median(times) * 1e3:.4g} ms", "", "end"))
        top += LANE
    every = math.ceil(len(records) / MAX_TEXTS)
    for title, of in STATES.items():
        told = [of(record) for record in records]
        if any(told):
            marks.append(label(0, top + 8, title, "tick"))
            marks += [label(x.at(at), top + 8, one, "tick", "middle") for at, one in enumerate(told) if not at % every]
            top += 18
    return Plot(
        name,
        f"The rounds of {timed.title}",
        f"Each contender's times in {len(records)} rounds around its median, which stands at the right; the height of a lane is "
        f"±{span:.1%}. Below, the state of the GPU in each round, and how many batches were run again as it was busy after them.",
        WIDTH,
        int(top + 6),
        marks,
        ("round", *(f"{title}, ms" for title, *_ in lanes), *STATES),
        [
            (str(at + 1), *(f"{times[at] * 1e3:.4g}" for _, times, _ in lanes), *(of(record) for of in STATES.values()))
            for at, record in enumerate(records)
        ],
    )


def _around(times: Sequence[float]) -> list[float]:
    middle = median(times)
    return [time_s / middle - 1 if middle > 0 else 0.0 for time_s in times]


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


STATES: dict[str, Callable[[Round], str]] = {
    "clock, MHz": lambda one: _number(one.sm_clock_mhz),
    "memory clock, MHz": lambda one: _number(one.memory_clock_mhz),
    "temperature, °C": lambda one: _number(one.temperature_c),
    "busy, so run again": lambda one: _number(one.repeats),
}

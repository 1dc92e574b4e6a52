"""Plots as data: axes that turn values into places, and marks that `page.drawn` writes as SVG.

Text stays text, colours are classes of `page.css` (so a plot is dark on a dark page), and every plot has its numbers as
a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST, MOST = 1e-30, 1e30  # of the values of an axis
WIDTH = 840  # A plot on the page is this many pixels wide.
STEPS = (1.0, 2.0, 5.0)
MOST_TICKS = 7
MANY_DECADES = 3  # A logarithmic axis with more decades has ticks at powers of ten alone.


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, from `start` to `end` in pixels. A logarithmic axis needs `low` > 0."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value. A value beyond the axis lies on its nearer end; NaN lies on the upper end."""
        value = self.high if math.isnan(value) else min(max(value, self.low), self.high)
        low, high = self._scaled(self.low), self._scaled(self.high)
        share = (self._scaled(value) - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self) -> list[float]:
        """Round values on the axis, at most about MOST_TICKS."""
        if self.high <= self.low:
            return [self.low]
        if not self.log:
            step = round_step((self.high - self.low) / (MOST_TICKS - 1))
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            return [float(f"{number * step:.12g}") for number in range(first, last + 1)]
        low, high = math.log10(self.low), math.log10(self.high)
        every = math.ceil((high - low) / MOST_TICKS)
        leading = (1.0,) if high - low > MANY_DECADES else STEPS
        decades = range(math.floor(low), math.ceil(high) + 1)
        found = [digit * 10.0**decade for decade in decades if decade % every == 0 for digit in leading]
        return [one for one in found if self.low * (1 - 1e-9) <= one <= self.high * (1 + 1e-9)]

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value


def round_step(least: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is at least `least`."""
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((digit * power for digit in STEPS if digit * power >= least * (1 - 1e-9)), 10 * power)


def spanning(values: Sequence[float], factor: float, start: float, end: float) -> Axis:
    """A logarithmic axis over values, with room by `factor` at both ends; values beyond LEAST and MOST lie on its ends."""
    within = [min(max(value, LEAST), MOST) for value in values]
    return Axis(min(within) / factor, max(within) * factor, start, end, log=True)


@dataclass(frozen=True)
class Mark:
    """An element of SVG. `tip` is shown at the pointer."""

    tag: str
    attributes: dict[str, object]
    text: str = ""
    tip: str = ""


def line(x1: float, y1: float, x2: float, y2: float, look: str, tip: str = "") -> Mark:
    return Mark("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "class": look}, tip=tip)


def dot(x: float, y: float, look: str, tip: str = "", radius: float = 3.5) -> Mark:
    return Mark("circle", {"cx": x, "cy": y, "r": radius, "class": look}, tip=tip)


def rectangle(x: float, y: float, width: float, height: float, look: str) -> Mark:
    return Mark("rect", {"x": x, "y": y, "width": width, "height": height, "class": look})


def label(x: float, y: float, text: str, look: str = "", anchor: str = "start") -> Mark:
    """Text whose baseline is about the middle of its letters below `y`."""
    return Mark("text", {"x": x, "y": round(y + 4, 1), "text-anchor": anchor, "class": look or None}, text)


def path(steps: str, look: str) -> Mark:
    return Mark("path", {"d": steps, "class": look})


@dataclass(frozen=True)
class Plot:
    """A figure: its marks, and its numbers as a table whose rows are as wide as `head`.

    name: of letters and hyphens, its own on the page.
    description: the plot in words, for readers who cannot see it.
    """

    name: str
    title: str
    description: str
    width: int
    height: int
    marks: Sequence[Mark]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    key: Sequence[tuple[str, Mark]] = ()


def grid(axis: Axis, top: float, bottom: float, unit: str = "") -> list[Mark]:
    """Vertical lines at the ticks of a horizontal axis, with their values below."""
    marks = []
    for tick in axis.ticks():
        marks.append(line(axis.at(tick), top, axis.at(tick), bottom, "grid"))
        marks.append(label(axis.at(tick), bottom + 13, written(tick) + unit, "tick", "middle"))
    return marks


def levels(axis: Axis, left: float, right: float) -> list[Mark]:
    """Horizontal lines at the ticks of a vertical axis, with their values at the left."""
    marks = []
    for tick in axis.ticks():
        marks.append(line(left, axis.at(tick), right, axis.at(tick), "grid"))
        marks.append(label(left - 6, axis.at(tick), written(tick), "tick", "end"))
    return marks


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def written(value: float) -> str:
    """A tick's value; a small or large one as a power of ten."""
    if value == 0 or 1e-3 < abs(value) < 1e5:
        return f"{value:g}"
    digits, exponent = f"{value:.0e}".split("e")
    power = f"10{str(int(exponent)).translate(RAISED)}"
    return power if digits == "1" else f"{digits}·{power}"

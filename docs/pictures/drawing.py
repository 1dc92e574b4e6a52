"""What all pictures share: a figure as a file of SVG, and a few marks beside those of reports.

A picture is shown by <img>: it has no script and asks for nothing, not even a font. Its colours are those of a report's page, in the light
and in the dark, and its sheet of styles has the rules that its own marks need and no others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grader.report.page import TEMPLATES, drawn
from grader.report.svg import Mark, Plot, label, line, path, rectangle

HERE = Path(__file__).parent
WIDTH = 800  # of a drawing in pixels; with its margins GitHub's column has room for it
MARGIN = 20
RULE = re.compile(r"^([^{}@\n]+?) *\{([^{}]*)\}", re.MULTILINE)
NAME = re.compile(r"\.?[A-Za-z][\w-]*")


def picture(name: str, title: str, description: str, height: int, marks: Sequence[Mark], width: int = WIDTH) -> Plot:
    """A figure whose numbers all stand in it."""
    return Plot(name, title, description, width, height, marks, (), ())


def svg(plot: Plot) -> str:
    """The figure as a file, on paper of its own: what lies around it may be of another colour."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    css = Markup(styles(plot.marks))
    return environment.get_template("picture.xml").render(plot=plot, drawn=drawn, css=css, margin=MARGIN)


def styles(marks: Sequence[Mark]) -> str:
    """The colours of a report's page, and of its rules and of the pictures' own those that apply to the marks."""
    css = TEMPLATES.joinpath("page.css").read_text(encoding="utf-8")
    palette = css[: css.index("* {")]
    used = {"rect", ".paper"} | {mark.tag for mark in marks}
    used |= {f".{name}" for mark in marks for name in str(mark.attributes.get("class") or "").split()}
    screen = css[len(palette) : css.index("@media print")]
    rules = [*RULE.findall(screen), *RULE.findall(HERE.joinpath("picture.css").read_text(encoding="utf-8"))]
    kept = [(_applied(selector, used), body.strip()) for selector, body in rules]
    return palette + "\n".join(f"{selector} {{ {body} }}" for selector, body in kept if selector)


def _applied(selectors: str, used: set[str]) -> str:
    """Of selectors with commas between them those that name nothing but what is used."""
    return ", ".join(one.strip() for one in selectors.split(",") if set(NAME.findall(one) or "*") <= used)


def heading(title: str, *told: str) -> list[Mark]:
    """The title of a picture, and a line or two below it."""
    lines = [label(0, 30 + 18 * number, words, "quiet") for number, words in enumerate(told)]
    return [label(0, 6, title, "heading"), *lines]


def box(x: float, y: float, width: float, height: float, look: str, radius: float = 4) -> Mark:
    """A rectangle with round corners."""
    plain = rectangle(x, y, width, height, look)
    return Mark("rect", plain.attributes | {"rx": radius})


def boxed(x: float, y: float, width: float, height: float, look: str, text: str, words: str = "") -> list[Mark]:
    """A box with words in its middle."""
    return [box(x, y, width, height, look), label(x + width / 2, y + height / 2, text, words, "middle")]


def arrow(x1: float, y1: float, x2: float, y2: float, look: str = "arrow") -> list[Mark]:
    """A straight line with a head at its end."""
    length = math.hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    back_x, back_y = x2 - 7 * ux, y2 - 7 * uy
    corners = [(x2, y2), (back_x - 3.5 * uy, back_y + 3.5 * ux), (back_x + 3.5 * uy, back_y - 3.5 * ux)]
    steps = " L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
    return [line(x1, y1, round(back_x, 1), round(back_y, 1), look), path(f"M{steps} Z", f"{look} head")]

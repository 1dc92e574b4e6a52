"""The report as a page, `report.html`: one file with its styles in it, without scripts, that opens from anywhere and prints.

A submission's words are hostile: Jinja2 escapes each of them, `shown` takes out characters that could rewrite the page, and the page's
Content-Security-Policy allows its own style sheet, by its hash, and nothing else. Styles in an attribute would be refused too, so
colours are classes, and the numbers of plots are attributes of SVG.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import shlex
import tempfile
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grader.report.model import Points, Report
from grader.report.style import STYLE, shown

TEMPLATES = Path(__file__).parent / "templates"


def page(report: Report) -> str:
    """The page of a report, as HTML."""
    return _environment().get_template("report.html").render(report=report, replay=_replay(report))


def write_page(text: str, path: Path) -> Path:
    """Write a page, whole or not at all; an earlier one is replaced. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix=".page-", dir=path.parent) as drafts:
        draft = Path(drafts, "page")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    return path


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = TEMPLATES.joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    environment.globals |= {"css": Markup(css), "css_hash": f"sha256-{digest}", "STYLE": STYLE}
    environment.filters |= {"points": _points, "folder_name": lambda path: PurePath(path).name or path}
    return environment


def _finalized(value: Any) -> Any:
    """What a template's expression puts on the page: markup of the templates as it is, any other text without hidden characters."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else shown(value)


def _points(points: Points) -> str:
    """Points as 3/4, as the terminal has them; of what was not graded, the possible ones."""
    if points.possible == 0:
        return "–"
    if points.graded == 0:
        return f"not graded ({points.possible:g})"
    return f"{points.earned:g}/{points.graded:g}"


def _replay(report: Report) -> str:
    """The command that grades the same folder on the same inputs."""
    words = ["grader", "run", report.submission.path, "--seed", str(report.seed), "--device", report.environment.device]
    words += [word for one in report.assignments for word in ("-a", one.name)]
    return shlex.join(words + (["--quick"] if report.effort == "quick" else []))

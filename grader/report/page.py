"""The report as a page, `report.html`: one file with its styles in it, without scripts, that opens from anywhere and prints.

A submission's words are hostile: Jinja2 escapes each of them, `shown` takes out characters that could rewrite the page, and the page's
Content-Security-Policy allows its own style sheet, by its hash, and nothing else. Styles in an attribute would be refused too, so
colours are classes, and the places of a plot are attributes of SVG.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from grader.report.failures import failures
from grader.report.json_file import replacing
from grader.report.kernels import kernel_rows, problems
from grader.report.maps import map_plot
from grader.report.model import (
    CUT_SHORT,
    AssignmentResult,
    CaseResult,
    OutputError,
    Report,
    SourceLines,
    SpeedCaseResult,
)
from grader.report.redact import redacted
from grader.report.speed import roofline, speedups, timed_cases
from grader.report.style import MANY_MARKS, STYLE, marks_of, points_words, shortened, shown
from grader.report.svg import Mark
from grader.verdict.blame import blamed
from grader.verdict.gpu_time import percent

TEMPLATES = Path(__file__).parent / "templates"
MAX_NAME = 80  # A submission's name in a table is cut to this many characters.
MAX_LOG = 20_000  # An assignment's prints are cut to this many characters.


def page(report: Report, redact: bool = False) -> str:
    """The page of a report as HTML. With `redact`, only the parts that its student may see."""
    if redact:
        report = redacted(report)
    cases = timed_cases(report)
    return rendered(
        "report.html",
        report=report,
        failures=failures,
        excerpts=functools.partial(_excerpts, report),
        speed=[plot for plot in (speedups(cases), roofline(cases)) if plot],
        facts=[(name, value) for name, value in _facts(report, redact) if value],
        replay="" if redact else _replay(report),
    )


def rendered(template: str, **values: Any) -> str:
    """A template of this folder as text."""
    return _environment().get_template(template).render(values)


def write_page(text: str, path: Path) -> Path:
    """Write a page, whole or not at all; an earlier one is replaced. Raises OSError."""
    with replacing({path.name: text}, path.parent):
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
    environment.globals |= {
        "css": Markup(css),
        "css_hash": f"sha256-{digest}",
        "STYLE": STYLE,
        "marks_of": marks_of,
        "MANY_MARKS": MANY_MARKS,
        "MAX_LOG": MAX_LOG,
        "CUT_SHORT": CUT_SHORT,
        "drawn": drawn,
        "map_plot": map_plot,
        "kernel_rows": kernel_rows,
        "problems": problems,
    }
    environment.filters |= {
        "points": points_words,
        "ms": _ms,
        "of_budget": of_budget,
        "percent": percent,
        "folder_name": lambda path: PurePath(path).name or path,
        "short": lambda name: shortened(name, MAX_NAME),
    }
    return environment


def drawn(marks: Sequence[Mark]) -> Markup:
    """Marks as SVG. A template would take three times as long for a page's thousands of values."""
    lines = []
    for mark in marks:
        attributes = "".join(
            f' {name}="{_escaped(value)}"' for name, value in mark.attributes.items() if value is not None
        )
        tip = f"<title>{_escaped(mark.tip)}</title>" if mark.tip else ""
        lines.append(f"<{mark.tag}{attributes}>{tip}{_escaped(mark.text)}</{mark.tag}>")
    return Markup("\n".join(lines))


def _escaped(value: object) -> str:
    """A value as a template would write it."""
    return str(escape(_finalized(value)))


def _finalized(value: Any) -> Any:
    """The value of a template's expression on the page: markup unchanged, other text without hidden characters."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else shown(value)


def _excerpts(
    report: Report, case: CaseResult | SpeedCaseResult, assignment: AssignmentResult
) -> list[tuple[SourceLines, set[int]]]:
    """The source around the lines that a case names, each excerpt with these lines."""
    places = blamed(case, assignment.file, report.submission.files)
    found = []
    for excerpt in assignment.sources:
        numbers = {line for file, line in places if file == excerpt.file and line in excerpt.blamed}
        if numbers:
            found.append((excerpt, numbers))
    return found


def of_budget(errors: Sequence[OutputError]) -> str:
    """The largest error of a case as a share of its budget, of the worst element or the root mean square; "" if none was measured."""
    pairs = [pair for one in errors for pair in ((one.worst, one.worst_budget), (one.rms, one.rms_budget))]
    if not pairs:
        return ""
    odd = any(math.isnan(error) or (error > 0 and budget <= 0) for error, budget in pairs)
    share = math.inf if odd else max(error / budget if error else 0.0 for error, budget in pairs)
    if share == math.inf:
        return "∞ or NaN"
    if share > 1:
        return f"{share:.3g} ×"
    return f"{share:.1%}" if share >= 1e-3 else "< 0.1%" if share > 0 else "0"


def _ms(time_s: float) -> str:
    """Milliseconds; "" without a time."""
    ms = time_s * 1e3
    return "" if time_s == 0 else f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _facts(report: Report, redact: bool) -> Iterator[tuple[str, str]]:
    """Names and values of the machine and its software."""
    at, where = report.environment, report.isolation
    yield "submission", report.submission.path
    yield "files", f"{', '.join(report.submission.files)}; SHA-256 {report.submission.sha256}"
    memory = f", {at.gpu_memory_gib:.0f} GiB" if at.gpu_memory_gib else ""
    yield "GPU", f"{at.gpu}{memory}" if at.gpu else "none"
    yield "processor", at.cpu
    yield "system", at.platform
    told = at.model_dump()
    names = ("grader", "python", "torch", "triton", "cuda", "nvcc", "driver")
    yield "versions", ", ".join(f"{name} {told[name]}" for name in names if told[name])
    yield "effort", report.effort
    if redact:
        return
    yield "isolation", where.words + (f", image {where.image}" if where.image else "")
    if limits := where.limits:
        yield "limits", f"{limits.memory_gib:.3g} GiB, {limits.cpus:.3g} processors, {limits.pids} processes"
    yield "beware", where.note
    yield "seed", str(report.seed)


def _replay(report: Report) -> str:
    """The command that grades the same folder on the same inputs."""
    words = ["grader", "run", report.submission.path, "--seed", str(report.seed), "--device", report.environment.device]
    words += [word for one in report.assignments for word in ("-a", one.name)]
    return shlex.join(words + (["--quick"] if report.effort == "quick" else []))

"""Pages as a browser has them: no error, no request, no script, the same outline at any width and in the dark, and readable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.profile.command import page as profile_page
from grader.report.json_file import PAGE, read_report, write_report
from grader.report.model import Report
from grader.report.page import page, write_page
from tests.conftest import ROOT
from tests.profile.test_views import everything
from tests.report.parsing import HOSTILE
from tests.report.test_golden import alike
from tests.support.browser import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt install chromium"),
]

WIDTHS = (400, 1200)
PAPER = 718  # the width of A4 within its margins
SIZE = 60
HOSTILE_NAME = "<img src=x onerror=alert(1)> \u202ecila '\"& #?%"
SPOKEN = {"message", "diagnosis", "traceback", "others", "notes", "hints"}  # fields with words of a submission
# What is on the page and how: its outline, what lies beyond the window, and texts that can hardly be read on what is behind them.
LOOK = """(() => {
  const numbers = colour => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
                              const scale = colour.startsWith('color(') ? 1 : 255; return [r / scale, g / scale, b / scale, a]; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                                 return .2126 * x + .7152 * y + .0722 * z; };
  const behind = e => { for (; e; e = e.parentElement) {
      const found = numbers(getComputedStyle(e).backgroundColor); if (found[3] === 1) return light(found); }
      throw new Error('nothing is behind'); };
  const every = [...document.querySelectorAll('body, body *')];
  const seen = every.filter(e => e.checkVisibility() && e.getBoundingClientRect().width > 1);
  const texts = seen.filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  const contrast = e => { const own = light(numbers(getComputedStyle(e)[e.closest('svg') ? 'fill' : 'color'])), other = behind(e);
                          return (Math.max(own, other) + .05) / (Math.min(own, other) + .05); };
  const named = e => `${e.tagName} ${e.textContent.trim().slice(0, 40)}`;
  return {
    title: document.title,
    scripts: document.scripts.length,
    outline: seen.filter(e => e.matches('section, figure, h1, h2, h3, h4, tr, summary')).map(e => `${e.tagName} ${e.id}`),
    beyond: document.documentElement.scrollWidth > innerWidth
      ? seen.filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.wide, .aligned')).map(named) : [],
    empty: seen.filter(e => e.matches('svg') && e.getBoundingClientRect().height < 5).map(named),
    faint: texts.filter(e => contrast(e) < 4.5).map(e => `${named(e)}: ${contrast(e).toFixed(1)}`),
    paper: behind(document.body),
  };
})()"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    with browser() as found:
        yield found


def hostile(data: Any, spoken: bool = False) -> Any:
    """A report's data with hostile words wherever a submission's may stand."""
    if isinstance(data, dict):
        return {key: hostile(one, spoken or key in SPOKEN) for key, one in data.items()}
    if isinstance(data, list):
        return [hostile(one, spoken) for one in data]
    return HOSTILE if spoken and isinstance(data, str) else data


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages by what they show."""
    folder = tmp_path_factory.mktemp("class")
    reports = {name: read_report(ROOT / f"docs/sample/{name}/report.json") for name in ("cpu", "wrong", "gpu")}
    reports[HOSTILE_NAME] = Report.model_validate(hostile(reports["wrong"].model_dump(mode="json")))
    every = list(reports.values())
    for number in range(SIZE - len(reports)):
        name = f"{HOSTILE_NAME} {number}" if number % 7 == 0 else f"student-{number}"
        reports[name] = every[number % len(every)]
    for name, report in reports.items():
        info = report.submission.model_copy(update={"path": f"/class/{name}"})
        write_report(report.model_copy(update={"submission": info}), folder / name)
    redacted = tmp_path_factory.mktemp("redacted")
    for arguments in ([str(folder)], [str(folder), "--redact", "--output", str(redacted)]):
        done = CliRunner().invoke(app, ["show", *arguments])
        assert (done.exit_code, done.stderr) == (0, ""), done.output
    found = {name: folder / name / PAGE for name in ("cpu", "wrong", "gpu")}
    found |= {"hostile": folder / HOSTILE_NAME / PAGE, "class": folder / "index.html"}
    apart = tmp_path_factory.mktemp("apart")
    profile = write_page(profile_page(everything()), apart / "profile.html")
    found["alike"] = write_page(page(alike()), apart / "alike.html")
    found |= {"redacted": redacted / HOSTILE_NAME / PAGE, "redacted class": redacted / "index.html"}
    return found | {"profile": profile}


def complaints(tab: Browser, url: str) -> list[str]:
    """What a page did that it must not: errors, requests, scripts, dialogs."""
    found = []
    for name, told in tab.heard:
        if name == "Network.requestWillBeSent" and told["request"]["url"] != url:
            found.append(f"a request: {told['request']['url']}")
        elif name in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            found.append(f"told on the console: {json.dumps(told)[:300]}")
        elif name in ("Debugger.scriptParsed", "Page.javascriptDialogOpening", "Page.frameRequestedNavigation"):
            found.append(f"{name}: {json.dumps(told)[:300]}")
    return found


def looked_at(tab: Browser, path: Path, width: int, dark: bool) -> dict[str, Any]:
    """What `LOOK` finds on a page that did nothing it must not. The picture of it lies beside the page, for who wants to look."""
    tab.open(path.as_uri(), width, dark)
    assert complaints(tab, path.as_uri()) == []
    look: dict[str, Any] = tab.value(LOOK)
    tab.screenshot(path.with_name(f"{path.stem}-{width}-{'dark' if dark else 'light'}.png"))
    return look


@pytest.mark.parametrize(
    "name", ["cpu", "wrong", "gpu", "alike", "hostile", "class", "redacted", "redacted class", "profile"]
)
def test_a_page_is_quiet_and_readable_at_any_width_and_in_the_dark(
    tab: Browser, pages: dict[str, Path], name: str
) -> None:
    looks = {(width, dark): looked_at(tab, pages[name], width, dark) for width in WIDTHS for dark in (False, True)}
    for (width, dark), look in looks.items():
        assert look["scripts"] == 0
        assert look["title"].endswith((" points", f"{SIZE} submissions", ": profile"))
        assert (look["beyond"], look["empty"], look["faint"]) == ([], [], []), (width, dark)
        assert look["paper"] < 0.05 if dark else look["paper"] > 0.9
    outlines = [look["outline"] for look in looks.values()]
    assert all(outline == outlines[0] for outline in outlines)
    assert len(outlines[0]) > 10


@pytest.mark.parametrize("name", ["wrong", "gpu", "class", "profile"])
def test_a_page_fits_on_paper_with_all_its_numbers(tab: Browser, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name].as_uri(), PAPER, medium="print")
    assert tab.value("document.documentElement.scrollWidth") <= PAPER
    hidden = "[...document.querySelectorAll('details > *')].filter(e => !e.checkVisibility()).length"
    assert tab.value(hidden) == 0


def test_links_of_the_index_lead_to_pages(tab: Browser, pages: dict[str, Path]) -> None:
    tab.open(pages["class"].as_uri(), 1200, False)
    links = tab.value("[...document.querySelectorAll('#submissions a')].map(e => e.href)")
    assert len(links) == SIZE
    for link in [one for one in links if "student" not in one]:
        tab.open(link, 1200, False)
        assert tab.value("document.title").endswith(" points")


def test_what_a_page_must_not_do_is_seen(tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        "<!DOCTYPE html><title>bad</title><body style='background: white'><p style='color: #ccc; width: 2000px'>faint and wide</p>"
        "<svg width=10 height=0></svg><img src='http://127.0.0.1:9/x.png'><script>console.log('here')</script>"
    )
    tab.open(path.as_uri(), 400, False)
    found = "\n".join(complaints(tab, path.as_uri()))
    assert "a request: http://127.0.0.1:9/x.png" in found
    assert "Debugger.scriptParsed" in found
    assert '"value": "here"' in found
    assert "net::ERR_" in found
    look = tab.value(LOOK)
    assert (look["scripts"], look["beyond"], look["faint"]) == (1, ["P faint and wide"], ["P faint and wide: 1.6"])

"""The report as a page: what it says, that it is well formed and whole in itself, and that no word of a student's becomes markup."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.report.json_file import write_report
from grader.report.model import OutputError, Report
from grader.report.page import MAX_LOG, TEMPLATES, of_budget, page
from tests.conftest import ROOT
from tests.report.building import make_case, make_part, make_report, replaced
from tests.report.parsing import HOSTILE, Parsed
from tests.report.test_golden import failing, speedy
from tests.support.validator import mistakes, needs_tidy

SAMPLES = {name: ROOT / "docs/sample" / name / "report.json" for name in ("cpu", "gpu")}
MOST_BYTES = 300_000


def sample(name: str) -> Report:
    return Report.model_validate_json(SAMPLES[name].read_bytes())


REPORTS = {"failing": failing, "speedy": speedy, "cpu": lambda: sample("cpu"), "gpu": lambda: sample("gpu")}


# What it says: golden/page-*.txt -------------------------------------------------------------------------------------


def test_the_blamed_line_is_marked() -> None:
    lines = re.findall(r'<span class="line( blamed)?"><span class="at">(\d+)</span>(.*)', page(failing()))
    assert lines == [("", "6", "a"), (" blamed", "7", "b = 1")]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_report_of_before_there_were_pages_is_shown(name: str) -> None:
    report = sample(name)
    text = page(report)
    parsed = Parsed(text)
    assert len(text.encode()) < MOST_BYTES
    assert "undefined" not in text.lower()
    for one in report.assignments:
        assert one.title in parsed.text
        for case in (case for part in one.parts for case in part.cases):
            assert case.title in parsed.text
    assert (len(parsed.all("svg")) > 1) == (name == "gpu")


def test_cases_that_fail_in_the_same_words_have_them_once() -> None:
    same = {"message": "SyntaxError: y", "traceback": "where " * 2000}
    cases = [make_case(f"n-{number}", "failed", **same) for number in range(40)]
    text = page(make_report(make_part(*cases)))
    assert text.count(same["traceback"].strip()) == 1
    assert all(case.title in Parsed(text).text for case in cases)


def test_cases_that_say_little_one_by_one_are_folded() -> None:
    """Those of a large group stand below the table, which has their marks; a part that ended alike shows no table at all."""
    many = [make_case(f"n-{number}", "failed" if number % 9 == 0 else "passed") for number in range(40)]
    text = page(make_report(make_part(*many)))
    table, below = re.findall(r'<table class="cases">.*?</table>', text, re.DOTALL)
    assert "✗ ×5" in Parsed(table).text
    assert not re.search(r"n-\d", table)
    assert all(case.title in Parsed(below).text for case in many)
    assert f"Any size: the 40 cases</summary>\n{below}" in text
    absent = [make_case(f"n-{number}", "not_implemented", message="no file") for number in range(4)]
    assert '<summary>the 4 cases</summary>\n<table class="cases">' in page(make_report(make_part(*absent)))


def test_a_long_log_is_cut() -> None:
    text = page(make_report(make_part(make_case()), log="x" * 100_000))
    assert "x" * MAX_LOG in text
    assert "x" * (MAX_LOG + 1) not in text
    assert "report.json has the rest" in text


# What it is -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_is_whole_in_itself(name: str) -> None:
    text = page(REPORTS[name]())
    parsed = Parsed(text)
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert parsed.foreign == set()
    names = Counter(attributes["id"] for _, attributes in parsed.elements if "id" in attributes)
    assert set(names.values()) == {1}
    assert all(one["href"].removeprefix("#") in names for one in parsed.all("a"))
    assert "url(" not in text
    assert "@import" not in text


@needs_tidy
@pytest.mark.parametrize("name", [*REPORTS, "hostile"])
def test_a_validator_is_content(name: str) -> None:
    report = REPORTS[name]() if name in REPORTS else replaced(failing(), str, lambda _: HOSTILE)[0]
    assert mistakes(page(report)) == []


@needs_tidy
@pytest.mark.parametrize(
    "broken", ["<p><div></div></p>", "<tr></tr>", "<p align=left>", "<blink>x</blink>", "<b>", "<p id=x><p id=x>"]
)
def test_a_validator_sees_what_is_no_html(broken: str) -> None:
    assert mistakes(page(failing()).replace("</header>", f"{broken}</header>")) != []


def test_the_policy_allows_the_page_its_own_styles_and_nothing_else() -> None:
    parsed = Parsed(page(failing()))
    (policy,) = [one["content"] for one in parsed.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    (style,) = [text for tag, text in parsed.texts if tag == "style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    first = [tag for tag, _ in parsed.elements].index("style")
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in parsed.elements[:first]


@pytest.mark.parametrize("name", ["gpu", "failing", "speedy"])
def test_every_plot_has_a_title_a_description_and_a_table(name: str) -> None:
    text = page(REPORTS[name]())
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    plots = [Parsed(one) for one in figures]
    assert len(plots) == len([one for one in Parsed(text).all("svg") if one.get("role") == "img"])
    for plot in plots:
        (svg,) = [one for one in plot.all("svg") if one.get("role") == "img"]
        titles = {one["id"] for tag in ("title", "desc") for one in plot.all(tag) if "id" in one}
        assert set(svg["aria-labelledby"].split()) == titles
        assert len(titles) == 2
        assert len(plot.all("table")) == 1
        assert len(plot.all("tr")) > 1
        heads, cells = len(plot.all("th")), len(plot.all("td"))
        assert cells == heads * (len(plot.all("tr")) - 1)


def test_styles_know_every_class_of_a_mark() -> None:
    css = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    text = page(sample("gpu"))
    looks = {
        name for found in re.findall(r'<(?:line|circle|rect|path)[^>]* class="([^"]*)"', text) for name in found.split()
    }
    assert {name for name in looks if not re.search(rf"\.{name}\b", css)} <= {"cells"}


# A student's words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["failing", "speedy"])
def test_hostile_words_in_any_field_stay_words(name: str) -> None:
    hostile, spoiled = replaced(REPORTS[name](), str, lambda _: HOSTILE)
    assert len(spoiled) > 25
    text = page(hostile)
    parsed = Parsed(text)
    assert parsed.foreign == set()
    assert all(one["href"].startswith("#assignment-") for one in parsed.all("a"))
    assert len(parsed.all("style")) == 1
    assert "{{ 7 * 7 }}" in parsed.text
    hidden = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")}
    assert hidden == {"\n"}


@pytest.mark.parametrize("number", [0, 1, -1, 1e-300, 1e300, None])
def test_any_numbers_make_a_page(number: float | None) -> None:
    """A page that could not be made would cost a grading its exit code."""
    odd, even = (replaced(report, int | float, lambda _: number) for report in (failing(), speedy()))
    assert len(odd[1] | even[1]) > (16 if number is not None else 2)
    for text in (page(odd[0]), page(even[0])):
        Parsed(text)
        assert not re.search(r'"(nan|-?inf)"', text)


# The command ----------------------------------------------------------------------------------------------------------


def test_show_writes_the_page_beside_the_report(tmp_path: Path) -> None:
    path = write_report(failing(), tmp_path)
    before = path.read_bytes()
    (tmp_path / "report.html").write_text("an old one")
    done = CliRunner().invoke(app, ["show", str(path)])
    assert (done.exit_code, done.output.replace("\n", "")) == (0, f"page: {tmp_path / 'report.html'}")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page(failing())
    assert path.read_bytes() == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("{", "is no report of this grader; the file: Invalid JSON"),
        ('{"schema_version": 1}', "is no report of this grader; started: Field required"),
        ('{"schema_version": 2}', "its schema version is not 1, the only one known here; use the grader that wrote it"),
    ],
)
def test_show_says_why_a_file_is_no_report(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content)
    done = CliRunner().invoke(app, ["show", str(path)])
    assert done.exit_code == 2
    assert f"{path}: {words}" in done.output
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("worst", "budget", "rms", "rms_budget", "share"),
    [
        (1e-5, 2e-5, 1e-6, 1e-5, "50.0%"),
        (1e-5, 2e-5, 9e-6, 1e-5, "90.0%"),
        (3e-5, 2e-5, 9e-6, 1e-5, "1.5 ×"),
        (1e-9, 2e-5, 0, 1e-5, "< 0.1%"),
        (math.inf, 1.0, 0.0, 1.0, "∞ or NaN"),
        (math.nan, 1.0, 0.0, 1.0, "∞ or NaN"),
        (0, 0, 0, 0, "0"),
        (1, 0, 0, 0, "∞ or NaN"),
    ],
)
def test_an_error_is_told_as_a_share_of_its_budget(
    worst: float, budget: float, rms: float, rms_budget: float, share: str
) -> None:
    error = OutputError(
        output="y", worst=worst, worst_budget=budget, rms=rms, rms_budget=rms_budget, pytorch_worst=0, pytorch_rms=0
    )
    assert of_budget([error]) == share
    assert of_budget([]) == ""

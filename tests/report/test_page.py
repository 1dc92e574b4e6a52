"""The report as a page: what it says, that it is well formed and whole in itself, and that no word of a student's becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import unicodedata
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grader.cli import app
from grader.report.json_file import write_report
from grader.report.model import (
    ErrorMap,
    OutputError,
    Points,
    Report,
    SourceLines,
    SpeedResult,
)
from grader.report.page import MAX_LOG, TEMPLATES, of_budget, page
from tests.conftest import ROOT
from tests.report.building import make_case, make_part, make_report, measured, replaced, timed
from tests.support.validator import mistakes, needs_tidy

SAMPLES = {name: ROOT / "docs/sample" / name / "report.json" for name in ("cpu", "gpu")}
MOST_BYTES = 300_000
VOID = {"meta", "br"}


def names_in(text: str) -> set[str]:
    return set(text.split())


TAGS = names_in(
    "html head meta title style body header section h1 h2 h3 h4 h5 p strong span code pre a article figure figcaption div details summary "
    "table thead tbody tfoot tr th td svg desc text line circle rect path"
)
ATTRIBUTES = names_in(
    "lang charset http-equiv content name id class title href scope colspan open role aria-labelledby aria-hidden viewbox width height "
    "preserveaspectratio x y x1 y1 x2 y2 cx cy r d transform text-anchor stroke-width"
)
HOSTILE = (
    '</pre></p></td></title></style></svg><script>alert(1)</script><img src=x onerror=alert(2)>\' onload=alert(3) " style="display:none"'
    "{{ 7 * 7 }}{% raw %}<!-- ]]> &lt;b&gt; \u202ereversed\u202c\u2066\u2069\u200f \u2028 \x1b[31m \x9b \x07 \u0085 \ufeff"
)


class Parsed(HTMLParser):
    """A page's elements with their attributes, and its texts by the element around them. Raises AssertionError where tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def foreign(self) -> set[str]:
        """Its elements, attributes and comments that no page of the grader has."""
        attributes = {name for _, attributes in self.elements for name in attributes}
        return ({tag for tag, _ in self.elements} - TAGS) | (attributes - ATTRIBUTES) | set(self.comments)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(text for _, text in self.texts))


def sample(name: str) -> Report:
    return Report.model_validate_json(SAMPLES[name].read_bytes())


MAP = ErrorMap(
    output="dq",
    leading=(2, 3),
    at=(1, 2),
    rows=30,
    columns=9,
    cell_rows=10,
    cell_columns=3,
    cells=(".19", "n.u", "..."),
    after="o..",
    matrices="..1...",
)


@pytest.fixture
def full() -> Report:
    """A report with every kind of thing that a page shows."""
    error = OutputError(
        output="y", worst=math.inf, worst_budget=1e-5, rms=2e-6, rms_budget=1e-5, pytorch_worst=1e-7, pytorch_rms=1e-8
    )
    wrong = make_case(
        "n-1025",
        "failed",
        message="y[1024] is the first wrong element",
        diagnosis=("consistent with a missing mask", "y:  1 2\n    3 4"),
        traceback='  File "softmax.py", line 7, in softmax\n',
        errors=(error,),
        map=MAP,
    )
    alike = make_case("n-1026", "failed", message="another", diagnosis=("consistent with a missing mask",))
    speed = SpeedResult(
        points=timed().points,
        cases=(
            timed(measured=measured(flags=("the clock was low",))),
            timed("failed", name="long", message="wrong under timing"),
        ),
    )
    far = make_case("bf16", "skipped", message="needs a GPU")
    open_ = Points(earned=0, graded=2, possible=4)
    part = make_part(make_case(), wrong, alike, far, points=open_, provisional=True)
    part = part.model_copy(update={"speed": speed})
    report = make_report(part, log="[n-1] hello\n", infra_errors=("the driver was lost",), incomplete=True)
    data = json.loads(report.model_dump_json())
    (assignment,) = data["assignments"]
    kernel = {"name": "softmax_kernel", "case": "n-1025", "arch": "sm_90", "registers": 33, "problem": "too large"}
    assignment |= {
        "kernels": [kernel],
        "hints": ["fewer spills"],
        "sources": [SourceLines(file="softmax.py", first=6, lines=("a", "b = 1"), blamed=(7,)).model_dump()],
    }
    assignment["parts"][0]["groups"][0]["cases"][0]["gpu_time"] = {
        "own_share": 0.9,
        "library_share": 0.1,
        "kernels": [{"name": "softmax_kernel", "own": True, "calls": 3, "share": 0.9}],
    }
    assignment["log"]["others"] = ["torch: a warning"]
    data["submission"]["notes"] = ["a.ipynb: ignored"]
    return Report.model_validate_json(json.dumps(data))


# What it says ---------------------------------------------------------------------------------------------------------


def test_everything_of_the_report_is_there(full: Report) -> None:
    text = Parsed(page(full)).text
    for said in (
        "Row softmax",
        "y[1024] is the first wrong element",
        "consistent with a missing mask",
        "1 more case, the same way: n-1026",
        "Where dq is wrong: the matrix [1, 2] of 2 × 3",
        "the clock was low",
        "wrong under timing",
        "softmax_kernel",
        "too large",
        "fewer spills",
        "[n-1] hello",
        "torch: a warning",
        "a.ipynb: ignored",
        "the driver was lost",
        "Incomplete: the run was interrupted",
        "needs a GPU",
        "some cases need a GPU",
        "2 points of correctness could not be graded here; they are not lost",
        "grader run sub --seed 4711 --device cpu -a softmax",
        "torch 2.13",
        "unisolated",
        *full.left_out,
    ):
        assert said in text, said


def test_the_source_has_its_line_numbers_and_the_blamed_line(full: Report) -> None:
    lines = re.findall(r'<span class="line( blamed)?"><span class="at">(\d+)</span>(.*)', page(full))
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


def test_cases_that_all_end_alike_are_called_every_case() -> None:
    """As on a terminal; a file that is not there is not told of its first case."""
    words = "there is no softmax.py in the submission"
    absent = [make_case(name, "not_implemented", message=words, tries=f"tries {name}") for name in ("n-0", "n-1")]
    skipped = make_case("far", "skipped", message="needs a GPU")
    text = page(make_report(make_part(*absent, skipped)))
    (story,) = re.findall(r"<article.*?</article>", text, re.DOTALL)
    assert "every case" in story
    assert words in story
    assert not re.search("n-0|n-1|more case", story)
    assert "every case" not in page(make_report(make_part(*absent, make_case())))
    alike = [make_case(name, "failed", message="no", diagnosis=(f"sentence of {name}",)) for name in ("n-0", "n-1")]
    text = page(make_report(make_part(*alike)))
    assert all(f"sentence of {name}" in text for name in ("n-0", "n-1")), "what is a case's own is not lost"


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


def test_a_fault_of_the_file_is_told_of_the_file() -> None:
    broken = [make_case(name, "build_failed", message="no", of_file=True) for name in ("n-0", "n-1")]
    (story,) = re.findall(r"<article.*?</article>", page(make_report(make_part(*broken))), re.DOTALL)
    assert "softmax.py does not build" in Parsed(story).text
    assert not re.search("n-0|n-1|every case|more case", story)


def test_a_long_log_is_cut() -> None:
    text = page(make_report(make_part(make_case()), log="x" * 100_000))
    assert "x" * MAX_LOG in text
    assert "x" * (MAX_LOG + 1) not in text
    assert "report.json has the rest" in text


# What it is -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SAMPLES, "full"])
def test_the_page_is_whole_in_itself(full: Report, name: str) -> None:
    text = page(full if name == "full" else sample(name))
    parsed = Parsed(text)
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert parsed.foreign == set()
    names = Counter(attributes["id"] for _, attributes in parsed.elements if "id" in attributes)
    assert set(names.values()) == {1}
    assert all(one["href"].removeprefix("#") in names for one in parsed.all("a"))
    assert "url(" not in text
    assert "@import" not in text


@needs_tidy
@pytest.mark.parametrize("name", [*SAMPLES, "full", "hostile"])
def test_a_validator_is_content(full: Report, name: str) -> None:
    report = sample(name) if name in SAMPLES else full if name == "full" else replaced(full, str, lambda _: HOSTILE)[0]
    assert mistakes(page(report)) == []


@needs_tidy
@pytest.mark.parametrize(
    "broken", ["<p><div></div></p>", "<tr></tr>", "<p align=left>", "<blink>x</blink>", "<b>", "<p id=x><p id=x>"]
)
def test_a_validator_sees_what_is_no_html(full: Report, broken: str) -> None:
    assert mistakes(page(full).replace("</header>", f"{broken}</header>")) != []


def test_the_policy_allows_the_page_its_own_styles_and_nothing_else(full: Report) -> None:
    parsed = Parsed(page(full))
    (policy,) = [one["content"] for one in parsed.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    (style,) = [text for tag, text in parsed.texts if tag == "style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    first = [tag for tag, _ in parsed.elements].index("style")
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in parsed.elements[:first]


@pytest.mark.parametrize("name", ["gpu", "full"])
def test_every_plot_has_a_title_a_description_and_a_table(full: Report, name: str) -> None:
    text = page(full if name == "full" else sample(name))
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


def test_hostile_words_in_any_field_stay_words(full: Report) -> None:
    hostile, spoiled = replaced(full, str, lambda _: HOSTILE)
    assert len(spoiled) > 30
    text = page(hostile)
    parsed = Parsed(text)
    assert parsed.foreign == set()
    assert all(one["href"].startswith("#assignment-") for one in parsed.all("a"))
    assert len(parsed.all("style")) == 1
    assert "{{ 7 * 7 }}" in parsed.text
    hidden = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")}
    assert hidden == {"\n"}


@pytest.mark.parametrize("number", [0, 1, -1, 1e-300, 1e300, None])
def test_any_numbers_make_a_page(full: Report, number: float | None) -> None:
    """A page that could not be made would cost a grading its exit code."""
    odd, spoiled = replaced(full, int | float, lambda _: number)
    assert len(spoiled) > (12 if number is not None else 3)
    text = page(odd)
    Parsed(text)
    assert not re.search(r'"(nan|-?inf)"', text)


# The command ----------------------------------------------------------------------------------------------------------


def test_show_writes_the_page_beside_the_report(tmp_path: Path, full: Report) -> None:
    path = write_report(full, tmp_path)
    before = path.read_bytes()
    (tmp_path / "report.html").write_text("an old one")
    done = CliRunner().invoke(app, ["show", str(path)])
    assert (done.exit_code, done.output.replace("\n", "")) == (0, f"page: {tmp_path / 'report.html'}")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page(full)
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

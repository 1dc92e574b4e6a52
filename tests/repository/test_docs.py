"""The documents are true: what they tell a reader to type and to write works as it stands there."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from grader import cli
from grader.assignment import load_course
from grader.report.model import CaseResult
from tests.conftest import IMPORTS, ROOT
from tests.support.corpus import cases
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

COMMANDS = ROOT / "docs" / "COMMANDS.md"
ROW_SUM = ROOT / "tests" / "support" / "row_sum"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tests/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted((ROOT / "assignments").glob("*/README.md")),
]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
CODE_BLOCK = re.compile(r"^```.*?^```$|^    [^\n]*$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^(At the end of )?`([^`\n]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def course_with_a_fifth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the course with the assignment that docs/ASSIGNMENTS.md adds, made from that page alone, and one in CUDA C++ whose
    signature no other has (`tests/support/row_sum`).
    """
    course = tmp_path_factory.mktemp("fifth") / "course"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    files = BLOCK.findall((ROOT / "docs" / "ASSIGNMENTS.md").read_text(encoding="utf-8"))
    assert len(files) == 8
    for more, name, content in files:
        path = course / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text(encoding="utf-8") + content if more else content, encoding="utf-8")
    shutil.copytree(ROW_SUM, course, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    return course


def graded(submission: Path, course: Path, assignment: str, case: str | None = None) -> dict[str, CaseResult]:
    """Its cases by name, or one of them."""
    found = cases(judge(submission, course, assignment, "cpu", case=case))
    return {one.name: one for one in found if case in (None, one.name)}


NEEDS_A_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None and shutil.which("clang++") is None, reason="needs a C++ compiler"
)


@pytest.mark.parametrize(
    ("name", "points", "check"),
    [
        ("elu", (3, 3, 7), "test_positive_values_pass_through"),
        pytest.param("row_sum", (4, 4, 4), "33x1025", marks=NEEDS_A_COMPILER),
    ],
)
def test_assignments_are_added_by_their_files_alone(
    course_with_a_fifth: Path, name: str, points: tuple[float, float, float], check: str
) -> None:
    course = course_with_a_fifth
    assert [one.name for one in load_course(course)][-2:] == ["elu", "row_sum"]
    report = judge(course / "reference", course, name, "cpu")
    score = report.score
    assert (score.earned, score.graded, score.possible) == points, report
    if name == "elu":
        told = {one.name: one.tries for one in cases(report)}
        assert told[check] == "A positive x comes back unchanged."
    assert {one.outcome for one in graded(course / "starter", course, name).values()} == {"not_implemented"}


def test_its_mistake_is_named(course_with_a_fifth: Path, tmp_path: Path) -> None:
    kernel = (course_with_a_fifth / "reference" / "elu.py").read_text()
    (tmp_path / "elu.py").write_text(kernel.replace("tl.exp(tl.minimum(x, 0.0)) - 1", "tl.exp(tl.minimum(x, 0.0))"))
    words = "y is what comes out without the − 1: consistent with a term that is missing"
    assert words in graded(tmp_path, course_with_a_fifth, "elu", "n-1025")["n-1025"].diagnosis


@NEEDS_A_COMPILER
def test_mistakes_in_a_cuda_assignment_with_another_signature_are_told_by_its_names(
    course_with_a_fifth: Path, tmp_path: Path
) -> None:
    course = course_with_a_fifth
    source = (course / "reference" / "row_sum.cu").read_text()
    wrongs = {
        ("i < cols;", "i < cols - 1;"): ("y[0] is the first wrong element: expected", "all 33 elements are wrong"),
        ("row >= rows", "row > rows"): (
            "thread (33, 0, 0) of block (0, 0, 0) reads x[33825], 1 past the last of its 33825 elements (line 9): "
            "consistent with a missing or wrong check of the index against rows or cols",
        ),
        ('extern "C" void row_sum(', 'extern "C" void row_sums('): ("'row_sum'", "row_sums"),
        ("cudaStream_t stream)", "cudaStream_t)"): (
            "build_failed",
            "stream is the last parameter: "
            'extern "C" void row_sum(const float* x, float* y, int64_t rows, int64_t cols, cudaStream_t stream)',
        ),
    }
    for number, ((old, new), words) in enumerate(wrongs.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert old in source
        (folder / "row_sum.cu").write_text(source.replace(old, new))
        case = graded(folder, course, "row_sum", "33x1025")["33x1025"]
        assert case.outcome in ("failed", "build_failed"), case
        assert all(one in " ".join([case.outcome, case.message, *case.diagnosis]) for one in words), case


def test_its_check_fails_a_wrong_kernel(course_with_a_fifth: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    kernel = (
        (course_with_a_fifth / "reference" / "elu.py")
        .read_text()
        .replace("tl.where(x > 0, x,", "tl.where(x > 0, x + 1,")
    )
    (wrong / "elu.py").write_text(kernel)
    found = graded(wrong, course_with_a_fifth, "elu")
    check = found["test_positive_values_pass_through"]
    assert check.outcome == "failed"
    assert "a positive x was changed" in check.message
    assert found["n-1025"].outcome == "failed"


def test_the_readme_test_command_is_what_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    (sh scripts/bootstrap\.sh && .+)$", readme, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0].endswith("grader run reference/")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for one in [*commands[1].split(" && "), ".venv/bin/pytest"]:
        assert re.search(rf"^{re.escape(one)}( |$)", ci, re.MULTILINE), one


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins with this one, below its rule."""
    lines = text[text.index(f"\n| {heading}") :].splitlines()[3:]
    table = lines[: next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def test_the_options_that_are_told_are_those_of_grader_run() -> None:
    told = re.findall(r"--[a-z-]+", " ".join(row[0] for row in rows(COMMANDS.read_text(encoding="utf-8"), "option of")))
    command = typer.main.get_command(cli.app).commands["run"]  # type: ignore[attr-defined]
    names = [[name for name in (*one.opts, *one.secondary_opts) if name.startswith("--")] for one in command.params]
    assert set(told) <= {name for one in names for name in one}
    untold = [one for one in names if one and not set(one) & set(told)]
    assert untold == [], "docs/COMMANDS.md lacks an option"


def test_the_exit_codes_that_are_told_are_the_commands() -> None:
    codes = {name: value for name, value in vars(cli).items() if name.startswith("EXIT_")}
    assert {int(row[0]) for row in rows(COMMANDS.read_text(encoding="utf-8"), "exit code")} == {0, *codes.values()}


def test_the_readmes_commands_grade_a_class(tmp_path: Path) -> None:
    lines = re.findall(r"^    grader ((?:class|show) .*?)(?: *#.*)?$", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert [line.split()[:2] for line in lines] == [
        ["class", "new"],
        ["class", "run"],
        ["show", "fall"],
        ["class", "export"],
    ]
    for name, assignment in (("alice", "softmax"), ("bob with a space", "triton_gelu")):
        (tmp_path / "submissions" / name).mkdir(parents=True)
        shutil.copy(ROOT / "starter" / f"{assignment}.py", tmp_path / "submissions" / name)
    (tmp_path / "submissions" / "nobody").mkdir()
    for line in lines:
        words = line.replace("--require-isolation", "--device cpu").split()
        command = [sys.executable, "-m", "grader", *words]
        environment = os.environ | {"PYTHONPATH": IMPORTS}
        ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    index = (tmp_path / "pages/index.html").read_text(encoding="utf-8")
    assert "alice" in index
    assert "bob" in index
    (grades,) = (tmp_path / "fall/exports").glob("*.csv")
    told = {
        row["name"] or row["key"]: row for row in csv.DictReader(grades.read_text(encoding="utf-8-sig").splitlines())
    }
    assert len(told) == 3
    assert sorted(row["note"] for row in told.values())[-1] == "handed in nothing that can be graded"


def test_the_page_of_grading_has_the_points_of_the_course() -> None:
    told = [[float(cell) for cell in row[1:]] for row in rows((ROOT / "docs" / "GRADING.md").read_text(), "| correct")]
    parts = [part for assignment in load_course(ROOT) for part in assignment.spec.parts]
    assert told == [[part.correctness_points, part.speed_points] for part in parts]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in LINK.findall(CODE_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page.name}: {target}#{anchor}"


def test_every_handout_has_the_same_first_steps() -> None:
    steps = set()
    for assignment in load_course(ROOT):
        handout = (assignment.folder / "README.md").read_text(encoding="utf-8")
        commands = re.findall(r"^```sh\n(.+?)^```$", handout, re.MULTILINE | re.DOTALL)[:2]
        words = [re.sub(r"\s+#.*", "", line) for block in commands for line in block.splitlines()]
        assert all(assignment.name in word for word in words[-2:])
        steps.add("\n".join(words).replace(assignment.name, "NAME"))
    (same,) = steps
    assert re.findall(r"^grader (\w+)", same, re.MULTILINE) == ["init", "check", "run"]


def test_every_handout_names_its_file_and_its_points() -> None:
    for assignment in load_course(ROOT):
        handout = (assignment.folder / "README.md").read_text(encoding="utf-8")
        assert assignment.spec.file in handout
        assert f"{assignment.spec.entry}(" in handout
        for part in assignment.spec.parts:
            for group in part.groups:
                assert group.title in handout, f"{assignment.name}: the handout does not speak of {group.title!r}"

"""The autograder's script, function by function; `test_gradescope.py` runs it as Gradescope does."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

import grader.submission
from grader.classroom import lookup
from grader.submission import survey

SHARED = {"results": "ada.json", "people": ["email:ada@x.edu", "name:ada l"], "anyone": False}
OTHER = {"results": "bob.json", "people": ["email:bob@x.edu", "name:ada l"], "anyone": False}
INDEX = {"exported": "today", "handins": {"f" * 64: [SHARED, OTHER], "0" * 64: [{**SHARED, "anyone": True}]}}


@pytest.mark.parametrize(
    ("digest", "people", "found", "words"),
    [
        ("f", ["email:ada@x.edu", "name:ada l"], "ada.json", ""),
        ("f", ["name:ada l", "email:bob@x.edu"], "bob.json", ""),
        ("f", ["name:ada l"], "", "several grades are known"),
        ("f", ["email:ada@x.edu", "email:bob@x.edu"], "", "several grades are known"),
        ("f", [], "", "several grades are known"),
        ("0", [], "ada.json", ""),
        ("1", ["email:ada@x.edu"], "", "the class has no grade for these files"),
    ],
)
def test_results_go_to_whom_they_belong(digest: str, people: list[str], found: str, words: str) -> None:
    name, why = lookup.results_for(INDEX, digest * 64, people)
    assert name == found
    assert why.startswith(words)
    assert bool(why) == bool(words)


@pytest.mark.parametrize("text", ["", "[]", '{"users": 3}', '{"users": [3]}', '{"users": null}'])
def test_metadata_that_is_none_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    assert lookup.owners(tmp_path / "m.json") == []
    assert lookup.owners(tmp_path / "none.json") == []


def test_the_owners_are_those_of_the_metadata(tmp_path: Path) -> None:
    users = [{"email": "Ada@X.edu", "name": "  Ada  L ", "id": 12, "assignment": {}}, {"name": None}]
    (tmp_path / "m.json").write_text(json.dumps({"users": users, "id": 99}))
    assert lookup.owners(tmp_path / "m.json") == ["email:ada@x.edu", "name:ada l", "submission:99"]


def test_the_hash_of_a_copy_is_that_of_the_original(tmp_path: Path) -> None:
    for at in ("one", "two/inside"):
        (tmp_path / at / "lib").mkdir(parents=True)
        (tmp_path / at / "softmax.py").write_text("x")
        (tmp_path / at / "lib" / "more.py").write_text("y")
    (tmp_path / "two" / ".git").mkdir()
    wanted = ("softmax.py",)
    assert survey(tmp_path / "two", wanted).inside == "inside"
    first, second = (lookup.content_hash(tmp_path / at, wanted, ()) for at in ("one", "two"))
    assert first == second
    (tmp_path / "one" / "lib" / "more.py").rename(tmp_path / "one" / "more.py")
    assert lookup.content_hash(tmp_path / "one", wanted, ()) != first
    for cells in ("{}", "{ }"):  # notebooks cannot be graded; a class keeps them all the same
        (tmp_path / cells).mkdir()
        (tmp_path / cells / "softmax.ipynb").write_text(cells)
    assert lookup.content_hash(tmp_path / "{}", wanted, ()) != lookup.content_hash(tmp_path / "{ }", wanted, ())


@pytest.mark.parametrize("module", [lookup, grader.submission])
def test_what_runs_at_gradescope_is_python_3_10_with_its_standard_library(module: object) -> None:
    text = Path(str(module.__file__)).read_text(encoding="utf-8")  # type: ignore[attr-defined]
    tree = ast.parse(text, feature_version=(3, 10))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
    assert ours <= {"grader.submission", "grader.report.model"}
    taken = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "grader.report.model"
    ]
    assert all([one.name for one in node.names] == ["SubmissionInfo"] for node in taken)

"""The combinations beside each problem.toml are those of its contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.assignment import COMBINATIONS, Part, read_combinations, read_spec
from grader.combinations import contract_of, missing_pairs, text_of
from tests.conftest import ROOT

FOLDERS = sorted(path.parent for path in (ROOT / "assignments").glob(f"*/{COMBINATIONS}"))
PARTS = [
    pytest.param(folder, part, id=f"{folder.name}-{part.name}")
    for folder in FOLDERS
    for part in read_spec(folder).parts
    if part.factors
]
MOST = 0.15  # of a part's correctness points


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_file_is_what_the_command_writes(folder: Path) -> None:
    parts = {part.name: part for part in read_spec(folder).parts if part.factors}
    assert (folder / COMBINATIONS).read_text(encoding="utf-8") == text_of(parts)


@pytest.mark.parametrize(("folder", "part"), PARTS)
def test_each_pair_of_levels_that_may_go_together_meets(folder: Path, part: Part) -> None:
    rows = read_combinations(folder, read_spec(folder).parts)[part.name]
    assert list(missing_pairs(part, rows)) == []
    assert not [row for row in rows if any(one.holds(row) for one in part.excluded)]
    assert list(missing_pairs(part, rows[: len(rows) // 2]))


@pytest.mark.parametrize(("folder", "part"), PARTS)
def test_the_handout_has_every_level_and_combinations_are_worth_little(folder: Path, part: Part) -> None:
    assert contract_of(part) in (folder / "README.md").read_text(encoding="utf-8"), "run: python -m grader.combinations"
    assert sum(group.points for group in part.groups if group.pairs) <= MOST * part.correctness_points

"""The cases that need much GPU memory take what problem.toml says, and all points can be had on GPUs that courses have.

A smaller GPU is this one with ballast in its memory.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from grader.assignment import Assignment, Case, Part, load_course
from tests.conftest import ROOT, Ran, Running
from tests.support.gelus import TORCH_FORM

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

BESIDE_GIB = 3.0  # what the judge, a worker and the reference's take before they do anything
LARGE = [
    (assignment, part, case)
    for assignment in load_course(ROOT)
    for part in assignment.spec.parts
    for case in part.cases
    if case.memory_gib is not None
]


class Watch:
    """The least GPU memory that was free, in GiB."""

    def __init__(self) -> None:
        self.start_gib = self.least_gib = torch.cuda.mem_get_info()[0] / 2**30
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.is_set():
            self.least_gib = min(self.least_gib, torch.cuda.mem_get_info()[0] / 2**30)
            time.sleep(0.001)

    def taken_gib(self) -> float:
        """Stop looking; the most that others have taken."""
        self._done.set()
        self._thread.join()
        return self.start_gib - self.least_gib


@contextmanager
def ballast(free_gib: float) -> Iterator[Watch]:
    """Leave so much GPU memory free."""
    torch.cuda.empty_cache()
    too_much = torch.cuda.mem_get_info()[0] - int(free_gib * 2**30)
    if too_much < 0:
        pytest.skip(f"{free_gib:g} GiB of GPU memory are not free here")
    weight = torch.empty(too_much, dtype=torch.uint8, device="cuda")
    try:
        yield Watch()
    finally:
        del weight
        torch.cuda.empty_cache()


def course_of(folder: Path, assignment: Assignment, part: Part, case: Case) -> Path:
    """The course with one case alone."""
    target = folder / "course"
    for room in ("reference", "starter"):
        (target / room).mkdir(parents=True)
        (target / room / assignment.spec.file).write_bytes((ROOT / room / assignment.spec.file).read_bytes())
    for shared in (ROOT / "assignments").glob("_*"):
        shutil.copytree(shared, target / "assignments" / shared.name)
    own = target / "assignments" / assignment.name
    own.mkdir(parents=True)
    for name in ("problem.py", "baselines.py"):
        (own / name).write_bytes((assignment.folder / name).read_bytes())
    head, *parts = (assignment.folder / "problem.toml").read_text(encoding="utf-8").split("[[part]]\n")
    (text,) = [one for one in parts if one.startswith(f'name = "{part.name}"')]
    (line,) = [one for one in text.splitlines() if one.startswith(f'  {{ name = "{case.name}",')]
    keys = text.split("[[part.group]]")[0]
    group = f'[[part.group]]\nname = "only"\ntitle = "Only"\npoints = 1\ncases = [\n{line}\n]\n'
    (own / "problem.toml").write_text(f"{head}[[part]]\n{keys}{group}", encoding="utf-8")
    return target


def grade(folder: Path, course: Path, submission: Path) -> Ran:
    arguments = [str(submission), "--course", str(course), "--no-speed", "--device", "cuda"]
    return Running(folder, arguments).finish(400)


@pytest.mark.parametrize(
    ("assignment", "part", "case"), LARGE, ids=[f"{a.name}-{part.name}-{case.name}" for a, part, case in LARGE]
)
def test_a_case_takes_the_memory_that_it_says(tmp_path: Path, assignment: Assignment, part: Part, case: Case) -> None:
    assert case.memory_gib is not None
    course = course_of(tmp_path, assignment, part, case)
    with ballast(case.memory_gib + BESIDE_GIB) as watch:
        ran = grade(tmp_path, course, course / "reference")
        taken_gib = watch.taken_gib()
    print(
        f"{assignment.name} {part.name} {case.name}: says {case.memory_gib:g} GiB, took {taken_gib:.1f} with all workers"
    )
    result = ran.case(assignment.name, case.name)
    assert result.outcome == "passed", result.message
    assert ran.report is not None
    assert ran.report.infra_errors == ()
    assert taken_gib <= case.memory_gib + BESIDE_GIB
    assert case.memory_gib <= taken_gib + 2, "it asks for much more than it takes"


@pytest.mark.parametrize("free_gib", [39.0, 22.5], ids=["40-GB-card", "24-GB-card"])
def test_all_points_can_be_had_on_a_smaller_card(tmp_path: Path, free_gib: float) -> None:
    with ballast(free_gib):
        ran = Running(tmp_path, [str(ROOT / "reference")]).finish(500)
    assert ran.code == 0, ran.errors + ran.output
    assert ran.report is not None
    assert ran.report.infra_errors == ()
    results = [result for one in ran.report.assignments for part in one.parts for result in part.cases]
    assert [(result.name, result.message) for result in results if result.outcome == "skipped"] == []
    assert (ran.report.score.graded, ran.report.score.possible) == (100, 100)
    assert ran.report.correctness.earned == 50
    for assignment, _, case in LARGE:
        matching = [
            result
            for one in ran.report.assignments
            if one.name == assignment.name
            for part in one.parts
            for result in part.cases
            if result.name == case.name
        ]
        assert [result.outcome for result in matching] == ["passed"] * len(matching), [one.message for one in matching]


@pytest.mark.parametrize(("free_gib", "outcome"), [(31.0, "passed"), (22.5, "skipped")])
def test_the_torch_form_has_room_for_its_own_y_or_is_skipped(tmp_path: Path, free_gib: float, outcome: str) -> None:
    assignment, part, case = next(one for one in LARGE if one[0].name == "cuda_gelu")
    course, submission = course_of(tmp_path, assignment, part, case), tmp_path / "submission"
    submission.mkdir()
    (submission / "gelu.cu").write_text(TORCH_FORM)
    with ballast(free_gib):
        result = grade(tmp_path, course, submission).case(assignment.name, case.name)
    assert result.outcome == outcome, result.message
    if outcome == "skipped":
        assert "where it allocates its results itself" in result.message

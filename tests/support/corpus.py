"""The corpus: wrong kernels in `mutants/`, right kernels in `accepted/`, a folder for each below its assignment's
name.
"""

from __future__ import annotations

import re
import shutil
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import pytest
import torch
from pydantic import Field, model_validator

from grader.assignment import Device
from grader.report.model import CaseResult, Outcome, Report
from tests.conftest import ROOT
from tests.support.data import Pattern, Strict
from tests.support.warm_judge import ELSEWHERE, Cases, judge

# On a GPU too, if there is one: `make gpu-corpus` runs these.
ON_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.timeout(600)])
DEVICES = ["cpu", *([ON_GPU] if torch.cuda.is_available() else [])]
# For endless kernels, whose every case waits for its limit. Longer on a GPU, which others may use, and whose first call
# loads a kernel.
HANGING_LIMIT_S: dict[Device, int] = {"cpu": 2, "cuda": 5}
KEPT = ("name", "outcome", "message", "diagnosis", "map")  # of a case's result


class Expected(Strict):
    """The first case that does not pass, in the order of problem.toml.

    Attributes:
        case: its name; None if one of several may be the first.
        after_others: it fails so only after the cases before it: they leave what it finds, or its words compare it with them.
        says: regular expressions, each found in its message or its diagnosis.
    """

    outcome: Outcome
    case: str | None = None
    after_others: bool = False
    says: tuple[Pattern, ...] = ()


class Change(Strict):
    """A replacement in a right kernel: `old` occurs exactly once, and a student wrote `new`."""

    old: str
    new: str


class Changed(Strict):
    """A kernel that may be given as another right kernel with changes.

    Attributes:
        base: that kernel, a folder of `accepted/` for the same assignment. None if the folder holds its own file.
    """

    base: str | None = None
    change: tuple[Change, ...] = ()


class Mutant(Changed):
    """mutant.toml: one plausible mistake, and the grader's words about it.

    Attributes:
        part: the part whose cases run; None for an assignment with one part.
        cpu, cuda: the expected case on each device. None if the kernel is right there, or its outcome is open.
    """

    mistake: str = Field(min_length=10, pattern=r"^[^\n]+$")
    part: str | None = None
    cpu: Expected | None = None
    cuda: Expected | None = None

    @model_validator(mode="after")
    def _is_wrong_somewhere(self) -> Self:
        if self.cpu is None and self.cuda is None:
            raise ValueError("it must be wrong on cpu, on cuda or on both")
        return self

    def on(self, device: Device) -> Expected | None:
        return self.cpu if device == "cpu" else self.cuda


class Accepted(Changed):
    """accepted.toml: how this right kernel differs from the others."""

    how: str = Field(min_length=10, pattern=r"^[^\n]+$")


class Slow(Changed):
    """slow.toml: a right kernel that is slow for one cause; it may be the base as it is.

    Attributes:
        cause: of the first remark that its profile makes.
        case: the speed case that is profiled, as `large` or `forward/causal`.
    """

    why: str = Field(min_length=10, pattern=r"^[^\n]+$")
    cause: str
    case: str
    says: tuple[Pattern, ...] = ()


class Found(Strict):
    """The result of grading a folder of the corpus; of one half of the cases if the folder is graded twice.

    Attributes:
        cases: with their part's name, in the order of problem.toml.
        infra_errors: of the report.
        loses_points: whether correctness points are lost.
        missed: why cases that should run alone were skipped.
    """

    cases: tuple[tuple[str, CaseResult], ...] = ()
    infra_errors: tuple[str, ...] = ()
    loses_points: bool = False
    missed: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report) -> Self:
        return cls(
            cases=tuple(
                (part.name, CaseResult(tries="", **{name: getattr(case, name) for name in KEPT}))
                for one in report.assignments
                for part in one.parts
                for case in part.cases
            ),
            infra_errors=report.infra_errors,
            loses_points=report.correctness.earned < report.correctness.graded,
        )

    @property
    def ran(self) -> list[tuple[str, CaseResult]]:
        """Each case that was not skipped, after its name (with the part's, if there are several)."""
        return [(self._name(part, case), case) for part, case in self.cases if case.outcome != "skipped"]

    @property
    def left_out(self) -> list[CaseResult]:
        """Cases that run alone, and that this grading left out."""
        return [case for _, case in self.cases if case.outcome == "skipped" and case.message == ELSEWHERE["alone"]]

    @property
    def names_left_out(self) -> list[str]:
        return [self._name(part, case) for part, case in self.cases if case in self.left_out]

    def _name(self, part: str, case: CaseResult) -> str:
        return f"{part} {case.name}" if len({one for one, _ in self.cases}) > 1 else case.name

    def with_those_alone(self, alone: Self) -> Self:
        """This result, with the left-out cases taken from `alone`."""
        taken = {number for number, (_, case) in enumerate(self.cases) if case in self.left_out}
        pairs = zip(self.cases, alone.cases, strict=True) if alone.cases else ()  # empty without a report
        both = tuple(second if number in taken else first for number, (first, second) in enumerate(pairs))
        missed = [case for number, (_, case) in enumerate(both) if number in taken and case.outcome == "skipped"]
        return type(self)(
            cases=both or self.cases,
            infra_errors=self.infra_errors + alone.infra_errors,
            loses_points=self.loses_points or alone.loses_points,
            missed=tuple(f"{case.name} was skipped: {case.message}" for case in missed),
        )


class Entry:
    """A folder of the corpus, which is a submission."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.assignment = folder.parent.name
        self.id = f"{self.assignment}-{folder.name}"
        self.is_wrong = (folder / "mutant.toml").is_file()

    @cached_property
    def mutant(self) -> Mutant:
        return Mutant.model_validate(self._toml("mutant"))

    @cached_property
    def accepted(self) -> Accepted:
        return Accepted.model_validate(self._toml("accepted"))

    @cached_property
    def slow(self) -> Slow:
        return Slow.model_validate(self._toml("slow"))

    def _toml(self, name: str) -> dict[str, Any]:
        return tomllib.loads((self.folder / f"{name}.toml").read_text(encoding="utf-8"))

    def submission(self, scratch: Path) -> Path:
        """The folder to grade; made in `scratch` if the kernel is another kernel with changes."""
        is_slow = (self.folder / "slow.toml").is_file()
        model = self.mutant if self.is_wrong else self.slow if is_slow else self.accepted
        if model.base is None:
            assert not model.change, f"{self.id}: changes need a base"
            return self.folder
        assert model.change or is_slow, f"{self.id} is its base as it is"
        target = scratch / self.folder.name
        base = ROOT / "tests" / "corpora" / "accepted" / self.assignment / model.base
        shutil.copytree(base, target, ignore=shutil.ignore_patterns("*.toml", "__pycache__"))
        for change in model.change:
            texts = {path: path.read_text(encoding="utf-8") for path in target.iterdir()}
            found = sum(text.count(change.old) for text in texts.values())
            assert found == 1, f"{self.id}: {change.old!r} is there {found} times"
            for path, text in texts.items():
                path.write_text(text.replace(change.old, change.new), encoding="utf-8")
        return target

    @property
    def expected(self) -> dict[Device, Expected]:
        """The expected case by device; empty for a right kernel."""
        devices: tuple[Device, ...] = ("cpu", "cuda") if self.is_wrong else ()
        return {device: one for device in devices if (one := self.mutant.on(device)) is not None}

    def runs_on(self, device: Device) -> bool:
        """Whether the kernel is graded on the device: a wrong kernel if it is wrong there, a right kernel always."""
        return not self.is_wrong or device in self.expected

    def hangs(self, device: Device) -> bool:
        """Whether the kernel is expected to time out."""
        expected = self.expected.get(device)
        return expected is not None and expected.outcome == "timed_out"

    def grade(
        self, device: Device, scratch: Path, *, stop_early: bool = False, only: Cases = "all", case: str | None = None
    ) -> Found:
        """Grade this folder, in the part with the mistake; with `case`, that case alone. `scratch` is for further files."""
        hangs = self.hangs(device)
        course = impatient_course(scratch, self.assignment, device) if hangs else ROOT
        stop_early |= hangs and device == "cuda"  # an endless kernel takes half of the GPU from all others
        part = self.mutant.part if self.expected else None
        report = judge(
            self.submission(scratch), course, self.assignment, device, stop_early, part, cases=only, case=case
        )
        return Found.of(report)

    def fault(self, device: Device, found: Found) -> str:
        """How the grader was wrong about this kernel; "" if it was right."""
        if found.infra_errors:
            return f"infra errors: {'; '.join(found.infra_errors)}"
        ran = [case for _, case in found.ran]
        first = next((case for case in ran if case.outcome != "passed"), None)
        if not ran:
            return "every case was skipped"
        skipped = "".join(f"; {one}" for one in found.missed)
        expected = self.expected.get(device)
        if expected is None:
            told = "" if first is None else f"{first.name} {first.outcome}: {words(first)}"
            return (told + skipped).removeprefix("; ")
        if first is None:
            return f"every case that ran passed{skipped}"
        told = f"{first.name} {first.outcome}: {words(first)}"
        if first.outcome != expected.outcome or expected.case not in (None, first.name):
            return f"expected {expected.case or 'a case'} to be {expected.outcome}; got {told}{skipped}"
        unsaid = [pattern for pattern in expected.says if not re.search(pattern, words(first))]
        if unsaid:
            return f"{unsaid} is not in: {told}"
        return "" if found.loses_points else "full points"

    def needs_those_alone(self, device: Device, found: Found) -> bool:
        """Whether the cases that run alone are worth their time: for right kernels, and for wrong ones that the other
        cases do not catch as expected.
        """
        return bool(found.left_out) and (not self.expected.get(device) or self.fault(device, found) != "")


def entries(kind: Literal["mutants", "accepted", "slow"]) -> list[Entry]:
    """All folders of that kind, for all assignments."""
    names = sorted(path.name for path in (ROOT / "assignments").iterdir())
    return [
        Entry(path)
        for name in names
        for path in sorted((ROOT / "tests" / "corpora" / kind / name).glob("*"))
        if path.is_dir()
    ]


def cases(report: Report) -> list[CaseResult]:
    """All cases in the order of problem.toml."""
    return [case for one in report.assignments for part in one.parts for case in part.cases]


def words(case: CaseResult) -> str:
    """The words that a student reads about a case."""
    return "\n".join([case.message, *case.diagnosis])


def impatient_course(scratch: Path, assignment: str, device: Device) -> Path:
    """The course with time limits of a few seconds."""
    course = scratch / "course"
    for room in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / room, course / room, ignore=shutil.ignore_patterns("__pycache__"))
    toml = course / "assignments" / assignment / "problem.toml"
    limit = HANGING_LIMIT_S[device]
    both = f"time_limit_s = {{ cpu = {limit}, cuda = {limit} }}"
    text = re.sub(r"time_limit_s = \{.*?\}", both, toml.read_text(encoding="utf-8"))
    toml.write_text(re.sub(r"time_limit_s = \d+", f"time_limit_s = {limit}", text), encoding="utf-8")
    return course

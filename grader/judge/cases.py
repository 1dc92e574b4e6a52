"""The cases of a run, bound to their assignment's code, and the inputs that the judge makes for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from grader.assignment import Assignment, Case, CourseError, Device, Part, SpeedCase
from grader.problem import DTYPES, Call, Params, Problem, bind_params, bind_speed_sizes, load_problem
from grader.report.model import title
from grader.verdict.prints import heading

SHORTEST = {
    "copy": 1 << 27,
    "matmul": 1 << 33,
}  # of a timed call on a GPU, bytes or FLOPs (docs/CLOCK.md, "merging calls")


@dataclass(frozen=True)
class Place:
    """Where a result belongs in the report.

    Attributes:
        name: of the case, check or speed case.
        tries: what it tries, for the student.
    """

    assignment: str
    part: str
    name: str
    tries: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.assignment, self.part, self.name

    @property
    def title(self) -> str:
        return title(self.name, self.tries)


@dataclass(frozen=True)
class BoundCase:
    """A case with everything that is needed to run it on a device."""

    assignment: Assignment
    problem: Problem
    part: Part
    case: Case
    params: Params

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def id(self) -> str:
        return f"{self.assignment.name}-{self.part.name}-{self.case.name}"

    @property
    def heading(self) -> str:
        """Under what its prints are told."""
        return heading(title(self.name, self.case.tries), self.part.name, len(self.assignment.spec.parts))

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.case.dtype]

    @property
    def _own(self) -> str:
        """What no other case of the part has: a worker must not have met its inputs before."""
        return self.case.name

    def inputs(self, seed: int, number: int, device: torch.device) -> Call:
        """New inputs for the case's call `number`; the same seed gives the same inputs again on the same device."""
        text = f"{seed}/{self.assignment.name}/{self.part.name}/{self._own}/{number}"
        derived = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(device).manual_seed(derived)
        return self.problem.make_inputs(self.params, self.dtype, generator)

    def cut(self) -> list[Piece]:
        """The case in `pieces` of its own along dimension 0, each with numbers of its own."""
        params = self.problem.pieces(self.params, self.case.pieces)
        return [
            Piece(self.assignment, self.problem, self.part, self.case, one, index) for index, one in enumerate(params)
        ]


@dataclass(frozen=True)
class Piece(BoundCase):
    """Some of the entries of dimension 0 of a case."""

    index: int

    @property
    def _own(self) -> str:
        return f"{self.case.name}/piece {self.index}"


@dataclass(frozen=True)
class BoundSpeedCase(BoundCase):
    """A speed case at one size. `tries` of its `case` names the size."""

    speed: SpeedCase

    @property
    def id(self) -> str:
        return f"{self.assignment.name}-{self.part.name}-speed-{self.case.name}"

    @property
    def _own(self) -> str:
        return f"speed/{self.case.name}"

    @property
    def opponents(self) -> list[str]:
        """The baselines that bands name."""
        return list(dict.fromkeys(band.vs for band in self.speed.bands))

    def contenders(self, everyone: bool) -> list[str]:
        """Who runs beside the submission: what bands and roofline need, or everyone there is."""
        more = ["eager", "compile", "reference", *self.speed.vendor] if everyone else []
        return list(dict.fromkeys([*self.opponents, *more, self.speed.roofline]))


@dataclass(frozen=True)
class SpeedSizes:
    """A speed case in all its sizes, the declared one first; `memory_gib` of each is what it needs, if anything is said."""

    cases: tuple[BoundSpeedCase, ...]
    memory_gib: tuple[float | None, ...]

    @property
    def declared(self) -> BoundSpeedCase:
        return self.cases[0]

    def fitting(self, free_gib: float) -> BoundSpeedCase | None:
        """The first size that fits."""
        pairs = zip(self.cases, self.memory_gib, strict=True)
        return next((case for case, needed in pairs if needed is None or needed <= free_gib), None)

    def needed_gib(self, total_gib: float) -> float:
        """What the first size needs that a device with so much memory in all can have room for; 0 if none."""
        needs = (0.0 if needed is None else needed for needed in self.memory_gib)
        return next((needed for needed in needs if needed <= total_gib), 0.0)


def bind_cases(assignments: Sequence[Assignment], device: Device) -> list[BoundCase]:
    """Every correctness case of the assignments. Raises CourseError."""
    bound = []
    for assignment in assignments:
        problem, model = load_problem(assignment)
        for part in assignment.spec.parts:
            for case in part.cases:
                params = bind_params(assignment, part, case, model, device)
                if case.pieces > 1 and not callable(getattr(problem, "pieces", None)):
                    path = assignment.folder / "problem.py"
                    raise CourseError(f"{path}: lacks the function pieces(), which case {case.name!r} asks for")
                bound.append(BoundCase(assignment, problem, part, case, params))
    return bound


def bind_speed_cases(assignments: Sequence[Assignment]) -> list[SpeedSizes]:
    """Every speed case of the assignments. Raises CourseError."""
    bound = []
    for assignment in assignments:
        problem, model = load_problem(assignment)
        for part in assignment.spec.parts:
            for speed in part.speed:
                cases, needs = [], []
                for params, memory_gib in bind_speed_sizes(assignment, part, speed, model):
                    case = Case(name=speed.name, tries=_size(params, part), dtype=speed.dtype, params={})
                    cases.append(BoundSpeedCase(assignment, problem, part, case, params, speed))
                    _check_work(cases[-1])
                    needs.append(memory_gib)
                bound.append(SpeedSizes(tuple(cases), tuple(needs)))
    return bound


def _check_work(timed: BoundSpeedCase) -> None:
    """Raise CourseError where the work is not enough for the roofline to tell its time, or on a GPU for launches to be a small part."""
    folder, roofline = timed.assignment.folder, timed.speed.roofline
    where = f"in part {timed.part.name!r}, speed case {timed.name!r} ({timed.case.tries})"
    try:
        cost = timed.problem.cost(timed.params, timed.dtype)
        work, unit = (cost.flops, "FLOPs") if roofline == "matmul" else (cost.bytes_moved, "bytes")
    except Exception as error:
        raise CourseError(f"{folder / 'problem.py'}: cost() {where}: {type(error).__name__}: {error}") from error
    least = SHORTEST[roofline] if "cuda" in timed.speed.devices else 1
    if not work >= least:
        why = "" if work < 1 else "; of a shorter call the launch is too large a part: take a larger size"
        raise CourseError(
            f'{folder / "problem.toml"}: {where}: roofline = "{roofline}" tells the time from the {unit} of a case, '
            f"{least} at least, and cost() in {folder / 'problem.py'} gives {work}{why}"
        )


def _size(params: Params, part: Part) -> str:
    """What distinguishes a speed case's input, as `shape 16384 × 16384` or `batch 48, n 4096, d 64, causal`."""
    words = []
    for name, value in params.model_dump(exclude_defaults=True).items():
        if part.defaults.get(name) == value:
            continue
        if value is True:
            words.append(name)
        elif isinstance(value, tuple | list):
            words.append(f"{name} {' × '.join(map(str, value))}")
        else:
            words.append(f"{name} {value}")
    return ", ".join(words) or "the size of the part's defaults"

"""Cases and speed cases, bound to their assignment's problem.py, which draws their inputs."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from grader.assignment import Assignment, Case, CourseError, Device, Part, SpeedCase
from grader.messages import CaseStarted
from grader.problem import DTYPES, Call, Params, Problem, bind_params, load_module, load_problem
from grader.report.model import title
from grader.verdict.prints import heading
from grader.verdict.sources import names_in

# Least work of a timed call on a GPU, in bytes or FLOPs (docs/CLOCK.md, "Merging calls").
SHORTEST = {"copy": 1 << 27, "matmul": 1 << 33}


@dataclass(frozen=True)
class ReportPlace:
    """Where the result of a case, check or speed case belongs in the report.

    Attributes:
        tries: the purpose of the case, in a line for the student.
        is_timed: whether it is a speed case's.
    """

    assignment: Assignment
    part: Part
    name: str
    tries: str = ""
    is_timed: bool = False

    @property
    def of_part(self) -> tuple[str, str]:
        """The names of the assignment and the part."""
        return self.assignment.name, self.part.name

    @property
    def key(self) -> tuple[str, str, str]:
        return *self.of_part, self.name

    @property
    def title(self) -> str:
        return f"speed of {self.name}" if self.is_timed else title(self.name, self.tries)

    @property
    def started(self) -> CaseStarted:
        return CaseStarted(assignment=self.assignment.name, part=self.part.name, case=self.title)

    @property
    def heading(self) -> str:
        """The heading of this case in a worker's log."""
        return heading(self.title, self.part.name, len(self.assignment.spec.parts))


@dataclass(frozen=True)
class BoundCase:
    """A case with its assignment's code and parameters."""

    assignment: Assignment
    problem: Problem
    part: Part
    case: Case
    params: Params

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def place(self) -> ReportPlace:
        return ReportPlace(self.assignment, self.part, self.case.name, self.case.tries)

    @property
    def id(self) -> str:
        return "-".join([*self.place.of_part, *self._own.split("/")])

    @property
    def shares_the_machine(self) -> bool:
        """Whether the case may run beside others: it neither needs much GPU memory nor measures it."""
        return self.case.memory_gib is None and self.case.max_extra_mib is None

    @property
    def is_apart(self) -> bool:
        """Whether the case runs in a worker of its own, under a tool."""
        return self.case.tool is not None

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.case.dtype]

    @property
    def _own(self) -> str:
        """The name from which inputs are seeded: unlike for every other case of the part."""
        return self.case.name

    def inputs(self, seed: int, number: int, device: torch.device) -> Call:
        """New inputs for the case's call `number`. On one device the same seed gives the same inputs."""
        text = f"{seed}/{self.assignment.name}/{self.part.name}/{self._own}/{number}"
        derived = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(device).manual_seed(derived)
        return self.problem.make_inputs(self.params, self.dtype, generator)

    def cut(self) -> list[Piece]:
        """The case's `pieces` along dimension 0. Each piece draws its own numbers."""
        params = self.problem.pieces(self.params, self.case.pieces)
        whole = self.assignment, self.problem, self.part, self.case
        return [Piece(*whole, one, index) for index, one in enumerate(params)]


@dataclass(frozen=True)
class Piece(BoundCase):
    """A case on some of the entries of dimension 0."""

    index: int

    @property
    def _own(self) -> str:
        return f"{self.case.name}/piece {self.index}"


@dataclass(frozen=True)
class BoundSpeedCase(BoundCase):
    """A speed case at one size.

    Attributes:
        memory_gib: GPU memory that the size needs, if known.
    """

    speed: SpeedCase
    memory_gib: float | None = field(default=None, kw_only=True)

    @property
    def _own(self) -> str:
        return f"speed/{self.case.name}"

    @property
    def opponents(self) -> list[str]:
        """Names of the baselines of the case's bands."""
        return list(dict.fromkeys(band.vs for band in self.speed.bands))

    def entrants(self, everyone: bool) -> list[str]:
        """Names of the entrants but the submission and the null entrant: the bands' baselines and the roofline's yardstick, or all
        that there are.
        """
        more = ["eager", "compile", "reference", *self.speed.others] if everyone else []
        return list(dict.fromkeys([*self.opponents, *more, self.speed.roofline]))


@dataclass(frozen=True)
class BoundCheck:
    """A check of an assignment's own: a function that takes `Properties` as `properties`.

    Attributes:
        problem, model: problem.py, and the model of its parameters.
    """

    assignment: Assignment
    part: Part
    name: str
    function: Callable[..., None]
    problem: Problem
    model: type[Params]
    shares_the_machine = True
    is_apart = False

    @property
    def place(self) -> ReportPlace:
        """What it tries is the first line of the function's docstring."""
        tries = (inspect.getdoc(self.function) or self.name).splitlines()[0]
        return ReportPlace(self.assignment, self.part, self.name, tries)


@dataclass(frozen=True)
class SpeedSizes:
    """A speed case in all its sizes, the declared size first."""

    cases: tuple[BoundSpeedCase, ...]

    @property
    def declared(self) -> BoundSpeedCase:
        return self.cases[0]

    @property
    def place(self) -> ReportPlace:
        return replace(self.declared.place, is_timed=True)

    def fitting(self, free_gib: float) -> BoundSpeedCase | None:
        """The first size that needs at most `free_gib`; None if no size does."""
        return next((case for case in self.cases if (case.memory_gib or 0.0) <= free_gib), None)

    def needed_gib(self, total_gib: float) -> float:
        """Memory in GiB of the first size that fits into `total_gib`; 0 if none fits."""
        fitting = self.fitting(total_gib)
        return (fitting and fitting.memory_gib) or 0.0


def bind_cases(assignments: Sequence[Assignment], device: Device) -> list[BoundCase]:
    """Every correctness case of the assignments. Raises CourseError."""
    bound: list[BoundCase] = []
    for assignment in assignments:
        problem, model = load_problem(assignment)
        own = len(bound)
        for part in assignment.spec.parts:
            for case in part.cases:
                params = bind_params(assignment, part, case, model, case.params_on(device))
                if case.pieces > 1 and not callable(getattr(problem, "pieces", None)):
                    path = assignment.folder / "problem.py"
                    raise CourseError(f"{path}: lacks the function pieces(), which case {case.name!r} asks for")
                bound.append(BoundCase(assignment, problem, part, case, params))
        _check_outputs(assignment, bound[own:])
    return bound


def bind_checks(assignments: Sequence[Assignment]) -> list[BoundCheck]:
    """Every check of the assignments: the functions `test_*` of their test files. Raises CourseError."""
    bound: list[BoundCheck] = []
    for assignment in assignments:
        toml, found = assignment.folder / "problem.toml", dict[str, tuple[Path, Callable[..., None]]]()
        for path in sorted(assignment.folder.glob("test_*.py")):
            module = load_module(path)
            for name, one in inspect.getmembers(module, inspect.isfunction):
                if name.startswith("test_") and one.__module__ == module.__name__:
                    found[name] = path, one
        named = [(part, name) for part in assignment.spec.parts for group in part.groups for name in group.checks]
        for name, (path, function) in found.items():
            if name not in {one for _, one in named}:
                raise CourseError(f"{path}: no group in {toml} names the check {name!r} under `checks`")
            if list(inspect.signature(function).parameters) != ["properties"]:
                raise CourseError(f"{path}: the check {name!r} is to take `properties` and nothing else")
        for part, name in named:
            if name not in found:
                raise CourseError(f"{toml}: checks: there is no test {name!r} in {assignment.folder}/test_*.py")
            bound.append(BoundCheck(assignment, part, name, found[name][1], *load_problem(assignment)))
    return bound


def _check_outputs(assignment: Assignment, cases: Sequence[BoundCase]) -> None:
    """Raise CourseError if [tolerance] scale names an output that no case has.

    Inputs are drawn until every name was seen: in a right course, those of one case of each part. A huge case is taken to
    have no output that the others of its part lack.
    """
    outputs: dict[str, None] = {}
    unseen, parts = set(assignment.spec.tolerance.scale), {part.name for part in assignment.spec.parts if part.cases}
    for case in (one for one in cases if not one.case.is_huge):
        if not unseen:
            return
        with suppress(Exception):  # the case itself will tell of it
            outputs |= dict.fromkeys(case.problem.outputs(case.inputs(0, 0, torch.device("cpu"))))
            parts.discard(case.part.name)
        unseen -= outputs.keys()
    if unseen and not parts:
        words = f"[tolerance] scale names the output {min(unseen)!r}; those of problem.py are {', '.join(outputs)}"
        raise CourseError(f"{assignment.folder / 'problem.toml'}: {words}")


def bind_speed_cases(assignments: Sequence[Assignment]) -> list[SpeedSizes]:
    """Every speed case of the assignments. Raises CourseError."""
    bound = []
    for assignment in assignments:
        problem, model = load_problem(assignment)
        for part in assignment.spec.parts:
            for speed in part.speed:
                if not (baselines := assignment.folder / "baselines.py").is_file():
                    raise CourseError(f"{baselines}: not found; speed is measured against its function `eager`")
                try:
                    has = names_in(ast.parse(baselines.read_bytes()))
                except (OSError, SyntaxError, ValueError) as error:
                    raise CourseError(f"{baselines}: {type(error).__name__}: {error}") from None
                if lacking := [one for one in ("eager", *speed.others) if one not in has]:
                    words = f"lacks the function {lacking[0]}(), which speed case {speed.name!r} is measured against"
                    raise CourseError(f"{baselines}: {words}")
                cases = []
                for size in (speed, *speed.smaller):
                    params = bind_params(assignment, part, speed, model, speed.params | size.params)
                    case = Case(name=speed.name, tries=_size(params, part), dtype=speed.dtype)
                    timed = BoundSpeedCase(assignment, problem, part, case, params, speed, memory_gib=size.memory_gib)
                    _check_work(timed)
                    cases.append(timed)
                bound.append(SpeedSizes(tuple(cases)))
    return bound


def _check_work(timed: BoundSpeedCase) -> None:
    """Raise CourseError if a timed call does too little work: the roofline needs some, and on a GPU launches must be a
    small part.
    """
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
    """The parameters that distinguish a speed case, as `shape 16384 × 16384` or `batch 48, n 4096, d 64, causal`."""
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

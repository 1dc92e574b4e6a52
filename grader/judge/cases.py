"""The cases of a run, bound to their assignment's code, and the inputs that the judge makes for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from grader.assignment import Assignment, Case, Device, Group, Part
from grader.problem import DTYPES, Call, Params, Problem, bind_params, bind_speed_params, load_problem


@dataclass(frozen=True)
class BoundCase:
    """A case with everything that is needed to run it on a device."""

    assignment: Assignment
    problem: Problem
    part: Part
    group: Group
    case: Case
    params: Params

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def id(self) -> str:
        return f"{self.assignment.name}-{self.part.name}-{self.case.name}"

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.case.dtype]

    def inputs(self, seed: int, number: int, device: torch.device) -> Call:
        """New inputs for the case's call `number`; the same seed gives the same inputs again on the same device."""
        text = f"{seed}/{self.assignment.name}/{self.part.name}/{self.case.name}/{number}"
        derived = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(device).manual_seed(derived)
        return self.problem.make_inputs(self.params, self.dtype, generator)


def bind_cases(assignments: Sequence[Assignment], device: Device) -> list[BoundCase]:
    """Every case of the assignments. Raises CourseError."""
    bound = []
    for assignment in assignments:
        problem, model = load_problem(assignment)
        for part in assignment.spec.parts:
            for speed_case in part.speed:
                bind_speed_params(assignment, part, speed_case, model)
            for group in part.groups:
                for case in group.cases:
                    bound.append(
                        BoundCase(
                            assignment, problem, part, group, case, bind_params(assignment, part, case, model, device)
                        )
                    )
    return bound

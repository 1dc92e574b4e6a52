"""The facts of a grading that stay the same from its first case to its report."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil
import torch

from grader.assignment import Assignment, Device, load_course
from grader.judge.cases import BoundCase, BoundCheck, SpeedSizes, bind_cases, bind_checks, bind_speed_cases
from grader.judge.gpu import Gauge
from grader.messages import Event, Request
from grader.pool.pool import workers_at_once


@dataclass(frozen=True)
class Run:
    """A grading's request, its machine, and the assignments and cases of the course that it runs.

    Attributes:
        device_name: `cpu` or `cuda`.
        seed: of the inputs of all cases and speed cases.
        emit: sends an event of the grading.
        lane_count: how many workers of the submission may run at once.
        assignments: in the order of grading.
        cases, checks, speed_cases: to be run, of all assignments.
    """

    request: Request
    device_name: Device
    seed: int
    emit: Callable[[Event], None]
    gauge: Gauge
    lane_count: int = 1
    assignments: Sequence[Assignment] = ()
    cases: Sequence[BoundCase] = ()
    checks: Sequence[BoundCheck] = ()
    speed_cases: Sequence[SpeedSizes] = ()

    @classmethod
    def begin(cls, request: Request, device_name: Device, emit: Callable[[Event], None]) -> Run:
        """A run on this machine, with the request's seed or a new one. Raises CourseError."""
        seed = secrets.randbits(53) if request.seed is None else request.seed
        lane_count = 1 if device_name == "cpu" else workers_at_once(free_gib(device_name))
        gauge = Gauge(torch.device(device_name), measuring=request.speed)
        course = load_course(request.course, request.assignments)
        if request.assignments:
            course.sort(key=lambda one: request.assignments.index(one.name))
        cases, checks, speed_cases = bind_cases(course, device_name), bind_checks(course), bind_speed_cases(course)
        if request.profiled:
            names = [(one, {one.place.name, f"{one.place.part.name}/{one.place.name}"}) for one in speed_cases]
            speed_cases = [one for one, known_as in names if not known_as.isdisjoint(request.profiled)]
        timed = speed_cases if request.speed else ()
        return cls(request, device_name, seed, emit, gauge, lane_count, course, cases, checks, timed)

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_name)

    def free_gib(self) -> float:
        """Free memory in GiB: the GPU's on `cuda`, the host's on `cpu`."""
        return free_gib(self.device_name)

    @property
    def total_gib(self) -> float:
        """Memory of the device in GiB, free or not."""
        if self.device_name == "cpu":
            return float(psutil.virtual_memory().total) / 2**30
        return float(torch.cuda.mem_get_info(self.device)[1]) / 2**30


def free_gib(device_name: Device) -> float:
    if device_name == "cpu":
        return float(psutil.virtual_memory().available) / 2**30
    torch.cuda.empty_cache()
    return float(torch.cuda.mem_get_info(device_name)[0]) / 2**30

"""The facts of a grading that stay the same from its first case to its report."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

import psutil
import torch

from grader.assignment import Device
from grader.contender.pool import workers_at_once
from grader.job import Event, Job
from grader.judge.gpu import Gauge


@dataclass(frozen=True)
class Run:
    """A grading's job and the machine that does it.

    Attributes:
        job: what is graded, and how.
        device_name: `cpu` or `cuda`.
        seed: of all inputs but those that are timed.
        emit: takes the events of the grading.
        gauge: the GPU's clocks, and whether the GPU is quiet.
        lane_count: how many workers of the submission may run at once.
    """

    job: Job
    device_name: Device
    seed: int
    emit: Callable[[Event], None]
    gauge: Gauge
    lane_count: int = 1

    @classmethod
    def begin(cls, job: Job, device_name: Device, emit: Callable[[Event], None]) -> Run:
        """A run on this machine, with the job's seed or a new one."""
        seed = secrets.randbits(53) if job.seed is None else job.seed
        one_by_one = device_name == "cpu" or job.stop_early
        lane_count = 1 if one_by_one else workers_at_once(free_gib(device_name))
        return cls(job, device_name, seed, emit, Gauge(torch.device(device_name), measuring=job.speed), lane_count)

    @property
    def device(self) -> torch.device:
        return torch.device(self.device_name)

    @property
    def gpu_name(self) -> str:
        return torch.cuda.get_device_name() if self.device_name == "cuda" else "CPU"

    def free_gib(self) -> float:
        """GiB of the device's memory that are free: the GPU's, or the host's where there is none."""
        return free_gib(self.device_name)

    @property
    def total_gib(self) -> float:
        """GiB of memory that the device has."""
        if self.device_name == "cpu":
            return float(psutil.virtual_memory().total) / 2**30
        return float(torch.cuda.mem_get_info(self.device)[1]) / 2**30


def free_gib(device_name: Device) -> float:
    if device_name == "cpu":
        return float(psutil.virtual_memory().available) / 2**30
    torch.cuda.empty_cache()
    return float(torch.cuda.mem_get_info(device_name)[0]) / 2**30

"""Where a submission is to be graded, as the command line asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.job import WantedDevice

SandboxName = Literal["host", "docker"]
DEFAULT_IMAGE = "gpu-lab-grader"


@dataclass(frozen=True)
class Place:
    """A wish for a sandbox and a device.

    sandbox: `auto` is `docker` where a daemon and the image are there, else `host`; see `choose`.
    device: `auto` is the GPU where there is one.
    require_isolation: refuse to run a submission that could reach the machine (see `Isolation.isolated`).
    image: the name of the grading image.
    gpu: UUID of the GPU to grade on; None takes the first.
    memory_gib, cpus: limits of a container; None is most of the machine.
    course: what workers must not find, wherever it lies.
    """

    sandbox: Literal["auto"] | SandboxName = "host"
    device: WantedDevice = "auto"
    require_isolation: bool = False
    image: str = DEFAULT_IMAGE
    gpu: str | None = None
    memory_gib: float | None = None
    cpus: float | None = None
    course: Path | None = None

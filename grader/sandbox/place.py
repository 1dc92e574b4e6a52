"""The requested place of a grading: sandbox, device and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.job import WantedDevice

SandboxName = Literal["host", "docker"]
DEFAULT_IMAGE = "gpu-lab-grader"


@dataclass(frozen=True)
class Place:
    """The command line's request for a sandbox and a device.

    sandbox: `auto` is `docker` if a daemon and the image are here, else `host`; see `choose`.
    device: `auto` is the GPU if there is one.
    require_isolation: refuse to run a submission that could reach the machine (see `Isolation.isolated`).
    image: the name of the grading image.
    gpu: UUID of the GPU to grade on; None takes the first.
    memory_gib, cpus: limits of a container; None is most of the machine.
    course: the course's folder, which workers must not see.
    """

    sandbox: Literal["auto"] | SandboxName = "host"
    device: WantedDevice = "auto"
    require_isolation: bool = False
    image: str = DEFAULT_IMAGE
    gpu: str | None = None
    memory_gib: float | None = None
    cpus: float | None = None
    course: Path | None = None

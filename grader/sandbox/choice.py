"""Which sandbox: the one that is asked for, or the best that is there."""

from __future__ import annotations

from pathlib import Path

from grader.sandbox.base import Sandbox
from grader.sandbox.host import HostSandbox
from grader.sandbox.place import Place, SandboxName


def choose(place: Place) -> SandboxName:
    """`docker` where a daemon and the image are there, else `host`, unless one is asked for."""
    if place.sandbox != "auto":
        return place.sandbox
    from grader.sandbox import engine

    if not engine.is_there():
        return "host"
    from grader.sandbox import docker

    return "docker" if docker.suits(place) else "host"


def open_sandbox(place: Place, folder: Path, workers: int) -> Sandbox:
    """The sandbox of this choice, not started yet; `folder` is the run's own."""
    if choose(place) == "docker":
        from grader.sandbox.docker import DockerSandbox

        return DockerSandbox(place, workers)
    return HostSandbox(folder, place, workers)

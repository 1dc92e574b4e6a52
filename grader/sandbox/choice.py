"""Which sandbox: the one that is asked for, or the best that is there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from grader.job import HeadStart
from grader.sandbox.base import InfraError, Sandbox
from grader.sandbox.host import HostSandbox
from grader.sandbox.place import Place, SandboxName


class Choice(NamedTuple):
    """A sandbox, and what whoever grades should know of why it is this one."""

    sandbox: SandboxName
    note: str = ""


def choose(place: Place) -> Choice:
    """`docker` where a daemon and the image are there, else `host`, unless one is asked for.

    A daemon that DOCKER_HOST names and that does not answer is noted: whoever has named it expects containers.
    """
    if place.sandbox != "auto":
        return Choice(place.sandbox)
    from grader.sandbox import engine

    if not engine.is_there():
        return Choice("host")
    from grader.sandbox import docker

    try:
        return Choice("docker" if docker.suits(place) else "host")
    except InfraError as error:
        words = str(error).replace(engine.HELP, "").rstrip(" ;.")
        return Choice("host", f"graded on this host and not in a container: {words}" if engine.is_named() else "")


def open_sandbox(place: Place, folder: Path, head_start: HeadStart) -> Sandbox:
    """The sandbox of this choice, not started yet; `folder` is the run's own."""
    choice = choose(place)
    if choice.sandbox == "docker":
        from grader.sandbox.docker import DockerSandbox

        return DockerSandbox(place, head_start)
    return HostSandbox(folder, place, head_start, choice.note)

"""Chooses the sandbox of a grading: the requested one, or the best that this machine has."""

from __future__ import annotations

from pathlib import Path

from grader.messages import Place, Request, SandboxName
from grader.sandbox.base import InfraError, Sandbox
from grader.sandbox.host import HostSandbox


def choose(place: Place) -> SandboxName:
    """The requested sandbox; for `auto`, `docker` if a daemon and the image are here, else `host`.

    Raises:
        InfraError: this machine is configured for containers and cannot start one. The host is no substitute for strangers' code.
        UsageError: the image is here, and a container would not get this machine's GPU.
    """
    if place.sandbox != "auto":
        return place.sandbox
    from grader.sandbox import engine

    image_expected, daemon_named = engine.why_image_is_expected(place.image), engine.why_daemon_is_expected()
    if not (image_expected or engine.is_there()):
        return "host"
    from grader.sandbox import docker

    try:
        docker.find(place)
    except InfraError as error:
        expected = image_expected or (daemon_named if not isinstance(error, engine.ImageMissing) else "")
        if not expected:
            return "host"
        words = str(error).replace(engine.HELP, "").rstrip(" ;.")
        insist = f"{expected}, so nothing is graded on this host instead, unless --sandbox host says so"
        raise InfraError(f"{words}. {insist}; `grader doctor` says more") from None
    return "docker"


def open_sandbox(request: Request, folder: Path) -> Sandbox:
    """The chosen sandbox, with a judge that gets ready. `folder`: the run's folder."""
    if choose(request.place) == "docker":
        from grader.sandbox.docker import DockerSandbox

        return DockerSandbox(request.place)
    return HostSandbox(folder, request.place, request.course)

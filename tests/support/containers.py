"""The tests' Docker daemon and image: `scripts/test-image.sh` starts a daemon if there is none, and makes the image
GRADER_IMAGE.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import tarfile
from pathlib import Path

import docker
import pytest
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from grader.cleanup import is_over
from grader.course import ROOMS
from grader.fingerprint import fingerprint
from grader.sandbox.docker import COURSE, FOLDER, OWNER_LABEL, RUN_LABEL

IMAGE = os.environ.get("GRADER_IMAGE", "")
WITH_COURSE = f"""
FROM {IMAGE}
RUN rm -r {COURSE}
COPY course {COURSE}
RUN mkdir -p {COURSE}/reference {COURSE}/starter && chown -R root:judge {COURSE} && chmod -R u=rwX,g=rX,o= {COURSE}
"""


@functools.cache
def missing() -> str:
    """Why tests in a container cannot run here; "" if they can."""
    if not IMAGE:
        return "GRADER_IMAGE names no image; scripts/test-image.sh makes one"
    try:
        client().images.get(IMAGE)
    except ImageNotFound:
        return f"no image {IMAGE}; scripts/test-image.sh makes it"
    except (DockerException, requests.RequestException) as error:
        return f"no Docker daemon answers: {error}"
    return ""


@functools.cache
def client() -> docker.DockerClient:
    return docker.from_env(timeout=60)


@functools.cache
def image_with(course: Path) -> str:
    """The name of an image like IMAGE, with another course."""
    tag = f"grader-test:{hashlib.sha256(fingerprint(course).encode() + IMAGE.encode()).hexdigest()[:20]}"
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for room in ROOMS:  # a course may lie in a checkout, with much else
            archive.add(course / room, f"course/{room}")
        text = WITH_COURSE.encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    context.seek(0)
    client().images.build(fileobj=context, custom_context=True, tag=tag, network_mode="none", rm=True, forcerm=True)
    return tag


def need() -> None:
    """Skip the test with a reason if there is no daemon or no image."""
    if reason := missing():
        pytest.skip(f"docker: {reason}")


def of(pid: int) -> list[str]:
    """The names of the containers of the grader with this process id. The doctor's have no owner."""
    return sorted(labels[RUN_LABEL] for labels in _all() if labels.get(OWNER_LABEL, "").split()[1:2] == [str(pid)])


def left() -> list[str]:
    """Names of containers whose grader has ended without removing them; containers of running gradings are left out."""
    return [labels[RUN_LABEL] for labels in _all() if is_over(labels)]


def remove_left(container: str) -> None:
    """Remove what its grader could not, once its judge, which has lost the grader, has ended by itself.

    A late request of the grader's, or `grader cleanup` in a test beside this one, may have removed it.
    """
    with contextlib.suppress(APIError):
        client().api.wait(container, timeout=30)
        client().api.remove_container(container)


def _all() -> list[dict[str, str]]:
    """The labels of all containers of graders."""
    return [one["Labels"] for one in client().api.containers(all=True, filters={"label": RUN_LABEL})]


def has_file(container: str, name: str) -> bool:
    """Whether a file of this name lies in the run's folder of a container."""
    try:
        code, output = client().containers.get(container).exec_run(["find", str(FOLDER), "-name", name])
    except APIError:
        return False  # the container does not run yet, or no longer
    return code == 0 and bool(output.strip())

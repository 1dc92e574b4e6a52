"""Looks at Docker: the daemon, the grading image, and a container's access to a GPU."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.models.images import Image

from grader.doctor.finding import Finding, Unneeded, broken
from grader.doctor.gpus import NO_GPU, Presence
from grader.doctor.space import WANTED_GIB, free_gib
from grader.fingerprint import fingerprint
from grader.messages import DEFAULT_IMAGE
from grader.sandbox import docker, engine
from grader.sandbox.base import InfraError
from grader.sandbox.docker import DEVICE_LABEL

NO_DOCKER = "no Docker"
HOST = "submissions are graded on this host"
ON_HOST = "it is used with --sandbox host alone"
CONTAINER_LIMIT_S = 20
INSTALL = "`sudo apt install docker.io && sudo usermod -aG docker $USER`, then log in anew"
JOIN = "`sudo usermod -aG docker $USER`, then log in anew"
START = "`sudo systemctl start docker`"
TOOLKIT = (
    "install the package nvidia-container-toolkit from NVIDIA's repository, then "
    "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
)
WAYS = {
    "toolkit": "by NVIDIA's toolkit",
    "cdi": "by CDI",
    "nodes": "as device nodes and the driver's files, without NVIDIA's toolkit",
}
IN_CONTAINER = """
import json
from pathlib import Path
from grader.pool.jail import candidates, fault
from grader.fingerprint import fingerprint
print(json.dumps([fingerprint(Path("/opt/course")), [fault(jail) for jail in candidates()]]))
"""
WITH_GPU = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"


def findings(name: str, course: Path, there: Presence, confined: bool) -> Iterator[Finding]:
    """Docker, grading image, GPU in Docker.

    Args:
        name: the grading image, which should contain `course`.
        there: whether this machine has a GPU and its driver.
        confined: whether this host can confine submissions without Docker.
    """
    image_expected = engine.why_image_is_expected(name)
    expected = image_expected or engine.why_daemon_is_expected()
    if not (expected or engine.is_there()):
        there_is = shutil.which("docker")
        words = "its client is here, and no daemon runs" if there_is else "is not here"
        mend = "" if confined else START if there_is else INSTALL
        yield Finding("unneeded", f"{words}: {HOST}", mend)
        raise Unneeded(NO_DOCKER)
    try:
        client = engine.connect(engine.LOOK_TIMEOUT_S)
    except InfraError as error:
        words = str(error).replace(engine.HELP, "").rstrip(" ;.")
        mend = JOIN if "may not talk" in words else START
        told = f"{words}; {expected}, so nothing is graded without --sandbox host" if expected else f"{words}: {HOST}"
        yield Finding("fault" if expected else "caution", told, mend)
        raise Unneeded(NO_DOCKER) from None
    with contextlib.closing(client):
        with engine.in_words("look at the daemon"):
            info = client.info()
        yield daemon_finding(info)
        client.api.timeout = CONTAINER_LIMIT_S
        image = None
        try:
            with engine.in_words("look for the image"):
                image = client.images.get(name)
            yield _image(client, image, name, course, there)
        except engine.ImageMissing:
            words = f"{image_expected}, and is not there" if image_expected else f"there is no {name}: {HOST}"
            yield Finding("fault" if image_expected else "unneeded", words, _build(name, there))
        yield _gpu(client, image, info, there)


def daemon_finding(info: Mapping[str, Any]) -> Finding:
    words = f"{info.get('ServerVersion')} at {engine.address()}"
    folder = Path(info.get("DockerRootDir") or "/")
    if not engine.is_local() or not folder.exists():
        return Finding("fine", words)
    words += f", {free_gib(folder):.1f} GiB free"
    if free_gib(folder) < WANTED_GIB:
        return Finding("caution", f"{words}: little for an image", "`docker system prune`")
    return Finding("fine", words)


def _build(name: str, there: Presence) -> str:
    tag = "" if name == DEFAULT_IMAGE else f" --tag {name}"
    return f"`grader image build --device {'cuda' if there == 'driver' else 'cpu'}{tag}`"


def _image(client: DockerClient, image: Image, name: str, course: Path, there: Presence) -> Finding:
    device = image.labels.get(DEVICE_LABEL, "cuda")
    words = f"{name}, {str(image.id)[:19]}, for {'CPUs' if device == 'cpu' else 'GPUs and CPUs'}"
    try:
        made_of, faults = json.loads(answer_of(client, str(image.id), IN_CONTAINER))
    except (InfraError, ValueError) as error:
        return broken(f"{words}: does not run ({error})", _build(name, there))
    if made_of != fingerprint(course):
        words += ": made of other files than this grader and its course"
        return Finding("fault", words, _build(name, there))
    if all(faults):
        words += f": confines no worker ({'; '.join(faults) or 'setpriv is missing'})"
        return Finding("fault", words, _build(name, there))
    if device == "cpu" and there == "driver":
        return Finding("caution", f"{words}, and there is a GPU: {ON_HOST}", _build(name, there))
    return Finding("fine", words)


def _gpu(client: DockerClient, image: Image | None, info: Mapping[str, Any], there: Presence) -> Finding:
    if there != "driver":
        return Finding("unneeded", NO_GPU)
    gpu = engine.gpu(info, None)
    if gpu is None:
        return Finding("caution", f"Docker has no way to pass it on: {ON_HOST}", TOOLKIT)
    way = WAYS[gpu.access]
    if image is None or image.labels.get(DEVICE_LABEL) == "cpu":
        return Finding("fine", f"{way}; not tried without an image for GPUs")
    try:
        answer = answer_of(client, str(image.id), WITH_GPU, gpu).strip()
    except InfraError as error:
        return broken(f"{way}: {error}", TOOLKIT)
    if answer != "0":
        return Finding("fault", f"{way}: CUDA does not start in a container (error {answer})", TOOLKIT)
    return Finding("fine", f"{way}; CUDA starts in a container")


def answer_of(client: DockerClient, image: str, program: str, gpu: engine.ContainerGpu | None = None) -> str:
    """The output of a Python program in a container with a grading container's walls. Raises InfraError."""
    api = client.api
    deadline = str(int(time.time()) + 10 * CONTAINER_LIMIT_S)
    with engine.in_words("run a container"):
        container = api.create_container(
            image,
            entrypoint="python3",
            command=["-P", "-c", program],
            host_config=api.create_host_config(**docker.confinement(gpu)),
            environment=gpu.environment if gpu else None,
            labels={docker.RUN_LABEL: "doctor", docker.DEADLINE_LABEL: deadline},
        )["Id"]
        try:
            api.start(container)
            code = api.wait(container, timeout=CONTAINER_LIMIT_S)["StatusCode"]
            output = api.logs(container, stdout=True, stderr=code != 0).decode(errors="replace")
        finally:
            api.remove_container(container, v=True, force=True)
    if code != 0:
        raise InfraError((output.strip().splitlines() or [f"exit code {code}"])[-1])
    return output

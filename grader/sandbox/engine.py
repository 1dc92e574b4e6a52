"""The Docker engine: connects to the daemon, builds the grading image, finds a container's access to a GPU, and puts the daemon's errors
into words.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import docker
import requests
from docker.context import Context, ContextAPI
from docker.context.config import get_current_context_name
from docker.errors import APIError, DockerException, ImageNotFound
from docker.types import DeviceRequest

from grader.background import later
from grader.messages import DEFAULT_IMAGE
from grader.sandbox.base import InfraError, UsageError

T = TypeVar("T")
TIMEOUT_S = 60
OLDEST_API = "1.41"
LOOK_TIMEOUT_S = 3
BUILD_TIMEOUT_S = 3600
PULSE_TIMEOUT_S = 30  # a grading may keep the machine busy
SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
GpuAccess = Literal["toolkit", "cdi", "nodes"]
GPU_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
DRIVER_FILES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-nvvm.so.4")
DRIVER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/lib",
)
DRIVER_PLACE = "/usr/local/nvidia/lib64"  # the folder of DRIVER_FILES in the container
HELP = "`grader doctor` says more; --sandbox host does without Docker"


class ImageMissing(InfraError):
    """The grading image is not there."""


def connect(timeout_s: int | None = None) -> docker.DockerClient:
    """A client of the daemon at `address`, which the caller closes. Raises InfraError.

    `timeout_s`: the limit of each request of the client; None is `TIMEOUT_S`.
    """
    timeout_s = timeout_s or TIMEOUT_S
    patience_s = min(timeout_s, TIMEOUT_S)  # an image build's limit is too long for a connection

    def client() -> docker.DockerClient:
        # Not `version="auto"`, which leaves a connection open if the daemon does not answer.
        with contextlib.closing(_client(patience_s, OLDEST_API)) as asking:
            version = asking.api.version(api_version=False)["ApiVersion"]
        return _client(timeout_s, version)

    return in_time("reach the Docker daemon", client, patience_s)


def in_time(doing: str, ask: Callable[[], T], timeout_s: int | None = None) -> T:
    """The result of `ask`, within twice the time limit of a request. Raises InfraError (see `in_words`).

    A request's own limit bounds only each read: a daemon that sends a byte now and then could be slow without end.
    """

    def asked() -> T:
        with in_words(doing):
            try:
                return ask()
            except (ValueError, AttributeError, KeyError, TypeError) as error:
                # The SDK leaks these for an invalid address, or for a server that is no daemon.
                raise DockerException(f"{type(error).__name__}: {error}") from error

    limit_s = 2 * (timeout_s or TIMEOUT_S)
    try:
        return later(asked).result(limit_s)
    except TimeoutError:
        words = f"could not {doing}: the daemon at {address()} has not given its answer within {limit_s} s; restart it"
        raise InfraError(f"{words}. {HELP}") from None


def silence() -> str:
    """Why a grading in a container must end: the daemon does not answer a ping. "" if it does."""

    def ping() -> None:
        with contextlib.closing(_client(PULSE_TIMEOUT_S, OLDEST_API)) as client:
            client.ping()

    try:
        in_time("hear from the daemon in the middle of the grading", ping, PULSE_TIMEOUT_S)
    except Exception as error:  # the thread that asks keeps the limits, too
        return f"{error}; `grader cleanup` then removes the container"
    return ""


def is_there() -> bool:
    """Whether a daemon may be here: the environment names one, or a usual socket exists."""
    return bool(why_daemon_is_expected()) or any(Path(path).exists() for path in SOCKETS)


def why_daemon_is_expected() -> str:
    """Words for the setting that names a daemon, and so a wish for containers; "" if there is none."""
    if os.environ.get("DOCKER_HOST"):
        return "DOCKER_HOST names a daemon"
    name = _context_name()
    return "" if name == "default" else f"docker's context is {name}"


def why_image_is_expected(image: str) -> str:
    """Why a user expects containers of this image, in words: the image is requested, or was here before; else ""."""
    if image != DEFAULT_IMAGE:
        return f"the image {image} is asked for"
    with contextlib.suppress(RuntimeError, OSError):
        return f"the image {image} was here before" if _mark_of(image).exists() else ""
    return ""


def remember(image: str) -> None:
    """Leave a mark that the image is here, for `why_image_is_expected`."""
    with contextlib.suppress(RuntimeError, OSError):  # a user without a home has no marks
        mark = _mark_of(image)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


def _mark_of(image: str) -> Path:
    folder = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(folder, "gpu-lab-grader", "images", quote(image, safe=""))


def address() -> str:
    """The daemon's address: from DOCKER_HOST, from docker's context, or the usual socket."""
    if host := os.environ.get("DOCKER_HOST"):
        return host
    name = _context_name()
    with contextlib.suppress(DockerException):
        return (name != "default" and _context(name).Host) or f"unix://{SOCKETS[0]}"
    return f"the context {name}"


def _context_name() -> str:
    """The context that docker's own command line uses if DOCKER_HOST is not set."""
    return os.environ.get("DOCKER_CONTEXT") or str(get_current_context_name())


def _context(name: str) -> Context:
    """Raises DockerException."""
    try:
        context = ContextAPI.get_context(name)
    except Exception as error:  # the SDK raises many kinds for an unreadable file
        raise DockerException(str(error)) from error
    if context is None:
        raise DockerException(f"docker has no context {name}; `docker context ls` lists them")
    return context


def _client(timeout_s: int, version: str) -> docker.DockerClient:
    """A client of the daemon at `address`, for a version of the API. Raises DockerException."""
    name = _context_name()
    if os.environ.get("DOCKER_HOST") or name == "default":
        return docker.from_env(timeout=timeout_s, version=version)
    context = _context(name)
    return docker.DockerClient(
        base_url=context.Host, tls=context.TLSConfig or False, timeout=timeout_s, version=version
    )


@contextlib.contextmanager
def in_words(doing: str) -> Iterator[None]:
    """Turn the SDK's exceptions into an InfraError that says what to do. `doing`: an infinitive, as "start the container"."""
    try:
        yield
    except ImageNotFound as error:
        raise ImageMissing(f"{error.explanation}: make it with `grader image build`") from None
    except (DockerException, requests.exceptions.RequestException, OSError) as error:
        raise InfraError(f"could not {doing}: {_why(error)}") from None


def _why(error: Exception) -> str:
    words = str(getattr(error, "explanation", None) or error)
    if isinstance(error, APIError):
        return f"the daemon's disk is full ({words}); `docker system prune`" if "no space left" in words else words
    if isinstance(error, requests.exceptions.Timeout):
        return f"the daemon at {address()} does not answer; restart it. {HELP}"
    if "ermission denied" in words:
        return f"this user may not talk to the daemon at {address()}; join the group docker. {HELP}"
    return f"no Docker daemon answers at {address()} ({words[:300]}); start it. {HELP}"


def build(
    source: Path, tag: str, arguments: Mapping[str, str], network: str | None, tell: Callable[[str], None]
) -> str:
    """Build the grading image from the Dockerfile of the checkout in `source`, with the checkout's course in it. Returns the image's
    digest, as `sha256:...`.

    Args:
        tag: the image's name, as `gpu-lab-grader` or `gpu-lab-grader:2026`.
        arguments: the build's arguments, by the names of the Dockerfile's ARGs.
        network: the network of the build's steps, as `host`; None is the daemon's default.
        tell: takes the builder's output, a line at a time.

    Raises:
        UsageError: there is no Dockerfile.
        InfraError: the daemon or the build failed.
    """
    if not (source / "Dockerfile").is_file():
        raise UsageError(f"{source}: has no Dockerfile; name a checkout of the grader with --course")
    with contextlib.closing(connect(BUILD_TIMEOUT_S)) as client, in_words("build the image"):
        steps = client.api.build(
            path=str(source),
            tag=tag,
            buildargs=dict(arguments),
            network_mode=network,
            rm=True,
            forcerm=True,
            decode=True,
        )
        for step in steps:
            if error := step.get("error"):
                raise InfraError(f"the image was not built: {str(error).strip()}")
            if words := str(step.get("stream") or step.get("status") or "").rstrip():
                tell(words)
        remember(tag)
        return client.images.get(tag).id or ""


@dataclass(frozen=True)
class ContainerGpu:
    """A container's access to one GPU: one of three ways, and the options of `docker create` for that way."""

    access: GpuAccess
    device_requests: list[DeviceRequest] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    binds: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


def gpu(info: Mapping[str, Any], wanted: str | None) -> ContainerGpu | None:
    """A container's access to a GPU of this daemon: by NVIDIA's toolkit, by CDI, or as device nodes and the driver's files.

    Args:
        info: the daemon's description of itself.
        wanted: UUID of the GPU; None takes the first.

    Returns:
        None if the daemon offers no GPU, as far as this process can tell.

    Raises:
        InfraError: there is no GPU of that UUID on this machine.
    """
    if "nvidia" in (info.get("Runtimes") or {}):
        request = DeviceRequest(device_ids=[wanted or "0"], capabilities=[["compute", "utility"]])
        return ContainerGpu("toolkit", device_requests=[request])
    discovered = sorted(str(one.get("ID", "")) for one in info.get("DiscoveredDevices") or ())
    for name in (one for one in discovered if one.startswith("nvidia.com/gpu=")):
        if not name.endswith("=all") if wanted is None else name.endswith(f"={wanted}"):
            return ContainerGpu("cdi", device_requests=[DeviceRequest(driver="cdi", device_ids=[name])])
    if not is_local() or not Path("/dev/nvidiactl").exists():
        return None
    nodes = [f"/dev/{name}" for name in (_node(wanted), *GPU_NODES) if Path("/dev", name).exists()]
    folders = [entry for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    folder = next((Path(one) for one in [*folders, *DRIVER_FOLDERS] if Path(one, DRIVER_FILES[0]).exists()), None)
    if folder is None:
        return None
    files = [folder / name for name in DRIVER_FILES if (folder / name).exists()]
    files += sorted(folder.glob("libnvidia-gpucomp.so.*"))
    return ContainerGpu(
        "nodes",
        devices=[f"{node}:{node}:rw" for node in nodes],
        binds=[f"{path.resolve()}:{DRIVER_PLACE}/{path.name}:ro" for path in files],
        environment={"LD_LIBRARY_PATH": DRIVER_PLACE},
    )


def is_local() -> bool:
    """Whether the daemon sees this machine's devices and files."""
    return address().startswith("unix://")


def _node(wanted: str | None) -> str:
    """The device node of a GPU, as `nvidia0`."""
    import pynvml

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0) if wanted is None else pynvml.nvmlDeviceGetHandleByUUID(wanted)
        return f"nvidia{pynvml.nvmlDeviceGetMinorNumber(handle)}"
    except pynvml.NVMLError as error:
        if wanted is None:
            return "nvidia0"
        raise InfraError(f"there is no GPU {wanted} on this machine ({error}); `nvidia-smi -L` lists them") from None

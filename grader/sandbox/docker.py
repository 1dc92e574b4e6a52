"""Runs a judge in a container, for strangers' code on shared machines.

The container has no network and no files of the host: the submission goes in over the judge's stdin and events come out over its
stdout, so a daemon on another machine serves as well. The root file system is read-only; written files lie in memory. The judge is
root in the container, with only the rights to start workers as another user and to end them; a worker is that other user and has no
rights. When the command line is gone, the judge's stdin ends, and with it the container.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
from docker import APIClient, DockerClient
from docker.models.images import Image
from docker.types import LogConfig, Ulimit

from grader.background import later
from grader.fingerprint import fingerprint
from grader.messages import MAX_EVENT_BYTES, Event, Place, Request
from grader.nvidia import driver_is_loaded
from grader.report.model import ContainerLimits, Report
from grader.sandbox import engine
from grader.sandbox.base import RUN_LIMIT_S, InfraError, UsageError, Watchdog, at_last, follow
from grader.submission import pack

T = TypeVar("T")

RUN_LABEL = "gpu-lab-grader.run"
DEADLINE_LABEL = "gpu-lab-grader.deadline"  # seconds since 1970
OWNER_LABEL = "gpu-lab-grader.owner"  # host, id and start time of the process that will remove the container
DEVICE_LABEL = "gpu-lab-grader.device"  # of the image: cpu or cuda
COURSE = Path("/opt/course")
FOLDER = Path("/run/grader")
CAPABILITIES = ("SETUID", "SETGID", "KILL")
PIDS = 1024
PIDS_PER_CPU = 16  # in addition, as many as a worker's user may have in addition (see `Worker`)
MAX_FILES_IN_MEMORY = 200_000  # in each folder in memory: an empty file takes a kilobyte, which no limit counts
SHARE_OF_MEMORY = 0.8
SCRATCH_SHARE = 0.25  # of the container's memory, for files
MAX_FILE_BYTES = 64 << 30  # an arena is a file in memory; where inputs are far apart, one of holes
STOP_LIMIT_S = 20
LOG_TAIL_BYTES = 4000
MAX_OUTPUT_BYTES = 256 << 20


class DockerSandbox:
    """A sandbox that is a container.

    Args:
        place: the requested image, device and limits.
    """

    def __init__(self, place: Place) -> None:
        self._log = b""
        self._stopping = False
        self._client = engine.connect()
        try:
            info, self._image = engine.in_time("look at the daemon", lambda: look_at(self._client, place.image))
            cores = own_cores(info, os.sched_getaffinity(0), os.cpu_count())
            self.limits = limits(place, info, cores)
            options = self._create_options(choose_gpu(place, self._image.labels, info), cores)
            self._id, self._attached = tried_twice(lambda: _start(self._client.api, options))
        except BaseException:
            self._client.close()
            raise
        self._socket = _socket_of(self._attached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                with contextlib.suppress(Exception):
                    self._client.api.wait(self._id, timeout=STOP_LIMIT_S)
            self._hang_up()
            self._attached.close()
            if kind is not None:
                self._client.api.timeout = STOP_LIMIT_S  # Ctrl-C must not wait for a daemon that hangs
            _remove(self._client.api, self._id)
        finally:
            self._client.close()

    def run(self, request: Request, on_event: Callable[[Event], None]) -> Report:
        """See `Sandbox.run`."""
        sent = {"files": pack(request.copied.folder), "fingerprint": fingerprint(request.course)}
        staged = request.copied.model_copy(update=sent | {"folder": FOLDER / "submission"})
        request = request.model_copy(update={"course": COURSE, "staged": staged})
        with Watchdog(self._hang_up, engine.silence) as watchdog:
            with contextlib.suppress(OSError):  # a judge that has ended says why, or its container does
                self._socket.sendall(request.model_dump_json().encode() + b"\n")
            report = follow(self._lines(), watchdog, on_event)
        if report is None and self._stopping:
            raise KeyboardInterrupt
        if watchdog.reason:
            raise InfraError(watchdog.reason)
        if report is None:
            raise InfraError(self._why_no_report())
        isolation = report.isolation.model_copy(update={"image": self._image.id, "limits": self.limits})
        return report.model_copy(update={"isolation": isolation})

    def stop(self) -> None:
        """See `Sandbox.stop`."""
        self._stopping = True
        later(lambda: self._client.api.kill(self._id, signal="SIGTERM"))
        at_last(self._hang_up)

    def _create_options(self, gpu: engine.ContainerGpu | None, cores: Sequence[int]) -> dict[str, Any]:
        device = "cpu" if gpu is None else "cuda"
        command = ["-P", "-m", "grader.judge", "1", str(FOLDER), device, "isolated", "docker"]
        memory = int(self.limits.memory_gib * 2**30)
        scratch = f"rw,exec,nosuid,nodev,size={int(memory * SCRATCH_SHARE)},nr_inodes={MAX_FILES_IN_MEMORY}"
        environment = {"TMPDIR": str(FOLDER), "HOME": str(FOLDER), "OMP_WAIT_POLICY": "passive"}
        most = {"fsize": MAX_FILE_BYTES, "core": 0, "nofile": 4096}
        owner = psutil.Process()
        name = f"grader-{secrets.token_hex(8)}"
        api = self._client.api
        return {
            "image": self._image.id,
            "name": name,
            "entrypoint": "python3",
            "command": command,
            "detach": False,
            "stdin_open": True,
            "user": "0:0",
            "working_dir": "/",
            "environment": environment | (gpu.environment if gpu else {}),
            "labels": {
                RUN_LABEL: name,
                DEADLINE_LABEL: str(int(time.time() + RUN_LIMIT_S + STOP_LIMIT_S)),
                OWNER_LABEL: f"{socket.gethostname()} {owner.pid} {owner.create_time()}",
            },
            "host_config": api.create_host_config(
                **confinement(gpu, self.limits.pids),
                read_only=True,
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=int(self.limits.cpus * 1e9),
                cpuset_cpus=",".join(map(str, cores)),
                ulimits=[Ulimit(name=name, soft=limit, hard=limit) for name, limit in most.items()],
                ipc_mode="private",
                shm_size=64 << 20,
                # The run's folder is not /tmp, because a worker may write to /tmp too.
                tmpfs={"/tmp": f"{scratch},mode=1777", str(FOLDER): f"{scratch},mode=0711"},
                init=True,
                log_config=LogConfig(type="none", config={}),  # the output is read over the socket
            ),
        }

    def _lines(self) -> Iterator[bytes]:
        """Lines of the judge's stdout. The end of its stderr goes to `self._log`."""
        line, total = bytearray(), 0
        for stream, data in self._frames():
            if stream == 2:
                self._log = (self._log + data)[-LOG_TAIL_BYTES:]
                continue
            total += len(data)
            line += data
            if len(line) > MAX_EVENT_BYTES or total > MAX_OUTPUT_BYTES:
                raise InfraError("the judge sent more than a report can be")
            while (end := line.find(b"\n")) >= 0:
                yield bytes(line[: end + 1])
                del line[: end + 1]

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """The engine's multiplexed stream (Engine API, "attach to a container"): the stream's number, stdout 1 or stderr 2, and bytes."""
        with contextlib.suppress(OSError), self._socket.makefile("rb") as file:  # a broken connection is an end too
            while len(header := file.read(8)) == 8:
                stream, size = struct.unpack(">BxxxL", header)
                while size > 0 and (data := file.read(min(size, 1 << 16))):
                    size -= len(data)
                    yield stream, data

    def _hang_up(self) -> None:
        """Close the connection: the judge ends with its stdin, and the reading of its events ends."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _why_no_report(self) -> str:
        with engine.in_words("see why the container ended without a report"):
            self._client.api.wait(self._id, timeout=STOP_LIMIT_S)
            state = self._client.api.inspect_container(self._id)["State"]
        if state.get("OOMKilled"):
            return (
                f"the container ran out of memory ({self.limits.memory_gib:g} GiB) and the judge was ended: "
                "give it more (--memory-gib), or grade this submission by itself"
            )
        words = state.get("Error") or self._log.decode(errors="replace")
        return f"the judge ended without a report (exit code {state.get('ExitCode')}); its last words:\n{words}"


def tried_twice(start: Callable[[], T]) -> T:
    """Start a container, with a second try: no code of the student's has run yet."""
    try:
        return start()
    except engine.ImageMissing:
        raise
    except InfraError:
        time.sleep(1)
        return start()


def _start(api: APIClient, options: dict[str, Any]) -> tuple[str, Any]:
    """Start a container; its id, and the stream of its input and output."""
    with engine.in_words("create the container"):
        number: str = api.create_container(**options)["Id"]
    try:
        with engine.in_words("start the container"):
            streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            attached = api.attach_socket(number, params=streams)
            _socket_of(attached).settimeout(None)
            api.start(number)
    except BaseException:
        _remove(api, number)
        raise
    return number, attached


def _socket_of(attached: Any) -> Any:
    return getattr(attached, "_sock", attached)


def _remove(api: APIClient, number: str) -> None:
    with contextlib.suppress(Exception):  # `grader cleanup` finds the container by its label
        api.remove_container(number, v=True, force=True)


def confinement(gpu: engine.ContainerGpu | None, pids: int = PIDS) -> dict[str, Any]:
    """The walls and the GPU of every container that the grader starts, as keyword arguments of `create_host_config`."""
    return {
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "cap_add": list(CAPABILITIES),
        "security_opt": ["no-new-privileges"],
        "pids_limit": pids,
        "device_requests": gpu.device_requests if gpu else None,
        "devices": gpu.devices if gpu else None,
        "binds": gpu.binds if gpu else None,
    }


def limits(place: Place, info: dict[str, Any], cores: Sequence[int]) -> ContainerLimits:
    """The container's limits on the daemon's machine.

    Args:
        info: the daemon's description of itself.
        cores: to which the container is bound; empty if it has all.
    """
    memory = float(info.get("MemTotal") or 0) / 2**30
    most = round(max(memory * SHARE_OF_MEMORY, 2.0), 1)
    count = int(info.get("NCPU") or os.cpu_count() or 1)
    return ContainerLimits(
        memory_gib=min(place.memory_gib or most, max(memory, 2.0)),
        cpus=min(place.cpus or float("inf"), float(len(cores) or count)),
        pids=PIDS + PIDS_PER_CPU * count,
    )


def own_cores(info: dict[str, Any], own: Collection[int], count: int | None) -> list[int]:
    """`own`, the cores of this process, where they are some of the daemon's (`taskset`, Slurm); empty: all, or another
    machine's. `count`: of this machine's cores.
    """
    return sorted(own) if info.get("NCPU") == count != len(own) else []


def choose_gpu(place: Place, labels: dict[str, str], info: dict[str, Any]) -> engine.ContainerGpu | None:
    """The GPU for a container of an image with these labels; None grades on the CPU.

    Raises:
        UsageError: a GPU is requested, and this image or this machine offers none.
    """
    if place.device == "cpu":
        return None
    if labels.get(DEVICE_LABEL) == "cpu":
        if place.device == "cuda":
            raise UsageError(
                f"the image {place.image} was built for CPUs; `grader image build --device cuda` makes another"
            )
        return None
    gpu = engine.gpu(info, place.gpu)
    if gpu is None and place.device == "cuda":
        raise UsageError(
            "--device cuda or --gpu: Docker has no GPU to give a container here; install NVIDIA's container toolkit, or use --device cpu"
        )
    return gpu


def look_at(client: DockerClient, image: str) -> tuple[dict[str, Any], Image]:
    """The daemon's description of itself, and the image of this name."""
    return client.info(), client.images.get(image)


def find(place: Place) -> None:
    """Check that the image is here, and that a container would get this machine's GPU, if there is one to grade on.

    Raises:
        InfraError: the daemon does not answer within `engine.LOOK_TIMEOUT_S`, or has no such image.
        UsageError: a container would not get the GPU.
    """
    with contextlib.closing(engine.connect(engine.LOOK_TIMEOUT_S)) as client:
        info, image = engine.in_time("look for the image", lambda: look_at(client, place.image), engine.LOOK_TIMEOUT_S)
    engine.remember(place.image)
    if choose_gpu(place, image.labels, info) is None and place.device == "auto" and driver_is_loaded():
        raise UsageError(
            f"a container of the image {place.image} gets no GPU, and this machine has one: `grader doctor` says why; "
            "--device cpu grades in a container without it, --sandbox host on this host with it"
        )

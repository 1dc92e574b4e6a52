"""How a container gets a GPU, and what the engine's errors become."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import socket
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from grader.grading import choose
from grader.messages import Place
from grader.sandbox import base, docker, engine
from grader.sandbox.base import InfraError, UsageError

UUID = "GPU-5e1f"
TOOLKIT = {"Runtimes": {"runc": {}, "nvidia": {"path": "nvidia-container-runtime"}}}
# The SDK leaves the sockets of failed connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
CDI = {"DiscoveredDevices": [{"ID": f"nvidia.com/gpu={one}"} for one in ("0", UUID, "all")]}


@pytest.mark.parametrize(
    ("info", "wanted", "access", "device"),
    [
        (TOOLKIT, UUID, "toolkit", UUID),
        (TOOLKIT, None, "toolkit", "0"),
        (CDI, UUID, "cdi", f"nvidia.com/gpu={UUID}"),
        (CDI, None, "cdi", "nvidia.com/gpu=0"),
    ],
)
def test_toolkit_and_cdi_are_asked_for_one_gpu(
    info: dict[str, Any], wanted: str | None, access: str, device: str
) -> None:
    gpu = engine.gpu(info, wanted)
    assert gpu is not None
    (request,) = gpu.device_requests
    assert (gpu.access, request["DeviceIDs"]) == (access, [device])
    assert request["Driver"] == ("cdi" if access == "cdi" else "")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a GPU and a driver, whose daemon knows neither toolkit nor CDI."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "libcuda.so.580.95").touch()
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.95")
    (folder / "libnvidia-ml.so.1").touch()
    there = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: str(path).startswith("/dev/nvidia") or there(path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    return folder


def test_without_toolkit_and_cdi_a_gpu_comes_in_as_nodes_and_the_drivers_files(driver: Path) -> None:
    gpu = engine.gpu({}, None)
    assert gpu is not None
    assert gpu.access == "nodes"
    assert gpu.devices == [f"/dev/{one}:/dev/{one}:rw" for one in ("nvidia0", *engine.GPU_NODES)]
    assert gpu.binds == [
        f"{driver}/libcuda.so.580.95:{engine.DRIVER_PLACE}/libcuda.so.1:ro",
        f"{driver}/libnvidia-ml.so.1:{engine.DRIVER_PLACE}/libnvidia-ml.so.1:ro",
    ]
    assert gpu.environment == {"LD_LIBRARY_PATH": engine.DRIVER_PLACE}


@pytest.mark.usefixtures("driver")
def test_nodes_are_not_there_for_a_daemon_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://node")
    assert engine.gpu({}, None) is None


@pytest.mark.usefixtures("driver")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(InfraError, match=r"no GPU GPU-5e1f .*nvidia-smi -L"):
        engine.gpu({}, UUID)


@pytest.mark.parametrize(
    ("device", "image", "info", "expected"),
    [
        ("cpu", "cuda", TOOLKIT, None),
        ("auto", "cuda", TOOLKIT, "toolkit"),
        ("cuda", "cuda", TOOLKIT, "toolkit"),
        ("auto", "cpu", TOOLKIT, None),
        ("auto", "cuda", {}, None),
        ("cuda", "cpu", TOOLKIT, UsageError("built for CPUs")),
        ("cuda", "cuda", {}, UsageError("container toolkit")),
    ],
)
def test_which_containers_get_a_gpu(
    device: Any, image: str, info: dict[str, Any], expected: str | UsageError | None
) -> None:
    refuses = isinstance(expected, UsageError)
    with pytest.raises(UsageError, match=str(expected)) if refuses else contextlib.nullcontext():
        gpu = docker.choose_gpu(Place(device=device), {docker.DEVICE_LABEL: image}, info)
        assert (gpu.access if gpu else None) == expected


@pytest.mark.parametrize(
    ("cores", "daemons", "asked", "expected", "cpus"),
    [
        (range(16), 16, None, [], 16),
        ([9, 1], 16, None, [1, 9], 2),
        ([9, 1], 16, 8, [1, 9], 2),
        ([9, 1], 16, 0.5, [1, 9], 0.5),
        ([9, 1], 64, None, [], 64),  # another machine's daemon
    ],
)
def test_a_container_keeps_to_the_cores_of_this_process(
    cores: Collection[int],
    daemons: int,
    asked: float | None,
    expected: list[int],
    cpus: float,
) -> None:
    info = {"NCPU": daemons}
    assert docker.own_cores(info, cores, 16) == expected
    assert docker.limits(Place(cpus=asked), info, expected).cpus == cpus


@pytest.mark.parametrize(
    ("place", "memory_gib"),
    [(Place(), 80), (Place(memory_gib=12, cpus=99), 12), (Place(memory_gib=float("inf")), 100)],
)
def test_limits_are_most_of_the_machine_or_what_is_asked_for(place: Place, memory_gib: float) -> None:
    found = docker.limits(place, {"MemTotal": 100 * 2**30, "NCPU": 16}, [])
    assert found.model_dump() == {"memory_gib": memory_gib, "cpus": 16, "pids": 1280}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImageNotFound("404", explanation="No such image: x"), "grader image build"),
        (APIError("500", explanation="write /x: no space left on device"), "disk is full"),
        (APIError("500", explanation="something odd"), "could not start it: something odd"),
        (requests.exceptions.ReadTimeout(), "does not answer; restart it"),
        (requests.exceptions.ConnectionError(), "no Docker daemon answers"),
        (DockerException("('Connection aborted.', PermissionError(13, 'Permission denied'))"), "join the group docker"),
        (BrokenPipeError(), "no Docker daemon answers"),
    ],
)
def test_the_engines_errors_say_what_to_do(error: Exception, words: str) -> None:
    with pytest.raises(InfraError, match=words), engine.in_words("start it"):
        raise error


def refused(reason: str = "DOCKER_HOST names a daemon", words: str = "could not") -> None:
    """See that `auto` does not grade on the host, for this reason, and that who insists does."""
    insist = "so nothing is graded on this host instead, unless --sandbox host says so"
    with pytest.raises(InfraError, match=f"{words}.*{reason}, {insist}"):
        choose(Place(sandbox="auto"))
    assert choose(Place(sandbox="host")) == "host"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the test's sockets before the next test, which would be failed for them: a thread that still ends keeps them."""
    before = set(threading.enumerate())
    gc.freeze()  # what is older is not looked at
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    gc.collect()
    gc.unfreeze()


@pytest.fixture
def hung_daemon(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A daemon that takes every connection and never says a word."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/hung.sock"
        listener.bind(path)
        listener.listen(8)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        yield


@pytest.mark.usefixtures("hung_daemon")
def test_a_hung_daemon_is_told_of_and_auto_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("TIMEOUT_S", "LOOK_TIMEOUT_S"):
        monkeypatch.setattr(engine, limit, 1)
    with pytest.raises(InfraError, match="does not answer; restart it"), docker.DockerSandbox(Place(sandbox="docker")):
        pass
    refused()


@pytest.fixture
def slow_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A daemon that has a byte for each read, and no answer: to everything, or only to what is asked at one address."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/slow.sock")
        listener.listen(8)
        slow, ended = [""], threading.Event()

        def answer(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                asked = client.recv(65536).decode()
                body = b'{"ApiVersion": "1.41"}'
                length = len(body) if slow[0] not in asked else 10**6
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
                if slow[0] not in asked:
                    client.sendall(body)
                while slow[0] in asked and not ended.wait(0.2):
                    client.sendall(b" ")

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/slow.sock")
        yield lambda address: slow.__setitem__(0, address)
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("slow", "words"),
    [("", "reach the Docker daemon"), ("/version", "reach the"), ("/info", "look at"), ("/images/", "look at")],
)
def test_a_daemon_that_sends_a_byte_now_and_then_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, slow_daemon: Callable[[str], None], slow: str, words: str
) -> None:
    slow_daemon(slow)
    for limit in ("TIMEOUT_S", "LOOK_TIMEOUT_S"):
        monkeypatch.setattr(engine, limit, 1)
    told = f"could not {words}.* has not given its answer within 2 s; restart it"
    with pytest.raises(InfraError, match=told), docker.DockerSandbox(Place(sandbox="docker")):
        pass
    refused()


@pytest.mark.timeout(30)
def test_a_daemon_that_stops_answering_in_the_middle_is_noticed_and_not_afterwards(
    monkeypatch: pytest.MonkeyPatch, slow_daemon: Callable[[str], None]
) -> None:
    monkeypatch.setattr(base, "ASK_S", 0.05)
    monkeypatch.setattr(engine, "PULSE_TIMEOUT_S", 1)
    slow_daemon("/slow alone")
    noticed = threading.Event()
    with base.Watchdog(noticed.set, engine.silence) as watchdog:
        assert not noticed.wait(1)
        assert not watchdog.reason
    slow_daemon("/_ping")
    assert not noticed.wait(1)
    with base.Watchdog(noticed.set, engine.silence) as watchdog:
        assert noticed.wait(10)
    assert "has not given its answer within 2 s" in watchdog.reason


@pytest.mark.parametrize(
    ("limit", "words"), [("SILENCE_LIMIT_S", "said nothing for 0.1 s"), ("RUN_LIMIT_S", "took more than 0.1 s")]
)
def test_a_judge_that_is_silent_or_has_no_end_is_ended(monkeypatch: pytest.MonkeyPatch, limit: str, words: str) -> None:
    monkeypatch.setattr(base, limit, 0.1)
    ended = threading.Event()
    with base.Watchdog(ended.set) as watchdog:
        assert ended.wait(30)
    assert words in watchdog.reason


@pytest.mark.timeout(30)
def test_whoever_builds_an_image_does_not_wait_for_an_hour_for_the_daemon(
    monkeypatch: pytest.MonkeyPatch, slow_daemon: Callable[[str], None]
) -> None:
    slow_daemon("/version")
    monkeypatch.setattr(engine, "TIMEOUT_S", 1)
    with pytest.raises(InfraError, match="within 2 s"):
        engine.connect(3600)


@pytest.mark.parametrize(
    "address",
    ["unix:///nowhere/docker.sock", "nonsense", "tcp://host:port", "tcp://host:99999", "tcp://[::1", "npipe://x"],
)
def test_auto_refuses_a_named_daemon_that_is_not_there(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Whoever has named it expects a container, and would not see that there was none."""
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(InfraError, match="no Docker daemon answers at"):
        engine.connect()
    refused(words="no Docker daemon answers at")


def context(folder: Path, name: str, host: str) -> None:
    """What `docker context create` and `docker context use` leave; no context, where the host is empty."""
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))
    if host:
        meta = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
        meta.mkdir(parents=True)
        told = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}
        (meta / "meta.json").write_text(json.dumps(told))


@pytest.fixture
def no_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a daemon and without a word of one: docker's own settings, and the grader's memory, lie in this folder."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    for name in ("DOCKER_CONFIG", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(engine, "SOCKETS", (str(tmp_path / "docker.sock"),))
    return tmp_path


@pytest.mark.parametrize(
    ("host", "words"), [("unix:///nowhere/rootless.sock", "at unix:///nowhere/rootless.sock"), ("", "no context mine")]
)
def test_auto_refuses_a_context_whose_daemon_is_not_there(
    monkeypatch: pytest.MonkeyPatch, no_docker: Path, host: str, words: str
) -> None:
    context(no_docker, "mine", host)
    refused("docker's context is mine", words)
    context(no_docker, "default", "")
    assert choose(Place(sandbox="auto")) == "host"
    monkeypatch.setenv("DOCKER_CONTEXT", "mine")
    refused("docker's context is mine", words)


def daemon_with(monkeypatch: pytest.MonkeyPatch, image: SimpleNamespace | Exception) -> None:
    """A daemon that answers, with this image or none."""

    def look(*_: object) -> tuple[dict[str, Any], SimpleNamespace]:
        if isinstance(image, Exception):
            raise image
        return {}, image

    monkeypatch.setattr(engine, "connect", lambda _limit_s: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(docker, "look_at", look)


NO_IMAGE = ImageNotFound("404", explanation="No such image: x")
OF_CPUS = SimpleNamespace(labels={docker.DEVICE_LABEL: "cpu"})


def test_an_image_that_was_here_once_is_expected(monkeypatch: pytest.MonkeyPatch, no_docker: Path) -> None:
    """Its daemon may have stopped since, or closed its socket to this user, or lost the image."""
    assert choose(Place(sandbox="auto")) == "host"
    (no_docker / "docker.sock").touch()
    with monkeypatch.context() as patched:
        daemon_with(patched, OF_CPUS)
        assert choose(Place(sandbox="auto", device="cpu")) == "docker"
        daemon_with(patched, NO_IMAGE)
        refused("the image gpu-lab-grader was here before", "No such image: x: make it with `grader image build`")
    refused("the image gpu-lab-grader was here before", "no Docker daemon answers")
    (no_docker / "docker.sock").unlink()
    refused("the image gpu-lab-grader was here before", "no Docker daemon answers")


def test_an_image_that_was_built_is_expected(monkeypatch: pytest.MonkeyPatch, no_docker: Path) -> None:
    (no_docker / "Dockerfile").touch()
    api = SimpleNamespace(build=lambda **_: [])
    images = SimpleNamespace(get=lambda _tag: SimpleNamespace(id="sha256:0"))
    client = SimpleNamespace(api=api, images=images, close=lambda: None)
    for image, words in (("course/image:2026", ""), ("gpu-lab-grader", "the image gpu-lab-grader was here before")):
        with monkeypatch.context() as patched:
            patched.setattr(engine, "connect", lambda _limit_s: client)
            engine.build(no_docker, image, {}, None, lambda _words: None)
        assert engine.why_image_is_expected("gpu-lab-grader") == words


@pytest.mark.usefixtures("no_docker")
def test_an_image_that_is_asked_for_is_expected() -> None:
    with pytest.raises(InfraError, match="the image mine is asked for, so nothing is graded on this host"):
        choose(Place(sandbox="auto", image="mine"))


def test_a_daemon_that_nobody_has_named_or_has_no_image_is_done_without_in_silence(
    monkeypatch: pytest.MonkeyPatch, no_docker: Path
) -> None:
    """A socket that was left behind, or is not for this user."""
    (no_docker / "docker.sock").touch()
    with monkeypatch.context() as patched:
        patched.setattr(engine, "connect", lambda _limit_s: (_ for _ in ()).throw(InfraError("no daemon")))
        assert choose(Place(sandbox="auto")) == "host"
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    daemon_with(monkeypatch, NO_IMAGE)
    assert choose(Place(sandbox="auto")) == "host"


@pytest.mark.usefixtures("no_docker")
def test_auto_does_not_leave_a_container_for_a_gpu_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/docker.sock")
    monkeypatch.setattr(docker, "driver_is_loaded", lambda: True)
    daemon_with(monkeypatch, OF_CPUS)
    with pytest.raises(UsageError, match=r"gets no GPU, and this machine has one: .*--sandbox host on this host"):
        choose(Place(sandbox="auto"))
    assert choose(Place(sandbox="auto", device="cpu")) == "docker"


@pytest.mark.parametrize(
    ("fault", "starts"), [(InfraError("not now"), 2), (engine.ImageMissing("no image"), 1)], ids=["any", "no image"]
)
def test_a_container_that_does_not_start_is_started_once_more_unless_its_image_is_missing(
    monkeypatch: pytest.MonkeyPatch, fault: InfraError, starts: int
) -> None:
    tries: list[int] = []

    def start() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise fault
        return "started"

    monkeypatch.setattr(docker.time, "sleep", lambda _seconds: None)
    with pytest.raises(InfraError) if starts == 1 else contextlib.nullcontext():
        assert docker.tried_twice(start) == "started"
    assert len(tries) == starts

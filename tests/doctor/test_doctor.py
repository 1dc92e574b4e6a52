"""What `grader doctor` says of machines of all kinds; their GPUs, daemons and kernels are stand-ins."""

from __future__ import annotations

import compileall
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from grader import doctor, grading, nvidia
from grader.doctor import containers, gpus, selftest, software, space, walls
from grader.doctor.finding import Finding, Unneeded, ask, show
from grader.doctor.gpus import Card, Driver
from grader.doctor.software import NoPyTorch, SeenSoftware
from grader.pool.jail import NO_JAIL, Jail
from grader.report.model import Isolation
from grader.sandbox import engine
from grader.sandbox.base import InfraError
from tests.conftest import ROOT

NAMES = (
    "Python", "PyTorch", "Triton", "C++ compiler", "nvcc",
    "NVIDIA driver", "GPU", "other GPU users", "shared memory",
    "bubblewrap", "user namespaces", "Docker", "grading image", "GPU in Docker",
    "free disk", "leftovers",
    "right kernel", "wrong kernel", "escape",
)  # fmt: skip
CPU = SeenSoftware(
    "2.13.0+cpu", None, None, "Torch not compiled with CUDA enabled", "3.7.1", "", None, None, "/usr/bin/g++"
)
GPU = SeenSoftware("2.13.0", "13.0", "sm_90", "", "3.7.1", "", None, "/usr/local/cuda/bin/nvcc", "/usr/bin/g++")
H200 = Card("NVIDIA H200", 139.8, 0.6)
DRIVER = Driver("580.65.06", (13, 0), (H200,))


def program(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def named(findings: Iterable[Finding], name: str) -> Finding:
    found = [one for one in findings if one.name == name]
    assert len(found) == 1, f"{len(found)} findings are named {name!r}"
    return found[0]


def assert_says(finding: Finding, state: str, words: str, mend: str) -> None:
    assert finding.state == state, finding
    assert words in finding.words, finding
    assert mend in finding.mend, finding
    assert (finding.state in ("caution", "fault")) <= bool(finding.mend), f"nothing says how to mend it: {finding}"
    assert finding.mend.count("`") % 2 == 0, finding


def table(*rows: tuple[Any, ...]) -> pytest.MarkDecorator:
    """A test for each row: what is given, and the name, state, words and mend of the finding that it must lead to."""
    cases = [(row[:-4], row[-4:]) for row in rows]
    return pytest.mark.parametrize(
        ("given", "says"), cases, ids=[f"{name}: {words}" for _, (name, _, words, _) in cases]
    )


def with_names(findings: Iterable[Finding], *names: str) -> dict[str, Finding]:
    """The findings of a look, by the names that they get; `Unneeded` is one for each name that is left."""
    found: list[Finding] = []
    try:
        found.extend(findings)
    except Unneeded as why:
        found += [Finding("unneeded", str(why))] * (len(names) - len(found))
    return dict(zip(names, found, strict=True))


def assert_finds(findings: Iterable[Finding], names: Sequence[str], says: tuple[str, str, str, str]) -> None:
    name, *told = says
    assert_says(with_names(findings, *names)[name], *told)


def looked_at(software: SeenSoftware | str) -> Future[SeenSoftware]:
    """A look at the software that sees this, or fails with these words."""
    future: Future[SeenSoftware] = Future()
    if isinstance(software, str):
        future.set_exception(NoPyTorch(software))
    else:
        future.set_result(software)
    return future


def refuses(error: Exception) -> Callable[..., None]:
    return lambda *_: (_ for _ in ()).throw(error)


# Other programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 1.0", (True, "1.0\n", "")),
        ("exit 3", (False, "", "exit code 3")),
        ("echo a >&2; echo last >&2; exit 1", (False, "", "last")),
        ("echo 'x.cu(1): error: first' >&2; echo '1 error detected' >&2; exit 1", (False, "", "x.cu(1): error: first")),
        ("exec sleep 60", (False, "", "did not finish within 0.5 s")),
    ],
)
def test_a_program_that_fails_is_told_in_one_line(tmp_path: Path, script: str, expected: tuple[bool, str, str]) -> None:
    assert ask([program(tmp_path, "it", script)], 0.5 if "sleep" in script else 10) == expected


# Python, PyTorch, Triton, compilers -----------------------------------------------------------------------------------


@table(
    (CPU, False, "PyTorch", "fine", "2.13.0+cpu, for CPUs", ""),
    (GPU, True, "PyTorch", "fine", "2.13.0, CUDA 13.0", ""),
    (replace(CPU, torch="2.10.0"), False, "PyTorch", "fault", "works with 2.11 to 2.13", "'torch>=2.11,<2.14'`"),
    (replace(CPU, torch="2.14.0a0+git1"), False, "PyTorch", "fault", "2.14.0a0", "'torch>=2.11,<2.14'`"),
    ("ImportError: libc10.so", False, "PyTorch", "fault", "ImportError: libc10.so", "bootstrap.sh"),
    ("ImportError: libc10.so", True, "nvcc", "unneeded", "PyTorch comes first", ""),
    ("did not finish within 60 s", False, "PyTorch", "caution", "60 s: it was not looked at", "slow is not broken"),
    (CPU, False, "Triton", "fine", "3.7.1, interpreted", ""),
    (GPU, True, "Triton", "fine", "3.7.1, compiled", ""),
    (replace(CPU, triton=None), False, "Triton", "fault", "is not installed", "'triton>=3.6,<3.9'`"),
    (replace(CPU, triton="3.9.0"), False, "Triton", "fault", "works with 3.6 to 3.8", "'triton>=3.6,<3.9'`"),
    (
        replace(CPU, triton="3.6.0", triton_fault="triton 3.6.0 runs on the CPU only with numpy below 2.4"),
        False, "Triton", "fault", "numpy below 2.4", "'numpy<2.4'`",
    ),
    (replace(CPU, triton_fault="cannot be imported"), False, "Triton", "fault", "imported", "'triton>=3.6,<3.9'`"),
    (CPU, False, "C++ compiler", "fine", "/usr/bin/g++", ""),
    (replace(CPU, cxx=None), False, "C++ compiler", "fault", "neither", "`sudo apt install g++`"),
    (CPU, False, "nvcc", "unneeded", "not needed without a GPU", ""),
    (replace(GPU, nvcc=None), True, "nvcc", "fault", "cannot be graded", "CUDA toolkit 13.0"),
)  # fmt: skip
def test_software(monkeypatch: pytest.MonkeyPatch, given: tuple[Any, ...], says: tuple[str, str, str, str]) -> None:
    monkeypatch.setattr(software, "ask", lambda *_: (True, "release 13.0, V13.0.88", ""))
    seen, on_gpu = given
    assert_finds(software.findings(looked_at(seen), on_gpu, 13), NAMES[1:5], says)


FAILS = "echo it fails >&2; exit 1"


@pytest.mark.parametrize(
    ("on_gpu", "driver_cuda", "trial", "beside", "state", "words", "mend"),
    [
        (True, 13, "exit 0", "gcc g++", "fine", "13.0.88, ", ""),
        (True, 0, "exit 0", "gcc g++", "fine", "13.0.88, ", ""),
        (True, 13, 'case "$*" in *-shared*-arch=sm_90*) ;; *) exit 1 ;; esac', "gcc g++", "fine", "13.0.88", ""),
        (False, 0, 'case "$*" in *-cubin*) ;; *) exit 1 ;; esac', "gcc g++", "fine", "tells what a kernel would use", ""),
        (True, 12, "exit 0", "gcc g++", "fault", "knows CUDA only up to 12", "CUDA toolkit 12"),
        (True, 13, "echo 'x: error: GNU version' >&2; exit 1", "gcc g++", "fault", "error: GNU version", "newer CUDA toolkit"),
        (False, 0, FAILS, "gcc g++", "caution", "cannot compile: it fails", "newer CUDA toolkit"),
        (True, 13, "exec /bin/sleep 60", "gcc g++", "caution", "did not finish within 1 s", "slow is not broken"),
        (True, 13, FAILS, "", "fault", "cannot compile without gcc and g++, which", "`sudo apt install g++`"),
        (True, 13, FAILS, "gcc", "fault", "cannot compile without g++, which", "`sudo apt install g++`"),
        (True, 13, FAILS, "NVCC_CCBIN", "fault", "cannot compile: it fails", "newer CUDA toolkit"),
    ],
)  # fmt: skip
def test_nvcc_is_tried_and_not_blamed_for_a_missing_compiler(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    on_gpu: bool,
    driver_cuda: int,
    trial: str,
    beside: str,
    state: str,
    words: str,
    mend: str,
) -> None:
    """`beside`: the compilers on the PATH, or the variable that names another."""
    nvcc = program(tmp_path, "nvcc", f'[ "$1" = --version ] && {{ echo "V13.0.88"; exit; }}\n{trial}')
    monkeypatch.delenv("NVCC_CCBIN", raising=False)
    for one in beside.split():
        program(tmp_path, one, "exit 0")
        if one.isupper():
            monkeypatch.setenv(one, "/opt/gcc/bin/g++")
    monkeypatch.setenv("PATH", str(tmp_path))
    if "sleep" in trial:
        monkeypatch.setattr(software, "COMPILE_LIMIT_S", 1)
    seen = replace(GPU if on_gpu else CPU, nvcc=nvcc)
    assert_says(list(software.findings(looked_at(seen), on_gpu, driver_cuda))[-1], state, words, mend)


@pytest.mark.parametrize(
    ("broken", "on_gpu", "name", "words"),
    [
        ("cxx", False, "C++ compiler", "cannot build a library: ld: no such library"),
        ("cc", True, "C++ compiler", "cannot build a library: ld: no such library"),
        ("ptxas", False, "Triton", "cannot assemble: ld: no such library"),
    ],
)
def test_a_tool_that_is_there_and_does_not_work_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, on_gpu: bool, name: str, words: str
) -> None:
    tool = program(tmp_path, broken, "[ \"$1\" = --version ] && exit; echo 'ld: no such library' >&2; exit 1")
    if broken == "cc":
        monkeypatch.setenv("CC", tool)
    seen = CPU if broken == "cc" else replace(CPU, **{broken: tool})
    assert_says(with_names(software.findings(looked_at(seen), on_gpu, 0), *NAMES[1:5])[name], "fault", words, "")


def test_python_needs_headers_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(software, "LARGE", ())
    monkeypatch.setattr(software.sysconfig, "get_path", lambda _name: str(tmp_path))
    assert_says(software.python(on_gpu=True), "fault", "without its headers", f"python3.{sys.version_info[1]}-dev`")
    assert_says(software.python(on_gpu=False), "fine", sys.executable, "")
    (tmp_path / "Python.h").touch()
    assert_says(software.python(on_gpu=True), "fine", sys.executable, "")


def test_packages_that_every_worker_compiles_anew_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, about = tmp_path / "slow", tmp_path / "slow-1.0.dist-info"
    for folder in (package, about):
        folder.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(software, "LARGE", ("slow", "no_such_package"))
    monkeypatch.setattr(software.sys, "pycache_prefix", str(tmp_path / "elsewhere"))  # where no worker looks
    mend = f"-m compileall -q -j 0 {package}`"
    assert_says(software.python(on_gpu=False), "caution", "without bytecode: slow,", mend)
    monkeypatch.setattr(software.sys, "pycache_prefix", None)
    assert compileall.compile_dir(package, quiet=1)
    assert software.python(on_gpu=False).state == "fine"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'Traceback:' >&2; echo 'ImportError: libcudart.so.13' >&2; exit 1", "ImportError: libcudart.so.13"),
        ("exec sleep 60", "did not finish within 0.5 s"),
    ],
)
def test_a_broken_pytorch_is_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "python", script))
    monkeypatch.setattr(software, "IMPORT_LIMIT_S", 0.5 if "sleep" in script else 10)
    with pytest.raises(NoPyTorch) as failed:
        software.look()
    assert failed.value.words == words


def test_the_known_versions_are_those_of_pyproject() -> None:
    listed = " ".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    for package, ((major, minor), (above, last)) in (("torch", software.TORCH), ("triton", software.TRITON)):
        assert f"{package}>={major}.{minor},<{above}.{last + 1}" in listed


# GPU, driver, other users, shared memory ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "kind", "node", "expected"),
    [
        ("0x10de", "0x030200", True, "driver"),
        ("0x10de", "0x030200", False, "card"),
        ("0x10de", "0x040300", False, "none"),  # a card's sound
        ("0x1002", "0x030000", False, "none"),
        ("", "", False, "none"),
    ],
)
def test_presence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, vendor: str, kind: str, node: bool, expected: str
) -> None:
    monkeypatch.setattr(nvidia, "DRIVER_NODES", (str(tmp_path) if node else "/nowhere",))
    device = tmp_path / "pci" / "0000:01:00.0"
    for name, text in {"vendor": vendor, "class": kind}.items() if vendor else ():
        device.mkdir(parents=True, exist_ok=True)
        (device / name).write_text(f"{text}\n")
    assert gpus.presence(tmp_path / "pci") == expected


class FakeNvml:
    """As much of pynvml as is asked: one card, with these processes; functions named in `silent` are not supported."""

    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3

    class NVMLError(Exception):
        pass

    def __init__(self, users: Iterable[tuple[int, int | None]] = (), mode: int = 0, silent: str = "") -> None:
        self.users, self.mode, self.silent = users, mode, silent
        self.shut = False

    def __getattr__(self, name: str) -> Callable[..., object]:
        answers: dict[str, object] = {
            "nvmlInit": None,
            "nvmlSystemGetCudaDriverVersion": 12040,
            "nvmlSystemGetDriverVersion": "550.54.15",
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=80 << 30, used=3 << 30),
            "nvmlDeviceGetComputeMode": self.mode,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.users],
            "nvmlDeviceGetName": "NVIDIA A100",
            "nvmlShutdown": None,
        }

        def call(*_arguments: object) -> object:
            if name in self.silent:
                raise self.NVMLError(f"{name} not supported")
            self.shut |= name == "nvmlShutdown"
            return answers[name]

        return call


def test_nvml_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml([(os.getpid(), 1 << 30), (1, 2 << 30), (2**22 + 1, None)], mode=3)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    seen = gpus.look()
    assert (seen.version, seen.cuda, seen.trouble) == ("550.54.15", (12, 4), "")
    card = seen.cards[0]
    assert (card.name, card.memory_gib, card.used_gib, card.exclusive) == ("NVIDIA A100", 80, 3, True)
    other, unseen = card.users  # this process is left out
    assert re.fullmatch(r"process 1 \(.+, .+, 2\.0 GiB\)", other)
    assert unseen == f"process {2**22 + 1} (not to be seen from here)"
    assert nvml.shut


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        ("nvmlInit", Driver(trouble="nvmlInit not supported")),
        ("nvmlDeviceGetCount", Driver(trouble="nvmlDeviceGetCount not supported")),
        (
            "nvmlDeviceGetComputeMode nvmlDeviceGetComputeRunningProcesses",
            Driver("550.54.15", (12, 4), (Card("NVIDIA A100", 80, 3),)),
        ),
    ],
)
def test_an_nvml_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, silent: str, expected: Driver) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(silent=silent))
    assert gpus.look() == expected


BUSY = replace(H200, used_gib=70, users=("process 12 (anna, python, 69.2 GiB)",))


@table(
    ("none", Driver(), CPU, "NVIDIA driver", "unneeded", "no NVIDIA GPU", ""),
    ("none", Driver(), CPU, "GPU", "unneeded", "correctness is graded on the CPU", ""),
    ("none", Driver(), CPU, "other GPU users", "unneeded", "no NVIDIA GPU", ""),
    ("card", Driver(), CPU, "NVIDIA driver", "caution", "no driver", "`sudo ubuntu-drivers install`"),
    ("card", Driver(), CPU, "GPU", "unneeded", "CPU", ""),
    ("driver", DRIVER, GPU, "NVIDIA driver", "fine", "580.65.06, CUDA up to 13.0", ""),
    ("driver", Driver(trouble="mismatch"), GPU, "NVIDIA driver", "caution", "does not answer: mismatch", "restart"),
    ("driver", DRIVER, GPU, "GPU", "fine", "NVIDIA H200, sm_90, 140 GiB", ""),
    ("driver", Driver(trouble="mismatch"), GPU, "GPU", "fine", "PyTorch uses, sm_90", ""),
    ("driver", replace(DRIVER, cards=(H200, H200)), GPU, "GPU", "fine", "the first of 2", ""),
    ("driver", DRIVER, CPU, "GPU", "fault", "build for CPUs", "--force-reinstall 'torch==2.13.0'`"),
    (
        "driver", DRIVER, replace(GPU, arch=None, gpu_fault="driver is too old"),
        "GPU", "fault", "driver is too old", "a driver that knows CUDA 13.0",
    ),
    (
        "driver", replace(DRIVER, cards=(replace(H200, exclusive=True),)), GPU,
        "GPU", "fault", "admits one process", "`sudo nvidia-smi --compute-mode=DEFAULT`",
    ),
    ("driver", DRIVER, "ImportError", "GPU", "unneeded", "PyTorch comes first", ""),
    ("driver", DRIVER, GPU, "other GPU users", "fine", "none", ""),
    ("driver", Driver(trouble="x"), GPU, "other GPU users", "caution", "unknown", "mend the driver first"),
    (
        "driver", replace(DRIVER, cards=(H200, BUSY)), GPU,
        "other GPU users", "caution", "GPU 1: process 12 (anna, python, 69.2 GiB)", "`nvidia-smi -L`",
    ),
    (
        "driver", replace(DRIVER, cards=(replace(BUSY, users=tuple("abcde")), H200)), GPU,
        "other GPU users", "caution", "GPU 0: a, b, c, 2 more", "`nvidia-smi -L`",
    ),
    (
        "driver", replace(DRIVER, cards=(replace(H200, used_gib=70),)), GPU,
        "other GPU users", "caution", "GPU 0: 70.0 GiB are taken", "--gpu UUID",
    ),
)  # fmt: skip
def test_gpus(given: tuple[Any, ...], says: tuple[str, str, str, str]) -> None:
    there, driver, seen = given
    assert_finds(gpus.findings(there, driver, looked_at(seen)), NAMES[5:8], says)


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("echo '\"\"'", "fine", "to a worker and back"),
        ("echo '\"cudaIpcGetMemHandle: cudaErrorNotSupported\"'", "fault", "cudaErrorNotSupported"),
        ("echo 'Segmentation fault' >&2; exit 139", "fault", "Segmentation fault"),
    ],
)
def test_memory_of_a_gpu_is_shared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, state: str, words: str
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "python", script))
    assert_says(gpus.shared_memory("driver"), state, words, "")


def test_memory_of_a_cpu_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_says(gpus.shared_memory("none"), "fine", "sealed", "")
    monkeypatch.setattr(gpus.fcntl, "fcntl", lambda *_: None)
    assert_says(gpus.shared_memory("none"), "fault", "does not seal", "kernel")

    def refuse(*_arguments: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(gpus.os, "memfd_create", refuse)
    assert_says(gpus.shared_memory("none"), "fault", "Function not implemented", "kernel")


# Bubblewrap and user namespaces ---------------------------------------------------------------------------------------


@table(
    ("bubblewrap", "bwrap", False, None, "bubblewrap", "fine", "0.8.0, confines", ""),
    ("bubblewrap", "bwrap", False, None, "user namespaces", "fine", "allowed", ""),
    ("bubblewrap", "bwrap", True, None, "user namespaces", "fine", "root needs none", ""),
    ("none", "", False, None, "bubblewrap", "caution", "nothing confines", "`sudo apt install bubblewrap`"),
    ("uid", "setpriv", True, None, "bubblewrap", "caution", "another user", "`sudo apt install bubblewrap`"),
    ("none", "bwrap", True, None, "bubblewrap", "caution", "lacks setpriv", "`sudo apt install util-linux`"),
    ("none", "bwrap", False, None, "bubblewrap", "caution", "No permissions", "the next line"),
    ("none", "unshare", False, None, "user namespaces", "fine", "allowed", ""),
    (
        "none", "bwrap", False, ("kernel/unprivileged_userns_clone", 0),
        "user namespaces", "caution", "kernel.unprivileged_userns_clone is 0", "unprivileged_userns_clone=1 | sudo tee",
    ),
    (
        "none", "bwrap", False, ("user/max_user_namespaces", 0),
        "user namespaces", "caution", "user.max_user_namespaces is 0", "max_user_namespaces=10000 | sudo tee",
    ),
    (
        "none", "bwrap", False, ("kernel/apparmor_restrict_unprivileged_userns", 1),
        "user namespaces", "caution", "apparmor_restrict_unprivileged_userns is 1", "/etc/apparmor.d/bwrap",
    ),
    (
        "none", "bwrap refusing-unshare", False, ("kernel/apparmor_restrict_unprivileged_userns", 0),
        "user namespaces", "caution", "in most containers", "--sandbox docker",
    ),
    (
        "none", "bwrap", False, None,
        "user namespaces", "caution", "could not be tried: there is no unshare", "`sudo apt install util-linux`",
    ),
)  # fmt: skip
def test_walls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: tuple[Any, ...], says: tuple[str, str, str, str]
) -> None:
    jail, programs, root, switch = given
    bwrap = "[ $1 = --version ] && { echo bubblewrap 0.8.0; exit; }\necho 'bwrap: No permissions to create' >&2; exit 1"
    scripts = {"bwrap": ("bwrap", bwrap), "refusing-unshare": ("unshare", "exit 1")}
    for one in programs.split():
        program(tmp_path, *scripts.get(one, (one, "exit 0")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(walls.os, "geteuid", lambda: 0 if root else 1000)
    if switch is not None:
        (tmp_path / switch[0]).parent.mkdir(parents=True)
        (tmp_path / switch[0]).write_text(f"{switch[1]}\n")
    assert_finds(walls.findings(Jail(jail), settings=tmp_path), NAMES[9:11], says)


# Docker ---------------------------------------------------------------------------------------------------------------


class FakeDaemon:
    """A daemon with an image for `device`, or with none."""

    def __init__(self, device: str | None, info: dict[str, Any]) -> None:
        self.device, self._info, self.api = device, info, SimpleNamespace()
        self.images = self

    def info(self) -> dict[str, Any]:
        return {"ServerVersion": "28.1", **self._info}

    def get(self, name: str) -> SimpleNamespace:
        if self.device is None:
            raise engine.ImageMissing(f"No such image: {name}")
        return SimpleNamespace(id="sha256:0123456789abcdef", labels={"gpu-lab-grader.device": self.device})

    def close(self) -> None:
        pass


FRESH, STALE, BARE = ('["print", [""]]', '["other", [""]]', '["print", ["setpriv: no"]]')
TOOLKIT = {"Runtimes": {"nvidia": {}}}
CDI = {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]}


@pytest.fixture
def docker_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Finding]]:
    """The findings where the daemon is this one, and containers answer so, without a GPU and with one."""
    monkeypatch.setattr(engine, "is_there", lambda: True)
    monkeypatch.setattr(engine, "address", lambda: "tcp://10.0.0.1:2375")
    monkeypatch.setattr(containers, "fingerprint", lambda _course: "print")

    def says(
        daemon: FakeDaemon, answer: str | InfraError, on_gpu: str | InfraError, there: gpus.Presence, name: str
    ) -> dict[str, Finding]:
        monkeypatch.setattr(engine, "connect", lambda _limit_s: daemon)

        def run(_client: object, _image: str, _program: str, gpu: object = None) -> str:
            given = answer if gpu is None else on_gpu
            if isinstance(given, InfraError):
                raise given
            return given

        monkeypatch.setattr(containers, "answer_of", run)
        return with_names(containers.findings(name, tmp_path, there, confined=False), *NAMES[11:14])

    return says


@table(
    ("cpu", {}, FRESH, "", "none", "grading image", "fine", "lab, sha256:0123456789ab, for CPUs", ""),
    ("cuda", {}, FRESH, "", "driver", "grading image", "fine", "for GPUs and CPUs", ""),
    ("cuda", {}, FRESH, "", "none", "grading image", "fine", "for GPUs and CPUs", ""),
    ("cpu", {}, STALE, "", "none", "grading image", "fault", "made of other files", "`grader image build --device cpu --tag lab`"),
    ("cpu", {}, BARE, "", "none", "grading image", "fault", "confines no worker (setpriv: no)", "`grader image build"),
    ("cpu", {}, FRESH, "", "driver", "grading image", "caution", f"there is a GPU: {containers.ON_HOST}", "--device cuda"),
    ("cpu", {}, InfraError("no such program"), "", "none", "grading image", "fault", "no such program", "`grader image build"),
    ("cpu", {}, "nonsense", "", "none", "grading image", "fault", "does not run", "`grader image build"),
    (None, {}, "", "", "none", "grading image", "fault", "lab is asked for, and is not", "`grader image build --device cpu --tag lab`"),
    (None, {}, "", "", "driver", "grading image", "fault", "lab is asked for, and is not", "--device cuda"),
    ("cuda", TOOLKIT, FRESH, "0\n", "driver", "GPU in Docker", "fine", "by NVIDIA's toolkit; CUDA starts", ""),
    ("cuda", CDI, FRESH, "0\n", "driver", "GPU in Docker", "fine", "by CDI; CUDA starts", ""),
    ("cpu", CDI, FRESH, "0\n", "driver", "GPU in Docker", "fine", "by CDI; not tried", ""),
    (None, CDI, FRESH, "0\n", "driver", "GPU in Docker", "fine", "by CDI; not tried", ""),
    ("cuda", TOOLKIT, FRESH, "100\n", "driver", "GPU in Docker", "fault", "error 100", "nvidia-ctk runtime configure"),
    ("cuda", CDI, FRESH, InfraError("no libcuda.so.1"), "driver", "GPU in Docker", "fault", "no libcuda.so.1", "nvidia-ctk"),
    ("cuda", {}, FRESH, "0\n", "driver", "GPU in Docker", "caution", "no way to pass it on", "nvidia-container-toolkit"),
    ("cuda", TOOLKIT, FRESH, "0\n", "none", "GPU in Docker", "unneeded", "no NVIDIA GPU", ""),
)  # fmt: skip
def test_the_image_and_the_gpu_in_docker(
    docker_says: Callable[..., dict[str, Finding]], given: tuple[Any, ...], says: tuple[str, str, str, str]
) -> None:
    device, info, answer, on_gpu, there = given
    found = docker_says(FakeDaemon(device, info), answer, on_gpu, there, "lab")
    name, *told = says
    assert_says(found[name], *told)
    assert_says(found["Docker"], "fine", "28.1 at tcp://10.0.0.1:2375", "")


def test_the_default_image_is_built_without_a_tag_and_a_gpu_may_be_device_nodes(
    monkeypatch: pytest.MonkeyPatch, docker_says: Callable[..., dict[str, Finding]]
) -> None:
    found = docker_says(FakeDaemon(None, {}), "", "", "none", "gpu-lab-grader")
    assert_says(found["grading image"], "unneeded", "there is no gpu-lab-grader: submissions are graded on", "build")
    assert found["grading image"].mend == "`grader image build --device cpu`"
    monkeypatch.setattr(engine, "gpu", lambda _info, _wanted: engine.ContainerGpu("nodes"))
    found = docker_says(FakeDaemon("cuda", {}), FRESH, "0\n", "driver", "lab")
    assert_says(found["GPU in Docker"], "fine", "as device nodes and the driver's files", "")


SILENT = f"could not reach the Docker daemon: no daemon answers; start it. {engine.HELP}"
FORBIDDEN = "could not reach the Docker daemon: this user may not talk to the daemon"
JOIN, START = "usermod -aG docker", "`sudo systemctl start docker`"


@pytest.mark.parametrize(
    ("error", "confined", "client", "words", "mend"),
    [
        ("", True, False, "is not here: submissions are graded on this host", ""),
        ("", True, True, "no daemon runs: submissions are graded on this host", ""),
        ("", False, False, "is not here", "`sudo apt install docker.io"),
        ("", False, True, "its client is here, and no daemon runs", START),
        (FORBIDDEN, True, False, "may not talk to the daemon: submissions are graded on this host", JOIN),
        (SILENT, True, False, "no daemon answers; start it: submissions are graded on this host", START),
    ],
)
def test_without_a_daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: str, confined: bool, client: bool, words: str, mend: str
) -> None:
    if client:
        program(tmp_path, "docker", "exit 1")
    for name in ("PATH", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(engine, "is_there", lambda: bool(error))
    monkeypatch.setattr(engine, "connect", refuses(InfraError(error)))
    monkeypatch.setattr(engine, "why_daemon_is_expected", lambda: "")
    look = partial(containers.findings, "gpu-lab-grader", tmp_path, "none", confined=confined)
    docker, *rest = with_names(look(), *NAMES[11:14]).values()
    assert_says(docker, "caution" if error else "unneeded", words, mend)
    assert bool(docker.mend) == bool(mend)
    assert rest == [Finding("unneeded", "no Docker")] * 2
    if error:
        engine.remember("gpu-lab-grader")
        assert_says(next(look()), "fault", "was here before, so nothing is graded without --sandbox host", mend)


@pytest.mark.parametrize(("free", "state"), [(100.0, "fine"), (3.0, "caution")])
def test_the_disk_of_docker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: float, state: str) -> None:
    monkeypatch.setattr(engine, "address", lambda: "unix:///run/docker.sock")
    monkeypatch.setattr(containers, "free_gib", lambda folder: free if folder == tmp_path else 0)
    found = containers.daemon_finding({"ServerVersion": "28.1", "DockerRootDir": str(tmp_path)})
    assert_says(found, state, f"{free} GiB", "prune" if state == "caution" else "")


# Disk and leftovers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "flags", "state", "words", "mend"),
    [
        (40, 0, "fine", "40.0 GiB", ""),
        (3, 0, "caution", "only 3.0 GiB", "TMPDIR"),
        (0.5, 0, "fault", "only 0.5 GiB", "TMPDIR"),
        (40, os.ST_NOEXEC, "fault", "noexec", "TMPDIR"),
    ],
)
def test_free_disk(monkeypatch: pytest.MonkeyPatch, free: float, flags: int, state: str, words: str, mend: str) -> None:
    monkeypatch.setattr(space, "free_gib", lambda _folder: free)
    monkeypatch.setattr(space.os, "statvfs", lambda _folder: SimpleNamespace(f_flag=flags))
    assert_says(next(space.findings()), state, words, mend)


@pytest.mark.parametrize(
    ("folders", "state", "words"),
    [([], "fine", "no killed run"), (["a"], "caution", "1 folder of"), (["a", "b"], "caution", "2 folders of")],
)
def test_leftovers(monkeypatch: pytest.MonkeyPatch, folders: list[str], state: str, words: str) -> None:
    monkeypatch.setattr(space.runfolder, "abandoned", lambda: folders)
    assert_says(list(space.findings())[-1], state, words, "`grader cleanup`" if folders else "")


# The self-test's judgement --------------------------------------------------------------------------------------------


def report(right: str = "passed", wrong: str = "failed", jail: str = "bubblewrap", **escapes: str) -> Any:
    outcomes = {"right": right, "wrong": wrong} | dict.fromkeys(selftest.REACHED, "failed") | escapes
    cases = [SimpleNamespace(name=name, outcome=one, message=f"{name}'s message") for name, one in outcomes.items()]
    return SimpleNamespace(
        assignments=[SimpleNamespace(parts=[SimpleNamespace(cases=cases)])],
        isolation=Isolation(jail=jail),  # type: ignore[arg-type]
        environment=SimpleNamespace(gpu=None),
    )


ALL = dict.fromkeys(selftest.REACHED, "passed")


@pytest.mark.parametrize(
    ("given", "name", "state", "words"),
    [
        (report(), "right kernel", "fine", "passes, on the CPU"),
        (report(), "wrong kernel", "fine", "fails"),
        (report(), "escape", "fine", "blocked by bubblewrap"),
        (report(right="skipped"), "right kernel", "fault", "skipped: right's message"),
        (report(wrong="passed"), "wrong kernel", "fault", "failed was expected, it is passed"),
        (report(files="passed"), "escape", "fault", "it read another user's file"),
        (report(processes="passed"), "escape", "fault", "it saw other processes"),
        (report(network="passed"), "escape", "fault", "it reached the network"),
        (report(jail="none", **ALL), "escape", "caution", "not blocked (unisolated): it read another user's file, saw"),
        (report(jail="uid", network="passed"), "escape", "caution", "not blocked (another user): it reached the net"),
        (report(jail="uid"), "escape", "caution", "not blocked (another user)"),
        (report(network="infra_error"), "escape", "fault", "infra error: network's message"),
        (report(files="timed_out", jail="none"), "escape", "caution", "timed out"),
        (report(right="timed_out"), "right kernel", "caution", "timed out"),
    ],
)
def test_what_the_self_test_says(given: Any, name: str, state: str, words: str) -> None:
    assert_says(with_names(selftest.judge(given), *NAMES[16:])[name], state, words, "")


# The whole ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks that take no time and find everything in order."""

    def fine(*names: str) -> Callable[..., Iterator[Finding]]:
        return lambda *_: (Finding("fine", "") for _name in names)

    monkeypatch.setattr(gpus, "presence", lambda: "none")
    monkeypatch.setattr(gpus, "look", Driver)
    monkeypatch.setattr(gpus, "findings", fine(*NAMES[5:8]))
    monkeypatch.setattr(software, "look", lambda: CPU)
    monkeypatch.setattr(software, "findings", fine(*NAMES[1:5]))
    monkeypatch.setattr(walls, "findings", fine(*NAMES[9:11]))
    monkeypatch.setattr(containers, "findings", fine(*NAMES[11:14]))
    monkeypatch.setattr(space, "findings", fine(*NAMES[14:16]))
    monkeypatch.setattr(doctor, "strongest_jail", lambda **_: NO_JAIL)


def breaks(error: Exception) -> Callable[..., Iterator[Finding]]:
    """A look that makes one finding before it fails."""

    def look(*_arguments: object) -> Iterator[Finding]:
        yield Finding("fine", "")
        raise error

    return look


FIRST = "not tried: PyTorch comes first"
NO_NVML = "could not be looked at: OSError: libnvidia-ml.so.1"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("module", "look", "instead", "expected"),
    [
        (selftest, "findings", lambda _jail: [Finding("fine", "")] * 3, {}),
        (
            containers, "findings", breaks(RuntimeError("first line\nmiddle\nlast line")),
            dict.fromkeys(NAMES[12:14], ("fault", "could not be looked at: RuntimeError: first line ... last line")),
        ),
        (gpus, "look", refuses(OSError("libnvidia-ml.so.1")), dict.fromkeys(NAMES[1:8], ("fault", NO_NVML))),
        (software, "look", refuses(NoPyTorch("ImportError")), dict.fromkeys(NAMES[16:], ("unneeded", FIRST))),
        (
            grading, "grade", refuses(OSError(28, "No space left on device")),
            {
                "right kernel": ("fault", "no judge could be started: [Errno 28] No space left on device"),
                **dict.fromkeys(NAMES[17:], ("unneeded", "not tried")),
            },
        ),
    ],
    ids=["nothing", "a look", "NVML", "PyTorch", "a judge"],
)  # fmt: skip
def test_what_breaks_costs_only_what_needs_it_and_findings_come_in_their_order(
    monkeypatch: pytest.MonkeyPatch, module: Any, look: str, instead: Any, expected: dict[str, tuple[str, str]]
) -> None:
    if module is not grading:
        monkeypatch.setattr(selftest, "findings", lambda _jail: [Finding("fine", "")] * 3)
    monkeypatch.setattr(module, look, instead)
    told: list[Finding] = []
    found = doctor.examine(ROOT, on_finding=told.append)
    assert told == found
    assert [one.name for one in found] == list(NAMES)
    assert {one.name: (one.state, one.words) for one in found if one.state != "fine"} == expected
    assert doctor.has_fault(found) == any(state == "fault" for state, _ in expected.values())


@pytest.mark.usefixtures("quick")
def test_a_look_that_hangs_does_not_hold_up_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    never: Future[None] = Future()
    monkeypatch.setattr(doctor, "LIMIT_S", 0.5)
    monkeypatch.setattr(walls, "findings", lambda *_: [never.result()])
    found = doctor.examine(ROOT, self_test=False)
    assert [one.name for one in found] == list(NAMES[:16])
    assert_says(named(found, "bubblewrap"), "caution", "no answer within 0.5 s", "slow is not broken")
    assert doctor.verdict(found).startswith("Nothing is broken, but this machine was too slow")
    assert named(found, "free disk").state == "fine"
    never.set_result(None)


def machine(**states: str) -> list[Finding]:
    """Findings that are all fine but these, named with _ for a space."""
    given = {name.replace("_", " "): state for name, state in states.items()}
    return [Finding(given.get(name, "fine"), "", "", name) for name in NAMES]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        (machine(), ["correctness and speed, on the GPU", "yes, in a container"]),
        (
            machine(GPU="unneeded", GPU_in_Docker="unneeded"),
            ["correctness, on the CPU; not speed", "yes, in a container"],
        ),
        (machine(GPU="unneeded", grading_image="unneeded"), ["Strangers' code: yes, in bubblewrap."]),
        (machine(grading_image="unneeded"), ["yes, in bubblewrap"]),
        (machine(GPU_in_Docker="caution"), ["yes, in bubblewrap"]),
        (machine(grading_image="caution", bubblewrap="caution"), ["Strangers' code: no"]),
        (machine(grading_image="unneeded", escape="caution"), ["Strangers' code: no"]),
        (machine(nvcc="fault", GPU="fault"), ["not ready: mend nvcc, GPU"]),
    ],
)
def test_the_verdict(findings: list[Finding], words: list[str]) -> None:
    said = doctor.verdict(findings)
    assert all(one in said for one in words), said
    assert doctor.has_fault(findings) == ("not ready" in said)


def test_a_finding_fits_a_narrow_terminal() -> None:
    console = Console(file=StringIO(), width=80, highlight=False)
    mend = "`" + "sudo something " * 12 + "`"
    show(Finding("caution", "forbidden " * 12 + "\x1b[2J [bold]", mend, "user namespaces"), console)
    show(Finding("unneeded", "none", "", "GPU"), console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("! user namespaces forbidden")
    assert lines[1].startswith("                  forbidden")
    assert [line for line in lines if "→" in line] == [f"    → {mend}"]  # in one piece, to be copied
    assert all(len(line) <= 80 for line in lines if "→" not in line)
    assert "\x1b" not in "".join(lines)
    assert "[bold]" in "".join(lines)
    assert lines[-1].startswith("– GPU             none")

"""Looks at the GPU, its driver, its other users, and the memory that a judge and a worker share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from grader.doctor.finding import Finding, Unneeded, ask, broken
from grader.doctor.software import PIP, SeenSoftware
from grader.nvidia import driver_is_loaded

Presence = Literal["none", "card", "driver"]
NVIDIA, DISPLAY = "0x10de", "0x03"  # PCI vendor, and the beginning of a display controller's class
USED_BY_NOBODY_GIB = 2.0  # firmware and driver take less, even on the largest cards
MOST_USERS = 3  # of a GPU in a finding's words
SHARE_LIMIT_S = 60.0
NO_GPU = "there is no NVIDIA GPU here"


@dataclass(frozen=True)
class Card:
    """A GPU as NVML sees it. users: other processes on the GPU, in words. exclusive: the GPU admits one process at a
    time.
    """

    name: str
    memory_gib: float
    used_gib: float
    exclusive: bool = False
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Driver:
    """The driver and the cards as NVML sees them. cuda: the newest release that the driver knows. trouble: why NVML failed, or ""."""

    version: str = ""
    cuda: tuple[int, int] = (0, 0)
    cards: tuple[Card, ...] = ()
    trouble: str = ""


def presence(devices: Path = Path("/sys/bus/pci/devices")) -> Presence:
    """`driver` if NVIDIA's driver is loaded, `card` if there is only a card."""
    if driver_is_loaded():
        return "driver"
    for device in devices.glob("*"):
        with contextlib.suppress(OSError):
            vendor, kind = ((device / name).read_text().strip() for name in ("vendor", "class"))
            if vendor == NVIDIA and kind.startswith(DISPLAY):
                return "card"
    return "none"


def look() -> Driver:
    """Ask NVML."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Driver(trouble=str(error))
    try:
        number = int(nvml.nvmlSystemGetCudaDriverVersion())
        cards = tuple(_card(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount()))
        return Driver(str(nvml.nvmlSystemGetDriverVersion()), (number // 1000, number % 1000 // 10), cards)
    except nvml.NVMLError as error:
        return Driver(trouble=str(error))
    finally:
        nvml.nvmlShutdown()


def _card(nvml: Any, handle: Any) -> Card:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    mode, running, users = None, [], []
    with contextlib.suppress(nvml.NVMLError):  # not supported by some cards
        mode = nvml.nvmlDeviceGetComputeMode(handle)
    with contextlib.suppress(nvml.NVMLError):
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ours = {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}
    for one in (one for one in running if one.pid not in ours):
        who = "not to be seen from here"  # a container hides other processes
        with contextlib.suppress(psutil.Error, KeyError):
            process = psutil.Process(one.pid)
            who = f"{process.username()}, {process.name()}"
        taken = "" if one.usedGpuMemory is None else f", {one.usedGpuMemory / 2**30:.1f} GiB"
        users.append(f"process {one.pid} ({who}{taken})")
    is_exclusive = mode == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
    name = str(nvml.nvmlDeviceGetName(handle))
    return Card(name, memory.total / 2**30, memory.used / 2**30, is_exclusive, tuple(users))


def findings(there: Presence, driver: Driver, looked: Future[SeenSoftware]) -> Iterator[Finding]:
    """NVIDIA driver, GPU and other GPU users."""
    if there == "none":
        yield Finding("unneeded", NO_GPU)
    elif there == "card":
        mend = (
            "Ubuntu: `sudo ubuntu-drivers install`; Debian: `sudo apt install nvidia-driver`; then restart the machine"
        )
        yield Finding("caution", "an NVIDIA GPU is here and no driver: only the CPU grades", mend)
    elif driver.trouble:
        mend = "restart the machine: after an update the old driver is still loaded; else install the driver anew"
        yield Finding("caution", f"does not answer: {driver.trouble}", mend)
    else:
        yield Finding("fine", f"{driver.version}, CUDA up to {driver.cuda[0]}.{driver.cuda[1]}")
    if there != "driver":
        yield Finding("unneeded", "none: correctness is graded on the CPU, speed is not")
        yield Finding("unneeded", NO_GPU)
        return
    yield _gpu(driver, looked)
    yield _others(driver)


def _gpu(driver: Driver, looked: Future[SeenSoftware]) -> Finding:
    try:
        seen = looked.result()
    except Unneeded as why:
        return Finding("unneeded", str(why))
    if seen.cuda is None:
        mend = f"`{PIP} --force-reinstall 'torch=={seen.torch.partition('+')[0]}'`"
        return Finding("fault", "is not used: this PyTorch is a build for CPUs", mend)
    if seen.arch is None:
        mend = f"`nvidia-smi` must list it; PyTorch {seen.torch} needs a driver that knows CUDA {seen.cuda}"
        return Finding("fault", f"PyTorch cannot use it: {seen.gpu_fault}", mend)
    if not driver.cards:
        return Finding("fine", f"one that PyTorch uses, {seen.arch}")
    first, *more = driver.cards
    words = f"{first.name}, {seen.arch}, {first.memory_gib:.0f} GiB"
    if first.exclusive:
        mend = "`sudo nvidia-smi --compute-mode=DEFAULT`"
        return Finding("fault", f"{words}: admits one process, and judge and worker are two", mend)
    if more:
        words += f"; the first of {1 + len(more)}: `grader run --gpu UUID` takes another"
    return Finding("fine", words)


def _others(driver: Driver) -> Finding:
    if driver.trouble:
        return Finding("caution", "unknown: the driver does not tell", "mend the driver first, see above")
    busy = []
    for number, card in enumerate(driver.cards):
        more = [f"{len(card.users) - MOST_USERS} more"] if len(card.users) > MOST_USERS else []
        if card.users:
            busy.append(f"GPU {number}: {', '.join([*map(str, card.users[:MOST_USERS]), *more])}")
        if not card.users and card.used_gib > USED_BY_NOBODY_GIB:
            busy.append(f"GPU {number}: {card.used_gib:.1f} GiB are taken by whom cannot be seen from here")
    if not busy:
        return Finding("fine", "none")
    mend = (
        "measure speed when they have ended, or on a free GPU: `grader run --gpu UUID`, as `nvidia-smi -L` lists them"
    )
    return Finding("caution", "; ".join(busy), mend)


def shared_memory(there: Presence) -> Finding:
    """Try the memory that a judge and a worker share: CUDA IPC on a GPU, a sealed file in memory on a CPU."""
    if there == "driver":
        done, output, words = ask([sys.executable, "-P", "-m", "grader.doctor.with_torch", "share"], SHARE_LIMIT_S)
        if fault := json.loads(output) if done else words:
            mend = "CUDA IPC is missing on WSL and in some virtual machines and containers: grade on the machine itself"
            return broken(f"a worker does not get at the judge's GPU memory: {fault}", mend)
        return Finding("fine", "CUDA IPC works, to a worker and back")
    try:
        file = os.memfd_create("grader-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(file, 0, mmap.PAGESIZE)
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            mmap.mmap(file, mmap.PAGESIZE).close()
            with contextlib.suppress(PermissionError):  # the seals forbid to shrink the file
                os.ftruncate(file, 0)
            fault = "" if os.fstat(file).st_size == mmap.PAGESIZE else "the kernel does not seal files in memory"
        finally:
            os.close(file)
    except OSError as error:
        fault = f"no file in memory can be made: {error}"
    if fault:
        return Finding("fault", fault, "grade on a Linux kernel of its own, 3.17 or newer")
    return Finding("fine", "sealed files in memory work")

"""The GPU as the judge sees it beside the workers: its clocks, who else uses it, how much memory calls take, and whether it is quiet."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch

from grader.contender.contender import Contender
from grader.judge.evidence import CaseRefused, CheckFailed
from grader.verdict.tally import Conditions

PROBE_BYTES = 64 << 20
PROBE_PASSES = 16
PROBES = 20
LOOK_NS = 6_000_000  # several times the turn that a GPU gives to each of its contexts
PAUSE_NS = 20_000  # a thread that does nothing but read the clock reads it thousands of times in this
AWAY = 0.25  # of the time: another process has half of it
COARSE = 0.98  # of the time: no neighbour has so much, but a clock that ticks more slowly than `PAUSE_NS` looks like one that has
# One thread reads the GPU's clock until `whole` ns are over, and adds up the times between two readings that are longer than `pause`:
# those in which its context did not have the GPU. This does not depend on how fast the GPU is, or was when it was first asked.
TIME_AWAY = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry time_away(.param .u64 result, .param .u64 whole_ns, .param .u64 pause_ns)
{
    .reg .pred away, on;
    .reg .u64 to, whole, pause, start, last, now, since, lost;
    ld.param.u64 to, [result];
    cvta.to.global.u64 to, to;
    ld.param.u64 whole, [whole_ns];
    ld.param.u64 pause, [pause_ns];
    mov.u64 start, %globaltimer;
    mov.u64 last, start;
    mov.u64 lost, 0;
again:
    mov.u64 now, %globaltimer;
    sub.u64 since, now, last;
    setp.gt.u64 away, since, pause;
    @away add.u64 lost, lost, since;
    mov.u64 last, now;
    sub.u64 since, now, start;
    setp.lt.u64 on, since, whole;
    @on bra again;
    st.global.u64 [to], lost;
    ret;
}
"""
PATIENCE_S = (0.02, 0.1, 0.5, 2.0)  # how long to wait for a busy GPU
QUIET_LOOKS = 3  # one after another
MAX_REPEATS = 3
DONE = "your function had returned and its stream was done"
MEMORY_INTERVAL_S = 0.001
NOISE = 1.6  # a GPU that is shared takes at least twice as long
NOISE_S = 200e-6


class Gauge:
    """Looks at a GPU through NVML, and with a small piece of work of its own. On a CPU, or not `measuring`, all is quiet.

    `usual_s` is what the judge's own piece of work takes on the quiet GPU. It is measured when the gauge is made, which must be before
    any of the student's code runs: nobody can make it longer then.
    """

    def __init__(self, device: torch.device, measuring: bool = True) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._work: torch.Tensor | None = None
        self._away: torch.Tensor | None = None  # nanoseconds
        self._time_away: Any = None  # the kernel, once it is loaded
        # The shortest time between two readings of the GPU's clock that counts as away; None where the clock is too coarse.
        self.pause_ns: int | None = None
        self.usual_s = 0.0
        self.cache_bytes = 0  # of the level that all multiprocessors share; 0 where there is no GPU
        if device.type == "cuda":
            self._open()
            self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        if device.type == "cuda" and measuring:
            self._work = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=device)
            self._away = torch.zeros(1, dtype=torch.int64, device=device)
            self.usual_s = self._shortest()
            self.pause_ns = self.find_pause()

    def look_again(self) -> None:
        """Measure once more: perhaps the judge's own piece of work takes less, where workers were starting at first."""
        if self._work is not None:
            self.usual_s = min(self.usual_s, self._shortest())
            if self.pause_ns != PAUSE_NS:
                found = self.find_pause()
                self.pause_ns = min((one for one in (found, self.pause_ns) if one is not None), default=None)

    def _shortest(self) -> float:
        return min(self.probe() for _ in range(PROBES))

    def _open(self) -> None:
        import pynvml

        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            self._nvml = None

    def conditions(self) -> Conditions:
        """Clocks and temperature now."""
        if self._nvml is None:
            return Conditions()
        nvml = self._nvml

        def ask(function: str, *arguments: int) -> int | None:
            try:
                return int(getattr(nvml, function)(self._handle, *arguments))
            except nvml.NVMLError:
                return None

        return Conditions(
            ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        )

    def others(self) -> list[int]:
        """Process ids of compute processes on this GPU that are not the judge's or its workers'.

        In a container the driver may tell ids that mean nothing inside: those that name no process here are left out.
        """
        return list(self.memory_of_others())

    def memory_of_others(self) -> dict[int, int | None]:
        """GPU memory, in bytes, of each of `others`, as far as the driver tells."""
        if self._nvml is None:
            return {}
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return {}
        ours = {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}
        return {one.pid: one.usedGpuMemory for one in running if one.pid not in ours and psutil.pid_exists(one.pid)}

    def is_quiet(self, thoroughly: bool = True) -> bool:
        """Whether no kernel of another process is running now, and none takes turns with the judge's.

        First a small piece of work, of half a millisecond on a large GPU, which waits for a kernel that is still running, must be done as
        fast as at first. Then, `thoroughly`, a kernel looks for 6 ms how long it does not have the GPU.
        """
        if self._work is None:
            return True
        limit_s = NOISE * self.usual_s + NOISE_S
        as_usual = any(self.probe() <= limit_s for _ in range(2))  # the host may have hiccups
        if not as_usual or not thoroughly or self.pause_ns is None:
            return as_usual
        return self.time_away_ns(self.pause_ns) <= AWAY * LOOK_NS

    def find_pause(self) -> int | None:
        """The GPU's clock ticks every 32 ns on an H200; how often elsewhere, nobody promises."""
        pauses = (PAUSE_NS, 10 * PAUSE_NS, 50 * PAUSE_NS)
        return next((pause for pause in pauses if self.time_away_ns(pause) < COARSE * LOOK_NS), None)

    def probe(self) -> float:
        assert self._work is not None
        started = time.perf_counter()
        for _ in range(PROBE_PASSES):
            self._work.bitwise_not_()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def time_away_ns(self, pause_ns: int) -> int:
        from cuda.bindings import driver

        assert self._away is not None
        if self._time_away is None:
            module = _done(driver.cuModuleLoadData(TIME_AWAY))
            self._time_away = _done(driver.cuModuleGetFunction(module, b"time_away"))
        arguments = (self._away.data_ptr(), LOOK_NS, pause_ns), (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
        stream = torch.cuda.current_stream().cuda_stream
        _done(driver.cuLaunchKernel(self._time_away, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
        return int(self._away.item())


def _done(answer: tuple[Any, ...]) -> Any:
    """What a call of the driver gives beside its status. Raises RuntimeError."""
    status, *found = answer
    if int(status) != 0:
        raise RuntimeError(f"the CUDA driver says {status!r}")
    return found[0] if found else None


class MemoryTaken:
    """GPU memory that a call takes: by how much the free memory fell at most, in MiB, from the most that was free.

    The driver tells, not the worker, whose own count could be wrong on purpose. Memory that was taken and given back between two looks, a
    millisecond apart, is missed; PyTorch's allocator keeps what it once took.
    """

    def __init__(self) -> None:
        self._free: list[int] = []  # bytes, the least and the most

    @property
    def mib(self) -> float:
        return (self._free[-1] - self._free[0]) / 2**20 if self._free else 0.0

    def look(self, device: torch.device) -> None:
        free = torch.cuda.mem_get_info(device)[0]
        self._free = [min([free, *self._free]), max([free, *self._free])]


@contextmanager
def memory_watched(device: torch.device, enabled: bool) -> Iterator[MemoryTaken]:
    """Look at the GPU's memory while the block runs; not where it is not `enabled`, nor on a CPU."""
    taken, ended = MemoryTaken(), threading.Event()
    if not enabled or device.type != "cuda":
        yield taken
        return

    def look() -> None:
        while not ended.wait(MEMORY_INTERVAL_S):
            taken.look(device)

    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    taken.look(device)
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield taken
    finally:
        ended.set()
        looking.join()
        taken.look(device)


def wait_for_quiet(gauge: Gauge, submission: Contender, was_running: bool, attempt: int) -> None:
    """Return when the GPU is quiet and the batch may be run again. Ends the submission to see whether the work was its own.

    Args:
        was_running: whether the submission had run. attempt: how often that batch was run, from 1.

    Raises:
        CheckFailed: the submission keeps the GPU busy.
        CaseRefused: another program does.
    """
    quiet = _becomes_quiet(gauge)
    if quiet and attempt <= MAX_REPEATS:
        return
    if not quiet and submission.lives():
        submission.kill()
        # The driver ends what a process has left running a little after the process.
        if not gauge.others() and _becomes_quiet(gauge):
            raise CheckFailed(f"kernels of your code still ran on the GPU after {DONE}")
    elif was_running:
        hint = "consistent with work on a stream or in a thread that nothing waits for"
        raise CheckFailed(f"again and again the GPU was still busy when {DONE}: {hint}")
    others = gauge.others()
    who = f" (processes {', '.join(map(str, others))})" if others else ""
    raise CaseRefused(f"another program is using this GPU{who}: no time measured now would be fair")


def _becomes_quiet(gauge: Gauge) -> bool:
    """Whether the GPU is quiet within a few seconds, and stays so: a neighbour that works now and then has quiet moments too."""
    for pause_s in PATIENCE_S:
        time.sleep(pause_s)
        if all(gauge.is_quiet() for _ in range(QUIET_LOOKS)):
            return True
    return False

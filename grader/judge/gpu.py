"""The GPU seen from the judge: clocks, other processes, memory that a call takes, and whether any kernel still runs."""

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

from grader.pool.fault import Fault
from grader.pool.worker import Worker

PROBE_BYTES = 64 << 20
PROBE_PASSES = 16
PROBES = 20
LOOK_NS = 6_000_000  # several turns of a GPU that runs contexts by turns
PAUSE_NS = 20_000  # two readings of a clock by a thread that does nothing else lie much closer
AWAY = 0.25  # of the time: beside another busy process it is half
COARSE = 0.98  # of the time: more means a clock that ticks slower than PAUSE_NS, not a neighbour
# One thread reads the GPU's clock for `whole` ns, and sums up all gaps longer than `pause`: in a gap the GPU ran
# another context. The sum does not depend on the speed of this GPU, nor on how busy it was when the gauge was made.
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
PATIENCE_S = (0.02, 0.1, 0.5, 2.0)  # waits for a busy GPU
QUIET_LOOKS = 3  # in a row
MAX_REPEATS = 3
DONE = "your function had returned and its stream was done"
MEMORY_INTERVAL_S = 0.001
NOISE = 1.6  # a shared GPU takes at least twice as long
NOISE_S = 200e-6


class Gauge:
    """Looks at a GPU through NVML, and with small kernels of the judge. On a CPU, or if not `measuring`, the GPU counts
    as quiet.

    Attributes:
        pause_ns: shortest gap between two readings of the GPU's clock that counts; None if the clock is too coarse.
        usual_s: time of the probe's kernels on a quiet GPU. Measured before any code of the student runs, so that
            nobody can raise it.
        cache_bytes: of the L2 cache; 0 without a GPU.
    """

    def __init__(self, device: torch.device, measuring: bool = True) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._work: torch.Tensor | None = None
        self._away: torch.Tensor | None = None  # nanoseconds
        self._time_away: Any = None  # the kernel TIME_AWAY, once loaded
        self.pause_ns: int | None = None
        self.usual_s = 0.0
        self.cache_bytes = 0
        if device.type == "cuda":
            self._open()
            self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        if device.type == "cuda" and measuring:
            self._work = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=device)
            self._away = torch.zeros(1, dtype=torch.int64, device=device)
            self.usual_s = self._shortest()
            self.pause_ns = self.find_pause()

    def look_again(self) -> None:
        """Measure `usual_s` and `pause_ns` again: starting workers may have disturbed the first time."""
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

    def clocks(self) -> dict[str, int | None]:
        """The GPU's clocks in MHz and its temperature in °C now, as `Round` has them; nothing if the driver does not tell."""
        if self._nvml is None:
            return {}
        nvml = self._nvml

        def ask(function: str, *arguments: int) -> int | None:
            try:
                return int(getattr(nvml, function)(self._handle, *arguments))
            except nvml.NVMLError:
                return None

        return {
            "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
            "temperature_c": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        }

    def others(self) -> list[int]:
        """Ids of other processes that compute on this GPU, without the judge and its workers.

        In a container the driver may report ids of the host. Ids without a process here are left out.
        """
        return list(self.memory_of_others())

    def memory_of_others(self) -> dict[int, int | None]:
        """GPU memory of each of `others` in bytes, None if the driver does not tell."""
        if self._nvml is None:
            return {}
        try:
            running = self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        except self._nvml.NVMLError:
            return {}
        ours = {os.getpid(), *(one.pid for one in psutil.Process().children(recursive=True))}
        return {one.pid: one.usedGpuMemory for one in running if one.pid not in ours and psutil.pid_exists(one.pid)}

    def is_quiet(self, thoroughly: bool = True) -> bool:
        """Whether no kernel of another process runs now.

        First the probe: kernels that queue behind a running kernel must be as fast as usual. Then, if `thoroughly`, a
        kernel watches for LOOK_NS how often the GPU runs another context.
        """
        if self._work is None:
            return True
        limit_s = NOISE * self.usual_s + NOISE_S
        as_usual = any(self.probe() <= limit_s for _ in range(2))  # twice, because the host may stall
        if not as_usual or not thoroughly or self.pause_ns is None:
            return as_usual
        return self.time_away_ns(self.pause_ns) <= AWAY * LOOK_NS

    def find_pause(self) -> int | None:
        """The shortest pause that this GPU's clock resolves; None if the clock is too coarse."""
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
    """The result of a call of the driver, without its status. Raises RuntimeError."""
    status, *found = answer
    if int(status) != 0:
        raise RuntimeError(f"the CUDA driver says {status!r}")
    return found[0] if found else None


class MemoryTaken:
    """GPU memory that a call takes: the largest free memory minus the least, in MiB.

    The driver gives the numbers, because a worker could report wrong ones. Memory that is taken and freed between two
    looks is missed; PyTorch's allocator keeps its memory, so such a call is rare.
    """

    def __init__(self) -> None:
        self._free: list[int] = []  # bytes: the least and the most

    @property
    def mib(self) -> float:
        return (self._free[-1] - self._free[0]) / 2**20 if self._free else 0.0

    def look(self, device: torch.device) -> None:
        free = torch.cuda.mem_get_info(device)[0]
        self._free = [min([free, *self._free]), max([free, *self._free])]


@contextmanager
def memory_watched(device: torch.device, enabled: bool) -> Iterator[MemoryTaken]:
    """Watch the GPU's memory while the block runs. Does nothing on a CPU or if not `enabled`."""
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


def wait_for_quiet(gauge: Gauge, submission: Worker, was_running: bool, attempt: int) -> None:
    """Wait until the GPU is quiet. If it stays busy, end the submission to see whether the kernels were the
    submission's.

    Args:
        was_running: whether the busy batch was the submission's.
        attempt: how often the batch has run, from 1.

    Raises:
        Fault: the submission keeps the GPU busy; the machine's if another program does, or one that has the GPU open may.
    """
    others = gauge.others()
    quiet = _becomes_quiet(gauge)
    if quiet and attempt <= MAX_REPEATS:
        return
    # Also those that have started meanwhile; but before the submission's process ends, which the driver may list for a while.
    others = sorted({*others, *gauge.others()})
    who = f" (processes {', '.join(map(str, others))})" if others else ""
    if not quiet and submission.lives():
        submission.kill()
        # The driver ends a killed process's kernels a little later than the process.
        if _becomes_quiet(gauge):
            found = f"kernels of your code still ran on the GPU after {DONE}"
            if not others:
                raise Fault.wrong(found)
            raise Fault.of_machine(
                f"{found}, or those of another program that has this GPU open{who}: nobody can tell whose"
            )
    elif was_running:
        hint = "consistent with work on a stream or in a thread that nothing waits for"
        raise Fault.wrong(f"again and again the GPU was still busy when {DONE}: {hint}")
    raise Fault.of_machine(f"another program is using this GPU{who}: no time measured now would be fair")


def _becomes_quiet(gauge: Gauge) -> bool:
    """Whether the GPU becomes quiet within a few seconds and stays so: a neighbour may pause between kernels."""
    for pause_s in PATIENCE_S:
        time.sleep(pause_s)
        if all(gauge.is_quiet() for _ in range(QUIET_LOOKS)):
            return True
    return False

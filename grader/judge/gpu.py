"""The GPU as the judge sees it beside the workers: its clocks, who else uses it, and whether it is quiet."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import Any

import psutil
import torch

PROBE_BYTES = 64 << 20
PROBE_PASSES = 16
LONG_S = 6e-3  # of work, several times the turn that a GPU gives to each of its contexts
NOISE = 1.6  # a GPU that is shared takes at least twice as long
NOISE_S = 200e-6


@dataclass(frozen=True)
class Conditions:
    """How the GPU stood at a moment; None where the driver does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None


class Gauge:
    """Looks at a GPU through NVML, and with a small piece of work of its own. On a CPU it knows nothing, and all is quiet.

    `usual_s` is what the judge's own piece of work takes on the quiet GPU; it is measured when
    the gauge is made, which must be while no submission's worker has anything to do. A program that works on the GPU then and never stops
    makes it longer, and is not told from a slower GPU. Where nothing is to be timed (`measuring`) it is not measured, and all is quiet.
    """

    def __init__(self, device: torch.device, measuring: bool = True) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._work: torch.Tensor | None = None
        self.usual_s = 0.0
        self.cache_bytes = 0  # of the level that all multiprocessors share; 0 where there is no GPU
        if device.type == "cuda":
            self._open()
            self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        if device.type == "cuda" and measuring:
            self._work = torch.zeros(PROBE_BYTES, dtype=torch.uint8, device=device)
            self.usual_s = min(self._probe(PROBE_PASSES) for _ in range(20))

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

        In a container the driver may tell ids that mean nothing inside; ids that name no process here are then left
        out, and `is_quiet` is the judge.
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

    def is_quiet(self) -> bool:
        """Whether work runs as fast as on an idle GPU: kernels of other processes would share its time.

        First a small piece, of half a millisecond on a large GPU, which has to wait for a kernel that is still running. Then a longer
        one: a GPU gives its contexts turns of a millisecond or two, and a small piece may fall into one of the judge's.
        """
        if self._work is None:
            return True
        pieces = max(1, math.ceil(LONG_S / self.usual_s))
        return self._is_as_usual(1) and self._is_as_usual(pieces)

    def _is_as_usual(self, pieces: int) -> bool:
        limit_s = NOISE * pieces * self.usual_s + NOISE_S
        return any(self._probe(pieces * PROBE_PASSES) <= limit_s for _ in range(2))  # the host may have hiccups

    def _probe(self, passes: int) -> float:
        assert self._work is not None
        started = time.perf_counter()
        for _ in range(passes):
            self._work.bitwise_not_()
        torch.cuda.synchronize()
        return time.perf_counter() - started

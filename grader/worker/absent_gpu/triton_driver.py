"""A driver for Triton that answers as the grading GPU's driver, and launches by interpreting."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import torch
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from grader.protocol import Gpu
from grader.worker.absent_gpu.tensors import GPU

MAX_THREADS = 1024  # CUDA allows no more threads in a block.
SIZED = 0x04  # An attribute of this form in `.nv.info` has a size; its value is a function's number and a count.
REGISTERS, FRAME_BYTES = 0x2F, 0x11


class Utils:
    """`driver.active.utils`."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def get_device_properties(self, _device: int) -> dict[str, int]:
        gpu = self._gpu
        return {
            "max_shared_mem": gpu.shared_bytes,
            "max_num_regs": gpu.registers,
            "multiprocessor_count": gpu.multiprocessors,
            "warpSize": gpu.warp,
            "sm_clock_rate": gpu.clock_khz,
            "mem_clock_rate": gpu.memory_clock_khz,
            "mem_bus_width": gpu.memory_bits,
        }

    def load_binary(self, _name: str, cubin: bytes, _shared: int, _device: int) -> tuple[int, int, int, int, int]:
        """Stand-ins for module and function; registers of a thread, spilled words, and the most threads of a block."""
        registers, frame = resources(cubin)
        return 1, 1, registers, frame // 4, min(MAX_THREADS, self._gpu.registers // max(1, registers) // 32 * 32)


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a thread: the most of any function in a kernel's cubin, an ELF file."""
    start, entry_bytes, count, names = (*struct.unpack_from("<Q", cubin, 40), *struct.unpack_from("<HHH", cubin, 58))
    # Of each section: name, type, flags, address, offset, size, link, info.
    sections = [struct.unpack_from("<IIQQQQII", cubin, start + number * entry_bytes) for number in range(count)]
    info = next(one for one in sections if cubin.startswith(b".nv.info\0", sections[names][4] + one[0]))
    at, end, most = info[4], info[4] + info[5], {REGISTERS: 0, FRAME_BYTES: 0}
    while at < end:
        form, attribute, size = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form == SIZED:
            if attribute in most:
                most[attribute] = max(most[attribute], *struct.unpack_from("<4xI", cubin, at))
            at += size
    return most[REGISTERS], most[FRAME_BYTES]


class Launcher:
    """Launches a compiled kernel by interpreting its twin; does nothing for a kernel without one."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self._src, self._options = src, {"num_warps": metadata.num_warps}

    def __call__(self, *arguments: Any) -> None:
        x, y, z, _stream, _function, _packed, _metadata, _enter, _exit, *given = arguments
        interpreted = getattr(self._src.fn, "interpreted", None)
        if interpreted is None:
            return
        names = interpreted.arg_names
        if len(given) != len(names):
            raise TypeError(
                f"{interpreted.__name__} takes {len(names)} arguments, also those it was compiled for: {len(given)} given"
            )
        constants = {place[0]: value for place, value in self._src.constants.items() if len(place) == 1}
        fixed = {names[number]: getattr(value, "interpreted", value) for number, value in constants.items()}
        interpreted.run(grid=(x, y, z), warmup=False, **self._options | dict(zip(names, given, strict=True)) | fixed)


class AbsentGpu:
    """Stands in for Triton's driver."""

    launcher_cls = Launcher

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.utils = Utils(gpu)
        major, minor = gpu.capability
        self._target = GPUTarget("cuda", 10 * major + minor, gpu.warp)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_device_capability(self, _device: Any = None) -> tuple[int, int]:
        return self.gpu.capability

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _device: int) -> None:
        """Does nothing: there is one device."""

    def get_current_stream(self, _device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return GPU

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """A benchmark for `triton.autotune`: compiles each configuration, and finds all equally fast."""

        def bench(launch: Callable[[], object], quantiles: list[float] | None = None, **_: Any) -> list[float]:
            launch()
            return [1.0] * len(quantiles or [0.5])

        return bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, _cache: Any) -> None:
        """Does nothing: there is no GPU with a cache."""


def _bench(fn: Callable[[], object], *_: Any, quantiles: Any = None, return_mode: str = "mean", **__: Any) -> Any:
    """In place of `triton.testing.do_bench`: times one run, because a run on the CPU takes as long as thousands on a GPU."""
    start = time.perf_counter()
    fn()
    taken = (time.perf_counter() - start) * 1e3
    if quantiles is not None:
        return [taken] * len(quantiles) if len(quantiles) > 1 else taken
    return [taken] if return_mode == "all" else taken


def provide(gpu: Gpu) -> None:
    """Make an `AbsentGpu` Triton's driver, and replace `triton.testing.do_bench`."""
    driver._default = AbsentGpu(gpu)
    driver.set_active(driver._default)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = _bench

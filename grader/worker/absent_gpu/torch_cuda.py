"""Replaces the names of `torch.cuda` by answers of the grading GPU.

Work on a CPU is done when a call returns. So a stream is always empty, and an event is a moment.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

from grader.protocol import Gpu
from grader.worker.absent_gpu.tensors import GPU, on_cpu
from grader.worker.errors import NeedsGpu

BLOCK_BYTES = 48 << 10  # A block that does not ask for more has this much shared memory.


class _Done:
    """Work that is always done."""

    def query(self) -> bool:
        return True

    def synchronize(self, *_: Any) -> None:
        """Nothing is left to wait for."""


class Stream(_Done):
    """A stream, whose work is always done."""

    device, device_index, stream_id, cuda_stream, priority = GPU, 0, 0, 0, 0
    wait_stream = wait_event = _Done.synchronize

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        on_cpu(device)
        self.priority = priority
        self._before: list[Stream] = []

    def __enter__(self) -> Stream:
        global _current
        self._before.append(_current)
        _current = self
        return self

    def __exit__(self, *_: object) -> None:
        global _current
        _current = self._before.pop()

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event


class Event(_Done):
    """A moment of the host's clock."""

    wait = _Done.synchronize

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at: float | None = None

    def record(self, _stream: Any = None) -> None:
        self._at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, above 0 because programs divide by them."""
        if self._at is None or end._at is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return max(1e-3, (end._at - self._at) * 1e3)


_default = _current = Stream()


class Device:
    """`torch.cuda.device(...)`: makes a device current in a block. There is only one device."""

    def __init__(self, device: Any = None) -> None:
        on_cpu(None if isinstance(device, int) and device < 0 else device)
        self.idx, self.prev_idx = 0, 0

    def __enter__(self) -> None:
        """The device is current already."""

    def __exit__(self, *_: object) -> None:
        """The device stays current."""


def _set_stream(stream: Stream) -> None:
    global _current
    _current = stream


@contextlib.contextmanager
def _range(*_: Any, **__: Any) -> Iterator[None]:
    """For a block, and as a decorator."""
    yield


def _of_device(result: Any) -> Callable[..., Any]:
    """A new function that returns `result`: torch.compile needs a different function for each name."""

    def answer(device: Any = None, *_: Any, **__: Any) -> Any:
        on_cpu(device)
        return result

    return answer


def _of_numbers(result: Any) -> Callable[..., Any]:
    return lambda *_, **__: result


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise NeedsGpu(f"torch.cuda.{name}")

    return refuse


def properties(gpu: Gpu) -> SimpleNamespace:
    """The value of `torch.cuda.get_device_properties`."""
    major, minor = gpu.capability
    return SimpleNamespace(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=gpu.memory_mib << 20,
        multi_processor_count=gpu.multiprocessors,
        warp_size=gpu.warp,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=gpu.threads,
        regs_per_multiprocessor=gpu.registers,
        shared_memory_per_block=BLOCK_BYTES,
        shared_memory_per_block_optin=gpu.shared_bytes,
        shared_memory_per_multiprocessor=gpu.shared_bytes_of_all,
        L2_cache_size=gpu.l2_mib << 20,
        clock_rate=gpu.clock_khz,
        memory_clock_rate=gpu.memory_clock_khz,
        memory_bus_width=gpu.memory_bits,
        is_integrated=0,
        is_multi_gpu_board=0,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        gcnArchName="",
        uuid="",
    )


def results(gpu: Gpu) -> dict[str, Any]:
    """The values of functions of torch.cuda, by name. The functions take a device, or arguments without effect here."""
    total = gpu.memory_mib << 20
    return {
        **dict.fromkeys(("is_available", "is_initialized", "is_tf32_supported"), True),
        **dict.fromkeys(("init", "_lazy_init", "synchronize", "set_device", "empty_cache", "ipc_collect")),
        **dict.fromkeys(("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")),
        **dict.fromkeys(("reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_sync_debug_mode")),
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), 0),  # nobody counts the bytes
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), 0),
        "memory_stats": Counter(),
        "memory_summary": "",
        "mem_get_info": (total, total),
        "is_bf16_supported": gpu.capability >= (8, 0),
        "device_count": 1,
        "current_device": 0,
        "utilization": 0,
        "is_current_stream_capturing": False,
        "get_sync_debug_mode": 0,
        "can_device_access_peer": False,
        "get_device_name": gpu.name,
        "get_device_properties": properties(gpu),
        "get_device_capability": gpu.capability,
        "get_arch_list": [gpu.arch],
    }


# Functions with other arguments, and classes.
OTHERS: dict[str, Any] = {
    **{name: _of_numbers(None) for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state")},
    "initial_seed": _of_numbers(0),
    "get_rng_state": lambda *_: torch.get_rng_state(),
    "get_rng_state_all": lambda: [torch.get_rng_state()],
    "set_rng_state_all": _of_numbers(None),
    "Stream": Stream,
    "ExternalStream": Stream,
    "get_stream_from_external": _of_numbers(Stream()),
    "Event": Event,
    "device": Device,
    "device_of": Device,
    "stream": lambda stream: stream or contextlib.nullcontext(),
    "StreamContext": lambda stream: stream or contextlib.nullcontext(),
    "set_stream": _set_stream,
    "current_stream": lambda *_, **__: _current,
    "default_stream": lambda *_, **__: _default,
    # These have no answer.
    **{name: _refusing(name) for name in ("CUDAGraph", "graph", "make_graphed_callables", "CUDAPluggableAllocator")},
    **{name: _refusing(name) for name in ("memory_snapshot", "power_draw", "temperature", "clock_rate")},
    **{name: _refusing(name) for name in ("cudart", "graph_pool_handle", "list_gpu_processes", "memory_usage")},
}
ACCELERATOR = {  # torch.accelerator
    "is_available": _of_numbers(True),
    "device_count": _of_numbers(1),
    "current_accelerator": _of_numbers(torch.device("cuda")),
    "current_device_index": _of_numbers(0),
    "synchronize": _of_numbers(None),
}
NVTX = {
    **{name: _of_numbers(0) for name in ("range_push", "range_pop", "range_start", "range_end", "mark")},
    "range": _range,
}


def provide(gpu: Gpu) -> None:
    """Patch torch.cuda, with modules whose names it has too, torch.cuda.nvtx and torch.accelerator to answer as this GPU."""
    cuda = {name: _of_device(result) for name, result in results(gpu).items()} | OTHERS
    for module, known in ((torch.cuda, cuda), (torch.cuda.nvtx, NVTX), (torch.accelerator, ACCELERATOR)):
        for name, answer in known.items():
            setattr(module, name, answer)
    for module in (torch.cuda.memory, torch.cuda.streams, torch.cuda.profiler):
        for name in vars(module).keys() & cuda.keys():
            setattr(module, name, cuda[name])

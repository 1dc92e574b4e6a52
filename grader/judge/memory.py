"""GPU memory that a call takes, as the driver sees it."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import torch

INTERVAL_S = 0.001


class DeviceMemoryWatch:
    """Measures by how much the GPU's free memory fell at most, in MiB, while the `with` block ran.

    Counted from the most that was free, for a worker may give back old memory before it takes new.

    It asks the driver, not the worker, whose own count could be wrong on purpose. Memory that was taken and given
    back between two looks, a millisecond apart, is missed; PyTorch's allocator keeps what it once took.
    """

    def __init__(self, device: torch.device, enabled: bool) -> None:
        self._device = device
        self._enabled = enabled and device.type == "cuda"
        self._stop = threading.Event()
        self._lowest = self._highest = 0
        self._thread = threading.Thread(target=self._look, daemon=True)

    @property
    def extra_mib(self) -> float:
        return (self._highest - self._lowest) / 2**20

    def __enter__(self) -> DeviceMemoryWatch:
        if self._enabled:
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()
            self._lowest = self._highest = torch.cuda.mem_get_info(self._device)[0]
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._enabled:
            self._stop.set()
            self._thread.join()
            self._note()

    def _look(self) -> None:
        while not self._stop.is_set():
            self._note()
            time.sleep(INTERVAL_S)

    def _note(self) -> None:
        free = torch.cuda.mem_get_info(self._device)[0]
        self._lowest, self._highest = min(self._lowest, free), max(self._highest, free)

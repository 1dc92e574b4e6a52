"""Whether an NVIDIA driver is there, without asking it: CUDA takes seconds to start."""

from __future__ import annotations

from pathlib import Path

DRIVER_NODES = ("/dev/nvidiactl", "/dev/dxg")  # the second on WSL


def driver_is_loaded() -> bool:
    return any(Path(node).exists() for node in DRIVER_NODES)

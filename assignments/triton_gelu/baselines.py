"""The baselines that a submission is timed against: plain PyTorch, with the arguments of a student's function."""

from __future__ import annotations

import math

import torch


def eager(x: torch.Tensor) -> torch.Tensor:
    """tanh-form GeLU in one fused kernel. x: any shape."""
    return torch.nn.functional.gelu(x, approximate="tanh")


def unfused(x: torch.Tensor) -> torch.Tensor:
    """The formula as it stands: each operation is a kernel of its own, which reads and writes whole tensors."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

"""The yardsticks (copy, matmul), which show a machine's limits, and the null worker. Each takes a student's
function's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grader.protocol import MATRIX

NOTHING = object()


def null(*_arguments: Any) -> Any:
    """Compute nothing. The time of its batch is the cost of handing inputs over and collecting outputs."""
    return NOTHING


def copy(*arguments: Any) -> torch.Tensor:
    """Copy the first argument: reads and writes as many bytes as an elementwise function must."""
    result: torch.Tensor = arguments[0].clone()
    return result


class MatrixProduct:
    """A bfloat16 product of two 8192 × 8192 matrices, 2 · 8192³ FLOPs, whatever the arguments."""

    def __init__(self) -> None:
        self._factors = [torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def __call__(self, *_arguments: Any) -> torch.Tensor:
        return self._factors[0] @ self._factors[1]


def load(name: str) -> Callable[..., Any]:
    return MatrixProduct() if name == "matmul" else {"null": null, "copy": copy}[name]

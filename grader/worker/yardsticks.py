"""Contenders that stand for a machine's limits instead of an answer. They take what a student's function takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from grader.protocol import MATRIX

NOTHING = object()


def null(*_arguments: Any) -> Any:
    """Nothing at all. What a batch of it takes is what handing over inputs and collecting outputs takes."""
    return NOTHING


def copy(*arguments: Any) -> torch.Tensor:
    """A device copy: reads and writes once as many bytes as an elementwise function must, and computes nothing."""
    result: torch.Tensor = arguments[0].clone()
    return result


class MatrixProduct:
    """One bfloat16 product of two 8192 × 8192 matrices, 2 · 8192³ FLOPs, whatever it is given."""

    def __init__(self) -> None:
        self._factors = [torch.randn(MATRIX, MATRIX, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def __call__(self, *_arguments: Any) -> torch.Tensor:
        return self._factors[0] @ self._factors[1]


def load(name: str) -> Callable[..., Any]:
    return MatrixProduct() if name == "matmul" else {"null": null, "copy": copy}[name]

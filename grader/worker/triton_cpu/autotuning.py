"""Chooses a configuration for autotuned kernels in Triton's interpreter, which has no GPU to time them on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from triton.runtime.autotuner import Autotuner

from grader.worker.triton_cpu import checking


def provide() -> None:
    """Let `triton.autotune` choose the first configuration that pruning leaves.

    A kernel with atomics runs twice, unless it is traced: a GPU's tuning runs add to the output too, which shows where
    `reset_to_zero` is missing.
    """

    def bench(tuner: Any, launch: Callable[[], object], quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
        updates = any(name.startswith("atomic_") for name in tuner.base_fn.__code__.co_names)
        if updates and not checking.checker.traces and getattr(tuner, "tried", None) is not tuner.nargs:
            tuner.tried = tuner.nargs  # a new dict in each launch
            launch()
        return [1.0] * len(quantiles)

    Autotuner.do_bench = property(lambda tuner: functools.partial(bench, tuner))

"""Triton's CPU interpreter: how many kernels of the submission a call has launched, and a choice for those that would be tuned."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from grader.worker.errors import place_in


class LaunchWatch:
    """While it is on, counts launches of kernels that are written in the submission; `count` stays 0 without the interpreter."""

    def __init__(self) -> None:
        self.count = 0
        self._run: Callable[..., Any] | None = None

    def __enter__(self) -> LaunchWatch:
        try:
            from triton.runtime.interpreter import InterpretedFunction
        except ImportError:
            return self  # without Triton
        run = self._run = InterpretedFunction.run

        def counted(function: Any, *arguments: Any, **options: Any) -> Any:
            if place_in(function.fn.__code__.co_filename, 1):
                self.count += 1
            return run(function, *arguments, **options)

        InterpretedFunction.run = counted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            from triton.runtime.interpreter import InterpretedFunction

            InterpretedFunction.run = self._run


def take_the_first_configuration() -> None:
    """Have `triton.autotune` choose the first configuration that is left: there is no GPU to measure them on."""
    from triton.runtime.autotuner import Autotuner

    def bench(_launch: Callable[[], object], quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
        return [1.0] * len(quantiles)

    Autotuner.do_bench = property(lambda _: bench)

"""What a call asks of the interpreter that runs its kernels on a CPU. This one is none: `triton_cpu/` puts its own here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from grader.protocol import LaunchedKernel


class Interpreter:
    """Checks a call's kernels and its memory. Here nothing is checked, and no launch is counted.

    Attributes:
        run_operator: the function to call in place of each PyTorch operator of the call (see `OperatorWatch`), or None.
        launches: how often the call has launched kernels of the submission's.
        launched: the call's first launches.
    """

    __slots__ = ()

    run_operator: Callable[..., Any] | None = None
    launches: int = 0
    launched: tuple[LaunchedKernel, ...] = ()

    def begin_call(self, arena: Any, tensors: Sequence[Any]) -> None:
        """Begin a call.

        Args:
            arena: the whole arena, as a tensor.
            tensors: the call's inputs and upstream gradients in the arena, which no kernel may change.
        """

    def tracer(self, _arena: Any, _traffic: Any) -> Any:
        """A `triton_cpu.tracing.Tracer` for a traced call, or None."""
        return None

    def finding(self, _results: Sequence[Any]) -> str:
        """Words about results whose elements the host wrote last; "" if there are none."""
        return ""

    def raise_fault(self) -> None:
        """Raise the call's first KernelFault again, because the submission may have caught it."""


# Set once, before a submission is loaded: the guard watches names in capitals.
INTERPRETER = Interpreter()

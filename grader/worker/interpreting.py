"""Triton's CPU interpreter: how many kernels of the submission a call has launched, the grids that a GPU refuses, a choice for
kernels that would be tuned, and what else it lacks for right ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from grader.worker.errors import place_in

CONSTANTS_OPERATORS = [
    f"__{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"),
        *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "gt", "ge", "lt", "le", "eq", "ne"),
    )
]
OnLaunch = Callable[[str, tuple[int, ...], dict[str, Any]], None]
GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA's, for the axes 0, 1 and 2 of a grid


class GridTooLarge(RuntimeError):
    """No GPU launches so many programs along one axis of a grid; the message names kernel, axis, number and limit."""


def check_grid(kernel: str, grid: Sequence[int]) -> tuple[int, ...]:
    """The grid of a launch, one to three numbers of programs. A grid with a 0 in it launches nothing, on a GPU too.

    Raises:
        GridTooLarge: an axis has more programs than CUDA allows.
    """
    for axis, (programs, limit) in enumerate(zip(grid, GRID_LIMITS, strict=False)):
        if programs > limit and 0 not in grid:
            raise GridTooLarge(
                f"{kernel} is launched with {programs} programs along axis {axis} of its grid; a GPU allows {limit} there: "
                "put the large number on axis 0"
            )
    return tuple(grid)


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

        def counted(function: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:
            if not warmup and place_in(function.fn.__code__.co_filename, 1):
                self.count += 1
            return run(function, *arguments, warmup=warmup, **options)

        InterpretedFunction.run = counted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._run is not None:
            from triton.runtime.interpreter import InterpretedFunction

            InterpretedFunction.run = self._run


class MemoryChecks:
    """The checks of what the kernels of a call do to memory (`triton_cpu/checker.py`); nothing where Triton is not interpreted.

    Args:
        arena: the judge's memory with all its tensors, as a tensor.
        tensors: those of them that belong to the call, which nobody may change.
    """

    @staticmethod
    def install() -> None:
        """Have each access of a kernel checked from here on, and the grid of each launch."""
        from grader.worker.triton_cpu import checking

        checking.provide()
        refuse_grids_that_a_gpu_refuses(checking.begin_launch)
        MemoryChecks._checking = checking

    _checking: Any = None

    def __init__(self, arena: Any, tensors: Sequence[Any]) -> None:
        if self._checking is not None:
            self._checking.begin_call(arena, tensors)

    @property
    def after_operator(self) -> Callable[..., None] | None:
        """To be told of each operator of PyTorch that has run in the call."""
        return None if self._checking is None else self._checking.memory.after_operator

    def raise_fault(self) -> None:
        """Raise the first fault of the call again, for the submission may have caught it. Raises KernelFault."""
        if self._checking is not None and self._checking.checker.fault is not None:
            raise self._checking.checker.fault


def refuse_grids_that_a_gpu_refuses(on_launch: OnLaunch = lambda *_: None) -> None:
    """Have the interpreter check the grid of each launch (`check_grid`); it would run any number of programs along any axis.

    on_launch: is told of each launch before its first program runs: kernel, grid, and the arguments by the names of the parameters.
    """
    from triton.runtime.interpreter import GridExecutor

    execute = GridExecutor.__call__

    def checked(executor: Any, *arguments: Any, **options: Any) -> Any:
        kernel, grid = executor.fn.__name__, executor.grid

        def begin(bound: dict[str, Any]) -> tuple[int, ...]:
            chosen = check_grid(kernel, grid(bound) if callable(grid) else grid)
            on_launch(kernel, chosen, bound)
            return chosen

        executor.grid = begin
        return execute(executor, *arguments, **options)

    GridExecutor.__call__ = checked


def take_the_first_configuration() -> None:
    """Have `triton.autotune` choose the first configuration that is left: there is no GPU to measure them on."""
    from triton.runtime.autotuner import Autotuner

    def bench(_launch: Callable[[], object], quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
        return [1.0] * len(quantiles)

    Autotuner.do_bench = property(lambda _: bench)


def let_a_constant_come_first() -> None:
    """Have `C * x` be a tensor where C is a `tl.constexpr`, as it is on a GPU: the interpreter would make it a constant again."""
    import triton.language as tl

    for name in CONSTANTS_OPERATORS:
        setattr(tl.constexpr, name, _tensor_where_it_is_one(getattr(tl.constexpr, name), tl.tensor))


def _tensor_where_it_is_one(operator: Callable[..., Any], tensor: type) -> Callable[..., Any]:
    @functools.wraps(operator)
    def operate(constant: Any, other: Any) -> Any:
        result = operator(constant, other)
        return result.value if isinstance(result.value, tensor) else result

    return operate


def compute_as_a_gpu_does() -> None:
    """Have bfloat16 be numbers, plain bools and large ints be arguments, and variables of loops be tensors. Before the checks of memory.

    Raises:
        RuntimeError: this Triton lacks what is to be changed.
    """
    from grader.worker.triton_cpu import arguments, bfloat16, descriptors, loops, patches

    patches.check()
    bfloat16.provide()
    arguments.provide()
    descriptors.provide()
    loops.provide()


def provide_libdevice() -> None:
    """Have `libdevice.tanh(x)` and its like be more than a stub that returns None."""
    from grader.worker.triton_cpu import libdevice

    libdevice.provide()


def combine_many_at_once() -> None:
    """Have `tl.reduce` with a function of the student's own take little longer than `tl.sum`."""
    from grader.worker.triton_cpu import combining

    combining.provide()

"""Changes Triton's CPU interpreter for a worker: counts and checks launches, chooses a configuration for autotuned
kernels, and computes as a GPU does.

The larger changes are in `triton_cpu/`; a function here switches each of them on.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from grader.protocol import LaunchedKernel
from grader.worker.errors import place_in

CONSTANTS_OPERATORS = [
    f"__{name}__"
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"),
        *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "gt", "ge", "lt", "le", "eq", "ne"),
    )
]
OnLaunch = Callable[[str, tuple[int, ...], dict[str, Any], int], None]
WARPS = 4  # A launch that does not say has this many warps in a program.
GRID_LIMITS = (2**31 - 1, 65535, 65535)  # CUDA's largest grid, along its axes 0, 1 and 2.


class GridTooLarge(RuntimeError):
    """A grid has more programs along an axis than CUDA allows; the message names kernel, axis, number and limit."""


def check_grid(kernel: str, grid: Sequence[int]) -> tuple[int, ...]:
    """The grid of a launch, one to three numbers of programs. A grid with a 0 launches nothing, as on a GPU.

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
    """A context manager that counts launches of the submission's own kernels; `count` stays 0 without the interpreter."""

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
    """Checks each access of a call's kernels to memory (`triton_cpu/checker.py`). Checks nothing before `install`.

    Args:
        arena: the whole arena, as a tensor.
        tensors: the call's inputs and upstream gradients in the arena, which no kernel may change.
    """

    @staticmethod
    def install() -> None:
        """Check each access of a kernel and the grid of each launch in this process from now on."""
        from grader.worker.triton_cpu import checking

        checking.provide()
        refuse_grids_that_a_gpu_refuses(checking.begin_launch)
        MemoryChecks._checking = checking

    _checking: Any = None

    def __init__(self, arena: Any, tensors: Sequence[Any]) -> None:
        if self._checking is not None:
            self._checking.begin_call(arena, tensors)

    @property
    def run_operator(self) -> Callable[..., Any] | None:
        """The function to call in place of each PyTorch operator of the call (see `OperatorWatch`); None before `install`."""
        return None if self._checking is None else self._checking.memory.run_operator

    @property
    def launched(self) -> tuple[LaunchedKernel, ...]:
        """The call's first launches."""
        return () if self._checking is None else tuple(self._checking.launched)

    def tracer(self, arena: Any, traffic: Any) -> Any:
        """A `triton_cpu.tracing.Tracer` for the call; None before `install`."""
        if self._checking is None:
            return None
        from grader.worker.triton_cpu.tracing import Tracer

        return Tracer(arena, traffic)

    def finding(self, results: Sequence[Any]) -> str:
        """Words about results whose elements the host wrote last (`triton_cpu/writers.py`); "" if there are none."""
        return "" if self._checking is None else str(self._checking.memory.writers.finding(results))

    def raise_fault(self) -> None:
        """Raise the call's first KernelFault again, because the submission may have caught it."""
        if self._checking is not None and self._checking.checker.fault is not None:
            raise self._checking.checker.fault


def refuse_grids_that_a_gpu_refuses(on_launch: OnLaunch = lambda *_: None) -> None:
    """Patch the interpreter, which runs any number of programs along any axis, to check each launch's grid (`check_grid`).

    Args:
        on_launch: called before the first program of each launch, with the kernel's name, the grid, the arguments by
            parameter name, and the number of warps of a program.
    """
    from triton.runtime.interpreter import GridExecutor

    execute = GridExecutor.__call__

    def checked(executor: Any, *arguments: Any, **options: Any) -> Any:
        kernel, grid = executor.fn.__name__, executor.grid

        def begin(bound: dict[str, Any]) -> tuple[int, ...]:
            chosen = check_grid(kernel, grid(bound) if callable(grid) else grid)
            on_launch(kernel, chosen, bound, options.get("num_warps") or WARPS)
            return chosen

        executor.grid = begin
        return execute(executor, *arguments, **options)

    GridExecutor.__call__ = checked


def take_the_first_configuration() -> None:
    """Let `triton.autotune` choose the first configuration that pruning leaves: there is no GPU to time them on.

    A kernel with atomics runs twice, unless it is traced: a GPU's tuning runs add to the output too, which shows where
    `reset_to_zero` is missing.
    """
    from triton.runtime.autotuner import Autotuner

    from grader.worker.triton_cpu import checking

    def bench(tuner: Any, launch: Callable[[], object], quantiles: tuple[float, ...] = (0.5,), **_: Any) -> list[float]:
        updates = any(name.startswith("atomic_") for name in tuner.base_fn.__code__.co_names)
        if updates and not checking.checker.traces and getattr(tuner, "tried", None) is not tuner.nargs:
            tuner.tried = tuner.nargs  # a new dict in each launch
            launch()
        return [1.0] * len(quantiles)

    Autotuner.do_bench = property(lambda tuner: functools.partial(bench, tuner))


def let_a_constant_come_first() -> None:
    """Patch `tl.constexpr` so that `C * x` with a constant C and a tensor x is a tensor, as on a GPU, and not a constant."""
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
    """Patch the interpreter to compute in bfloat16, to take bools, floats and large ints as arguments, to add atomics
    by tensor descriptors, to make assigned numbers and loop variables tensors, to find a kernel's own names and no
    others, to take `max`, NaN and bits as a GPU does, and to refuse products of small tiles and what no kernel may have of
    Python. Must be called before
    `MemoryChecks.install`.

    Raises:
        RuntimeError: this Triton lacks a name that is to be patched.
    """
    from grader.worker.triton_cpu import (
        arguments,
        assignments,
        bfloat16,
        bits,
        descriptors,
        extremes,
        logic,
        loops,
        names,
        patches,
        products,
        shortcuts,
        syntax,
    )

    patches.check()
    warnings.filterwarnings(
        "ignore", category=RuntimeWarning, module=r"triton\."
    )  # numpy's, of overflows: a GPU gives none
    shortcuts.provide()
    bfloat16.provide()
    bits.provide()
    arguments.provide()
    descriptors.provide()
    assignments.provide()
    loops.provide()
    names.provide()
    logic.provide()
    extremes.provide()
    products.provide()
    syntax.provide()


def provide_libdevice() -> None:
    """Patch the functions of `libdevice`, such as `tanh`, to compute; without that they are stubs that return None."""
    from grader.worker.triton_cpu import libdevice

    libdevice.provide()


def combine_many_at_once() -> None:
    """Patch `tl.reduce` and `tl.associative_scan` to combine many elements at once with the student's own function."""
    from grader.worker.triton_cpu import combining

    combining.provide()

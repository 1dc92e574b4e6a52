"""Has Triton's interpreter check each access of a kernel and the grid of each launch, and count launches. The type of a
pointer carries the tensor it points into, as `given`.
"""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    GridExecutor,
    InterpretedFunction,
    InterpreterBuilder,
    ReduceScanOpInterface,
    TensorHandle,
)

from grader.protocol import MAX_LAUNCHED, LaunchedKernel
from grader.worker import interpreter as seam
from grader.worker.errors import is_own_file
from grader.worker.grids import check_grid
from grader.worker.triton_cpu.checker import UNSIGNED, Checker, UnmaskedLanes
from grader.worker.triton_cpu.memory import Given, KnownMemory
from grader.worker.triton_cpu.patches import Patches

NO_MASK = "a missing or wrong mask, or a wrong index"
NO_BOUNDARY = "an axis that boundary_check leaves out, or a shape or strides that are not the tensor's"
WARPS = 4  # A launch that does not say has this many warps in a program.

PATCHES = Patches()
memory = KnownMemory()
checker = Checker(memory)
launched: list[LaunchedKernel] = []  # of the call, the first ones
launches = 0  # of kernels of the submission's in the call


class CheckedInterpreter(seam.Interpreter):
    """Triton's interpreter with the checks of this module."""

    __slots__ = ()

    run_operator = staticmethod(memory.run_operator)

    @property
    def launches(self) -> int:  # type: ignore[override]
        return launches

    @property
    def launched(self) -> tuple[LaunchedKernel, ...]:  # type: ignore[override]
        return tuple(launched)

    def begin_call(self, arena: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
        global launches
        memory.begin_call(arena, tensors)
        checker.fault = None
        launched.clear()
        launches = 0

    def tracer(self, arena: torch.Tensor, traffic: Any) -> Any:
        from grader.worker.triton_cpu.tracing import Tracer

        return Tracer(arena, traffic)

    def finding(self, results: Sequence[Any]) -> str:
        return memory.writers.finding(results)

    def raise_fault(self) -> None:
        if checker.fault is not None:
            raise checker.fault


@contextlib.contextmanager
def checked_by(another: Checker) -> Iterator[None]:
    """In this block, another checker follows the programs."""
    global checker
    checker, kept = another, checker
    try:
        yield
    finally:
        checker = kept


def provide() -> None:
    """Change the interpreter to check kernels."""
    PATCHES.provide()
    seam.INTERPRETER = CheckedInterpreter()


@PATCHES.replace(InterpretedFunction, "run")
def _counted(run: Callable[..., Any], function: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:
    global launches
    if not warmup and is_own_file(function.fn.__code__.co_filename):
        launches += 1
    return run(function, *arguments, warmup=warmup, **options)


@PATCHES.replace(GridExecutor, "__call__")
def _launched(execute: Callable[..., Any], executor: Any, *arguments: Any, **options: Any) -> Any:
    """Check each launch's grid, which the interpreter takes in any size, and tell the memory when a launch runs."""
    kernel, grid = executor.fn.__name__, executor.grid

    def begin(bound: dict[str, Any]) -> tuple[int, ...]:
        chosen = check_grid(kernel, grid(bound) if callable(grid) else grid)
        _name_tensors(bound)
        checker.begin_launch(kernel, chosen, options.get("num_warps") or WARPS)
        if len(launched) < MAX_LAUNCHED:
            launched.append(LaunchedKernel(re.sub(r"\W", "_", kernel)[:200] or "_", chosen, ()))
        memory.in_kernel = True
        return chosen

    executor.grid = begin
    memory.writers.note(by_host=True)
    memory.in_launch = True
    try:
        with torch._C.DisableTorchFunction():  # no mode of PyTorch's: tensors are where they really are
            return execute(executor, *arguments, **options)
    finally:
        memory.in_launch = memory.in_kernel = False
        memory.writers.note(by_host=False)


def _name_tensors(arguments: dict[str, Any]) -> None:
    """Give the tensors among a kernel's arguments, as the interpreter passes them, the names of their parameters."""
    for name, argument in arguments.items():
        for number, one in enumerate(argument if isinstance(argument, tuple) else (argument,)):
            handle = getattr(one, "handle", None)
            if (given := _given(getattr(handle, "base", handle))) is not None:  # a descriptor's pointer is its base
                given.name = f"{name}[{number}]" if isinstance(argument, tuple) else name


@PATCHES.replace(InterpretedFunction, "__call__")
def _called(call: Callable[..., Any], function: Any, *arguments: Any, **options: Any) -> Any:
    if not memory.in_kernel:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return call(function, *arguments, **options)


@PATCHES.replace(interpreter, "_implicit_cvt")
def _converted(convert: Callable[..., Any], argument: Any) -> Any:
    result = convert(argument)
    if hasattr(argument, "data_ptr"):
        result.handle.dtype.given = memory.given(interpreter._unwrap_tensor(argument))
    return result


@PATCHES.replace(InterpreterBuilder, "create_select")
def _selected(select: Callable[..., Any], builder: Any, condition: Any, left: Any, right: Any) -> Any:
    result = select(builder, condition, left, right)
    return result if _given(left) is _given(right) else _from(result, None)


@PATCHES.replace(InterpreterBuilder, "create_bitcast", "create_int_to_ptr", "create_ptr_to_int")
def _cast(cast: Callable[..., Any], builder: Any, source: Any, target: Any) -> Any:
    return _from(cast(builder, source, target), _given(source))


def _given(handle: Any) -> Given | None:
    return getattr(getattr(getattr(handle, "dtype", None), "scalar", None), "given", None)


def _from(handle: Any, given: Given | None) -> Any:
    """The handle; if it is a pointer, with a type of its own that carries `given` (None: unknown)."""
    if isinstance(handle.dtype, tl.pointer_type):
        handle.dtype = copy.copy(handle.dtype)
        handle.dtype.given = given
    return handle


@PATCHES.replace(interpreter.interpreter_semantic, "load")
def _load(load: Callable[..., Any], pointer: Any, *how: Any) -> Any:
    """The builder has an array of one address for a pointer and for a block of one."""
    checker.loads_a_number = pointer.type.is_ptr() and not pointer.type.element_ty.is_block()
    try:
        return load(pointer, *how)
    finally:
        checker.loads_a_number = False


# Triton passes some arguments by the names `cache_modifier`, `eviction_policy` and `is_volatile`.
@PATCHES.replace(InterpreterBuilder, "create_masked_load")
def _checked_load(
    load: Callable[..., Any],
    builder: Any,
    ptrs: Any,
    mask: Any,
    other: Any,
    cache_modifier: Any,
    eviction_policy: Any,
    is_volatile: Any,
) -> Any:
    lanes = _reach(builder, ptrs, mask, "reads")
    result = load(builder, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
    if lanes is not None:
        checker.loaded(lanes, result.data, bool(is_volatile))
    return result


@PATCHES.replace(InterpreterBuilder, "create_masked_store")
def _checked_store(
    store: Callable[..., Any], builder: Any, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any
) -> Any:
    if (lanes := _reach(builder, ptrs, mask, "writes")) is not None:
        checker.stores(lanes, value.data, _bits_at)
    return store(builder, ptrs, value, mask, cache_modifier, eviction_policy)


@PATCHES.replace(InterpreterBuilder, "create_atomic_rmw")
def _checked_update(
    update: Callable[..., Any], builder: Any, operation: Any, pointers: Any, value: Any, mask: Any, *how: Any
) -> Any:
    return _checked_atomic(builder, pointers, mask, lambda: update(builder, operation, pointers, value, mask, *how))


@PATCHES.replace(InterpreterBuilder, "create_atomic_cas")
def _checked_exchange(
    exchange: Callable[..., Any], builder: Any, pointers: Any, expected: Any, value: Any, *how: Any
) -> Any:
    everywhere = TensorHandle(np.ones(pointers.data.shape, dtype=bool), tl.int1)
    return _checked_atomic(builder, pointers, everywhere, lambda: exchange(builder, pointers, expected, value, *how))


def _checked_atomic(builder: Any, pointers: Any, mask: Any, update: Callable[[], Any]) -> Any:
    if (lanes := _reach(builder, pointers, mask, "updates")) is None:
        return update()
    checker.updates(lanes)
    result = update()
    checker.updated(lanes, result.data)
    return result


@PATCHES.replace(InterpreterBuilder, "create_barrier", "create_dot")
@PATCHES.replace(ReduceScanOpInterface, "apply")
def _meeting(wait: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """The threads of a program wait for each other at a barrier, and where they combine what each of them has."""
    checker.threads_meet()
    return wait(*arguments, **options)


@PATCHES.replace(InterpreterBuilder, "create_get_program_id")
def _index(index: Callable[..., Any], builder: Any, axis: int) -> Any:
    """Note along which axes of the grid the programs of a launch ask for their index."""
    if launched and axis not in launched[-1].asked:
        launched[-1] = replace(launched[-1], asked=(*launched[-1].asked, axis))
    return index(builder, axis)


def _reach(builder: Any, pointers: Any, mask: Any, verb: str) -> UnmaskedLanes | None:
    """`Checker.reach` of an access through pointers, by the interpreter's handles."""
    # The mask of a block pointer is an array, and no handle.
    of_block_pointer = isinstance(mask, np.ndarray)
    array = np.asarray(mask if of_block_pointer else mask.data, dtype=bool)
    width = max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)  # Triton stores a bool in one byte
    unguarded = NO_BOUNDARY if of_block_pointer else NO_MASK
    return checker.reach(pointers, array, width, builder.grid_idx, verb, unguarded)


def _bits_at(addresses: NDArray[np.uint64], width: int) -> NDArray[Any]:
    dtype = np.dtype(UNSIGNED[width])
    everywhere, nothing = np.ones(addresses.shape, dtype=bool), np.zeros(addresses.shape, dtype=dtype)
    found: NDArray[Any] = interpreter._interpreter.load(addresses, everywhere, nothing, dtype)
    return found

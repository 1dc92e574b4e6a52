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
from triton.runtime.interpreter import GridExecutor, InterpretedFunction, InterpreterBuilder, ReduceScanOpInterface

from grader.protocol import MAX_LAUNCHED, LaunchedKernel
from grader.worker import interpreter as seam
from grader.worker.errors import place_in
from grader.worker.grids import check_grid
from grader.worker.triton_cpu.checker import UNSIGNED, Checker
from grader.worker.triton_cpu.memory import Given, KnownMemory

NO_MASK = "a missing or wrong mask, or a wrong index"
NO_BOUNDARY = "an axis that boundary_check leaves out, or a shape or strides that are not the tensor's"
WARPS = 4  # A launch that does not say has this many warps in a program.

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


def provide() -> None:
    """Patch the interpreter to check kernels."""
    _count_launches()
    _watch_launches()
    _refuse_calls_outside_kernels()
    _follow_pointers()
    _check_loads_and_stores()
    _check_atomics()
    _note_meetings()
    _note_indices()
    seam.INTERPRETER = CheckedInterpreter()


@contextlib.contextmanager
def checked_by(another: Checker) -> Iterator[None]:
    """In this block, another checker follows the programs."""
    global checker
    checker, kept = another, checker
    try:
        yield
    finally:
        checker = kept


def _count_launches() -> None:
    run = InterpretedFunction.run

    def counted(function: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:
        global launches
        if not warmup and place_in(function.fn.__code__.co_filename, 1):
            launches += 1
        return run(function, *arguments, warmup=warmup, **options)

    InterpretedFunction.run = counted


def _watch_launches() -> None:
    """Check each launch's grid, which the interpreter takes in any size, and tell the memory when a launch runs."""
    execute = GridExecutor.__call__

    def launched(executor: Any, *arguments: Any, **options: Any) -> Any:
        kernel, grid = executor.fn.__name__, executor.grid

        def begin(bound: dict[str, Any]) -> tuple[int, ...]:
            chosen = check_grid(kernel, grid(bound) if callable(grid) else grid)
            _begin_launch(kernel, chosen, bound, options.get("num_warps") or WARPS)
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

    GridExecutor.__call__ = launched


def _begin_launch(kernel: str, grid: Sequence[int], arguments: dict[str, Any], warps: int) -> None:
    """Begin a launch. `arguments` are the kernel's, as the interpreter passes them, by parameter name; `warps` are those
    of a program.
    """
    for name, argument in arguments.items():
        for number, one in enumerate(argument if isinstance(argument, tuple) else (argument,)):
            handle = getattr(one, "handle", None)
            if (given := _given(getattr(handle, "base", handle))) is not None:  # a descriptor's pointer is its base
                given.name = f"{name}[{number}]" if isinstance(argument, tuple) else name
    checker.begin_launch(kernel, grid, warps)
    if len(launched) < MAX_LAUNCHED:
        launched.append(LaunchedKernel(re.sub(r"\W", "_", kernel)[:200] or "_", tuple(grid), ()))
    memory.in_kernel = True


def _refuse_calls_outside_kernels() -> None:
    call = InterpretedFunction.__call__

    def called(function: Any, *arguments: Any, **options: Any) -> Any:
        if not memory.in_kernel:
            raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
        return call(function, *arguments, **options)

    InterpretedFunction.__call__ = called


def _follow_pointers() -> None:
    convert, select, bitcast = (
        interpreter._implicit_cvt,
        InterpreterBuilder.create_select,
        InterpreterBuilder.create_bitcast,
    )

    def converted(argument: Any) -> Any:
        result = convert(argument)
        if hasattr(argument, "data_ptr"):
            result.handle.dtype.given = memory.given(interpreter._unwrap_tensor(argument))
        return result

    def selected(builder: Any, condition: Any, left: Any, right: Any) -> Any:
        result = select(builder, condition, left, right)
        return result if _given(left) is _given(right) else _from(result, None)

    def cast(builder: Any, source: Any, target: Any) -> Any:
        return _from(bitcast(builder, source, target), _given(source))

    interpreter._implicit_cvt = converted
    InterpreterBuilder.create_select = selected
    InterpreterBuilder.create_bitcast = InterpreterBuilder.create_int_to_ptr = InterpreterBuilder.create_ptr_to_int = (
        cast
    )


def _given(handle: Any) -> Given | None:
    return getattr(getattr(getattr(handle, "dtype", None), "scalar", None), "given", None)


def _from(handle: Any, given: Given | None) -> Any:
    """The handle; if it is a pointer, with a type of its own that carries `given` (None: unknown)."""
    if isinstance(handle.dtype, tl.pointer_type):
        handle.dtype = copy.copy(handle.dtype)
        handle.dtype.given = given
    return handle


def _check_loads_and_stores() -> None:
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    semantic = interpreter.interpreter_semantic
    load_of = semantic.load

    # The builder has an array of one address for a pointer and for a block of one.
    def noted_load(pointer: Any, *how: Any) -> Any:
        checker.loads_a_number = pointer.type.is_ptr() and not pointer.type.element_ty.is_block()
        try:
            return load_of(pointer, *how)
        finally:
            checker.loads_a_number = False

    semantic.load = noted_load

    # Triton passes some arguments by these names.
    def checked_load(
        builder: Any, ptrs: Any, mask: Any, other: Any, cache_modifier: Any, eviction_policy: Any, is_volatile: Any
    ) -> Any:
        lanes = checker.reach(ptrs, _array(mask), _width(ptrs), builder.grid_idx, "reads", _unguarded(mask))
        result = load(builder, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)
        if lanes is not None:
            checker.loaded(lanes, result.data, bool(is_volatile))
        return result

    def checked_store(builder: Any, ptrs: Any, value: Any, mask: Any, cache_modifier: Any, eviction_policy: Any) -> Any:
        lanes = checker.reach(ptrs, _array(mask), _width(ptrs), builder.grid_idx, "writes", _unguarded(mask))
        if lanes is not None:
            checker.stores(lanes, value.data, _bits_at)
        return store(builder, ptrs, value, mask, cache_modifier, eviction_policy)

    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = checked_load, checked_store


def _check_atomics() -> None:
    update, exchange = InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_atomic_cas

    def checked_update(builder: Any, operation: Any, pointers: Any, value: Any, mask: Any, *how: Any) -> Any:
        lanes = checker.reach(pointers, _array(mask), _width(pointers), builder.grid_idx, "updates", _unguarded(mask))
        if lanes is not None:
            checker.updates(lanes)
        result = update(builder, operation, pointers, value, mask, *how)
        if lanes is not None:
            checker.updated(lanes, result.data)
        return result

    def checked_exchange(builder: Any, pointers: Any, expected: Any, value: Any, *how: Any) -> Any:
        everywhere = np.ones(pointers.data.shape, dtype=bool)
        lanes = checker.reach(pointers, everywhere, _width(pointers), builder.grid_idx, "updates", NO_MASK)
        if lanes is not None:
            checker.updates(lanes)
        result = exchange(builder, pointers, expected, value, *how)
        if lanes is not None:
            checker.updated(lanes, result.data)
        return result

    InterpreterBuilder.create_atomic_rmw, InterpreterBuilder.create_atomic_cas = checked_update, checked_exchange


def _note_meetings() -> None:
    """Tell the checker where the threads of a program wait for each other: at a barrier, and where they combine what each
    of them has.
    """
    barrier, dot, apply = (
        InterpreterBuilder.create_barrier,
        InterpreterBuilder.create_dot,
        ReduceScanOpInterface.apply,
    )

    def meeting(wait: Callable[..., Any]) -> Callable[..., Any]:
        def waited(*arguments: Any, **options: Any) -> Any:
            checker.threads_meet()
            return wait(*arguments, **options)

        return waited

    InterpreterBuilder.create_barrier, InterpreterBuilder.create_dot = meeting(barrier), meeting(dot)
    ReduceScanOpInterface.apply = meeting(apply)


def _note_indices() -> None:
    """Note along which axes of the grid the programs of a launch ask for their index."""
    index = InterpreterBuilder.create_get_program_id

    def noted(builder: Any, axis: int) -> Any:
        if launched and axis not in launched[-1].asked:
            launched[-1] = replace(launched[-1], asked=(*launched[-1].asked, axis))
        return index(builder, axis)

    InterpreterBuilder.create_get_program_id = noted


def _array(mask: Any) -> NDArray[np.bool_]:
    """The mask of a handle. The mask of a block pointer is an array itself."""
    data = mask if isinstance(mask, np.ndarray) else mask.data
    return np.asarray(data, dtype=bool)


def _unguarded(mask: Any) -> str:
    """What lets a lane out of bounds: a block pointer has no mask of its own."""
    return NO_BOUNDARY if isinstance(mask, np.ndarray) else NO_MASK


def _width(pointers: Any) -> int:
    """Bytes of an element. Triton stores a bool in one byte."""
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


def _bits_at(addresses: NDArray[np.uint64], width: int) -> NDArray[Any]:
    dtype = np.dtype(UNSIGNED[width])
    everywhere, nothing = np.ones(addresses.shape, dtype=bool), np.zeros(addresses.shape, dtype=dtype)
    found: NDArray[Any] = interpreter._interpreter.load(addresses, everywhere, nothing, dtype)
    return found

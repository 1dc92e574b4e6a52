"""Gives kernels in Triton's interpreter their arguments as a GPU does: a bool as one bit, an int in the width of its
type, a float as a tensor of float32, and an int that is 1 as a constant, for which Triton compiles a kernel of its own. (Bools
are right in Triton's main branch since February 2026, and in no release before 3.8.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, TensorHandle
from triton.runtime.jit import KernelParam

from grader.worker.triton_cpu.patches import Patches

PATCHES = Patches()


class _Constant(int):
    """An argument that stays a number of Python's in the kernel."""


@PATCHES.replace(interpreter, "_implicit_cvt")
def _converted(convert: Callable[..., Any], argument: Any) -> Any:
    """The interpreter gives a bool 32 bits and then refuses it, gives an int from 2^31 on 32 of its 64 bits, and makes a
    tensor of each int and of no float.
    """
    if isinstance(argument, _Constant):
        return int(argument)
    if isinstance(argument, bool):
        return tl.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
    if isinstance(argument, float):  # times a block of half precision it gives float32
        return tl.tensor(TensorHandle(np.array([argument], dtype=np.float32), tl.float32), tl.float32)
    result = convert(argument)
    if isinstance(argument, int):
        result.handle.data = result.handle.data.astype(interpreter._get_np_dtype(result.dtype))
    return result


@PATCHES.replace(InterpretedFunction, "run")
def _run(run: Callable[..., Any], function: Any, *arguments: Any, grid: Any, warmup: bool, **named: Any) -> Any:
    left = set(function.kwargs.get("do_not_specialize") or ())
    parameters = enumerate(inspect.signature(function.fn).parameters.values())
    known = [KernelParam(number, one, bool(left & {number, one.name}), False) for number, one in parameters]
    # The parameters for whose value 1 Triton compiles the kernel anew
    names = {one.name for one in known if not (one.do_not_specialize or one.is_constexpr or one.annotation_type)}

    def marked(name: str, argument: Any) -> Any:
        return _Constant(1) if name in names and type(argument) is int and argument == 1 else argument

    given = [marked(name, one) for name, one in zip(function.arg_names, arguments, strict=False)]
    named = {name: marked(name, one) for name, one in named.items()}
    return run(function, *given, *arguments[len(given) :], grid=grid, warmup=warmup, **named)

"""Adds libdevice's functions to Triton's CPU interpreter: computed by numpy in float64, and rounded to the result's
dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import triton.language as tl
from triton.language.extra import cuda, libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from grader.worker.triton_cpu.patches import Patches

PREFIX = "__nv_"
PATCHES = Patches()
_erfc = np.vectorize(math.erfc, otypes=[np.float64])

# By symbol, without its prefix and without the f of float32 symbols. Functions in other rounding modes are left to a
# GPU.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("abs", "llabs", "fabs"), np.abs),
    **dict.fromkeys(("rint", "nearbyint", "llrint"), np.rint),
    **dict.fromkeys(("isnan", "isnand"), np.isnan),
    **dict.fromkeys(("isinf", "isinfd"), np.isinf),
    **dict.fromkeys(("finite", "isfinited"), np.isfinite),
    **dict.fromkeys(("signbit", "signbitd"), np.signbit),
    **dict.fromkeys(("fadd_rn", "dadd_rn"), np.add),
    **dict.fromkeys(("fsub_rn", "dsub_rn"), np.subtract),
    **dict.fromkeys(("fmul_rn", "dmul_rn"), np.multiply),
    **dict.fromkeys(("fdiv_rn", "ddiv_rn", "fast_fdivide"), np.divide),
    **dict.fromkeys(("frcp_rn", "drcp_rn"), np.reciprocal),
    **dict.fromkeys(("sqrt", "fsqrt_rn", "dsqrt_rn"), np.sqrt),
    **dict.fromkeys(("rsqrt", "frsqrt_rn"), lambda x: 1 / np.sqrt(x)),
    **dict.fromkeys(("fma", "fmaf_rn", "fma_rn"), lambda x, y, z: x * y + z),
    **dict.fromkeys(("pow", "powi", "fast_pow"), np.power),
    **dict.fromkeys(("exp", "fast_exp"), np.exp),
    **dict.fromkeys(("exp10", "fast_exp10"), lambda x: np.power(10.0, x)),
    **dict.fromkeys(("log", "fast_log"), np.log),
    **dict.fromkeys(("log2", "fast_log2"), np.log2),
    **dict.fromkeys(("log10", "fast_log10"), np.log10),
    **dict.fromkeys(("sin", "fast_sin"), np.sin),
    **dict.fromkeys(("cos", "fast_cos"), np.cos),
    **dict.fromkeys(("tan", "fast_tan"), np.tan),
    **dict.fromkeys(("ldexp", "scalbn"), lambda x, power: np.ldexp(x, power.astype(np.int32))),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "copysign": np.copysign,
    "fmod": np.fmod,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "hypot": np.hypot,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "cbrt": np.cbrt,
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "erfc": _erfc,
    "normcdf": lambda x: 0.5 * _erfc(-x * math.sqrt(0.5)),
}


def provide() -> None:
    """Patch the interpreter, replace the stubs of `triton.language.extra.libdevice` by CUDA's declarations, and let
    kernels call the other functions of `triton.language.extra.cuda`, of which most need a GPU.
    """
    PATCHES.provide()
    declared = {name: _bound(one) for name, one in vars(cuda_libdevice).items() if _is_function(one, cuda_libdevice)}
    for name, stub in list(vars(libdevice).items()):
        if _is_function(stub, libdevice):
            setattr(libdevice, name, declared.get(name) or functools.partial(_refuse, name))
    for name, function in declared.items():
        setattr(cuda_libdevice, name, function)
    for name, function in list(vars(cuda).items()):
        if tl.core.is_builtin(function):
            setattr(cuda, name, _bound(function))


def _is_function(one: Any, module: ModuleType) -> bool:
    return callable(one) and getattr(one, "__module__", "") == module.__name__


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the interpreter's semantics, as a kernel calls it."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        semantic = named.get("_semantic") or interpreter.interpreter_semantic  # a compiler gives its own
        return function(*arguments, **named | {"_semantic": semantic})

    return call


@PATCHES.replace(interpreter.InterpreterBuilder, "create_extern_elementwise")
def _created(
    _before: Any, _builder: Any, _library: str, _path: str, symbol: str, arguments: Any, result: Any, _: bool
) -> Any:
    return computed(symbol, arguments, result)


def computed(symbol: str, arguments: list[Any], result: Any) -> Any:
    """The handle of what a function of libdevice gives. Raises NotImplementedError for a function that is not known."""
    name = symbol.removeprefix(PREFIX)
    function = FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))
    if function is None or not symbol.startswith(PREFIX):
        _refuse(symbol)
    with np.errstate(all="ignore"):
        data = function(*(one.data.astype(np.float64) for one in arguments))
        return interpreter.TensorHandle(data.astype(interpreter._get_np_dtype(result.scalar)), result.scalar)


def _refuse(name: str, *_arguments: Any, **_named: Any) -> NoReturn:
    raise NotImplementedError(
        f"{name} of libdevice is not available under Triton's CPU interpreter; only a GPU can grade it"
    )

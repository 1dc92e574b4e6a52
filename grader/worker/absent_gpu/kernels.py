"""Gives interpreted kernels the interface of compiled ones: registers and shared memory on the grading GPU, and a launch.

Triton interprets functions of one class (`InterpretedFunction`) and compiles functions of another (`JITFunction`). So
while a kernel is compiled, every name of an interpreted function, in Triton's language and in the submission, stands
for a compilable twin of that function. No code of the submission runs meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import triton.language as tl
from triton.errors import TritonError
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, MockTensor

from grader.worker.errors import NeedsGpu, is_own_file

LIBRARY = "triton.language"
# Classes that the interpreter changes; it does not change all of them back.
PATCHED = (tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)

_ABSENT = object()
# The attributes of modules and classes of Triton's language before any kernel was interpreted.
_untouched: list[tuple[Any, dict[str, Any]]] = []
_compilable: dict[int, JITFunction] = {}  # by the identity of the interpreted function, which the twin keeps alive


def provide() -> None:
    """Patch the interpreter, which returns nothing: `warmup` returns a compiled kernel, and a launch a `CompiledKernel`."""
    names = (name for name in sys.modules if name == LIBRARY or name.startswith(f"{LIBRARY}."))
    _untouched.extend((one, dict(vars(one))) for one in [*(sys.modules[name] for name in names), *PATCHED])
    run = InterpretedFunction.run

    def ran(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if warmup:
            return compiled(function, args, options)
        run(function, *args, grid=grid, warmup=False, **options)
        remembered = {name: _remembered(one) for name, one in options.items()}
        return CompiledKernel(function, [_remembered(one) for one in args], remembered)

    InterpretedFunction.run = ran


class CompiledKernel:
    """The value of a launch. The kernel is compiled when an attribute is first read."""

    def __init__(self, function: Any, args: list[Any], options: dict[str, Any]) -> None:
        self._of = function, args, options

    def _kernel(self) -> Any:
        kernel = compiled(*self._of)
        kernel._init_handles()
        return kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks for these by itself, as in `copy`
            raise AttributeError(name)
        return getattr(self._kernel(), name)

    def __getitem__(self, grid: Any) -> Any:
        return self._kernel()[grid]


class _Remembered(MockTensor):  # type: ignore[misc]
    """The dtype and address of a tensor, for which a kernel is compiled. Does not keep the tensor's memory."""

    def __init__(self, dtype: torch.dtype, address: int) -> None:
        super().__init__(dtype)
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def _remembered(argument: Any) -> Any:
    return _Remembered(argument.dtype, argument.data_ptr()) if type(argument) is torch.Tensor else argument


def compiled(function: Any, args: Any, options: dict[str, Any]) -> Any:
    """The kernel, compiled by Triton for the GPU. Raises Triton's errors, and NeedsGpu for any other."""
    kernel = _twin(function)
    with torch._C.DisableTorchFunction(), _all_compilable():
        try:
            return kernel.run(
                *map(_mapped, args), grid=None, warmup=True, **{name: _mapped(one) for name, one in options.items()}
            )
        except TritonError:
            raise
        except Exception as error:
            words = (str(error).splitlines() or [""])[0][:200]
            raise NeedsGpu(f"{function.__name__} cannot be compiled here: {type(error).__name__}: {words}") from error


def _mapped(argument: Any) -> Any:
    if isinstance(argument, tl.constexpr):
        argument = argument.value
    return _twin(argument) if isinstance(argument, InterpretedFunction) else argument


def _twin(function: Any) -> JITFunction:
    """The compilable twin of an interpreted function."""
    if (twin := _compilable.get(id(function))) is None:
        twin = _compilable[id(function)] = JITFunction(function.fn, **function.kwargs)
        twin.interpreted = function
    return twin


@contextmanager
def _all_compilable() -> Iterator[None]:
    """A context in which names of interpreted functions stand for their twins, and Triton's language has no patches of
    the interpreter.
    """
    with ExitStack() as stack:
        for owner, kept in _untouched:
            for name in vars(owner).keys() | kept.keys():
                now, wanted = vars(owner).get(name, _ABSENT), _as_compiled(kept.get(name, _ABSENT))
                if now is not wanted:
                    _set(owner, name, wanted)
                    stack.callback(_set, owner, name, now)
        for module in [one for one in list(sys.modules.values()) if is_own_file(getattr(one, "__file__", None) or "")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, InterpretedFunction):
                    _set(module, name, _twin(value))
                    stack.callback(_set, module, name, value)
        yield


def _as_compiled(value: Any) -> Any:
    """The twin of an interpreted function, or of one in the closure of a tensor's method; any other value itself."""
    for cell in getattr(value, "__closure__", None) or ():
        if isinstance(cell.cell_contents, InterpretedFunction):
            return _twin(cell.cell_contents)
    return _twin(value) if isinstance(value, InterpretedFunction) else value


def _set(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)

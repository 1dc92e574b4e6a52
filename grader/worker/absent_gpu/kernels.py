"""Kernels that are interpreted, as a compiled kernel: with its registers and shared memory on the grading GPU, and to be launched.

Triton compiles a kernel from functions of another class than it interprets. So while one is compiled, each function that would be
interpreted, Triton's own among them, is replaced where its name stands by one that can be compiled; nobody else's code runs meanwhile.
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

from grader.worker.errors import is_own_file
from grader.worker.gpu_only import NeedsGpu

LIBRARY = "triton.language"
# Classes that the interpreter changes; it does not change all of them back.
PATCHED = (tl.tensor, tl.dtype, tl.core.tensor_descriptor_base)

_ABSENT = object()
# What modules and classes of Triton's language had before any kernel was interpreted.
_untouched: list[tuple[Any, dict[str, Any]]] = []
_compilable: dict[int, JITFunction] = {}  # by the identity of the function that is interpreted, which it keeps


def provide() -> None:
    """Have `warmup` compile a kernel, and a launch return one; the interpreter returns nothing."""
    names = (name for name in sys.modules if name == LIBRARY or name.startswith(f"{LIBRARY}."))
    _untouched.extend((one, dict(vars(one))) for one in [*(sys.modules[name] for name in names), *PATCHED])
    run = InterpretedFunction.run

    def ran(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        if warmup:
            return compiled(function, args, options)
        run(function, *args, grid=grid, warmup=False, **options)
        return CompiledKernel(
            function, [_remembered(one) for one in args], {k: _remembered(v) for k, v in options.items()}
        )

    InterpretedFunction.run = ran


class CompiledKernel:
    """What a launch returns: the compiled kernel, which is compiled when something of it is asked for."""

    def __init__(self, function: Any, args: list[Any], options: dict[str, Any]) -> None:
        self._of = function, args, options

    def _kernel(self) -> Any:
        function, args, options = self._of
        kernel = compiled(function, args, options)
        kernel._init_handles()
        return kernel

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions
            raise AttributeError(name)
        return getattr(self._kernel(), name)

    def __getitem__(self, grid: Any) -> Any:
        return self._kernel()[grid]


class _Remembered(MockTensor):  # type: ignore[misc]
    """A tensor's dtype and address, which a kernel is compiled for; its memory is not kept."""

    def __init__(self, dtype: torch.dtype, address: int) -> None:
        super().__init__(dtype)
        self._address = address

    def data_ptr(self) -> int:
        return self._address


def _remembered(argument: Any) -> Any:
    return _Remembered(argument.dtype, argument.data_ptr()) if type(argument) is torch.Tensor else argument


def compiled(function: Any, args: Any, options: dict[str, Any]) -> Any:
    """The kernel as Triton compiles it for the GPU. Raises Triton's errors; NeedsGpu where it cannot be compiled in this process."""
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
    """The same function as one that Triton compiles."""
    if (twin := _compilable.get(id(function))) is None:
        twin = _compilable[id(function)] = JITFunction(function.fn, **function.kwargs)
        twin.interpreted = function
    return twin


@contextmanager
def _all_compilable() -> Iterator[None]:
    """In here names that stand for functions to be interpreted stand for those that are compiled, and Triton's language is untouched."""
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
    """What stands in Triton's language when kernels are compiled: also for a method of tensors that calls a function of the language."""
    for cell in getattr(value, "__closure__", None) or ():
        if isinstance(cell.cell_contents, InterpretedFunction):
            return _twin(cell.cell_contents)
    return _twin(value) if isinstance(value, InterpretedFunction) else value


def _set(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)

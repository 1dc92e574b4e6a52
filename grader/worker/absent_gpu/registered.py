"""Registers operators of the submission's (`torch.library`) for the GPU where tensors that say they lie on it do lie."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.library import Library, fallthrough_kernel

from grader.worker.absent_gpu.tensors import OnTheGpu
from grader.worker.operators import NAMESPACES

# What is registered for the CPU alone would not run on a GPU either.
SWAPPED = {
    f"{kind}{one}": f"{kind}{other}" for kind in ("", "Autograd") for one, other in (("CPU", "CUDA"), ("CUDA", "CPU"))
}


def provide() -> None:
    """Take kernels for a GPU as kernels for the CPU, and the other way round; `torch.library.wrap_triton` returns its kernel.

    Every function of torch.library registers by `Library.impl`.
    """
    make: Callable[..., None] = Library.__init__
    register: Callable[..., None] = Library.impl

    def made(library: Library, ns: str, kind: Any, dispatch_key: str = "") -> None:
        make(library, ns, kind, _swapped(dispatch_key, ns))

    def registered(library: Library, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **how: Any) -> None:
        register(library, op_name, _asking(fn, library.ns), _swapped(dispatch_key, library.ns), **how)

    for owner, name, function in (
        (Library, "__init__", made),
        (Library, "impl", registered),
        (torch.library, "wrap_triton", lambda kernel: kernel),
    ):
        setattr(owner, name, function)


def _asking(kernel: Callable[..., Any], namespace: str) -> Callable[..., Any]:
    """A kernel in which tensors say that they lie on the GPU: a mode is off while its own handler calls an operator."""
    if namespace in NAMESPACES or kernel is fallthrough_kernel:
        return kernel

    @functools.wraps(kernel)
    def run(*arguments: Any, **options: Any) -> Any:
        with contextlib.nullcontext() if torch._C._len_torch_function_stack() else OnTheGpu():
            return kernel(*arguments, **options)

    return run


def _swapped(key: Any, namespace: str) -> Any:
    return SWAPPED.get(key, key) if isinstance(key, str) and namespace not in NAMESPACES else key

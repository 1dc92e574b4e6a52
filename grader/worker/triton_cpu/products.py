"""Refuses `tl.dot` of tiles that are too small for a GPU in Triton's interpreter, which multiplies tiles of any size."""

from __future__ import annotations

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime import interpreter

WARP = 32  # A warp has this many threads.


def provide() -> None:
    """Patch the interpreter to ask of tiles what Triton's compiler asks, the same for all of NVIDIA's GPUs."""
    interpreter.interpreter_builder.codegen_fns["min_dot_size"] = min_dot_size(GPUTarget("cuda", 90, WARP))

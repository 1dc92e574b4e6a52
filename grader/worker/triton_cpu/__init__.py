"""Triton's interpreter, which runs kernels on a CPU, changed to compute as a GPU does and to check each access to
memory.

| what | modules |
|---|---|
| the text of a kernel, which the interpreter compiles anew | names.py, statements.py, syntax.py |
| numbers | arguments.py, arithmetic.py, bfloat16.py, libdevice.py, combining.py |
| each access and each launch | checking.py asks checker.py, which asks memory.py, order.py, threads.py and writers.py |
| a traced call | tracing.py |
| its time; autotuned kernels | shortcuts.py; autotuning.py |

`patches.py` is how they change the interpreter.
"""

from __future__ import annotations

import warnings


def provide() -> None:
    """Change the interpreter of this process, for good. Raises RuntimeError if this Triton lacks a name that is needed."""
    from triton.runtime import interpreter

    from grader.worker.triton_cpu import (
        arguments,
        arithmetic,
        autotuning,
        bfloat16,
        checking,
        combining,
        libdevice,
        names,
        patches,
        shortcuts,
        statements,
        syntax,
    )

    # What is called as it is
    patches.found(interpreter, "_unwrap_tensor")
    patches.found(interpreter._LangPatchScope, "restore")
    patches.found(interpreter.TensorDescHandle, "materialize_pointers")
    patches.found(interpreter.interpreter_semantic, "to_tensor")
    # NumPy's, of overflows: a GPU gives none.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"triton\.")
    # Each wraps what the ones before it have made: `checking` sees what a kernel does, and not how that is computed.
    shortcuts.provide()
    bfloat16.PATCHES.provide()
    arithmetic.provide()
    arguments.PATCHES.provide()
    names.provide()
    statements.PATCHES.provide()
    syntax.PATCHES.provide()
    checking.provide()
    autotuning.provide()
    libdevice.provide()
    combining.PATCHES.provide()

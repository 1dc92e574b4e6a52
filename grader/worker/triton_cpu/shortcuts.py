"""Leaves out what Triton's interpreter does in vain: half of the time of a kernel with many calls of functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from grader.worker.triton_cpu.patches import Patches

PATCHES = Patches()
_patched: set[int] = set()  # ids of the globals of functions that the running launch has called
_shapes: dict[tuple[int, ...], dict[str, Any]] = {}  # what all tensors of a shape have in common


@PATCHES.replace(interpreter, "_patch_lang")
def _patch_once(patch: Callable[..., Any], function: Any) -> Any:
    """Replace the language's functions once in a launch, and not in each call of a device function."""
    names = id(function.__globals__)
    if names in _patched:
        return None  # only a launch, whose kernel comes first, looks at the scope
    scope = patch(function)
    if not _patched:
        restore = scope.restore

        def restore_after_the_launch() -> None:
            _patched.clear()
            restore()

        scope.restore = restore_after_the_launch
    _patched.add(names)
    return scope


@PATCHES.replace(tl.tensor, "__init__")
def _make_with_known_shape(make: Callable[..., Any], tensor: Any, handle: Any, type: Any) -> None:
    shape = tuple(type.shape) if type.is_block() else ()
    if (known := _shapes.get(shape)) is None:
        make(tensor, handle, type)
        _shapes[shape] = {name: one for name, one in vars(tensor).items() if name not in ("handle", "type", "dtype")}
    else:
        vars(tensor).update(known, handle=handle, type=type, dtype=type.scalar)


def provide() -> None:
    """Change the interpreter, also not to look for overflows, of which it tells nobody."""
    PATCHES.provide()
    builder = interpreter.interpreter_builder
    if not builder.options.debug:  # without it, `device_assert` does nothing
        builder.options = replace(builder.options, sanitize_overflow=False)

"""Leaves out what Triton's interpreter does in vain: half of the time of a kernel with many calls of functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def provide() -> None:
    """Patch the interpreter to replace the language's functions once in a launch and not in each call of a device function, not to
    look for overflows of which it tells nobody, and to make the shape of a block once for all blocks of that shape.
    """
    patch = interpreter._patch_lang
    patched: set[int] = set()  # ids of the globals of functions that the running launch has called

    def patch_once(function: Any) -> Any:
        names = id(function.__globals__)
        if names in patched:
            return None  # only a launch, whose kernel comes first, looks at the scope
        scope = patch(function)
        if not patched:
            restore = scope.restore

            def restore_after_the_launch() -> None:
                patched.clear()
                restore()

            scope.restore = restore_after_the_launch
        patched.add(names)
        return scope

    interpreter._patch_lang = patch_once
    builder = interpreter.interpreter_builder
    if not builder.options.debug:  # without it, `device_assert` does nothing
        builder.options = replace(builder.options, sanitize_overflow=False)
    _share_shapes()


def _share_shapes() -> None:
    make = tl.tensor.__init__
    made: dict[tuple[int, ...], dict[str, Any]] = {}

    def make_with_known_shape(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if (known := made.get(shape)) is None:
            make(self, handle, type)
            own = ("handle", "type", "dtype")
            made[shape] = {name: value for name, value in vars(self).items() if name not in own}
        else:
            vars(self).update(known, handle=handle, type=type, dtype=type.scalar)

    tl.tensor.__init__ = make_with_known_shape

"""Arguments of a kernel, as a GPU gets them: a plain bool is one bit, and an int has the width of its type."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle


def provide() -> None:
    """Have the interpreter take a bool, which it gives 32 bits and refuses, and an int from 2^31 on, which it gives 32 of 64 bits."""
    convert = interpreter._implicit_cvt

    def converted(argument: Any) -> Any:
        if isinstance(argument, bool):
            return tl.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
        result = convert(argument)
        if isinstance(argument, int):
            result.handle.data = result.handle.data.astype(interpreter._get_np_dtype(result.dtype))
        return result

    interpreter._implicit_cvt = converted

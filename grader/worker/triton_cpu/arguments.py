"""Gives kernels in Triton's interpreter their arguments as a GPU does: a bool as one bit, an int in the width of its
type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle


def provide() -> None:
    """Patch the interpreter, which gives a bool 32 bits and then refuses the bool, and gives an int from 2^31 on 32 of
    its 64 bits.
    """
    convert = interpreter._implicit_cvt

    def converted(argument: Any) -> Any:
        if isinstance(argument, bool):
            return tl.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
        result = convert(argument)
        if isinstance(argument, int):
            result.handle.data = result.handle.data.astype(interpreter._get_np_dtype(result.dtype))
        return result

    interpreter._implicit_cvt = converted

"""The signature of a CUDA entry from problem.toml, and each parameter's value in a call. Imports no PyTorch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

from grader.protocol import Parameter

INPUT, OUTPUT, STREAM = "const float*", "float*", "cudaStream_t"
TYPES = {
    INPUT: ctypes.c_void_p,
    OUTPUT: ctypes.c_void_p,
    STREAM: ctypes.c_void_p,
    "int64_t": ctypes.c_int64,
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
}
# The C++ type of an option in a PyTorch extension.
OF_EXTENSIONS = {"int64_t": "int64_t", "int": "int64_t", "bool": "bool", "float": "double"}


class Signature:
    """Turns a call's inputs, options and outputs into the arguments of a C function.

    Args:
        parameters: of the entry.
        address: returns the address of a tensor's first element. Tensors have a `shape`.
    """

    def __init__(self, parameters: Sequence[Parameter], address: Callable[[Any], int]) -> None:
        self.inputs = [one.name for one in parameters if one.type == INPUT]
        self.outputs = [one.name for one in parameters if one.type == OUTPUT]
        self.sizes = [one.name for one in parameters if one.tensor is not None]
        self.options = [one for one in parameters if one.type in OF_EXTENSIONS and one.tensor is None]
        self.types = [TYPES[one.type] for one in parameters]
        place = {name: number for number, name in enumerate(self.inputs)}
        place |= {one.name: len(self.inputs) + number for number, one in enumerate(self.options)}
        place |= {name: number - len(self.outputs) for number, name in enumerate(self.outputs)}
        self._getters = [_getter(one, place, address) for one in parameters]

    def values(self, arguments: Sequence[Any], stream: int = 0) -> list[int | float]:
        """One number for each parameter. `arguments` are the inputs, then the options, then the outputs."""
        return [get(arguments, stream) for get in self._getters]


def _getter(
    parameter: Parameter, place: dict[str, int], address: Callable[[Any], int]
) -> Callable[[Sequence[Any], int], int | float]:
    at, axis = place.get(parameter.tensor or parameter.name, 0), parameter.axis
    if parameter.type == STREAM:
        return lambda _, stream: stream
    if parameter.type in (INPUT, OUTPUT):
        return lambda arguments, _: address(arguments[at])
    if parameter.tensor is None:
        convert = float if parameter.type == "float" else int
        return lambda arguments, _: convert(arguments[at])
    if axis is None:
        return lambda arguments, _: math.prod(arguments[at].shape)
    return lambda arguments, _: arguments[at].shape[axis]

"""Records what PyTorch's operators move in a traced call.

The tensors of a traced call have the size of a speed case and values that mean nothing. So an operator on large tensors
makes its results without computing them, and their memory costs nothing until it is touched.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch

from grader.protocol import TracedOperator
from grader.worker.memory import allocation
from grader.worker.operators import EMPTY, caller, on_cpu, written_by

LARGE_BYTES = 32 << 20  # The C library takes larger blocks from the system, full of zeros.
MAX_OPERATORS = 64
# Operators that do not read the tensor that they write.
OVERWRITE = frozenset({"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})


class Traffic:
    """Runs the operators of a traced call, and follows the memory that they allocate."""

    def __init__(self) -> None:
        self._moved: dict[tuple[str, str], list[int]] = {}  # by name and place: calls, bytes read and bytes written
        self._numbers: dict[int, int] = {}  # of the allocations in use, by their addresses
        self._next = count()

    def run(self, operator: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """Run an operator in place of PyTorch, and note what it moves."""
        given = on_cpu([*arguments, *options.values()])
        written, read = _written_and_read(operator, arguments, options, given)
        aliases = [one.alias_info for one in operator._schema.returns if one.alias_info is not None]
        if torch.Tag.inplace_view in operator.tags or not all(one.is_write for one in aliases):  # a view
            return operator(*arguments, **options)
        name, is_known = operator.overloadpacket.__name__, False
        if name not in EMPTY and max(_size(arguments), sum(one.nbytes for one in given)) >= LARGE_BYTES:
            result, is_known = _without_values(operator, arguments, options, given, written)
        if not is_known:
            result = operator(*arguments, **options)
        before = {allocation(one)[0] for one in given}
        new = [one for one in on_cpu([result]) if allocation(one)[0] not in before]
        for one in new:
            self._follow(one)
        if (new or written) and name not in EMPTY:
            self._note(name, sum(map(distinct_bytes, read)), sum(map(distinct_bytes, [*new, *written])))
        return result

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """The number of the allocation of this call that a tensor lies in; None for other memory."""
        return self._numbers.get(allocation(tensor)[0])

    def operators(self) -> tuple[TracedOperator, ...]:
        return tuple(TracedOperator(*key, *numbers) for key, numbers in self._moved.items())

    def _note(self, name: str, read: int, written: int) -> None:
        place = caller()
        if place is None or not read + written:  # Triton's own code
            return
        if (name, place) in self._moved or len(self._moved) < MAX_OPERATORS:
            numbers = self._moved.setdefault((name, place), [0, 0, 0])
            for index, more in enumerate((1, read, written)):
                numbers[index] += more

    def _follow(self, tensor: torch.Tensor) -> None:
        start, end = allocation(tensor)
        if end == start or start in self._numbers:
            return
        self._numbers[start] = next(self._next)
        weakref.finalize(tensor.untyped_storage(), self._numbers.pop, start).atexit = False


def distinct_bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements; those at one address, as `expand` makes them, count once."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return math.prod(size for size, stride in sizes if stride or not size) * tensor.element_size()


def _written_and_read(
    operator: Any, arguments: Sequence[Any], options: dict[str, Any], given: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors that an operator writes, of those that it was given, and those that it reads."""
    written: list[torch.Tensor] = []
    name = operator.overloadpacket.__name__
    only_written = {id(one) for one in given} if name.endswith("_like") or name.startswith("new_") else set()
    for parameter, found in written_by(operator, arguments, options):
        written += found
        if name in OVERWRITE or parameter.is_out:
            only_written |= {id(one) for one in found}
    return written, [one for one in given if id(one) not in only_written]


def _without_values(
    operator: Any,
    arguments: Sequence[Any],
    options: dict[str, Any],
    given: list[torch.Tensor],
    written: list[torch.Tensor],
) -> tuple[Any, bool]:
    """The result of an operator on large tensors, with any values, and whether it could be made."""
    if written:
        returns = len(operator._schema.returns)
        return (written[0] if returns else None), returns == 0 or (returns == 1 and len(written) == 1)
    if operator.overloadpacket.__name__.endswith("_like"):
        return torch.empty_like(given[0], **options), True
    try:
        shapes = operator(
            *map(_on_meta, arguments),
            **{name: _on_meta(one) for name, one in options.items()} | ({} if given else {"device": "meta"}),
        )
    except Exception:  # the result depends on values, or PyTorch does not know its shape beforehand
        return None, False
    many = list(shapes) if isinstance(shapes, list | tuple) else [shapes]
    if not all(isinstance(one, torch.Tensor) for one in many):
        return None, False
    made = [torch.empty_strided(one.shape, one.stride(), dtype=one.dtype) for one in many]
    for one in made:
        if one.nbytes < LARGE_BYTES:
            one.zero_()
    return (type(shapes)(made) if isinstance(shapes, list | tuple) else made[0]), True


def _size(arguments: Sequence[Any]) -> int:
    """Elements of the tensor that an operator makes of a size, as `zeros`; 0 for other operators."""
    size = arguments[0] if arguments else None
    return math.prod(size) if isinstance(size, list | tuple) and all(type(one) is int for one in size) else 0


def _on_meta(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_on_meta(one) for one in value]
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return torch.device("meta") if isinstance(value, torch.device) else value

"""Which warp of a program has which element of a block, as far as that can be known.

Nothing in Triton's language says which thread loads or stores an element, and nothing orders the threads of a program but
`tl.debug_barrier()`, atomics, and what makes them wait for each other. The compiler gives each thread 1, 2, 4 ...
neighbours, of at most 16 bytes, and goes round all warps; it counts along the rows of a block or along its columns. Lanes
are taken for lanes of two warps only if they are that by all of these layouts: the same lane of two blocks never is, nor is
any lane of a program with one warp. On an H200 what is told here comes out wrong, and what is not told comes out right.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grader.worker.triton_cpu.order import Ids

WARP = 32  # A warp has this many threads.
VECTOR_BYTES = 16  # A thread loads or stores this many bytes at once.
EVERY = np.int32(-1)  # Stands in place of a lane's number where every thread has the element.


class Block(NamedTuple):
    """Some lanes of a block, by their numbers along its rows."""

    lanes: Ids
    shape: tuple[int, ...]


def differ(one: Block, other: Block, width: int, warps: int) -> NDArray[np.bool_]:
    """Which lanes of the two, each pair of one element of `width` bytes, belong to two warps; none if a layout has none."""
    marked = np.zeros(one.lanes.shape, dtype=bool)
    known = (one.lanes != EVERY) & (other.lanes != EVERY)
    if one.shape == other.shape and bool((one.lanes == other.lanes).all()):
        return marked
    neighbours = [1 << power for power in range(VECTOR_BYTES.bit_length()) if width << power <= VECTOR_BYTES]
    for vector, first, second in product(neighbours, "CF", "CF"):
        marked = known & (_warps(one, first, vector, warps) != _warps(other, second, vector, warps))
        if not marked.any():
            break
    return marked


def _warps(block: Block, order: str, vector: int, warps: int) -> NDArray[np.int64]:
    lanes = block.lanes.astype(np.int64)
    if order == "F" and len(block.shape) > 1:
        lanes = np.ravel_multi_index(np.unravel_index(lanes, block.shape, "C"), block.shape, order="F")
    fits = max(1, int(np.prod(block.shape)) // (WARP * warps))
    found: NDArray[np.int64] = lanes // (WARP * min(vector, fits)) % warps
    return found

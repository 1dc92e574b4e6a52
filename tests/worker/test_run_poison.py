"""Which memory a worker fills with the fill pattern before a call; that it does so is seen on a GPU, by the corpus."""

from __future__ import annotations

from typing import Any

from grader.worker.run import unused_blocks


def segment(address: int, *blocks: tuple[str, int]) -> dict[str, Any]:
    """As `torch.cuda.memory_snapshot()` has them: blocks lie one behind another, and need not tell where."""
    return {"address": address, "blocks": [{"state": state, "size": size} for state, size in blocks]}


def test_free_blocks_are_found_behind_those_in_use() -> None:
    segments = [
        segment(1000, ("active_allocated", 512), ("inactive", 1024), ("active_pending_free", 512), ("inactive", 64)),
        segment(9000, ("inactive", 2048)),
        segment(20000, ("active_allocated", 2048)),
    ]
    assert list(unused_blocks(segments)) == [(1512, 1024), (3048, 64), (9000, 2048)]


def test_nothing_is_there_at_first() -> None:
    assert list(unused_blocks([])) == []

"""A launch's bytes from those of the blocks that ran: what is asked for, and what comes in sectors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.profile.facts import launch_profile, source_line
from grader.profile.launches import Facts, Launch, idle_share
from grader.protocol import TracedAccess
from tests.support.traces import H200, RAN, N, elementwise, of_programs, of_warps, rows, tensor

GB = 1e9


def launch(traced: object = None, **facts: object) -> Launch:
    return Launch(traced or elementwise(), Facts(registers=32) if not facts else Facts(**facts), H200)  # type: ignore[arg-type]


def test_a_few_blocks_stand_for_all() -> None:
    found = launch_profile(launch(), {"kernel.cu": "\n" * 9 + "  y[i] = x[i];\n"})
    reads, writes = found.lines
    assert (reads.bytes, writes.bytes) == (4 * N, 4 * N)
    assert (reads.verb, reads.sectors_ratio, reads.source, reads.conflicts) == ("reads", 1.0, "y[i] = x[i];", None)
    assert found.waves is not None
    assert found.waves.slots == 1056


def test_launches_that_were_alike_count_together() -> None:
    whole, pieces = elementwise(), elementwise(grid=(1024, 1, 1), launches=1024)
    assert launch(pieces).moved_bytes == launch(whole).moved_bytes == 8 * N
    again = elementwise(n=1024, launches=1000)
    assert launch(again).moved_bytes == launch(again).distinct_bytes == 8 * 1024 * 1000


def test_a_launch_that_fits_no_multiprocessor_has_no_waves() -> None:
    found = launch_profile(Launch(elementwise(1024), Facts(registers=255), H200), {})
    assert found.occupancy is not None
    assert (found.occupancy.blocks, found.waves) == (0, None)


def test_what_blocks_read_again_is_moved_again_and_not_different() -> None:
    again = launch(rows(3))
    assert (again.moved_bytes, again.distinct_bytes) == (4 * 4 * N, 2 * 4 * N)
    # 1000 blocks read the same 10 MB.
    own = of_warps("reads", "k", 5, RAN * 10_000_000 // 128)
    shared = replace(elementwise(), grid=(1000, 1, 1), accesses=(own,), tensors=(tensor("k", 1e7, reads=1e7),))
    assert (launch(shared).moved_bytes, launch(shared).distinct_bytes) == (pytest.approx(1e10), 1e7)


def test_lanes_that_ask_for_the_same_bytes_move_them_once() -> None:
    broadcast = replace(of_warps("reads", "w", 5, RAN), sectors=RAN, least_sectors=RAN)
    one = launch(elementwise(accesses=(broadcast,), tensors=(tensor("w", 4, 4),)))
    assert one.asked(broadcast) == 32 * 4 * one.scale * RAN
    assert one.fetched(broadcast) == 32 * one.scale * RAN
    assert one.ratio(broadcast) == 1.0


@pytest.mark.parametrize(
    ("steps", "block", "ratio"),
    [
        ((4,), (1024,), 1.0),
        ((8,), (1024,), 2.0),
        ((65536,), (1024,), 8.0),
        ((65536, 4), (16, 64), 1.0),
        ((65536, 4), (16, 4), 2.0),
        ((4, 65536), (1, 64), 8.0),
        ((0, 4), (16, 64), 1.0),
        ((0,), (64,), 1.0),
        ((-4,), (64,), 1.0),
        ((), (), None),
    ],
)
def test_steps_tell_the_fewest_sectors_of_any_layout(
    steps: tuple[int, ...], block: tuple[int, ...], ratio: float | None
) -> None:
    access = replace(of_programs("reads", "x_ptr", 5, 1024), steps=steps, block=block)
    assert launch().ratio(access) == ratio


def test_shared_memory_has_passes_and_no_sectors() -> None:
    shared = of_warps(
        "reads", "tile", 7, RAN, space="shared", sectors=0, least_sectors=0, passes=32 * RAN, least_passes=RAN
    )
    found = launch_profile(launch(elementwise(accesses=(shared,))), {}).lines[0]
    assert (found.conflicts, found.sectors_ratio) == (32.0, None)


def access(lanes: int, every: int) -> TracedAccess:
    return replace(of_warps("reads", "x", 1, 1), lanes=lanes, lanes_of_all=every)


def test_numbers_of_a_worker_that_lies_stay_in_bounds() -> None:
    assert idle_share(access(64, 32)) == 0.0
    assert idle_share(access(0, 0)) == 0.0
    assert idle_share(access(8, 32)) == 0.75
    wild = elementwise(
        0, ran=0, grid=(1 << 40,) * 3, tensors=(tensor("x", 0, 1 << 60),), launches=1 << 40, shared_bytes=1 << 40
    )
    found = launch_profile(Launch(wild, Facts(registers=0), H200), {})
    assert all(one.bytes >= 0 for one in found.lines)


def test_a_line_beyond_the_file_has_no_source() -> None:
    assert source_line({"a.py": "x\r\ny"}, "a.py", 2) == "y"
    assert source_line({"a.py": "x"}, "a.py", 2) == ""
    assert source_line({"a.py": "x"}, "a.py", 0) == ""
    assert source_line({}, "a.py", 1) == ""


def test_static_shared_memory_counts_once_whoever_tells_it() -> None:
    traced = replace(elementwise(), shared_bytes=1024, static_shared_bytes=4096)
    assert Launch(traced, Facts(), H200).shared_bytes == 5120  # no compiler here
    assert Launch(traced, Facts(registers=32, shared_bytes=4096), H200).shared_bytes == 5120

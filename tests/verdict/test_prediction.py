"""Predicted times: bytes, waits and products against what was measured on an H200."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grader.gpu_table import GPUS, rates
from grader.protocol import TracedDot, TracedLaunch, TracedOperator
from grader.verdict.prediction import LAUNCH_S, Workload, launch_seconds, seconds_by_cause
from grader.verdict.traffic import Facts, Launch
from tests.support.traces import H200, RAN, N, elementwise, of_warps, rows, tensor


def launch(traced: TracedLaunch, **facts: object) -> Launch:
    return Launch(traced, Facts(**({"registers": 32} | facts)), H200)  # type: ignore[arg-type]


def ms(traced: TracedLaunch, **facts: object) -> float:
    return launch_seconds(launch(traced, **facts)) * 1e3


def test_rates_are_measured_or_near_those_of_data_sheets() -> None:
    assert (rates(H200).copy, rates(GPUS["H100"]).copy) == (4.21e12, 3.00e12)
    assert rates(GPUS["A100"]).copy == pytest.approx(1.76e12, rel=0.05)  # NVIDIA: 2.04 by its clocks
    assert rates(GPUS["L4"]).copy == pytest.approx(0.26e12, rel=0.05)  # 0.3
    assert rates(GPUS["A100"]).matmul == pytest.approx(0.73 * 312e12, rel=0.01)
    for gpu in GPUS.values():
        found = rates(gpu)
        assert found.copy < found.l2
        assert found.tiles_tf32 < found.tiles < found.matmul
        assert found.doubles < found.cores


@pytest.mark.parametrize(
    ("traced", "measured"),
    [
        (elementwise(width=16), 0.5045),  # the staff's CUDA GeLU
        (elementwise(width=4), 0.835),  # tests/corpora/accepted/cuda_gelu/plain
        (rows(1), 0.5197),  # the staff's softmax of 16384 columns
    ],
)
def test_measured_times_are_met(traced: TracedLaunch, measured: float) -> None:
    assert ms(traced) == pytest.approx(measured, rel=0.05)


def test_a_second_pass_that_l2_misses_takes_half_as_long_again() -> None:
    once, twice, thrice = (ms(rows(passes, warps=4)) for passes in (1, 2, 3))
    assert twice == pytest.approx(1.5 * once, rel=0.05)
    assert thrice == pytest.approx(2 * once, rel=0.05)


def test_fewer_bytes_on_their_way_take_longer() -> None:
    assert ms(elementwise(256), registers=128) > 1.5 * ms(elementwise(256))


@pytest.mark.parametrize(("threads", "measured"), [(32, 5.05), (96, 1.69), (128, 1.269)])
def test_blocks_start_one_after_another(threads: int, measured: float) -> None:
    """As an H200 measured them in tests/corpora: a float for each thread."""
    assert ms(elementwise(threads)) == pytest.approx(measured, rel=0.03)


def test_a_launch_has_its_own_time() -> None:
    assert ms(elementwise(n=32)) * 1e-3 == pytest.approx(LAUNCH_S, rel=0.5)
    assert ms(elementwise(n=32, launches=100)) == pytest.approx(100 * ms(elementwise(n=32)), rel=0.05)


def attention(flops: float, dtype: str = "bfloat16") -> TracedLaunch:
    """Products of so many FLOPs, in all programs."""
    programs = 3072
    return replace(rows(1, programs, 4096), dots=(TracedDot(30, dtype, round(flops / programs * RAN)),))


def test_products_take_the_time_of_their_dtype() -> None:
    work = 103e9
    assert ms(attention(work)) == pytest.approx(0.26, rel=0.15)  # the staff's at (48, 4096, 64), causal
    assert ms(attention(work, "float32")) == pytest.approx(0.80, rel=0.15)
    assert ms(attention(work), tensor_cores=False) > 2 * ms(attention(work, "float32"))


def test_a_block_alone_in_the_last_wave_is_waited_for() -> None:
    # 528 slots at 128 registers and 256 threads; each block has 4 MB to read with 4 bytes a thread.
    traced = elementwise(grid=(264, 1, 1))
    large = replace(
        traced,
        accesses=tuple(replace(one, requests=1000 * one.requests, lanes=1000 * one.lanes) for one in traced.accesses),
        tensors=(tensor("x", 1e12, 1024 * 1000), tensor("y", 1e12, 0, 1024 * 1000)),
    )
    whole, one_more = (replace(large, grid=(number, 1, 1)) for number in (264, 265))
    assert seconds_by_cause(launch(whole, registers=128))["tail"] == 0
    tail = seconds_by_cause(launch(one_more, registers=128))
    assert 0.2 * tail["all"] < tail["tail"] < 0.6 * tail["all"]
    many = seconds_by_cause(launch(elementwise(), registers=128))
    assert many["tail"] < 0.01 * many["all"], "of thousands of waves one more does not matter"


def test_conflicts_spills_doubles_and_instructions_have_their_seconds() -> None:
    plain = seconds_by_cause(launch(elementwise(width=16)))
    assert plain["shared memory"] == plain["double"] == plain["instructions"] == plain["atomics"] == 0
    busy = of_warps("reads", "tile", 7, RAN * 8, space="shared", sectors=0, least_sectors=0, passes=256 * RAN)
    traced = elementwise(width=16)
    crowded = seconds_by_cause(launch(replace(traced, accesses=(*traced.accesses, busy))))
    assert crowded["shared memory"] == pytest.approx(256 * N / 1024 / (132 * 1.98e9))
    worse = seconds_by_cause(launch(traced, spilled_bytes=4000, doubles=100, instructions=1000))
    assert worse["L2"] == pytest.approx((4000 * N / 4 + 8 * N) / rates(H200).l2)
    assert worse["double"] == pytest.approx(100 * N / 4 / rates(H200).doubles)
    assert worse["instructions"] == pytest.approx(1000 * N / 4 / 32 / 4 / (132 * 1.98e9))


def counter(size: float, **fields: object) -> TracedLaunch:
    """An atomic of each warp beside the GeLU's accesses."""
    traced = elementwise()
    own = of_warps("writes", "count", 12, RAN * 8, atomic=True, sectors=RAN * 8, least_sectors=RAN * 8, **fields)
    return replace(traced, accesses=(*traced.accesses, own), tensors=(*traced.tensors, tensor("count", size, 0, 4)))


def test_atomics_on_one_address_come_one_after_another() -> None:
    one = seconds_by_cause(launch(counter(4)))
    assert one["atomics"] == pytest.approx(1.7 * N / 32 / 1.98e9)
    assert seconds_by_cause(launch(counter(4 * N)))["atomics"] == 0, "blocks have addresses of their own"
    unnamed = replace(counter(4), tensors=elementwise().tensors)
    assert seconds_by_cause(launch(unnamed))["atomics"] == one["atomics"], "all lanes of a warp in one sector"


def case(*launches: Launch, **fields: object) -> Workload:
    usual = {"operators": (), "gpu": H200, "needed_bytes": 8.0 * N}
    return Workload(launches, **(usual | fields))  # type: ignore[arg-type]


def test_operators_take_the_time_of_their_bytes() -> None:
    copied = TracedOperator("clone", "kernel.py:3", 1, 4 * N, 4 * N)
    alone = case(launch(elementwise()))
    more = case(launch(elementwise()), operators=(copied,))
    assert more.seconds - alone.seconds == pytest.approx(8 * N / 4.21e12 + LAUNCH_S)
    assert more.moved_bytes - alone.moved_bytes == 8 * N


def test_the_host_is_waited_for_where_launches_are_many() -> None:
    few, many = (replace(rows(n_rows=1), launches=number) for number in (200, 10_000))
    assert case(launch(few)).seconds == launch_seconds(launch(few))
    assert case(launch(many)).seconds == pytest.approx(10_000 * 20e-6)


def test_the_least_time_is_the_rooflines() -> None:
    assert case().least_seconds == pytest.approx(8 * N / 4.21e12)
    assert case(needed_flops=779e12).least_seconds == pytest.approx(1.0)


def test_no_number_of_a_worker_raises() -> None:
    for grid in ((0, 0, 0), (1 << 40,) * 3):
        wild = elementwise(0, ran=0, grid=grid, accesses=(of_warps("reads", "x", 1, 0),), launches=1 << 40)
        assert launch_seconds(Launch(wild, Facts(registers=0), H200)) >= 0

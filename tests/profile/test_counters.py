"""What Nsight Compute writes becomes counters of kernels; what a submission writes there is no fault of the grader."""

from __future__ import annotations

import csv
import io

import pytest

from grader.pool import tools
from grader.profile.counters import EVERY, MAX_KERNELS, METRICS, MOST, NO_RIGHTS, STALL, counters, why_none

# As Nsight Compute 2025.3 on an H100 wrote them of a softmax and of an attention without loads by lanes.
SOFTMAX = {
    "Grid Size": "(16384, 1, 1)",
    "gpu__time_duration.sum": "725312.00",
    "dram__bytes_read.sum": "1074005760.00",
    "dram__bytes_write.sum": "1051330816.00",
    "lts__t_sector_hit_rate.pct": "50.05",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "91.30",
    "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio": "16.00",
    STALL.format("long_scoreboard"): "30.00",
    STALL.format("barrier"): "15.00",
    STALL.format("wait"): "4.00",
    STALL.format("drain"): "1.00",
}
BEFORE = (
    "==WARNING== Note: Running with unmodified GPU clocks.\n==PROF== Connected to process 14 (/usr/bin/python3.12)\n"
)


def table(*kernels: dict[str, str], before: str = BEFORE) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["ID", "Kernel Name", "Grid Size", *EVERY], quoting=csv.QUOTE_ALL, restval="n/a")
    writer.writeheader()
    writer.writerow(dict.fromkeys(EVERY, "%") | {"ID": "", "Kernel Name": "", "Grid Size": ""})
    for number, kernel in enumerate(kernels):
        writer.writerow({"ID": str(number), "Kernel Name": "void softmax_kernel<4>(float *)"} | kernel)
    return before + out.getvalue()


def test_a_row_is_a_kernel() -> None:
    (found,) = counters(table(SOFTMAX), ("softmax_kernel",))
    assert (found.name, found.own, found.time_ms) == ("softmax_kernel", True, 0.725312)
    assert found.grid == (16384, 1, 1)
    assert (found.dram_read_bytes, found.dram_written_bytes) == (1074005760, 1051330816)
    assert (found.l2_hits, found.occupancy, found.load_sectors) == (0.5005, pytest.approx(0.913), 16)
    assert found.stalls == (
        ("data from memory", 0.6),
        ("other warps, at a barrier", 0.3),
        ("an instruction of a fixed length", 0.08),
    )


def test_a_counter_that_the_gpu_does_not_have_is_not_known() -> None:
    (found,) = counters(table(SOFTMAX | {"gpu__time_duration.sum": "1,725,312"}), ())
    assert (found.l1_hits, found.tensor_busy, found.store_sectors) == (None, None, None)
    assert (found.time_ms, found.own) == (1.725312, False)


def test_kernels_come_in_their_order_and_not_without_end() -> None:
    many = [SOFTMAX | {"Kernel Name": f"k{number}"} for number in range(MAX_KERNELS + 3)]
    assert [one.name for one in counters(table(*many), ())] == [f"k{number}" for number in range(MAX_KERNELS)]


@pytest.mark.parametrize(
    "text", ["", BEFORE, '"ID",\n', '"ID","Kernel Name"\n"0"\n"1","a","b"\n', '"ID",\n"' + "x" * 200_000]
)
def test_what_is_no_table_has_no_counters_or_empty_ones(text: str) -> None:
    assert all((one.dram_read_bytes, one.grid) == (None, None) for one in counters(text, ()))


@pytest.mark.parametrize("number", ["nan", "-1", "inf", "1e999", "1e308", "", "0x10", "٣"])
def test_what_is_no_number_is_not_known(number: str) -> None:
    (found,) = counters(table(dict.fromkeys(EVERY, number)), ())
    known = [getattr(found, field) for field in METRICS]
    assert all(one is None or 0 <= one <= MOST for one in known)
    assert found.time_ms >= 0


def test_why_nothing_was_counted() -> None:
    refused = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert why_none(refused) == NO_RIGHTS
    assert why_none("==ERROR== Failed to connect\n==ERROR== more") == "Failed to connect"
    assert why_none(BEFORE) == "it saw no kernel"


def test_the_command_counts_each_metric_once() -> None:
    words = tools.counters("/opt/ncu", EVERY, 3)
    assert "/opt/ncu" in words
    asked = words[words.index("--metrics") + 1].split(",")
    assert len(asked) == len(set(asked)) == len(EVERY)
    assert words[words.index("--launch-count") + 1] == "3"
    assert words[words.index("--clock-control") + 1] == "none"

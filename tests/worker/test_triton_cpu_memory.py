"""What Triton's interpreter says of kernels that leave their tensors, read unwritten memory, race or change inputs; and of right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "support" / "memory_kernels.py"

# Kernel, and the sentence about it; "" where it is right.
CASES = {
    "load_without_mask": r"out of bounds: program 1 of copy reads x_ptr\[100\], 1 past the last of its 100 elements, in line \d+: "
    "consistent with a missing or wrong mask, or a wrong index",
    "store_without_mask": r"out of bounds: program 1 of copy writes y_ptr\[100\], 1 past the last of its 100 elements, in line \d+: ",
    "before_the_start": r"out of bounds: program 0 of copy reads x_ptr\[-1\], before its start, in line \d+$",
    "past_a_view_in_the_arena": r"out of bounds: program 1 of copy reads x_ptr\[99\], 1 past its last element, x_ptr\[98\], "
    r"of shape \(2, 99\) with strides \(0, 1\), in",
    "into_the_next_input": r"out of bounds: program 2 of beyond reads x_ptr\[128\], 29 past the last of its 100 elements",
    "atomic_beyond": r"out of bounds: program 0 of count updates y_ptr\[1\], 1 past the last of its 1 element, in line",
    "of_no_elements": r"out of bounds: program 0 of copy reads x_ptr, which has no elements, in line",
    "block_pointer_unchecked": r"out of bounds: program 1 of blocks reads x_ptr\[100\], 1 past the last of its 100 elements, in line \d+: "
    "consistent with an axis that boundary_check leaves out, or a shape or strides that are not the tensor's",
    "null_pointer": r"out of bounds: program 0 of from_a_number reads address 8 in line \d+, where no tensor is",
    "unwritten": r"unwritten memory: program 0 of add reads y_ptr\[0\] in line \d+, where nothing has been written yet",
    "unwritten_part": r"unwritten memory: program 0 of add reads y_ptr\[64\] \(\[1, 14\] of shape \(2, 50\)\) in line",
    "unwritten_half": r"unwritten memory: program 0 of add reads y_ptr\[0\] in line",
    "unwritten_atomic": r"unwritten memory: program 0 of count reads y_ptr\[0\] in line",
    "two_programs_write": r"race: program 1 of overlap writes y_ptr\[32\] in line (\d+), and program 0 writes it in line \1: "
    "nothing orders the two, and a GPU runs programs in any order$",
    "writes_beside_its_row": r"race: program 1 of overlap writes y_ptr\[1\] \(\[1, 0\] of shape \(2, 100\) with strides \(1, 2\)\) in line "
    r".* in any order: consistent with an index that takes a tensor to be contiguous: torch.empty_like\(x\) has the strides of x$",
    "reads_what_another_writes": r"race: program 1 of last_reads reads y_ptr\[0\] in line \d+, and program 0 writes it in line \d+: ",
    "writes_what_another_reads": r"race: program \(1, 0\) of first_reads writes y_ptr\[1\] in line \d+, and program \(0, 0\) reads it in",
    "writes_beside_an_atomic": r"race: program 1 of zero_and_count writes y_ptr\[0\] in line \d+, and program 0 updates it in line \d+: ",
    "adds_without_an_atomic": r"race: program 1 of add_to_one reads y_ptr\[0\] in line \d+, and program 0 writes it in line",
    "reads_before_the_atomic": r"race: program 1 of late_store reads y_ptr\[0\] in line \d+, and program 0 writes it in line",
    "input_changed": r"changed input: program 0 of copy changes y_ptr\[0\] in line \d+, memory of an input: the function must leave",
    "input_added_to": r"changed input: program 0 of count changes y_ptr\[0\] in line",
    "caught_by_the_submission": r"out of bounds: program 1 of copy writes y_ptr\[100\]",
    "cast_pointer_into_the_next_input": r"out of bounds: program 0 of far_integer reads x_ptr\[130\], 31 past the last of its 100 elements",
    "view_without_strides": r"out of bounds: program 0 of copy reads x_ptr\[1\], 1 past its last element, x_ptr\[0\], of shape \(2, 100\) "
    r"with strides \(0, 0\), in line",
    "reads_what_another_thread_writes": r"race: program 0 of there_and_back reads y_ptr\[255\] in line \d+, and another thread of the "
    r"same program writes it in line \d+, with no tl\.debug_barrier\(\) between: on a GPU a program is many threads, and each goes on",
    "reads_it_in_a_later_turn": r"race: program 0 of there_and_back reads y_ptr\[\d+\] in line \d+, and another thread",
    "reads_it_with_eight_warps": r"race: program 0 of there_and_back reads y_ptr\[255\] in line \d+, and another thread",
    "writes_what_another_thread_reads": r"race: program 0 of turned_in_place writes y_ptr\[0\] in line (\d+), and another thread of the "
    r"same program reads it in line \1, with",
    "writes_what_another_thread_writes": r"race: program 0 of written_twice writes y_ptr\[255\] in line \d+, and another thread of the "
    r"same program writes it in line",
    "number_that_another_thread_writes": r"race: program 0 of by_way_of_a_number reads y_ptr\[0\] in line \d+, and another thread of the",
    "masked": "",
    "in_place": "",
    "view_of_a_larger_tensor": "",
    "overlapping_tiles": "",
    "sum_by_atomics": "",
    "last_one_by_a_counter": "",
    "chain_of_counters": "",
    "written_by_pytorch": "",
    "written_by_an_earlier_kernel": "",
    "half_that_looks_like_poison": "",
    "pointers_in_a_table": "",
    "one_of_two_pointers": "",
    "pointer_to_other_numbers": "",
    "freed_and_taken_again": "",
    "pointer_to_what_was_there_before": "",
    "same_number_into_an_input": "",
    "reads_its_own_lanes": "",
    "reads_after_a_barrier": "",
    "reads_after_a_sum": "",
    "reads_with_one_warp": "",
    "reads_within_a_warp": "",
    "reads_blocks_of_half_the_size": "",
    "reads_columns_by_columns": "",
    "writes_the_same_twice": "",
    "number_after_a_barrier": "",
    "number_for_a_number": "",
    "a_grid_of_nothing": "",
}


@cache
def _said() -> dict[str, str]:
    """What is said of every kernel, in a process of its own: that kernels are interpreted is decided when Triton is imported."""
    run = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    said: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_access_is_told_and_a_right_kernel_is_left_alone(name: str) -> None:
    import re

    said = _said()[name]
    assert re.match(CASES[name], said) if CASES[name] else said == "", said


def test_the_table_names_every_kernel() -> None:
    assert list(_said()) == list(CASES)

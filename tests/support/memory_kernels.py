"""Kernels of test_triton_cpu_memory.py, which runs this file. Calls each function, and prints the checker's words by
name as JSON.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"
from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from grader.worker import errors, interpreter, triton_cpu
from grader.worker.operators import OperatorWatch, watching

ARENA = torch.arange(1000, dtype=torch.float32)
X = ARENA[100:200]  # an input of each call; another input lies beside it
NEXT = ARENA[228:328]
KEPT = torch.zeros(100)


@triton.jit
def copy(x_ptr, y_ptr, n, m, start, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(x_ptr + start + at, mask=at < n)
    tl.store(y_ptr + at, x, mask=at < m)


@triton.jit
def add(x_ptr, y_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(y_ptr + at, y + tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def count(y_ptr, at):
    tl.atomic_add(y_ptr + at, 1.0)


@triton.jit
def blocks(x_ptr, y_ptr, n, block: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (n,), (1,), (tl.program_id(0) * block,), (block,), (0,))
    y = tl.make_block_ptr(y_ptr, (n,), (1,), (tl.program_id(0) * block,), (block,), (0,))
    tl.store(y, tl.load(x), boundary_check=(0,))


@triton.jit
def there_and_back(y_ptr, z_ptr, n, step, first, meets: tl.constexpr, block: tl.constexpr):
    lane = tl.arange(0, block)
    for start in range(0, n, block):
        tl.store(y_ptr + start + lane, lane * 1.0)
    if meets == 1:
        tl.debug_barrier()
    if meets == 2:
        tl.store(z_ptr, tl.sum(lane * 1.0, axis=0))
    for start in range(0, n, block):
        tl.store(z_ptr + start + lane, tl.load(y_ptr + start + first + step * lane))


@triton.jit
def in_halves(y_ptr, z_ptr, block: tl.constexpr, half: tl.constexpr):
    tl.store(y_ptr + tl.arange(0, block), 1.0)
    for start in range(0, block, half):
        at = start + tl.arange(0, half)
        tl.store(z_ptr + at, tl.load(y_ptr + at))


@triton.jit
def columns_of_rows(y_ptr, z_ptr, side: tl.constexpr):
    lane = tl.arange(0, side)
    at = lane[:, None] * side + lane[None, :]
    tl.store(y_ptr + at, 1.0)
    tl.store(z_ptr + at, tl.load(y_ptr + tl.trans(at)))


@triton.jit
def turned_in_place(y_ptr, block: tl.constexpr):
    lane = tl.arange(0, block)
    tl.store(y_ptr + lane, tl.load(y_ptr + block - 1 - lane))


@triton.jit
def written_twice(y_ptr, number, block: tl.constexpr):
    lane = tl.arange(0, block)
    tl.store(y_ptr + lane, 0.0)
    tl.store(y_ptr + block - 1 - lane, number * 1.0)


@triton.jit
def by_way_of_a_number(y_ptr, z_ptr, meets: tl.constexpr, last: tl.constexpr, block: tl.constexpr):
    tl.store(y_ptr, 0.0)
    for number in range(3):
        tl.store(y_ptr, tl.load(y_ptr) + number)
    if meets:
        tl.debug_barrier()
    if last:
        tl.store(z_ptr, tl.load(y_ptr))
    else:
        tl.store(z_ptr + tl.arange(0, block), tl.load(y_ptr) + tl.zeros((block,), tl.float32))


@triton.jit
def from_a_number(address, y_ptr):
    tl.store(y_ptr, tl.load(address.to(tl.int64).to(tl.pointer_type(tl.float32))))


@triton.jit
def overlap(y_ptr, step, same: tl.constexpr):
    at = tl.program_id(0) * step + tl.arange(0, 64)
    tl.store(y_ptr + at, at.to(tl.float32) if same else tl.program_id(0).to(tl.float32) + at)


@triton.jit
def last_reads(y_ptr):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(y_ptr + 1, tl.load(y_ptr))
    else:
        tl.store(y_ptr + tl.program_id(0) * 2, 1.0)


@triton.jit
def first_reads(y_ptr):
    if tl.program_id(0) == 0:
        tl.store(y_ptr, tl.load(y_ptr + 1))
    else:
        tl.store(y_ptr + 1, 5.0)


@triton.jit
def zero_and_count(y_ptr):
    tl.store(y_ptr, 0.0)
    tl.atomic_add(y_ptr, 1.0)


@triton.jit
def add_to_one(y_ptr):
    tl.store(y_ptr, tl.load(y_ptr) + 1.0)


@triton.jit
def late_store(y_ptr, counter_ptr):
    tl.atomic_add(counter_ptr, 1)
    tl.store(y_ptr + tl.program_id(0), 1.0)
    if tl.program_id(0) == 1:
        tl.store(y_ptr + 1, tl.load(y_ptr))


@triton.jit
def counted(x_ptr, part_ptr, counter_ptr, y_ptr, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))
    if tl.atomic_add(counter_ptr, 1) == tl.num_programs(0) - 1:
        parts = tl.arange(0, 8)
        tl.store(y_ptr, tl.sum(tl.load(part_ptr + parts, mask=parts < tl.num_programs(0), other=0.0), 0))


@triton.jit
def chained(part_ptr, counter_ptr, y_ptr):
    """Each program meets only the program before it, and the last one reads the first one's value."""
    me = tl.program_id(0)
    tl.store(part_ptr + me, 1.0)
    if me > 0:
        tl.atomic_add(counter_ptr + me - 1, 1)
    tl.atomic_add(counter_ptr + me, 1)
    if me == tl.num_programs(0) - 1:
        tl.store(y_ptr, tl.load(part_ptr))


@triton.jit
def from_a_table(table_ptr, y_ptr):
    x_ptr = tl.load(table_ptr + 1).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr, tl.load(x_ptr + 3))


@triton.jit
def either(x_ptr, z_ptr, y_ptr):
    lanes = tl.arange(0, 64)
    at = tl.where(lanes < 32, x_ptr + lanes, z_ptr + lanes - 32)
    tl.store(y_ptr + lanes, tl.load(at))


@triton.jit
def as_integers(x_ptr, y_ptr):
    bits = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + tl.arange(0, 64))
    tl.store(y_ptr.to(tl.pointer_type(tl.int32)) + tl.arange(0, 64), bits)


@triton.jit
def beyond(x_ptr, y_ptr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=(at < 100) | (at >= 128)))


@triton.jit
def far_integer(x_ptr, y_ptr):
    bits = tl.load(x_ptr.to(tl.pointer_type(tl.int32)) + 130)
    tl.store(y_ptr, bits.to(tl.float32))


def _copied(x, y, *, n=100, m=100, start=0, programs=2):
    copy[(programs,)](x, y, n, m, start, 64)


def load_without_mask():
    _copied(X, torch.empty(100), n=10**6)


def store_without_mask():
    _copied(X, torch.empty(100), m=10**6)


def before_the_start():
    _copied(X, torch.empty(100), start=-1)


def past_a_view_in_the_arena():
    _copied(X[1:].expand(2, 99), torch.empty(100), n=10**6)


def into_the_next_input():
    beyond[(3,)](X, torch.empty(200), 64)


def atomic_beyond():
    count[(1,)](torch.zeros(1), 1)


def of_no_elements():
    _copied(torch.empty(0), torch.empty(100))


def block_pointer_unchecked():
    blocks[(2,)](X, torch.empty(100), 100, 64)


def null_pointer():
    from_a_number[(1,)](8, torch.empty(1))


def unwritten():
    add[(2,)](X, torch.empty(100), 100, 64)


def unwritten_part():
    y = torch.empty(2, 50)
    copy[(1,)](X, y, 100, 100, 0, 64)
    add[(1,)](X, y, 100, 128)


def unwritten_half():
    add[(2,)](X, torch.empty(100, dtype=torch.float16), 100, 64)


def unwritten_atomic():
    count[(1,)](torch.empty(1), 0)


def two_programs_write():
    overlap[(2,)](torch.empty(200), 32, False)


def writes_beside_its_row():
    overlap[(2,)](torch.empty(100, 2).t(), 64, False)
    overlap[(2,)](torch.empty(100, 2).t(), 1, False)


def reads_what_another_writes():
    last_reads[(2,)](torch.zeros(4))


def writes_what_another_reads():
    first_reads[(2, 2)](torch.zeros(4))


def writes_beside_an_atomic():
    zero_and_count[(2,)](torch.zeros(1))


def adds_without_an_atomic():
    add_to_one[(2,)](torch.zeros(1))


def reads_before_the_atomic():
    late_store[(2,)](torch.zeros(2), torch.zeros(1, dtype=torch.int32))


def input_changed():
    _copied(X, NEXT)


def input_added_to():
    count[(1,)](X, 0)


def caught_by_the_submission():
    with contextlib.suppress(Exception):
        store_without_mask()


def cast_pointer_into_the_next_input():
    far_integer[(1,)](X, torch.empty(1))


def view_without_strides():
    _copied(torch.zeros(1).expand(2, 100), torch.empty(100))


def reads_what_another_thread_writes():
    there_and_back[(1,)](torch.empty(512), torch.empty(512), 512, -1, 255, 0, 256)


def reads_it_in_a_later_turn():
    there_and_back[(1,)](torch.zeros(600), torch.empty(512), 512, 1, 33, 0, 256)


def reads_it_with_eight_warps():
    there_and_back[(1,)](torch.empty(256), torch.empty(256), 256, -1, 255, 0, 256, num_warps=8)


def writes_what_another_thread_reads():
    turned_in_place[(1,)](torch.zeros(256).random_(), 256)


def writes_what_another_thread_writes():
    written_twice[(1,)](torch.empty(256), 1, 256)


def number_that_another_thread_writes():
    by_way_of_a_number[(1,)](torch.empty(1), torch.empty(256), False, False, 256)


def masked():
    y = torch.empty(100)
    _copied(X, y)
    assert torch.equal(X, y)


def in_place():
    y = torch.empty(100).copy_(X)
    add[(2,)](y, y, 100, 64)


def view_of_a_larger_tensor():
    whole = torch.zeros(100)
    _copied(whole[40:60], whole.clone()[:60], start=-40)


def overlapping_tiles():
    overlap[(3,)](torch.empty(200), 32, True)


def sum_by_atomics():
    count[(5,)](torch.zeros(1), 0)


def last_one_by_a_counter():
    y = torch.empty(1)
    counted[(2,)](X, torch.empty(2), torch.zeros(1, dtype=torch.int32), y, 100, 64)


def chain_of_counters():
    chained[(4,)](torch.empty(4), torch.zeros(4, dtype=torch.int32), torch.empty(1))


def written_by_pytorch():
    y = torch.empty(100)
    y[:64].zero_()
    y[64:] = 1.0
    add[(2,)](X, y, 100, 64)


def written_by_an_earlier_kernel():
    y = torch.empty(100)
    _copied(X, y)
    add[(2,)](X, y, 100, 64)


def half_that_looks_like_poison():
    x = torch.full((100,), 0x7B7B, dtype=torch.int16).view(torch.float16)
    y = torch.empty(100, dtype=torch.float16)
    _copied(x, y)
    add[(2,)](x, y, 100, 64)
    z = torch.empty(100, dtype=torch.float16).copy_(x)
    _copied(z, torch.empty(100, dtype=torch.float16))


def pointers_in_a_table():
    from_a_table[(1,)](torch.tensor([0, X.data_ptr()]), torch.empty(1))


def one_of_two_pointers():
    z = torch.zeros(100)
    y = torch.empty(64)
    either[(1,)](z, z[50:].clone(), y)


def pointer_to_other_numbers():
    as_integers[(1,)](X, torch.empty(64))


def freed_and_taken_again():
    like_poison = torch.full((100,), 0x7B7B, dtype=torch.int16)
    for _ in range(20):
        y = torch.empty(100, dtype=torch.float16)
        _copied(X, y)
        del y
        y = like_poison.clone().view(torch.float16)
        add[(2,)](X, y, 100, 64)


def pointer_to_what_was_there_before():
    from_a_table[(1,)](torch.tensor([0, KEPT.data_ptr()]), torch.empty(1))


def same_number_into_an_input():
    _copied(X, X)


def reads_its_own_lanes():
    there_and_back[(1,)](torch.empty(512), torch.empty(512), 512, 1, 0, 0, 256)


def reads_after_a_barrier():
    there_and_back[(1,)](torch.empty(512), torch.empty(512), 512, -1, 255, 1, 256)


def reads_after_a_sum():
    there_and_back[(1,)](torch.empty(512), torch.empty(512), 512, -1, 255, 2, 256)


def reads_with_one_warp():
    there_and_back[(1,)](torch.empty(512), torch.empty(512), 512, -1, 255, 0, 256, num_warps=1)


def reads_within_a_warp():
    there_and_back[(1,)](torch.empty(64), torch.empty(64), 64, -1, 31, 0, 32)


def reads_blocks_of_half_the_size():
    in_halves[(1,)](torch.empty(512), torch.empty(512), 512, 256)


def reads_columns_by_columns():
    columns_of_rows[(1,)](torch.empty(1024), torch.empty(1024), 32)


def writes_the_same_twice():
    written_twice[(1,)](torch.empty(256), 0, 256)


def number_after_a_barrier():
    by_way_of_a_number[(1,)](torch.empty(1), torch.empty(256), True, False, 256)


def number_for_a_number():
    by_way_of_a_number[(1,)](torch.empty(1), torch.empty(1), False, True, 256)


def a_grid_of_nothing():
    copy[(0,)](X, torch.empty(0), 0, 0, 0, 64)


def _said(call) -> str:
    checks = interpreter.INTERPRETER
    checks.begin_call(ARENA, [X, NEXT])
    try:
        with watching(OperatorWatch(run=checks.run_operator)):
            call()
        checks.raise_fault()
    except Exception as error:
        return errors.describe(error).message
    return ""


def main() -> None:
    errors.set_root(Path(__file__).parent)
    triton_cpu.provide()
    names = [name for name, value in globals().items() if _is_case(name, value)]
    print(json.dumps({name: _said(globals()[name]) for name in names}))


def _is_case(name: str, value: object) -> bool:
    return (
        callable(value)
        and getattr(value, "__module__", "") == "__main__"
        and not name.startswith("_")
        and name != "main"
        and type(value) is type(main)
    )


if __name__ == "__main__":
    main()

"""The arena on a CPU: inputs arrive as they are, writes are found wherever they go, and the worker cannot take it away."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from grader.judge.asking import check_memory
from grader.pool import arena as arena_module
from grader.pool.arena import ALIGNMENT, GUARD_BYTES, Arena, OutOfBounds, Slot
from grader.pool.fault import Fault
from grader.protocol import FILL_BYTE, GUARD_BYTE, Memory, Ref
from grader.verdict.fill import holds_fill
from tests.support.open_files import open_files

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@contextlib.contextmanager
def worker_view(arena: Arena) -> Iterator[torch.Tensor]:
    """The arena's bytes as a worker maps them: all it has is the passed file and the address."""
    (file,) = arena.files
    passed = os.dup(file)
    try:
        memory = torch.frombuffer(mmap.mmap(passed, arena.address.bytes), dtype=torch.uint8)
        yield memory
    finally:
        os.close(passed)


def tensor_at(memory: torch.Tensor, slot: Slot) -> torch.Tensor:
    """The tensor that a slot's description promises a worker."""
    ref = slot.ref()
    dtype = getattr(torch, ref.dtype)
    assert ref.start_bytes % dtype.itemsize == 0
    return torch.empty(0, dtype=dtype).set_(
        memory.untyped_storage(), ref.start_bytes // dtype.itemsize, ref.shape, ref.stride
    )


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Equal, NaN and signs of zero included."""
    one, other = (
        torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1)) for tensor in (first, second)
    )
    return first.shape == second.shape and torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Two inputs of 40 and 24 bytes, two outputs of 48 and 4."""
    inputs = {"a": normal(10), "b": normal(2, 3, seed=1)}
    with Arena(inputs, {"y": (3, 4), "z": (1,)}, torch.float32, CPU) as arena:
        yield arena


# Layout ---------------------------------------------------------------------------------------------------------------


def test_every_tensor_lies_aligned_between_guard_bands(arena: Arena) -> None:
    slots = [*arena.inputs.values(), *arena.outputs.values()]
    assert [(slot.name, slot.length) for slot in slots] == [("a", 40), ("b", 24), ("y", 48), ("z", 4)]
    end = 0
    for slot in slots:
        assert slot.offset % ALIGNMENT == 0
        assert slot.offset - end >= GUARD_BYTES
        end = slot.offset + slot.length
    assert arena.bytes.numel() - end >= GUARD_BYTES
    assert arena.address == Memory(arena.bytes.numel())
    assert arena.bytes.numel() % arena_module.GRANULE_BYTES == 0, (
        "CUDA IPC opens a whole block: nothing else may lie in it"
    )
    y = arena.outputs["y"]
    assert y.ref() == Ref("float32", y.offset, (3, 4), (4, 1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_outputs_start_as_the_fill_pattern_between_guard_bands(dtype: torch.dtype) -> None:
    with Arena({"x": normal(5)}, {"y": (4, 3), "e": (0, 2), "s": ()}, dtype, CPU) as arena:
        for name, shape in (("y", (4, 3)), ("e", (0, 2)), ("s", ())):
            output = arena.output(name)
            assert output.shape == shape
            assert output.dtype == dtype
            assert bool(holds_fill(output).all())
        slot = arena.inputs["x"]
        before, after = arena.bytes[: slot.offset], arena.bytes[slot.offset + slot.length :]
        y = arena.outputs["y"]
        assert bool((before == GUARD_BYTE).all())
        assert bool((after[: y.offset - slot.offset - slot.length] == GUARD_BYTE).all())
        assert int((arena.bytes == FILL_BYTE).sum()) == (12 + 1) * dtype.itemsize


@pytest.mark.parametrize("start", [1, 2, 63])
def test_an_output_may_start_beyond_an_aligned_address_directly_between_guards(start: int) -> None:
    with Arena({"x": normal(5)}, {"y": (10,), "z": (3,)}, torch.float32, CPU, {"y": start}) as arena:
        y, z = arena.outputs["y"], arena.outputs["z"]
        assert [slot.ref().start_bytes % ALIGNMENT for slot in (y, z)] == [4 * start, 0]
        assert bool(holds_fill(arena.output("y")).all())
        with worker_view(arena) as memory:
            tensor_at(memory, y).copy_(torch.arange(10.0))
        assert arena.output("y").tolist() == list(range(10))
        assert out_of_bounds_after(arena, y.offset - 1, y.offset + 40) == [
            OutOfBounds("y", -1, 1),
            OutOfBounds("y", 0, 1),
        ]


# Inputs arrive as they are --------------------------------------------------------------------------------------------

base = normal(8, 6, 4)
LAYOUTS = {
    "contiguous": base,
    "transposed": base.transpose(0, 2),
    "slice of columns": base[:, :, 1:3],
    "every second": base[::2, 1::2],
    "misaligned start": base.flatten()[1:],
    "expanded": base[:, :1].expand(8, 6, 4),
    "expanded scalar": torch.tensor(2.5).expand(3, 4),
    "overlapping windows": base.flatten().as_strided((10, 5), (2, 1), 3),
    "empty": base[:0],
    "empty without storage": torch.empty(0),
    "scalar": torch.tensor(1.5),
    "bfloat16, odd start": normal(33, dtype=torch.bfloat16)[1:],
    "float16 transposed": normal(5, 7, dtype=torch.float16).t(),
    "float64": normal(9, dtype=torch.float64),
    "special values": torch.tensor([math.nan, math.inf, -math.inf, -0.0, 1e-45]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_input_of_any_layout_arrives_intact(layout: str) -> None:
    x = LAYOUTS[layout]
    with Arena({"first": normal(3), "x": x}, {"y": (2,)}, x.dtype, CPU) as arena, worker_view(arena) as memory:
        arrived = tensor_at(memory, arena.inputs["x"])
        assert arrived.stride() == x.stride()
        # A kernel that only works on 16-byte aligned memory must meet the memory that the case promises it.
        assert arena.inputs["x"].start_bytes % ALIGNMENT == x.storage_offset() * x.element_size() % ALIGNMENT
        assert same_bits(arrived, x)
        assert arena.changed_inputs() == []
        assert arena.out_of_bounds() == []


def test_an_input_whose_storage_is_not_aligned_to_words_is_looked_at_all_the_same() -> None:
    x = torch.frombuffer(bytearray(84), dtype=torch.float32, offset=4)
    assert x.data_ptr() % 8 == 4
    with Arena({"x": x}, {}, torch.float32, CPU) as arena, worker_view(arena) as memory:
        assert arena.changed_inputs() == []
        tensor_at(memory, arena.inputs["x"])[-1] = 1.0
        assert arena.changed_inputs() == ["x"]


def test_inputs_that_share_a_storage_each_arrive() -> None:
    whole = normal(30)
    inputs = {"q": whole[:10], "k": whole[10:20], "v": whole[20:]}
    with Arena(inputs, {}, torch.float32, CPU) as arena, worker_view(arena) as memory:
        for name, tensor in inputs.items():
            assert torch.equal(tensor_at(memory, arena.inputs[name]), tensor)
        tensor_at(memory, arena.inputs["k"]).zero_()
        assert arena.changed_inputs() == ["k"]


# What a worker writes is seen -----------------------------------------------------------------------------------------


def test_an_output_that_was_read_can_no_longer_be_changed(arena: Arena) -> None:
    """A worker that goes on writing after its answer changes nothing; and the answer outlives the arena."""
    with worker_view(arena) as memory:
        tensor_at(memory, arena.outputs["y"]).fill_(1.0)
        before = arena.output("y")
        memory.zero_()
        assert bool((before == 1.0).all())
    assert bool((arena.output("y") == 0.0).all())
    start = arena.bytes.data_ptr()
    assert not start <= before.data_ptr() < start + arena.bytes.numel()


WIDE = normal(4, 10)


@pytest.mark.parametrize(
    ("x", "byte", "flipped", "changed"),
    [
        (normal(10), 0, 1, True),
        (normal(10), 1, 1, True),
        (normal(10), 39, 1, True),
        (WIDE[:, 2:5], 0, 1, True),  # what lies between the rows of a slice is the student's to read, not to write
        (torch.zeros(4), 3, 128, True),  # a negative zero
        (torch.full((4,), math.nan), 0, 0, False),
    ],
)
def test_one_changed_byte_of_an_inputs_storage_is_found(
    x: torch.Tensor, byte: int, flipped: int, changed: bool
) -> None:
    with Arena({"w": normal(3), "x": x}, {}, torch.float32, CPU) as arena, worker_view(arena) as memory:
        memory[arena.inputs["x"].offset + byte] ^= flipped
        assert arena.changed_inputs() == (["x"] if changed else [])


def test_long_inputs_are_compared_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_module, "CHECK_BYTES", 64)
    x = normal(100)
    for byte in (0, 63, 64, 200, 399):
        with Arena({"x": x, "other": normal(3)}, {}, torch.float32, CPU) as arena, worker_view(arena) as memory:
            memory[arena.inputs["x"].offset + byte] ^= 128
            assert arena.changed_inputs() == ["x"]


# Batch after batch ----------------------------------------------------------------------------------------------------


def test_after_a_wipe_nothing_of_inputs_and_outputs_is_left(arena: Arena) -> None:
    with worker_view(arena) as memory:
        tensor_at(memory, arena.outputs["y"]).fill_(1.0)
        memory[0] = 0  # a write out of bounds
        arena.wipe()
        for slot in arena.inputs.values():
            assert bool((memory[slot.offset : slot.offset + slot.length] == GUARD_BYTE).all())
    assert all(bool(holds_fill(arena.output(name)).all()) for name in ("y", "z"))
    assert int((arena.bytes == FILL_BYTE).sum()) == 48 + 4
    assert int((arena.bytes == GUARD_BYTE).sum()) == arena.bytes.numel() - 48 - 4
    assert arena.out_of_bounds() == []
    assert arena.changed_inputs() == ["a", "b"]


def test_only_the_named_inputs_are_filled_in_and_looked_at(arena: Arena) -> None:
    """A worker has not seen the inputs of the calls that it was not asked for. Outputs stay as they are."""
    arena.wipe()
    with worker_view(arena) as memory:
        tensor_at(memory, arena.outputs["y"]).fill_(1.0)
        arena.fill(arena.copies(["b"]))
        assert torch.equal(tensor_at(memory, arena.inputs["b"]), normal(2, 3, seed=1))
        a = arena.inputs["a"]
        assert bool((memory[a.offset : a.offset + a.length] == GUARD_BYTE).all())
    assert arena.changed_inputs() == arena.changed_inputs(["b", "a"]) == ["a"]
    assert arena.changed_inputs(["b"]) == arena.changed_inputs([]) == arena.out_of_bounds() == []
    arena.fill(arena.copies(["a"]))
    assert arena.changed_inputs() == []
    assert bool((arena.output("y") == 1.0).all())
    assert bool(holds_fill(arena.output("z")).all())


def test_other_inputs_take_the_places_of_the_first_once_they_are_filled_in(arena: Arena) -> None:
    where, before = {name: slot.ref() for name, slot in arena.inputs.items()}, arena.bytes.clone()
    others = {"a": normal(10, seed=8), "b": normal(2, 3, seed=9)}
    arena.forget()
    arena.replace(others)
    assert torch.equal(arena.bytes, before)
    assert arena.changed_inputs() == ["a", "b"]
    arena.wipe()
    arena.fill(arena.copies(["a", "b"]))
    assert {name: slot.ref() for name, slot in arena.inputs.items()} == where
    with worker_view(arena) as memory:
        for name, tensor in others.items():
            assert torch.equal(tensor_at(memory, arena.inputs[name]), tensor)
    assert (arena.changed_inputs(), arena.out_of_bounds()) == ([], [])


def test_forgotten_inputs_free_their_memory() -> None:
    x = normal(10)
    gone = weakref.ref(x)
    with Arena({"x": x}, {}, torch.float32, CPU) as arena:
        del x
        assert gone() is not None
        arena.forget()
        assert gone() is None


# Writes out of bounds ----------------------------------------------------------------------------------------------------


def out_of_bounds_after(arena: Arena, *places: int) -> list[OutOfBounds]:
    with worker_view(arena) as memory:
        for place in places:
            memory[place] = 0
    return arena.out_of_bounds()


@pytest.mark.parametrize("distance", [0, 1, 100, GUARD_BYTES // 2 - 256, -1, -4, -100, 256 - GUARD_BYTES // 2])
def test_a_write_past_the_end_or_before_the_start_is_placed(arena: Arena, distance: int) -> None:
    slot = arena.outputs["y"]
    edge = slot.offset + (slot.length if distance >= 0 else 0)
    assert out_of_bounds_after(arena, edge + distance) == [OutOfBounds("y", distance, 1)]


def test_the_first_and_the_last_band_belong_to_the_only_neighbour(arena: Arena) -> None:
    last = arena.bytes.numel() - 1
    end = arena.outputs["z"].offset + arena.outputs["z"].length
    assert out_of_bounds_after(arena, 0, last) == [
        OutOfBounds("a", -arena.inputs["a"].offset, 1),
        OutOfBounds("z", last - end, 1),
    ]


def test_writes_into_several_bands_are_told_apart(arena: Arena) -> None:
    a, b, z = arena.inputs["a"], arena.inputs["b"], arena.outputs["z"]
    ends = [slot.offset + slot.length for slot in (a, z)]
    found = out_of_bounds_after(arena, ends[0], ends[0] + 1, ends[0] + 5, b.offset + b.length + 8, ends[1] + 2)
    assert found == [OutOfBounds("a", 0, 2), OutOfBounds("b", 8, 1), OutOfBounds("z", 2, 1)]
    assert [write.places for write in found] == [(0, 1), (2,), (0,)]


@pytest.mark.parametrize(
    ("bits", "first"),
    [(0x3FA00000, 0), (0x7FFFFFFF, 3)],  # 1.25; NaN as a GPU makes it, where the guard is 0xFFFFFFFF
)
def test_a_run_of_elements_past_the_end_is_counted(arena: Arena, bits: int, first: int) -> None:
    end = arena.outputs["y"].offset + arena.outputs["y"].length
    with worker_view(arena) as memory:
        memory[end : end + 40].view(torch.int32).fill_(bits)
    assert arena.out_of_bounds() == [OutOfBounds("y", first, 10)]


def test_writes_between_two_tensors_belong_to_the_nearer(arena: Arena) -> None:
    y, z = arena.outputs["y"], arena.outputs["z"]
    end = y.offset + y.length
    assert out_of_bounds_after(arena, end + 10, z.offset - 9) == [OutOfBounds("z", -9, 2)]
    assert arena.out_of_bounds()[0].places[0] == -3


def test_no_band_is_missed(arena: Arena) -> None:
    """Every byte that belongs to no tensor is guarded, the padding of the alignment too."""
    slots = [*arena.inputs.values(), *arena.outputs.values()]
    inside = torch.zeros(arena.bytes.numel(), dtype=torch.bool)
    for slot in slots:
        inside[slot.offset : slot.offset + slot.length] = True
    with worker_view(arena) as memory:
        memory.masked_fill_(inside, 0)
        assert arena.out_of_bounds() == []
        memory.fill_(0)
    assert 4 * sum(write.elements for write in arena.out_of_bounds()) == int((~inside).sum())
    assert len(arena.out_of_bounds()) == len(slots) + 1


@pytest.mark.parametrize(
    ("write", "dtype", "words"),
    [
        (
            OutOfBounds("y", 0, 1),
            torch.float32,
            "wrote 1 element past the end of y, from 0 past it: consistent with a missing mask",
        ),
        (OutOfBounds("y", 4, 3), torch.bfloat16, "wrote 3 elements past the end of y, from 2 past it"),
        (OutOfBounds("y", -1, 1), torch.float32, "before the start of y: the nearest is 1 before element 0"),
    ],
)
def test_an_out_of_bounds_write_is_told_in_elements(write: OutOfBounds, dtype: torch.dtype, words: str) -> None:
    with pytest.raises(Fault, match=words):
        check_memory([], [write], dtype)


# The memory itself ----------------------------------------------------------------------------------------------------


def test_it_has_no_name_that_could_be_left_behind_and_is_not_inherited(arena: Arena) -> None:
    (file,) = arena.files
    assert os.fstat(file).st_nlink == 0
    assert "(deleted)" in os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
    assert not os.get_inheritable(file)


def mapped(inode: int) -> bool:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return any(f" {inode} " in line and "grader-arena" in line for line in maps)


def test_nothing_of_an_arena_outlives_it_even_after_an_error() -> None:
    before = open_files(first=True)
    with (
        contextlib.suppress(ZeroDivisionError),
        Arena({"x": normal(10)}, {"y": (10,)}, torch.float32, CPU) as arena,
    ):
        inode = os.fstat(arena.files[0]).st_ino
        assert mapped(inode)
        _ = 1 / 0
    assert open_files() == before
    assert not mapped(inode)


@pytest.mark.parametrize("call", ["posix_fallocate", "mmap"])
def test_memory_that_is_not_there_is_a_memory_error_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    before = open_files(first=True)
    monkeypatch.setattr(*((os, call, refuse) if call == "posix_fallocate" else (mmap, call, refuse)))
    with pytest.raises(MemoryError, match="bytes of shared memory: Cannot allocate memory"):
        Arena({}, {"y": (10,)}, torch.float32, CPU)
    assert open_files() == before


# Without a second copy ------------------------------------------------------------------------------------------------


def test_an_input_without_numbers_has_its_place_and_is_filled_entry_by_entry() -> None:
    x = normal(5, 3)
    with Arena({"x": torch.empty(5, 3, device="meta")}, {"y": (5, 3)}, torch.float32, CPU, {"y": 1}) as arena:
        for start in (0, 2, 4):
            arena.entries("x", start, 2).copy_(x[start : start + 2])
        arena.entries("y", 0, 5).copy_(2 * x)
        with worker_view(arena) as memory:
            assert tensor_at(memory, arena.inputs["x"]).tolist() == x.tolist()
        assert arena.output("y").tolist() == (2 * x).tolist()
        assert arena.out_of_bounds() == []


def test_the_same_bits_are_told_from_others() -> None:
    x = torch.tensor([0.0, math.nan, 1.0])
    assert arena_module.same_bits(x, x.clone())
    assert not arena_module.same_bits(x, torch.tensor([-0.0, math.nan, 1.0]))


# Elements far apart ---------------------------------------------------------------------------------------------------


def far(*shape: int, stride: tuple[int, ...]) -> torch.Tensor:
    """Random numbers at these strides, in memory that nobody else has touched."""
    length = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    memory = torch.frombuffer(mmap.mmap(-1, 4 * length), dtype=torch.float32)
    return memory.as_strided(shape, stride).copy_(normal(*shape))


@pytest.mark.parametrize("stride", [(1 << 28, 1), (1, 1 << 28)], ids=["rows", "columns"])
def test_elements_that_lie_far_apart_are_copied_alone(stride: tuple[int, int]) -> None:
    x, y = far(3, 2, stride=stride), normal(5)
    with Arena({"x": x, "y": y}, {"z": (3, 2)}, torch.float32, CPU) as arena, worker_view(arena) as memory:
        (file,) = arena.files
        assert arena.address.bytes > 1 << 30
        assert 512 * os.fstat(file).st_blocks < 1 << 23
        seen = tensor_at(memory, arena.inputs["x"])
        assert same_bits(seen, x)
        assert same_bits(tensor_at(memory, arena.inputs["y"]), y)
        assert arena.changed_inputs() == []
        assert arena.out_of_bounds() == []
        seen[2, 1] = 7.0
        assert arena.changed_inputs() == ["x"]
        before = arena.inputs["x"].offset - 4
        memory[before : before + 4].view(torch.float32)[0] = 7.0
        assert [one.neighbour for one in arena.out_of_bounds()] == ["x"]

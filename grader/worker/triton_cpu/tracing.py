"""Records the accesses of some programs of each launch, in place of checking them.

A launch at the size of a speed case has too many programs to interpret. Programs are alike, or change evenly along the
grid, as the tiles under a causal mask do. So a few programs run, chosen evenly along each axis.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, interpreter_builder

from grader.protocol import TracedAccess, TracedDot, TracedLaunch, TracedTensor
from grader.worker.errors import name_in
from grader.worker.memory import allocation
from grader.worker.traffic import Traffic, distinct_bytes
from grader.worker.triton_cpu import checking
from grader.worker.triton_cpu.checker import Checker, Mask, UnmaskedLanes
from grader.worker.triton_cpu.memory import Addresses, Region

MAX_PROGRAMS = 16  # At most this many programs of a launch run.
LEAST_PROGRAMS = 2
# No further program of a launch begins after this much of the process's own time: a busy machine cuts nothing.
LAUNCH_S = 1.5
PROGRAM_S = 6.0  # A program that runs longer is stopped: it may wait for one that does not run.
CALL_S = 15.0
MAX_ALIKE = 3  # Of launches in a row that are alike, programs of so many run.
MAX_LAUNCHES, MAX_ACCESSES, MAX_TENSORS, MAX_DOTS = 32, 64, 32, 16
MAX_STEP = 1 << 62
WARPS, WARP = 4, 32  # of a program that asks for no other number, and threads of a warp
# For one, two and three axes, the numbers whose powers spread points most evenly: the golden ratio and its kin.
SPREAD = (1.618033988749895, 1.324717957244746, 1.2207440846057596)
# Names in PyTorch of the interpreter's dtypes.
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}

Program = tuple[int, int, int]


class _Stopped(BaseException):
    """A program has run too long. No Exception, because the interpreter wraps those."""


class _Sampled(BaseException):
    """The chosen programs of a launch have run, and the interpreter is not to run more."""


@dataclass
class _Access:
    """The accesses in one line. `steps` is None if the distances vary."""

    requests: int = 0
    lanes: int = 0
    lanes_of_all: int = 0
    steps: tuple[int, ...] | None = ()
    block: tuple[int, ...] = ()

    def add(self, addresses: Addresses, lanes: int) -> None:
        self.lanes += lanes
        self.lanes_of_all += addresses.size
        self.requests += 1
        if self.steps is None:
            return
        steps = steps_of(addresses)
        if self.requests == 1:
            self.steps, self.block = steps, addresses.shape
        elif (steps, addresses.shape) != (self.steps, self.block):
            self.steps = None


@dataclass
class _Tensor:
    """A tensor that a launch accessed; `number` as in `Traffic.number_of`."""

    bytes: int
    is_in_arena: bool
    number: int | None
    once: dict[str, int] = field(default_factory=lambda: {"reads": 0, "writes": 0})


@dataclass
class _Launch:
    """Launches in a row that are alike."""

    kernel: str
    line: int
    grid: Program
    threads: int
    launches: int = 0
    ran: int = 0
    cut: bool = False
    accesses: dict[tuple[str, int, str, str, int, bool], _Access] = field(default_factory=dict)
    tensors: dict[str, _Tensor] = field(default_factory=dict)
    dots: dict[tuple[int, str], int] = field(default_factory=dict)

    def told(self, of_results: set[int | None]) -> TracedLaunch:
        """The launches as the judge is told; `of_results` are the numbers of the call's results."""
        return TracedLaunch(
            self.kernel,
            self.line,
            self.grid,
            self.threads,
            self.ran,
            tuple(
                TracedAccess(
                    file, line, verb, "global", tensor, width, one.requests, one.lanes, one.lanes_of_all,  # type: ignore[arg-type]
                    steps=one.steps or (), block=one.block if one.steps else (), atomic=atomic,
                )
                for (file, line, verb, tensor, width, atomic), one in self.accesses.items()
            ),
            tuple(
                TracedTensor(
                    name, one.bytes, one.is_in_arena or one.number in of_results, one.once["reads"], one.once["writes"]
                )
                for name, one in self.tensors.items()
            ),
            tuple(TracedDot(line, dtype, flops) for (line, dtype), flops in self.dots.items()),
            cut=self.cut,
            launches=self.launches,
        )  # fmt: skip


class Tracer(Checker):
    """Records launches. As a checker, it still looks at bounds, because an access out of bounds may end the process."""

    traces = True

    def __init__(self, arena: torch.Tensor, traffic: Traffic) -> None:
        super().__init__(checking.memory)
        self._arena, self._traffic = allocation(arena), traffic
        self._launches: list[_Launch] = []
        self._running = _Launch("", 0, (0, 0, 0), 0)
        self._once = _Once()
        self._call_ends = process_time() + CALL_S
        self._program_ends = 0.0

    def launches(self, results: Sequence[torch.Tensor]) -> tuple[TracedLaunch, ...]:
        """The recorded launches of a call with these results."""
        of_results = {self._traffic.number_of(one) for one in results} - {None}
        return tuple(one.told(of_results) for one in self._launches)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the launches of this block."""
        execute, dot = GridExecutor.__call__, InterpreterBuilder.create_dot

        def launched(executor: Any, *arguments: Any, **options: Any) -> None:
            self._launch(execute, executor, arguments, options)

        def noted(builder: Any, a: Any, b: Any, accumulator: Any, precision: Any, *how: Any) -> Any:
            self._note_dot(a, b, precision)
            return dot(builder, a, b, accumulator, precision, *how)

        GridExecutor.__call__, InterpreterBuilder.create_dot = launched, noted
        try:
            with checking.checked_by(self):
                yield
        finally:
            GridExecutor.__call__, InterpreterBuilder.create_dot = execute, dot

    def reach(
        self, pointers: Any, mask: Mask, width: int, program: tuple[int, ...], verb: str, unguarded: str
    ) -> UnmaskedLanes | None:
        """Record an access. Returns None, so that nobody checks it further. Arguments are as in `Checker.reach`."""
        if process_time() > self._program_ends:
            raise _Stopped
        lanes = super().reach(pointers, mask, width, program, verb, unguarded)
        given = lanes.given if lanes is not None else getattr(pointers.dtype.scalar, "given", None)
        name, launch = "" if given is None or not given.tensor.numel() else given.name[:200], self._running
        file, line = self._where()
        direction = "reads" if verb == "reads" else "writes"
        key = (name_in(file), line, direction, name, width, verb == "updates")
        if key in launch.accesses or len(launch.accesses) < MAX_ACCESSES:
            access = launch.accesses.setdefault(key, _Access())
            access.add(pointers.data, 0 if lanes is None else lanes.addresses.size)
        if name and lanes is not None and (name in launch.tensors or len(launch.tensors) < MAX_TENSORS):
            tensor = launch.tensors.setdefault(name, self._tensor(lanes.given.tensor))
            tensor.once[direction] += width * self._once.count(lanes.given.region, direction, lanes.addresses, width)
        return None

    def _tensor(self, tensor: torch.Tensor) -> _Tensor:
        is_in_arena = self._arena[0] <= allocation(tensor)[0] < self._arena[1]
        return _Tensor(distinct_bytes(tensor), is_in_arena, self._traffic.number_of(tensor))

    def _note_dot(self, a: Any, b: Any, precision: Any) -> None:
        name = str(a.dtype.scalar)
        dtype, how = DTYPES.get(name, name), precision.name.lower()
        if dtype == "float32" and how != "ieee":
            dtype = how  # as tf32
        key = (self._where()[1], dtype[:40])
        dots = self._running.dots
        if key in dots or len(dots) < MAX_DOTS:
            dots[key] = dots.get(key, 0) + 2 * int(np.prod(a.data.shape)) * b.data.shape[-1]

    def _launch(
        self, execute: Callable[..., Any], executor: Any, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        """Run some programs of a launch; none if programs of enough launches like it have run."""
        kernel, grid = executor.fn, executor.grid
        if callable(grid):
            names = inspect.getfullargspec(kernel).args
            own = {name: one for name, one in options.items() if name in names}
            grid = grid(inspect.getcallargs(kernel, *arguments, **own))
        grid = tuple(map(int, grid))
        if 0 in grid:
            return
        launch = self._running = self._alike(kernel.__name__, grid, WARP * int(options.get("num_warps") or WARPS))
        launch.launches += 1
        if launch.launches > MAX_ALIKE:
            return

        def chosen(**bound: Any) -> None:
            self._run(launch, lambda: kernel(**bound))
            raise _Sampled  # past the interpreter's copies of all tensors, too

        def begin(_bound: dict[str, Any]) -> tuple[int, ...]:
            executor.fn = chosen
            return grid

        executor.grid = begin
        with contextlib.suppress(_Sampled):
            execute(executor, *arguments, **options)

    def _alike(self, kernel: str, grid: tuple[int, ...], threads: int) -> _Launch:
        """The record of the last launch if it is like this one, else a new one. When there are enough, the last like
        it, or one that nobody sees.
        """
        new = _Launch(kernel[:200], self._where()[1], (*grid, 1, 1)[:3], threads)  # type: ignore[arg-type]
        is_full = len(self._launches) >= MAX_LAUNCHES
        for one in reversed(self._launches if is_full else self._launches[-1:]):
            if (one.kernel, one.line, one.grid, one.threads) == (new.kernel, new.line, new.grid, new.threads):
                return one
        if is_full:
            new.launches = MAX_ALIKE
        else:
            self._launches.append(new)
        return new

    def _run(self, launch: _Launch, program: Callable[[], object]) -> None:
        started = process_time()
        interpreter_builder.set_grid_dim(*launch.grid)
        for number, index in enumerate(sample(launch.grid)):
            now = process_time()
            is_enough = number >= LEAST_PROGRAMS and number % 2 == 0 and now > started + LAUNCH_S
            if is_enough or now > self._call_ends:
                break
            self._once.begin_program()
            self._program_ends = min(now + PROGRAM_S, self._call_ends)
            interpreter_builder.set_grid_idx(*index)
            try:
                program()
            except _Stopped:
                launch.cut = True
            launch.ran += 1


class _Once:
    """Counts the different elements that a program accesses."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, str, int], NDArray[np.int64]] = {}  # the last access to each element
        self._now = self._program = 0

    def begin_program(self) -> None:
        self._program = self._now

    def count(self, region: Region, verb: str, addresses: Addresses, width: int) -> int:
        """How many of these elements the program has not accessed before."""
        key = (region.start, region.end, verb, width)
        if (last := self._last.get(key)) is None:
            last = self._last[key] = _sparse(-(-(region.end - region.start) // width))
        places = ((addresses - np.uint64(region.start)) // np.uint64(width)).view(np.int64)
        places = places[last[places] <= self._program]
        numbers = np.arange(self._now + 1, self._now + 1 + places.size)
        last[places] = numbers
        self._now += places.size
        return int(np.count_nonzero(last[places] == numbers))  # of several lanes at one element, the last is there


def _sparse(count: int) -> NDArray[np.int64]:
    """Zeros whose memory costs nothing until it is touched, and then in small pages."""
    memory = mmap.mmap(-1, max(1, count) * 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.int64)


def sample(grid: Program) -> list[Program]:
    """The programs of a grid to be run, in their order: all, or MAX_PROGRAMS, spread evenly along each axis.

    They come in pairs that lie opposite each other. So the mean over pairs is exact for numbers that grow evenly along an
    axis, as under a causal mask.
    """
    if math.prod(grid) <= MAX_PROGRAMS:
        return [(x, y, z) for x, y, z in itertools.product(*map(range, grid))]
    long = [axis for axis in range(3) if grid[axis] > 1]
    ratio = SPREAD[len(long) - 1]
    chosen: dict[Program, None] = {}
    for number in range(1, 4 * MAX_PROGRAMS):
        index = [0, 0, 0]
        for power, axis in enumerate(long, 1):
            index[axis] = int(grid[axis] * (number * ratio**-power % 1))
        x, y, z = index
        opposite = (grid[0] - 1 - x, grid[1] - 1 - y, grid[2] - 1 - z)
        if len(chosen) < MAX_PROGRAMS and (x, y, z) != opposite and (x, y, z) not in chosen:
            chosen |= dict.fromkeys(((x, y, z), opposite))
    return [*chosen]


def steps_of(addresses: Addresses) -> tuple[int, ...] | None:
    """The distance of neighbouring addresses along each axis, 0 along an axis of one; None if the distances vary."""
    if not addresses.size:
        return None
    signed = addresses.view(np.int64)
    origin = signed[(0,) * signed.ndim]
    expected, steps = origin, []
    for axis, length in enumerate(signed.shape):
        neighbour = tuple(int(axis == one) for one in range(signed.ndim))
        step = int(signed[neighbour]) - int(origin) if length > 1 else 0
        if abs(step) > MAX_STEP:
            return None
        steps.append(step)
        shape = [1] * signed.ndim
        shape[axis] = length
        expected = expected + (np.arange(length) * step).reshape(shape)
    return tuple(steps) if np.array_equal(signed, expected) else None

"""Holds the reference kernels against plain PyTorch on every shape that the cases of the course have: on none may they be slower.

    python benchmarks/against_naive.py [--assignment NAME ...] [--memory-gib 8] [--rounds 9] [--output FILE.md]

Needs a CUDA GPU. Both run in this process, and are trusted: `reference/` and `eager` of each assignment's baselines.py, forward, or
forward and backward where a case asks for gradients. Correctness and speed cases count alike, those of one layout, shape and dtype once.
Two times are taken, in interleaved rounds. By CUDA events around a batch of calls that waits until all of them are queued: what the GPU
needs. And by the host's clock, from the first call of a batch until the last is done: with small inputs that is what Python, the launches
and the building of descriptors need. Exit code 1 if the GPU needs more than 1.05 times PyTorch's time anywhere. CUDA C++ is built by
nvcc, and left out where there is none.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from grader.assignment import Assignment, load_course  # noqa: E402
from grader.judge.cases import BoundCase, bind_cases, bind_speed_cases  # noqa: E402
from grader.judge.environment import find_nvcc  # noqa: E402
from grader.problem import Call, load_beside  # noqa: E402

SLOWER = 1.05  # times PyTorch's time is too slow
BATCH_S = 0.008  # how long the calls of a batch should take
MAX_CALLS = 30  # of a batch: the GPU's queue holds about a thousand kernels, and eager attention has twenty
CYCLES_PER_S = 2e9  # at the most: a GPU with a slower clock only sleeps longer
MAX_SLEEP_S = 0.2
VALUES = (
    "values"  # a key of problem.py that says what numbers are in the tensors: no kernel here takes longer for others
)

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One case measured. Times are medians of the rounds, in seconds a call; ratios are PyTorch's time by the reference's."""

    name: str
    size: str
    reference_s: float
    eager_s: float
    ratio: float
    wall_ratio: float

    @property
    def is_slower(self) -> bool:
        return self.ratio < 1 / SLOWER


class Worker:
    """A function with its arguments, and how many of its calls make a batch."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(3):
            call()
        queued = time.perf_counter()
        torch.cuda.synchronize()
        done = time.perf_counter()
        self._calls = min(max(1, round(BATCH_S / ((done - begun) / 3))), MAX_CALLS)
        self._sleep_s = 1e-4 + 1.5 * self._calls * (queued - begun) / 3
        self.gpu_s()  # so that the rounds find the sleep long enough

    def gpu_s(self) -> float:
        """Seconds of the GPU for a call, out of a batch that began when all of it was queued."""
        while True:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(int(self._sleep_s * CYCLES_PER_S))
            start.record()
            for _ in range(self._calls):
                self._call()
            end.record()
            began_early = start.query()
            torch.cuda.synchronize()
            if not began_early or (self._calls == 1 and self._sleep_s > MAX_SLEEP_S):
                return float(start.elapsed_time(end)) / 1e3 / self._calls
            if self._sleep_s <= MAX_SLEEP_S:
                self._sleep_s *= 2
            else:  # the queue is full, and then the host waits for the GPU
                self._calls, self._sleep_s = self._calls // 2, self._sleep_s / 4

    def wall_s(self) -> float:
        """Seconds of the host's clock for a call, out of a batch."""
        begun = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / self._calls


def main() -> int:
    parser = argparse.ArgumentParser(description="Holds the reference kernels against plain PyTorch on every shape.")
    parser.add_argument("--assignment", action="append", default=[], help="only this one; may be given again")
    parser.add_argument("--memory-gib", type=float, default=8.0, help="of a case's tensors, at the most")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--output", type=Path, help="write the table there too")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no CUDA GPU here")

    torch.backends.cuda.matmul.allow_tf32 = True  # as where the cases are graded, and as the reference's products
    rows, left_out = [], []
    for assignment in load_course(ROOT, arguments.assignment):
        reference = load_reference(assignment)
        if reference is None:
            left_out.append(f"{assignment.name}: there is no nvcc here")
            continue
        eager = load_beside(str(assignment.folder / "problem.toml"), "baselines.py").eager
        for case in shapes([assignment], int(arguments.memory_gib * 2**30)):
            try:
                rows.append(measure(case, reference, eager, arguments.rounds))
            except torch.cuda.OutOfMemoryError:
                left_out.append(f"{case.id}: not enough GPU memory")
            else:
                print(f"{case.id}: {rows[-1].ratio:.2f}", file=sys.stderr, flush=True)
            torch.cuda.empty_cache()
    text = "\n".join(report(rows, left_out)) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")
    return int(any(row.is_slower for row in rows))


def shapes(assignments: Sequence[Assignment], most_bytes: int) -> Iterator[BoundCase]:
    """The cases that have something to do, and tensors of at most so many bytes; those that differ in values only, once."""
    speed_cases = chain.from_iterable(sizes.cases for sizes in bind_speed_cases(assignments))
    seen = set()
    for case in chain(bind_cases(assignments, "cuda"), speed_cases):
        key = case.assignment.name, case.dtype, repr(case.params.model_copy(update={VALUES: None}))
        needed = case.problem.cost(case.params, case.dtype).bytes_moved
        if "cuda" in case.case.devices and 0 < needed <= most_bytes and key not in seen:
            seen.add(key)
            yield case


def load_reference(assignment: Assignment) -> Function | None:
    """The staff's answer to an assignment; None where it is CUDA C++ and there is no nvcc."""
    spec = assignment.spec
    if spec.language == "cuda":
        return built(ROOT / "reference" / spec.file, spec.entry)
    function: Function = getattr(importlib.import_module(f"reference.{Path(spec.file).stem}"), spec.entry)
    return function


def built(source: Path, entry: str) -> Function | None:
    """`extern "C" void entry(const float* x, float* y, int64_t n, cudaStream_t stream)` as a function of x alone."""
    nvcc = find_nvcc()
    if nvcc is None:
        return None
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "reference.so")
        command = [nvcc, "-shared", "-Xcompiler", "-fPIC", "-O3", "-std=c++17", f"-arch={arch}", "-o", str(library)]
        subprocess.run([*command, str(source)], check=True)
        function = getattr(ctypes.CDLL(str(library)), entry)
    function.restype = None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]

    def call(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        function(x.data_ptr(), y.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        return y

    return call


def measure(case: BoundCase, reference: Function, eager: Function, rounds: int) -> Row:
    inputs = case.inputs(0, 0, torch.device("cuda"))
    ours, theirs = Worker(bound(reference, inputs)), Worker(bound(eager, inputs))
    times = []
    for number in range(rounds):
        first, second = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        taken = {one: (one.gpu_s(), one.wall_s()) for one in (first, second)}
        times.append((*taken[ours], *taken[theirs]))
    return Row(
        case.id,
        size_of(inputs),
        reference_s=statistics.median(gpu for gpu, _, _, _ in times),
        eager_s=statistics.median(gpu for _, _, gpu, _ in times),
        ratio=statistics.median(theirs / ours for ours, _, theirs, _ in times),
        wall_ratio=statistics.median(theirs / ours for _, ours, _, theirs in times),
    )


def bound(function: Function, inputs: Call) -> Callable[[], object]:
    """A call of the function with these inputs, or of it and its backward pass."""
    tensors, options, upstream = list(inputs.args.values()), list(inputs.options.values()), inputs.upstream
    if upstream is None:
        return lambda: function(*tensors, *options)
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    return lambda: torch.autograd.grad(function(*leaves, *options), leaves, upstream)


def size_of(inputs: Call) -> str:
    """`float32, q 2 × 100 × 64, k 2 × 72 × 64, is_causal`: tensors of one shape are told once."""
    told: dict[str, str] = {}
    for name, tensor in inputs.args.items():
        words = " × ".join(map(str, tensor.shape)) + ("" if tensor.is_contiguous() else " (strided)")
        told.setdefault(words, name)
    dtype = str(next(iter(inputs.args.values())).dtype).removeprefix("torch.")
    return ", ".join(
        [
            dtype,
            *(f"{name} {words}" for words, name in told.items()),
            *(key for key, on in inputs.options.items() if on),
        ]
    )


def report(rows: Sequence[Row], left_out: Sequence[str]) -> list[str]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    lines = [
        "# The reference kernels against plain PyTorch, on every shape of the cases",
        "",
        f"Made by `{shlex.join(['python', 'benchmarks/against_naive.py', *sys.argv[1:]])}`.",
        "",
        f"{gpu}, torch {torch.__version__}. × PyTorch: how many times as fast as eager PyTorch, by the GPU's time and by the host's clock.",
        "",
        "| case | size | reference µs | PyTorch µs | × PyTorch | with the host |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        times = f"{row.reference_s * 1e6:.1f} | {row.eager_s * 1e6:.1f}"
        mark = " **slower**" if row.is_slower else ""
        lines.append(f"| {row.name} | {row.size} | {times} | {row.ratio:.2f}{mark} | {row.wall_ratio:.2f} |")
    slower = [row for row in rows if row.is_slower]
    lines += ["", f"{len(rows)} shapes; slower than PyTorch by more than {SLOWER - 1:.0%}: {len(slower)}."]
    if rows:
        least, least_wall = min(rows, key=lambda row: row.ratio), min(rows, key=lambda row: row.wall_ratio)
        lines.append(
            f"Least: {least.ratio:.2f} ({least.name}); with the host {least_wall.wall_ratio:.2f} ({least_wall.name})."
        )
    return [*lines, *(f"Left out: {one}." for one in left_out)]


if __name__ == "__main__":
    sys.exit(main())

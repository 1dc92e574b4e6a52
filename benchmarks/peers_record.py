"""The reference kernels beside the fastest public ones: QuACK and Liger for softmax, cuDNN and flash-attn-4 for attention.

    python -m benchmarks.peers_record [--rounds 15] [--output NAME] [--row PART-OF-A-TITLE ...]
    python -m benchmarks.peers_record --render    write the pages again from the records, measure nothing

Writes NAME.json, every time that was measured, and NAME.md, the table; NAME is benchmarks/peers_ and the GPU's model unless
given. QuACK, Liger and flash-attn-4 take part where they are installed (quack-kernels, liger-kernel, flash-attn-4).

This is no grading: all kernels are trusted and run in this process, in interleaved rounds, with two sets of inputs by turns
behind a wiped L2 cache; a time is between two CUDA events, and the GPU is kept busy until the processor has launched both.
Each answer is compared once: of softmax with PyTorch's, of attention with cuDNN's.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.records import ROOT, text_of
from benchmarks.speed_record import environment
from benchmarks.try_variants import WIPE_BYTES, timed
from benchmarks.variants import gluon_attention
from grader.problem import load_beside
from reference.flash_attention import flash_attention
from reference.softmax import softmax

ROUNDS = 15
TOLERANCE = 0.02  # of the norm: what 16 bits need
PACKAGES = ("quack-kernels", "liger-kernel", "flash-attn-4")
COLUMNS = {
    "copy": "device copy",
    "eager": "PyTorch",
    "compile": "torch.compile",
    "liger": "Liger",
    "quack": "QuACK",
    "flash": "FlashAttention-2",
    "cudnn": "cuDNN",
    "flash-attn-4": "flash-attn-4",
}
Function = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A size, with the goals: by entrant, the least of its time divided by the reference's."""

    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    causal: bool = True
    goals: dict[str, float] = field(default_factory=dict)

    @property
    def title(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        if self.kind == "softmax":
            return f"softmax {dtype} {self.shape[0]} × {self.shape[1]}"
        return f"attention, {self.kind}, {'causal' if self.causal else 'not causal'} {dtype} {self.shape}"


def rows() -> Iterator[Row]:
    float16, bfloat16, float32 = torch.float16, torch.bfloat16, torch.float32
    for shape, dtype, goal in (
        ((4096, 32768), bfloat16, 0.95),
        ((16384, 65536), bfloat16, 0.95),
        ((4096, 131072), bfloat16, 0.95),
        ((4096, 131072), float32, 0.95),
        ((8192, 50257), float16, 0.92),
        ((8192, 50257), float32, 0.92),
        ((2048, 131071), float32, 0.92),
        ((16384, 16384), float32, 0.97),
        ((65536, 4096), bfloat16, 0.97),
    ):
        yield Row("softmax", shape, dtype, goals={"copy": goal})
    yield Row("softmax", (4096, 1024), float32, goals={"compile": 1.0})
    sizes = (48, 4096, 64), (16, 16384, 64), (64, 4096, 128)
    for size in sizes:
        yield Row("forward", size, bfloat16, True, {"cudnn": 0.95})
    for size in (sizes[0], sizes[2]):
        yield Row("forward", size, bfloat16, False, {"cudnn": 0.90})
    for size in sizes:
        yield Row("forward + backward", size, bfloat16, True, {"cudnn": 0.90})


def softmax_entrants() -> dict[str, Function]:
    eager = baselines_of("softmax").eager
    found: dict[str, Function] = {
        "reference": softmax,
        "copy": torch.clone,
        "eager": eager,
        "compile": torch.compile(eager, dynamic=False),
    }
    with suppress(ImportError):
        from liger_kernel.ops.softmax import LigerSoftmaxFunction

        found["liger"] = LigerSoftmaxFunction.apply
    with suppress(ImportError):
        import quack

        found["quack"] = quack.softmax
    return found


def attention_entrants(row: Row) -> dict[str, Function]:
    """Functions of q, k, v: (batch, n, head_dim). Naive PyTorch, which keeps all scores, takes part where they are few."""
    baselines = baselines_of("flash_attention")
    eager = partial(baselines.eager, is_causal=row.causal)
    found: dict[str, Function] = {
        "reference": partial(flash_attention, is_causal=row.causal),
        "flash": partial(baselines.sdpa_flash, is_causal=row.causal),
        "cudnn": partial(baselines.sdpa_cudnn, is_causal=row.causal),
    }
    if row.kind == "forward":
        found["gluon"] = partial(gluon, row.causal)
    if row.shape[1] <= 4096:
        found |= {"eager": eager, "compile": torch.compile(eager, dynamic=False)}
    with suppress(ImportError):
        from flash_attn.cute import flash_attn_func

        found["flash-attn-4"] = partial(flash_attn_4, flash_attn_func, row.causal)
    return found


def baselines_of(assignment: str) -> Any:
    """The module with the course's baselines."""
    return load_beside(str(ROOT / "assignments" / assignment / "problem.toml"), "baselines.py")


def gluon(causal: bool, *qkv: torch.Tensor) -> torch.Tensor:
    return gluon_attention.forward(*qkv, is_causal=causal)[0]


def flash_attn_4(function: Function, causal: bool, *qkv: torch.Tensor) -> torch.Tensor:
    o = function(*(one.unsqueeze(2) for one in qkv), causal=causal)  # (batch, n, heads, head_dim)
    o = o[0] if isinstance(o, tuple) else o
    return torch.Tensor.squeeze(o, 2)


def both_ways(forward: Function, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor) -> Any:
    return torch.autograd.grad(forward(q, k, v), (q, k, v), do)


def measure(row: Row, rounds: int) -> dict[str, Any]:
    """Times in milliseconds by entrant, and why an entrant has none."""
    torch.cuda.empty_cache()
    torch.compiler.reset()
    backward = row.kind == "forward + backward"
    count = {"softmax": 1, "forward": 3}.get(row.kind, 4)
    sets = [
        [
            torch.randn(row.shape, device="cuda", dtype=row.dtype).requires_grad_(backward and i < 3)
            for i in range(count)
        ]
        for _ in range(2)
    ]
    functions = softmax_entrants() if row.kind == "softmax" else attention_entrants(row)
    if backward:
        functions = {name: partial(both_ways, function) for name, function in functions.items()}
    expected = functions["eager" if row.kind == "softmax" else "cudnn"](*sets[0])
    failed = {}
    for name, function in list(functions.items()):
        if name != "copy" and (why := fault(function, sets[0], expected, by_row=not backward)):
            failed[name] = why
            del functions[name]
    del expected
    times: dict[str, list[float]] = {name: [] for name in functions}
    wipe = torch.empty(WIPE_BYTES, dtype=torch.uint8, device="cuda")
    for number in range(rounds):
        inputs = sets[number % 2]
        for name, function in functions.items():
            times[name].append(round(timed(function, inputs, wipe) * 1e3, 5))
    return {"times_ms": times, "failed": failed}


def fault(function: Function, inputs: Sequence[torch.Tensor], expected: Any, by_row: bool) -> str:
    """Why an entrant is left out, or nothing. by_row: whether each row is compared, or all at once: gradients may be 0."""
    try:
        got = function(*inputs)
        torch.cuda.synchronize()
    except Exception as error:  # whatever a foreign kernel raises
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]
    pairs = [(got, expected)] if isinstance(got, torch.Tensor) else zip(got, expected, strict=True)
    dim = -1 if by_row else None
    off = max(
        float(
            (
                torch.linalg.vector_norm(mine.float() - right.float(), dim=dim)
                / torch.linalg.vector_norm(right.float(), dim=dim)
            ).max()
        )
        for mine, right in pairs
    )
    return "" if off < TOLERANCE else f"wrong: off by {off:.2g} of the norm"


def page(record: dict[str, Any]) -> str:
    env = record["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in record["packages"].items()) or "no other package"
    lines = [
        f"# The reference beside the fastest public kernels, on one {env['gpu']}",
        "",
        f"torch {env['torch']}, triton {env['triton']}, driver {env['driver']}; {versions}. Made by",
        f"`python -m benchmarks.peers_record`: medians of {record['rounds']} interleaved rounds behind a wiped L2 cache. A number",
        "under an entrant is how many times as fast as it the reference is; Gluon's column is the other way round: how many",
        "times as fast as cuDNN the experiment of `benchmarks/variants/gluon_attention.py` is.",
        "",
    ]
    for kind in ("softmax", "attention"):
        of_kind = [row for row in record["rows"] if row["title"].startswith(kind)]
        names = [name for name in COLUMNS if any(name in row["times_ms"] for row in of_kind)]
        gluon = ["Gluon × cuDNN"] if kind == "attention" else []
        heads = ["", "ms", *(f"× {COLUMNS[name]}" for name in names), *gluon, "goal"]
        lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        for row in of_kind:
            times = {name: statistics.median(seen) for name, seen in row["times_ms"].items()}
            own = times.get("reference", math.nan)  # which compares as no goal reached
            cells = [f"{times[name] / own:.3f}" if name in times else "" for name in names]
            if gluon:
                cells.append(f"{times['cudnn'] / times['gluon']:.3f}" if times.keys() >= {"cudnn", "gluon"} else "")
            goals = ", ".join(
                f"{'✓' if times.get(name, math.nan) / own >= least else '✗'} {least:g} × {COLUMNS[name]}"
                for name, least in row["goals"].items()
            )
            lines.append(f"| {' | '.join([row['title'], f'{own:#.4g}', *cells, goals])} |")
        lines.append("")
    left_out = [
        f"- {row['title']}, {COLUMNS.get(name, name)}: {why}"
        for row in record["rows"]
        for name, why in row["failed"].items()
    ]
    return "\n".join([*lines, *(["Left out:", "", *left_out] if left_out else [])]).rstrip() + "\n"


def write(record: dict[str, Any], output: Path) -> None:
    output.with_suffix(".json").write_text(text_of(record, "peers_record"), encoding="utf-8")
    output.with_suffix(".md").write_text(page(record), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the reference kernels beside the fastest public ones.")
    parser.add_argument("--row", action="append", default=[], help="a part of a row's title; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--render", action="store_true", help="write the pages again from the records")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.render:
        for path in sorted((ROOT / "benchmarks").glob("peers_*.json")):
            write(json.loads(path.read_text(encoding="utf-8")), path.with_suffix(""))
        return
    chosen = [row for row in rows() if not arguments.row or any(part in row.title for part in arguments.row)]
    if not chosen:
        parser.error(f"no row is called {' or '.join(arguments.row)}")
    if arguments.row and arguments.output is None:
        parser.error("--row needs --output: the record of this GPU has all rows")
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    if not torch.cuda.is_available():
        parser.error("this needs a CUDA GPU")
    packages = {}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    here = environment()
    model = here["gpu"].lower().removeprefix("nvidia ")
    output = (
        arguments.output
        or ROOT / "benchmarks" / f"peers_{model.split()[0] if model.startswith('h') else model.replace(' ', '_')}"
    )
    record: dict[str, Any] = {"environment": here, "packages": packages, "rounds": arguments.rounds, "rows": []}
    torch.manual_seed(0)
    for row in chosen:
        began = time.monotonic()
        record["rows"].append({"title": row.title, "goals": row.goals, **measure(row, arguments.rounds)})
        write(record, output)  # after each, so that what was measured is kept if a later one ends badly
        print(f"{row.title}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(page(record))


if __name__ == "__main__":
    main()

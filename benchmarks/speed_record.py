"""Measures every speed case on this GPU, entrant by entrant, and how well a verdict repeats.

    python benchmarks/speed_record.py [--repetitions 10] [--submission reference] [--case ID[=REPETITIONS] ... [--again]] [--output NAME]
    python benchmarks/speed_record.py --render [--output NAME]      write the page again from the record, measure nothing

Writes NAME.json, everything that was measured, and NAME.md, the tables made from it; `benchmarks/speed_record` unless told otherwise.
With `--again` what an earlier record there has of other cases stays. Each repetition is a race of its own with a
new worker, new inputs and new rounds, as a grading of its own would have it, and a second one where the claim is not believed; what
differs is that correctness is not graded again, that nobody asks whether memory is hoarded, and that workers share what Triton has
compiled. The first repetition times the reference and the vendors' kernels too.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.records import text_of  # noqa: E402
from grader.assignment import load_course  # noqa: E402
from grader.judge.cases import BoundSpeedCase, bind_speed_cases  # noqa: E402
from grader.judge.comparison import Comparison, Reference  # noqa: E402
from grader.judge.environment import describe_environment  # noqa: E402
from grader.judge.evidence import Evidence  # noqa: E402
from grader.judge.files import Files  # noqa: E402
from grader.judge.loading import load_file  # noqa: E402
from grader.judge.run import Run  # noqa: E402
from grader.judge.speed.benchmark import Benchmarks  # noqa: E402
from grader.judge.workers import Workers  # noqa: E402
from grader.messages import Request, Staged  # noqa: E402
from grader.pool.cuda_cpu import cache_folder  # noqa: E402
from grader.pool.pool import WorkerPool, end_all  # noqa: E402
from grader.pool.worker import Worker  # noqa: E402
from grader.protocol import MATRIX  # noqa: E402
from grader.report.model import SubmissionInfo  # noqa: E402

MATMUL = (
    f"`matmul`, the roofline of attention, is one bfloat16 product of two {MATRIX} × {MATRIX} matrices, beside float32 too: "
    "TF32 reaches half of that at the most."
)
CACHES = (cache_folder() or Path(tempfile.gettempdir())) / "speed-record"


def main() -> None:
    arguments = parse()
    output = Path(arguments.output)
    if arguments.render:
        record = json.loads(output.with_suffix(".json").read_text(encoding="utf-8"))
        output.with_suffix(".md").write_text(page(record), encoding="utf-8")
        return
    folder = Path(arguments.submission).resolve()
    record = {
        "command": shlex.join(["python", "benchmarks/speed_record.py", *sys.argv[1:]]),
        "environment": environment(),
        "submission": folder.name,
        "cases": [],
    }
    chosen = dict(part.partition("=")[::2] for part in arguments.case)
    if arguments.again:
        record = with_earlier(record, json.loads(output.with_suffix(".json").read_text(encoding="utf-8")))
    sizes = bind_speed_cases(load_course(ROOT))
    with session(folder) as (benchmarks, pool):
        cases = [case for one in sizes if (case := one.fitting(benchmarks.run.free_gib())) is not None]
        cases = [case for case in cases if (folder / case.assignment.spec.file).exists()]
        if unknown := chosen.keys() - {case.id for case in cases}:
            raise SystemExit(f"no case that can run here is called {', '.join(sorted(unknown))}")
        order = [case.id for case in cases]
        cases = [case for case in cases if not chosen or case.id in chosen]
        for case in cases:
            count = int(chosen.get(case.id) or arguments.repetitions)
            runs = repetitions(benchmarks, pool, case, folder, count)
            measured = {"id": case.id, "size": case.case.tries, "repetitions": runs}
            record["cases"] = put(measured, record["cases"], order)
            record["missing"] = [one.id for one in cases if one.id not in {there["id"] for there in record["cases"]}]
            print("\n".join(tables({**record, "cases": [measured]})), flush=True)
            # After each, so that what was measured is kept if a later one ends badly.
            output.with_suffix(".json").write_text(text_of(record, "speed_record"), encoding="utf-8")
            output.with_suffix(".md").write_text(page(record), encoding="utf-8")


def with_earlier(record: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """A record that is to be, with the cases of an earlier one, each of which says by what it was made. Raises SystemExit."""
    for what in ("gpu", "driver", "torch", "triton"):
        if record["environment"][what] != earlier["environment"][what]:
            raise SystemExit(f"--again: the earlier record is of another {what}: {earlier['environment'][what]}")
    if record["submission"] != earlier["submission"]:
        raise SystemExit(f"--again: the earlier record is of {earlier['submission']}")
    return record | {"cases": [{"command": earlier["command"]} | case for case in earlier["cases"]]}


def put(measured: dict[str, Any], cases: list[dict[str, Any]], order: list[str]) -> list[dict[str, Any]]:
    """The cases with one more, or with another one in its place; those that are no more come last."""
    found = [measured, *(case for case in cases if case["id"] != measured["id"])]
    return sorted(found, key=lambda case: order.index(case["id"]) if case["id"] in order else len(order))


def environment() -> dict[str, Any]:
    """The GPU and the versions; a host's kernel is nobody's business."""
    return describe_environment("cuda").model_dump(exclude={"platform"})


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--submission", default=str(ROOT / "reference"))
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        help="as softmax-softmax-speed-wide, or with =3 repetitions; may be repeated",
    )
    parser.add_argument("--again", action="store_true", help="keep what the record has of other cases")
    parser.add_argument("--render", action="store_true", help="write the page again from the record")
    parser.add_argument("--output", default=str(ROOT / "benchmarks" / "speed_record"))
    return parser.parse_args()


@contextmanager
def session(folder: Path) -> Iterator[tuple[Benchmarks, WorkerPool]]:
    """Benchmark runs in this process, without the pytest session around them."""
    torch.backends.cuda.matmul.allow_tf32 = True
    info = SubmissionInfo(path=folder.name, sha256="", files=tuple(os.listdir(folder)))  # noqa: PTH208
    request = Request(submission=folder, course=ROOT, staged=Staged(folder=folder, info=info))
    with tempfile.TemporaryDirectory() as scratch:
        pool = WorkerPool("cuda", Path(scratch))
        try:
            run = Run.begin(request, "cuda", lambda _event: None)
            yield _benchmarks(run, Workers(run, Files(run), pool)), pool
        finally:
            pool.close()


def repetitions(
    benchmarks: Benchmarks, pool: WorkerPool, case: BoundSpeedCase, folder: Path, count: int
) -> list[dict[str, Any]]:
    """Benchmark runs with new workers and new inputs each."""
    found = []
    for number in range(count):
        request = benchmarks.run.request.model_copy(update={"entrants": "needed" if number else "all"})
        own = _benchmarks(replace(benchmarks.run, request=request, seed=secrets.randbits(53)), benchmarks.workers)
        found.append(repetition(own, pool, case, folder))
    return found


def _benchmarks(run: Run, workers: Workers) -> Benchmarks:
    return Benchmarks(run, workers, Comparison(run, Reference(run, workers)))


def repetition(benchmarks: Benchmarks, pool: WorkerPool, case: BoundSpeedCase, folder: Path) -> dict[str, Any]:
    """What a grading would make of the case: what was measured, and the points."""
    workers: list[Worker] = []
    load_s: list[float] = []

    def loaded() -> Worker:
        started = time.monotonic()
        workers.append(worker := start(pool))
        load_file(worker, folder, case.assignment)
        load_s.append(time.monotonic() - started)
        return worker

    started = time.monotonic()
    try:
        evidence = Evidence()
        verdict = benchmarks.measure(case, evidence, loaded)
    finally:
        end_all(workers)
    if verdict is None or evidence.measured is None:
        return {"stopped": evidence.words, "points": 0.0}
    return {
        "points": sum(band.points for band in evidence.bands if band.reached),
        "possible": sum(band.points for band in evidence.bands),
        "undecided": any(band.undecided for band in evidence.bands),
        "speedups": {name: interval.model_dump() for name, interval in verdict.speedups.items()},
        "measured": evidence.measured.model_dump(),
        "raced_twice": len(workers) > 1,
        "seconds": {"load": load_s[0], "race": time.monotonic() - started - sum(load_s)},
    }


def start(pool: WorkerPool) -> Worker:
    """A worker that a benchmark run treats as a student's: the course's own are spared the wiping of memory before each batch."""
    worker = pool.start("cuda", "course", caches=CACHES)
    worker.trusted = False
    return worker


def page(record: dict[str, Any]) -> str:
    environment = record["environment"]
    head = [
        f"# Speed of `{record['submission']}` on one {environment['gpu']}",
        "",
        f"torch {environment['torch']}, triton {environment['triton']}, driver {environment['driver']}. Made by",
        "",
        f"    {record['command']}",
        "",
    ]
    if any(case["id"].startswith("flash_attention") for case in record["cases"]):
        head += [MATMUL, ""]
    if record.get("missing"):
        head += [f"It was ended before {', '.join(record['missing'])}.", ""]
    return "\n".join([*head, *tables(record)]) + "\n"


def tables(record: dict[str, Any]) -> list[str]:
    """For each case the entrants of its first repetition, and how far the verdicts of all repetitions lie apart."""
    lines: list[str] = []
    for case in record["cases"]:
        runs = case["repetitions"]
        lines += [f"## {case['id']}", "", case["size"], ""]
        if case.get("command", record["command"]) != record["command"]:
            lines += [f"Made by `{case['command']}`", ""]
        stopped = [run for run in runs if "measured" not in run]
        if stopped:
            lines += [f"{len(stopped)} of {len(runs)} repetitions were stopped early", ""]
            continue
        lines += [*entrants_table(runs[0]["measured"]), ""]
        lines += [*repetition_lines(runs), ""]
    return lines


def entrants_table(measured: dict[str, Any]) -> list[str]:
    """A line for each entrant. A matrix product does not do what the others do: it has a rate of its own, and no ratio."""
    lines = [
        "| entrant | ms | ± % | TB/s | TFLOP/s | of the roofline | submission is × as fast |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in measured["entrants"]:
        time_s, ratio = one["time_s"], one["speedup"]
        spread = (time_s["high"] - time_s["low"]) / 2 / time_s["median"]
        faster = "" if ratio is None else f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
        rates = f"{one['bytes_per_s'] / 1e12:.2f} | {one['flops_per_s'] / 1e12:.0f} | {one['roofline_share']:.1%}"
        if one["name"] == "matmul":
            rates, faster = f" | {2 * MATRIX**3 / time_s['median'] / 1e12:.0f} | 100.0%", ""
        lines.append(f"| {one['name']} | {time_s['median'] * 1e3:.4f} | {spread:.2%} | {rates} | {faster} |")
    return lines


def repetition_lines(runs: list[dict[str, Any]]) -> list[str]:
    points = [run["points"] for run in runs]
    lines = [
        f"- {len(runs)} repetitions: points {', '.join(f'{one:g}' for one in points)} of {runs[0].get('possible', 0):g}; "
        f"band flips: {sum(one != points[0] for one in points)}; left undecided: {sum(run['undecided'] for run in runs)}"
    ]
    for name in runs[-1]["speedups"]:
        medians = [run["speedups"][name]["median"] for run in runs]
        middle = sorted(medians)[len(medians) // 2]
        spread = (max(medians) - min(medians)) / 2 / middle
        lines.append(f"- × {name}: {min(medians):.4f} to {max(medians):.4f}, ± {spread:.2%}")
    gaps = [run["measured"]["judged_s"]["median"] / run["measured"]["claimed_s"]["median"] - 1 for run in runs]
    corroborated, twice = (
        sum(run["measured"]["corroborated"] for run in runs),
        sum(run.get("raced_twice", False) for run in runs),
    )
    lines.append(
        f"- the judge's clock against the claim: {min(gaps):+.1%} to {max(gaps):+.1%}; corroborated {corroborated} of {len(runs)}, "
        f"timed twice for it: {twice}"
    )
    rounds = [len(run["measured"]["rounds"]) for run in runs]
    seconds = {name: sum(run["seconds"][name] for run in runs) / len(runs) for name in runs[0]["seconds"]}
    lines.append(
        f"- rounds: {min(rounds)} to {max(rounds)}; seconds, mean: "
        + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items())
    )
    return lines


if __name__ == "__main__":
    main()

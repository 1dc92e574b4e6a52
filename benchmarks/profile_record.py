"""Predicted and measured times of every right and every slow kernel of the corpora, at every speed case.

    python -m benchmarks.profile_record --measure    on a GPU: seconds by CUDA's events, with a cold L2 cache
    python -m benchmarks.profile_record --count      on a GPU: bytes that DRAM moves, by Nsight Compute, for the kernels of COUNTED
    python -m benchmarks.profile_record --predict    on a CPU: what `grader profile` predicts for the GPU that was measured
    python -m benchmarks.profile_record --render     write docs/PROFILE.md's table again from the record

`--only NAME` takes the kernels with this in their names; `--jobs N` predicts several at once. The record is
benchmarks/profile_record.json, written after each kernel.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.records import text_of
from grader.assignment import load_course
from grader.contender import tools
from grader.contender.worker import TOOL_LOG
from grader.gpu_table import GPUS
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
from grader.judge.profiler import NO_NCU
from grader.nvidia import find_ncu
from grader.problem import Call
from grader.verdict.counters import EVERY, MAX_KERNELS, counters
from grader.worker.torch_form import is_torch_form
from tests.conftest import ROOT
from tests.support.corpus import Entry, entries
from tests.support.warm_judge import profile

RECORD = ROOT / "benchmarks" / "profile_record.json"
PAGE = ROOT / "docs" / "PROFILE.md"
BEGIN, END = "<!-- made by benchmarks/profile_record.py -->", "<!-- end -->"
REPEATS, LONG_MS = 30, 300.0
MOST_ERROR, LEAST_KERNELS = 0.25, 3  # of a bound with which predicted times are told
COUNTED = (
    "reference/cuda_gelu gelu/large",
    "reference/triton_gelu gelu/bfloat16",
    "reference/softmax softmax/wide",
    "reference/softmax softmax/narrow",
    "reference/softmax softmax/long",
    "reference/flash_attention forward/causal",
    "reference/flash_attention backward/causal",
    "slow/cuda_gelu-three_kernels gelu/large",
    "slow/cuda_gelu-chunk_for_each_thread gelu/large",
    "slow/cuda_gelu-down_the_columns gelu/large",
    "slow/softmax-three_passes softmax/long",
    "slow/softmax-exponentials_in_memory softmax/wide",
    "slow/softmax-columns_turned softmax/wide",
    "slow/flash_attention-sixteen_queries forward/causal",
    "slow/triton_gelu-cast_by_pytorch gelu/bfloat16",
)
GPU_LINE = re.compile(r"^gpu = .*$", re.MULTILINE)
AHEAD_CLOCKS = 4_000_000  # 2 ms
FLUSHED_INTS = 64 << 20  # four times the largest L2 cache


class Record:
    """Times in ms by kernel and case, as `slow/softmax-three_passes softmax/long`. Each change is written to the file."""

    def __init__(self) -> None:
        self.whole: dict[str, Any] = {"gpu": "", "kernels": {}}
        if RECORD.is_file():
            self.whole = json.loads(RECORD.read_text(encoding="utf-8"))

    def put(self, key: str, **facts: object) -> None:
        kernels = self.whole["kernels"]
        kernels[key] = kernels.get(key, {}) | facts
        self.whole["kernels"] = dict(sorted(kernels.items()))
        RECORD.write_text(text_of(self.whole, "profile_record"), encoding="utf-8")


def kernels(only: str) -> Iterator[tuple[str, Entry | None, str]]:
    """The name, the entry (None for the staff's) and the assignment of each kernel."""
    for one in load_course(ROOT):
        if only in f"reference/{one.name}":
            yield f"reference/{one.name}", None, one.name
    for kind in ("slow", "accepted"):
        for entry in entries(kind):  # type: ignore[arg-type]
            if only in f"{kind}/{entry.id}":
                yield f"{kind}/{entry.id}", entry, entry.assignment


def folder_of(entry: Entry | None, scratch: Path) -> Path:
    scratch.mkdir(parents=True)
    return ROOT / "reference" if entry is None else entry.submission(scratch)


def key_of(name: str, case: BoundSpeedCase) -> str:
    return f"{name} {case.part.name}/{case.name}"


# Measured --------------------------------------------------------------------------------------------------------------


def measure(record: Record, only: str) -> None:
    record.whole["gpu"] = torch.cuda.get_device_name()
    found = list(kernels(only))
    with tempfile.TemporaryDirectory() as scratch:
        folders = {name: folder_of(entry, Path(scratch, str(number))) for number, (name, entry, _) in enumerate(found)}
        with ThreadPoolExecutor() as pool:
            files = {one.name: one.spec.file for one in load_course(ROOT)}
            paths = [folders[name] / files[assignment] for name, _, assignment in found]
            built = dict(zip(folders, pool.map(build, paths), strict=True))
        for sizes in bind_speed_cases(load_course(ROOT)):
            case = sizes.declared
            call = case.inputs(1, 0, torch.device("cuda"))
            for name, _, assignment in found:
                if assignment != case.assignment.name or built[name] == "":
                    continue
                time_ms = milliseconds(callable_of(case, call, folders[name], built[name]))
                record.put(key_of(name, case), measured_ms=round(time_ms, 4))
                print(f"{time_ms:9.4f} ms  {key_of(name, case)}", flush=True)
            del call
            torch.cuda.empty_cache()


def build(source: Path) -> str | None:
    """The library of a CUDA file; None for Python, "" for one that is built by PyTorch, and is not measured."""
    if source.suffix != ".cu":
        return None
    if is_torch_form(source):
        return ""
    library = Path(tempfile.mkdtemp(), "kernel.so")
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-O3", "-arch=native", "-o", str(library), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return str(library)


def callable_of(case: BoundSpeedCase, call: Call, folder: Path, library: str | None) -> Callable[[], object]:
    if library is not None:
        (x,) = call.args.values()
        y = torch.empty_like(x)
        function = getattr(ctypes.CDLL(library), case.assignment.spec.entry)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        places = [ctypes.c_void_p(one.data_ptr()) for one in (x, y)]
        return lambda: (function(*places, ctypes.c_int64(x.numel()), stream), y)
    function = imported(folder / case.assignment.spec.file, case.assignment.spec.entry)
    inputs = [one.detach().requires_grad_(call.upstream is not None) for one in call.args.values()]

    def answer() -> object:
        for one in inputs:
            one.grad = None
        result = function(*inputs, *call.options.values())
        return result if call.upstream is None else result.backward(call.upstream)

    return answer


def imported(path: Path, entry: str) -> Callable[..., Any]:
    """The entry of a file. Modules beside it are forgotten, because others have modules of these names."""
    known = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"kernel_{len(known)}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
        for name in set(sys.modules) - known - {spec.name if spec else ""}:
            if str(path.parent) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
    found: Callable[..., Any] = getattr(module, entry)
    return found


def milliseconds(make: Callable[[], object]) -> float:
    """The median time of a call."""
    make()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    flushed = torch.empty(FLUSHED_INTS, dtype=torch.int32, device="cuda")
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < LONG_MS:
        flushed.zero_()
        torch.cuda._sleep(AHEAD_CLOCKS)  # the host gets ahead, so that its own time for a launch is not measured
        first.record()
        make()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


# Counted ---------------------------------------------------------------------------------------------------------------


def count(record: Record, only: str) -> None:
    if (ncu := find_ncu()) is None:
        raise SystemExit(NO_NCU)
    record.whole["counted_on"] = torch.cuda.get_device_name()
    for key in COUNTED:
        if only not in key:
            continue
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, "-m", "benchmarks.profile_record", "--call", key]
            environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
            command = [*tools.counters(ncu, EVERY, MAX_KERNELS), *program]
            subprocess.run(command, cwd=folder, env=environment, check=True, stdout=sys.stderr)
            found = counters(Path(folder, TOOL_LOG).read_text(encoding="utf-8"), ())
        moved = sum((one.dram_read_bytes or 0.0) + (one.dram_written_bytes or 0.0) for one in found)
        record.put(key, counted_bytes=moved)
        print(f"{moved / 1e9:9.4f} GB  {key}", flush=True)


def call(key: str) -> None:
    """Make the call of a kernel and a case several times, the last one for the tool."""
    name, where = key.split(" ")
    case = next(
        one.declared
        for one in bind_speed_cases(load_course(ROOT))
        if f"{one.declared.part.name}/{one.declared.name}" == where and one.declared.assignment.name in name
    )
    (entry,) = (entry for known, entry, _ in kernels(name) if known == name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder_of(entry, Path(scratch, "submission"))
        library = build(folder / case.assignment.spec.file)
        make = callable_of(case, case.inputs(1, 0, torch.device("cuda")), folder, library)
        for _ in range(2):
            make()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        make()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


# Predicted -------------------------------------------------------------------------------------------------------------


def predict(record: Record, only: str, jobs: int) -> None:
    cases = [one.declared for one in bind_speed_cases(load_course(ROOT))]
    todo = [
        (name, entry, case)
        for name, entry, assignment in kernels(only)
        for case in cases
        if case.assignment.name == assignment
    ]

    def one(task: tuple[str, Entry | None, BoundSpeedCase]) -> tuple[str, dict[str, Any]]:
        name, entry, case = task
        with tempfile.TemporaryDirectory() as scratch:
            folder = folder_of(entry, Path(scratch, "submission"))
            course = course_for(record.whole["gpu"], Path(scratch, "course"))
            found = profile(folder, course, case.assignment.name, f"{case.part.name}/{case.name}")
        predicted_ms = found.predicted_ms and round(found.predicted_ms, 4)
        causes = [remark.cause for remark in found.remarks]
        facts = {"predicted_ms": predicted_ms, "bound": found.bound, "causes": causes}
        return key_of(name, case), facts | {"predicted_bytes": round(found.moved_bytes)}

    with ThreadPoolExecutor(jobs) as pool:
        for key, value in pool.map(one, todo):
            record.put(key, **value)
            print(
                f"{value['predicted_ms'] or 0:9.4f} ms  {key}  {value['bound']}  {', '.join(value['causes'])}",
                flush=True,
            )


def course_for(gpu: str, folder: Path) -> Path:
    """A copy of the course for the GPU of this name."""
    (short,) = (name for name, one in GPUS.items() if one.name == gpu)
    for name in ("assignments", "reference", "starter"):
        shutil.copytree(ROOT / name, folder / name)
    for path in folder.glob("assignments/*/problem.toml"):
        text, changed = GPU_LINE.subn(f'gpu = "{short}"', path.read_text(encoding="utf-8"))
        assert changed == 1, path
        path.write_text(text, encoding="utf-8")
    return folder


# The page --------------------------------------------------------------------------------------------------------------


def errors(whole: dict[str, Any]) -> dict[str, list[float]]:
    """Each prediction's error, as a share of the measured time, by what bounds the time."""
    found: dict[str, list[float]] = {}
    for one in whole["kernels"].values():
        if one.get("predicted_ms") and one.get("measured_ms"):
            found.setdefault(one["bound"], []).append(abs(one["predicted_ms"] / one["measured_ms"] - 1))
    return found


def told_errors(whole: dict[str, Any]) -> dict[str, float]:
    """The median error of each bound with which predicted times are told."""
    enough = {bound: statistics.median(each) for bound, each in errors(whole).items() if len(each) >= LEAST_KERNELS}
    return {bound: round(median, 2) for bound, median in enough.items() if median <= MOST_ERROR}


def table(whole: dict[str, Any]) -> str:
    lines = [
        f"Measured on an {whole['gpu'].removeprefix('NVIDIA ')}, with a cold L2 cache; predicted without a GPU.",
        "",
        "| bound by | kernels | median error | told |",
        "|---|---:|---:|---|",
    ]
    for bound, each in sorted(errors(whole).items()):
        median = statistics.median(each)
        lines.append(f"| {bound} | {len(each)} | {median:.0%} | {'yes' if bound in told_errors(whole) else 'no'} |")
    lines += [
        "",
        "| kernel | case | bound by | predicted, ms | measured, ms | error | causes told |",
        "|---|---|---|---:|---:|---:|---|",
    ]
    for key, one in whole["kernels"].items():
        name, case = key.split(" ")
        measured, predicted = one.get("measured_ms"), one.get("predicted_ms")
        error = f"{predicted / measured - 1:+.0%}" if predicted and measured else ""
        numbers = f"{predicted or ''} | {measured or ''} | {error}"
        lines.append(f"| {name} | {case} | {one.get('bound', '')} | {numbers} | {', '.join(one.get('causes', ()))} |")
    lines += [
        "",
        f"What DRAM moves, by Nsight Compute's counters on an {whole.get('counted_on', '?').removeprefix('NVIDIA ')}, where each kernel "
        "begins with an empty cache; predicted without a GPU.",
        "",
        "| kernel | case | predicted, GB | counted, GB | error |",
        "|---|---|---:|---:|---:|",
    ]
    for key, one in whole["kernels"].items():
        if counted := one.get("counted_bytes"):
            name, case = key.split(" ")
            predicted = one["predicted_bytes"]
            numbers = f"{predicted / 1e9:.4g} | {counted / 1e9:.4g} | {predicted / counted - 1:+.0%}"
            lines.append(f"| {name} | {case} | {numbers} |")
    return "\n".join(lines)


def render(whole: dict[str, Any]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(whole)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("measure", "count", "predict", "render"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--call", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.call:
        return call(arguments.call)
    record = Record()
    if arguments.measure:
        measure(record, arguments.only)
    if arguments.count:
        count(record, arguments.only)
    if arguments.predict:
        predict(record, arguments.only, arguments.jobs)
    render(record.whole)
    return None


if __name__ == "__main__":
    main()

"""One grading: build its objects, run all cases, checks and speed cases, and emit events, the report last."""

from __future__ import annotations

import importlib
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import torch

from grader.assignment import CourseError, Device
from grader.judge.calls import CallGrader
from grader.judge.canary import Canary
from grader.judge.comparison import Comparison, Reference
from grader.judge.compilation import Compilation
from grader.judge.files import Files
from grader.judge.hoarding import Hoarding
from grader.judge.lanes import Lanes
from grader.judge.profiler import Profiler
from grader.judge.results import Results, report_of
from grader.judge.run import Run
from grader.judge.runner import Runner
from grader.judge.skip import SkipReasons
from grader.judge.speed.benchmark import Benchmarks
from grader.judge.speed.plugin import SpeedTests
from grader.judge.workers import Workers
from grader.messages import Benchmarked, Event, Finished, Planned, PlannedPart, Request
from grader.pool.pool import WorkerPool
from grader.protocol import NEEDED_FOR_GRADIENTS
from grader.report.model import Isolation

# Hypothesis imports `numpy.random` if NumPy is installed, and Python `encodings.ascii` for the codec "ascii".
FOR_THREADS = (NEEDED_FOR_GRADIENTS, "cuda.bindings.driver", "cuda.bindings.runtime", "numpy.random", "encodings.ascii")


class Interrupted(Exception):
    """The grading was asked to stop before it had decided a result; there is no report."""


def run_session(request: Request, pool: WorkerPool, isolation: Isolation, emit: Callable[[Event], None]) -> None:
    """Grade a request on the pool's device and emit its events, the report last.

    Raises:
        CourseError: the course is unusable.
        Interrupted: the session was asked to stop before anything was graded; no report is emitted.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    run = Run.begin(request, pool.device, emit)
    # Before there are threads: those that import modules which import each other may see half of one.
    if pool.device == "cuda" or run.lane_count > 1:
        for name in FOR_THREADS:
            with suppress(ImportError):  # the code that needs the module will raise this again
                importlib.import_module(name)
    files = Files(run)
    files.look()
    workers = Workers(run, files, pool)
    if pool.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True  # students' `tl.dot` uses TF32, so PyTorch as a yardstick does too
    parts = tuple(
        PlannedPart(
            assignment=one.name,
            part=part.name,
            file=one.spec.file,
            title=f"{one.spec.title}: {part.title}",
            cases=sum(len(group.names) for group in part.groups) + request.speed * len(part.speed),
        )
        for one in run.assignments
        for part in one.spec.parts
    )
    emit(Planned(device=pool.device, parts=parts, isolation=isolation))
    comparison = Comparison(run, Reference(run, workers))
    benchmarks = Benchmarks(run, workers, comparison)
    timed = [one.declared for one in run.speed_cases if run.device_name in one.declared.speed.devices]
    workers.baselines.load_ahead(timed, everyone=request.entrants == "all")
    if request.profile != "no":
        if pool.device == "cuda":
            files.finish_looking()
        Profiler(run, files, workers, benchmarks).run_all()
        emit(Finished(report=report_of(run, (), isolation, started, time.monotonic() - clock)))
        return
    hoarding = Hoarding(run, workers)
    call_grader = CallGrader(run, files, comparison)
    lanes = Lanes(run.lane_count, workers)
    compilation = Compilation(run, files, workers)
    canary = Canary(run, workers, lanes, comparison, compilation)
    results = Results(run, files, canary, compilation)
    skip = SkipReasons(run, files, hoarding, compilation, results)
    runner = Runner(run, files, workers, hoarding, comparison, call_grader, lanes, skip, compilation, results)
    speed = SpeedTests(benchmarks, hoarding, skip, results)
    interrupted = False
    try:
        runner.run_all()
        interrupted = bool(run.speed_cases) and not speed.run_all()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        lanes.abandon()
        compilation.abandon()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the remaining work takes a moment
    if interrupted and (request.stop_early or not results.has_decided_something):
        raise Interrupted
    if not interrupted:
        results.look_back()
    if speed.record:
        emit(Benchmarked(json_text=speed.record))
    emit(Finished(report=results.report(isolation, started, time.monotonic() - clock, interrupted)))


def choose_device(wanted: str) -> Device:
    """`cuda` if there is a GPU and `cpu` is not wanted. Raises CourseError if a GPU is wanted and there is none."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise CourseError("--device cuda or --gpu: PyTorch finds no CUDA GPU here, or not that one; use --device cpu")
    return "cuda" if available and wanted != "cpu" else "cpu"

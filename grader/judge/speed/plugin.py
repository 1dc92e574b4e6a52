"""pytest runs the speed cases: `test_speed` for each, in which pytest-benchmark records the times.

Fixtures: `speed_case` (in all its sizes), `speed` (the plugin, which times it), and pytest-benchmark's `benchmark`, whose timer is
the plugin's `replay`.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from traceback import clear_frames
from typing import Any

import pytest

from grader.judge.cases import SpeedSizes
from grader.judge.environment import describe_environment
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.results import Results
from grader.judge.skip import SkipReasons
from grader.judge.speed.benchmark import Benchmarks
from grader.verdict.speed import Verdict

HERE = Path(__file__).parent


class Replay:
    """A timer that replays the times of a benchmark run: 0 before each round and, after `step`, the seconds of the round."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque()
        self._shown_s = 0.0

    def load(self, times_s: Iterable[float]) -> None:
        """Set the times of the coming rounds, in seconds."""
        self._times_s = deque(times_s)

    def step(self) -> None:
        """Take the next round. Raises IndexError if there is none."""
        self._shown_s = self._times_s.popleft()

    def __call__(self) -> float:
        shown_s, self._shown_s = self._shown_s, 0.0
        return shown_s


@dataclass(eq=False, repr=False)
class SpeedTests:
    """The pytest plugin that makes a test of each speed case, and keeps its result.

    Attributes:
        record: pytest-benchmark's JSON, after the session.
        replay: the timer of every test.
    """

    _benchmarks: Benchmarks
    _hoarding: Hoarding
    _skip: SkipReasons
    _results: Results
    record: str = field(init=False, default="")
    replay: Replay = field(init=False, default_factory=Replay)
    _evidence: Evidence = field(init=False, default_factory=Evidence)  # of the test that runs

    def run_all(self) -> bool:
        """Run all speed cases. Returns False if the run was interrupted."""
        code = run_pytest([HERE / "test_speed.py"], self, "--benchmark-json", os.devnull)
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
            raise RuntimeError(f"the judge's pytest session ended with {pytest.ExitCode(code).name}")
        return code != pytest.ExitCode.INTERRUPTED

    def measure(self, sizes: SpeedSizes) -> Verdict | None:
        """Time a speed case in the largest size that fits into this machine's memory. Raises as `SkipReasons` and
        `Benchmarks.measure`.
        """
        place, shared, evidence = sizes.place, self._benchmarks, self._evidence
        shared.workers.baselines.settle()  # it holds memory too
        shared.run.gauge.look_again()
        case = self._skip.fitting(place, sizes)
        evidence.size = case.case.tries
        self._skip.check_timing(place, sizes)
        self._skip.check(place, None)
        shared.workers.worker(place.assignment).log.mark(place.heading)
        with self._hoarding.is_a_fault(place.assignment):
            return shared.measure(case, evidence)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        timed = pytest.mark.benchmark(timer=self.replay)
        cases = [pytest.param(one, id=one.declared.id, marks=timed) for one in self._benchmarks.run.speed_cases]
        metafunc.parametrize("speed_case", cases)

    @pytest.fixture
    def speed(self) -> SpeedTests:
        return self

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Iterator[None]:
        try:
            return (yield)
        except KeyboardInterrupt:
            # pytest shows the arguments of every function below, of which a few are the whole course: that takes minutes
            raise KeyboardInterrupt from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._evidence = Evidence()
        self._benchmarks.run.emit(_sizes(item).place.started)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        error = call.excinfo.value if call.excinfo is not None else None
        if error is not None or call.when == "call":
            self._results.keep_speed(_sizes(item), error, self._evidence, call.duration)
        if error is not None:
            # pytest keeps the last failure, whose frames may hold most of the GPU's memory.
            clear_frames(error.__traceback__)
        return report

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_machine_info(self) -> dict[str, object]:
        return describe_environment(self._benchmarks.run.device_name).model_dump()

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_generate_commit_info(self) -> dict[str, object]:
        return {"id": self._benchmarks.run.request.copied.info.sha256, "dirty": False}

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_benchmark_update_json(self, output_json: dict[str, Any]) -> None:
        for one in output_json["benchmarks"]:
            one["params"] = None  # objects of the grader; `param` and `group` name them
        self.record = json.dumps(output_json, default=str)


def run_pytest(files: Iterable[Path], plugin: object, *options: str) -> int | pytest.ExitCode:
    """Run pytest on these files with pytest-benchmark and one plugin of the judge."""
    arguments = ["-c", str(HERE / "pytest.ini"), "--rootdir", str(HERE), "--import-mode=importlib"]
    arguments += ["-p", "pytest_benchmark.plugin", *options]
    try:
        return pytest.main([*arguments, *map(str, files)], plugins=[plugin])
    except KeyboardInterrupt:  # while the session began or ended
        return pytest.ExitCode.INTERRUPTED


def _sizes(item: Any) -> SpeedSizes:
    sizes: SpeedSizes = item.callspec.params["speed_case"]
    return sizes

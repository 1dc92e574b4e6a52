"""Speed on a real GPU: an honest kernel is believed, and no cheat gains anything, through the whole pipeline."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from grader.report.model import SpeedCaseResult
from tests.conftest import Course, Ran, Running, problem_toml

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(500)]
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

SPEED = """
    [[part.speed]]
    name = "large"
    n = 67108864
    bands = [
      {{ vs = "eager", speedup = 0.4, points = 2 }},
      {{ vs = "eager", speedup = 0.8, points = 2 }},
    ]

    [timing]
    batch_s = 0.01
    max_calls = 80
    rounds = 3
    max_rounds = 3
    slow_limit = {slow_limit}
"""
# A call moves 128 MiB: the judge refuses a shorter case.
SHORTEST = SPEED.replace("67108864", "16777216").replace("speedup = 0.8", "speedup = 1.15")
BASELINES = "def eager(x):\n    return x * 2\n"

# A right answer that takes about eight times as long as the baseline: what every cheat below must do at the least.
PRELUDE = """
import sys, threading, time
import torch

def honest(x):
    for _ in range(8):
        y = x * 2
    return y

def batch():
    "What the function that times us has in its variables: calls, self ..."
    frame = sys._getframe(1)
    while type(frame.f_locals.get("self")).__name__ != "MappedBench":
        frame = frame.f_back
    return frame.f_locals

def bench():
    return batch()["self"]

"""
# What runs on this stream nobody waits for; `wait` lets it wait until the first word of an input is filler, or is none.
AHEAD = """
import types
from cuda.bindings import driver
import grader.worker.timing as timing
timing.torch = types.SimpleNamespace(**vars(torch))
timing.torch.cuda = types.SimpleNamespace(**vars(torch.cuda))
timing.torch.cuda.synchronize = lambda: torch.cuda.current_stream().synchronize()
SIDE = torch.cuda.Stream()
torch.cuda._sleep(1)  # what is launched for the first time waits for all streams to be done
torch.cuda.synchronize()
def wait(x, how):
    value = 0xFFFFFFFF if how == driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ else 0
    (status,) = driver.cuStreamWaitValue32(SIDE.cuda_stream, x.data_ptr(), value, how)
    assert status == driver.CUresult.CUDA_SUCCESS
"""

CHEATS = {
    "patched_events": """
torch.cuda.Event.elapsed_time = lambda self, other: 1e-6
def double(x):
    return honest(x)
""",
    "patched_marks": """
import grader.worker.timing as timing
timing._DeviceMark.seconds_to = lambda self, later: 0.0
def double(x):
    return honest(x)
""",
    "patched_everything": """
import grader.worker.timing as timing
torch.cuda.synchronize = lambda *_: None
class Mark:
    record = lambda self: None
    seconds_to = lambda self, later: 1e-6
timing._DeviceMark = Mark
def double(x):
    return honest(x)
""",
    "lazy_subclass": """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        if function is torch.Tensor.detach:
            return honest(arguments[0].source)
        return super().__torch_function__(function, types, arguments, options or {})
def double(x):
    if x.numel() < 1000:
        return honest(x)
    y = torch.empty_like(x).as_subclass(Lazy)
    y.source = x
    return y
""",
    "side_stream": """
SIDE = torch.cuda.Stream()
def double(x):
    y = torch.empty_like(x)
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        for _ in range(8):
            torch.mul(x, 2, out=y)
    if x.numel() < 1000:
        SIDE.synchronize()
    return y
""",
    "another_default_stream": """
SIDE = torch.cuda.Stream()
def double(x):
    torch.cuda.set_stream(SIDE)
    return honest(x)
""",
    "early_stream": """
SIDE = torch.cuda.Stream(priority=-1)
def double(x):
    with torch.cuda.stream(SIDE):
        y = honest(x)
    torch.cuda.current_stream().wait_stream(SIDE)
    return y
""",
    "polling": AHEAD
    + """
timing._DeviceMark.seconds_to = lambda self, later: 1e-5
DONE = {}
def double(x):
    if x.numel() < 1000:
        return honest(x)
    if x.data_ptr() == bench()._sets[0][0][0].data_ptr():
        with torch.cuda.stream(SIDE):
            for (one,), _, _ in bench()._sets[: batch()["request"].calls]:
                wait(one, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_NOR)
                DONE[one.data_ptr()] = honest(one)
    torch.cuda.current_stream().wait_stream(SIDE)
    return DONE.pop(x.data_ptr())
""",
    "deferred": AHEAD
    + """
timing._DeviceMark.seconds_to = lambda self, later: 1e-5
HERE, THERE = torch.empty(1 << 28, device="cuda"), torch.empty(1 << 28, pin_memory=True)
def late(given):
    if given[0][1].numel() < 1000:
        return deliver(given)
    SIDE.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE):
        for result, slot, _ in given:
            THERE[: 1 << 24].copy_(HERE[: 1 << 24], non_blocking=True)
            slot.copy_(honest(result))
    shape = list(given[0][1].shape)
    return [{"kind": "tensor", "type": "Tensor", "dtype": "float32", "shape": shape, "device": "cuda"}] * len(given)
deliver, timing.deliver = timing.deliver, late
def double(x):
    return honest(x) if x.numel() < 1000 else x.clone()
""",
    "armed_against_the_baselines": AHEAD
    + """
def double(x):
    y = honest(x)
    if x.numel() > 1000 and len(bench()._sets) > 4 and x.data_ptr() == bench()._sets[0][0][0].data_ptr():
        SIDE.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(SIDE):
            wait(x, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ)
            wait(x, driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_NOR)
            torch.cuda._sleep(5_000_000)
    return y
""",
    "own_gate": """
SIDE = torch.cuda.Stream()
def double(x):
    if x.numel() > 1000:
        with torch.cuda.stream(SIDE):
            bench()._gate[:4].view(torch.int32).fill_(1 << 30)
        SIDE.synchronize()
    return honest(x)
""",
    "background_thread": """
def double(x):
    y = torch.empty_like(x)
    def work():
        y.copy_(honest(x))
    thread = threading.Thread(target=work)
    thread.start()
    if x.numel() < 1000:
        thread.join()
        torch.cuda.synchronize()
    return y
""",
    "cache_by_pointer": """
SEEN = {}
def double(x):
    if x.data_ptr() not in SEEN:
        SEEN[x.data_ptr()] = honest(x)
    return SEEN[x.data_ptr()] if x.numel() > 1000 else honest(x)
""",
    "cache_by_shape": """
SEEN = {}
def double(x):
    if x.shape not in SEEN or x.numel() < 1000:
        SEEN[x.shape] = honest(x)
    return SEEN[x.shape]
""",
    "cache_by_count": """
CALLS = []
def double(x):
    if x.numel() < 1000:
        return honest(x)
    CALLS.append(honest(x) if len(CALLS) < 6 else CALLS[-1])
    return CALLS[-1]
""",
    "memory_kept": """
KEPT = []
def double(x):
    if x.numel() > 1000 and not KEPT:
        KEPT.append(torch.empty(int(0.8 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda"))
    return honest(x)
""",
    "batch_in_first_call": """
STORED = {}
def double(x):
    if x.numel() < 1000:
        return honest(x)
    if x.data_ptr() not in STORED:
        for arguments, _, _ in bench()._sets:
            STORED[arguments[0].data_ptr()] = honest(arguments[0])
    return STORED.pop(x.data_ptr())
""",
    "stale_graph": """
GRAPH = []
def double(x):
    if x.numel() < 1000:
        return honest(x)
    if not GRAPH:
        static, graph = x.clone(), torch.cuda.CUDAGraph()
        honest(static)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = honest(static)
        GRAPH.extend([graph, y])
    GRAPH[0].replay()
    return GRAPH[1].clone()
""",
    "work_after_the_event": """
import grader.worker.timing as timing
deliver = timing.deliver
def late(given):
    for result, _, inputs in given:
        for _ in range(8):
            result.copy_(inputs[0] * 2)
    return deliver(given)
timing.deliver = late
def double(x):
    return torch.empty_like(x) if x.numel() > 1000 else honest(x)
""",
    "sleep_outside_the_events": """
import grader.worker.timing as timing
deliver = timing.deliver
def late(given):
    torch.cuda.synchronize()
    time.sleep(0.002 * len(given))
    return deliver(given)
timing.deliver = late
def double(x):
    return x * 2
""",
    "made_when_collected": """
import grader.worker.timing as timing
timing._DeviceMark.seconds_to = lambda self, later: 1e-4
def late(given):
    for _, slot, inputs in given:
        for _ in range(8):
            torch.mul(inputs[0], 2, out=slot)
    shape = list(given[0][1].shape)
    return [{"kind": "tensor", "type": "Tensor", "dtype": "float32", "shape": shape, "device": "cuda"}] * len(given)
timing.deliver = late
def double(x):
    return honest(x) if x.numel() < 1000 else torch.empty(1, device="cuda").expand(x.shape)
""",
    "kernel_left_running": """
SIDE = torch.cuda.Stream()
def double(x):
    y = honest(x)
    if x.numel() > 1000:
        with torch.cuda.stream(SIDE):
            torch.cuda._sleep(2_000_000_000)
    return y
import grader.worker.timing as timing
import types
timing.torch = types.SimpleNamespace(**vars(torch))
timing.torch.cuda = types.SimpleNamespace(**vars(torch.cuda))
timing.torch.cuda.synchronize = lambda: torch.cuda.current_stream().synchronize()
""",
    "thread_against_the_baselines": """
def burn():
    z = torch.empty(1 << 26, device="cuda")
    while True:
        z.zero_()
        torch.cuda.synchronize()
def double(x):
    if x.numel() > 1000 and threading.active_count() < 3:
        threading.Thread(target=burn, daemon=True).start()
    return honest(x)
""",
}
HONEST = {
    "right": "def double(x):\n    return x * 2\n",
    "right_in_a_graph": """
GRAPHS = {}
def double(x):
    if x.numel() < 1000:
        return x * 2
    if not GRAPHS:
        static, graph = x.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = static * 2
        GRAPHS.update(graph=graph, x=static, y=y)
    GRAPHS["x"].copy_(x)
    GRAPHS["graph"].replay()
    return GRAPHS["y"].clone()
""",
    "wrong_only_when_timed": """
CALLS = []
def double(x):
    CALLS.append(1)
    return x * 2 if len(CALLS) < 12 else x * 2 + 1e-3
""",
    "out_of_memory_in_the_end": """
KEPT = []
def double(x):
    y = x * 2
    if x.numel() > 1000:
        KEPT.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))
    return y
""",
    "slow": "def double(x):\n    for _ in range(40):\n        y = x * 2\n    return y\n",
}


MERGED = """
OWED = []
def double(x):
    if x.numel() < 1000:
        return x * 2
    OWED.append((x, torch.empty_like(x)))
    last = OWED[-1][1]
    if len(OWED) == batch()["request"].calls:
        inputs, outputs = zip(*OWED)
        torch._foreach_copy_(outputs, inputs)
        torch._foreach_mul_(outputs, 2)
        OWED.clear()
    return last
"""

NEIGHBOUR = """
import torch
x = torch.randn(8192, 8192, device="cuda")
while True:
    x @ x
    torch.cuda.synchronize()
    print("works", flush=True)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return start(tmp_path_factory.mktemp("speed"), CHEATS | HONEST).finish(450)


def start(folder: Path, answers: dict[str, str], speed: str = SPEED) -> Running:
    """Grade these, each an assignment of its own."""
    assert not torch.cuda.is_initialized(), "this process counts as another program on the GPU: blame would be in doubt"
    course = Course(folder / "course")
    submission = folder / "submission"
    submission.mkdir()
    for name, source in answers.items():
        limit = 20 if name == "slow" else 100
        toml = problem_toml(f"{name}.py", ["plain"], limit_s=20, memory_gib=8, extra=speed.format(slow_limit=limit))
        course.add(name, toml=toml)
        (course.folder / "assignments" / name / "baselines.py").write_text(BASELINES)
        (submission / f"{name}.py").write_text(PRELUDE + source)
    return Running(folder, [str(submission), "--course", str(course.folder), "--device", "cuda"])


def timed(ran: Ran, name: str) -> SpeedCaseResult:
    assert ran.report is not None, ran.errors
    assignment = next(one for one in ran.report.assignments if one.name == name)
    (part,) = assignment.parts
    assert [case.outcome for case in part.cases] == ["passed"], [case.message for case in part.cases]
    return part.speed.cases[0]


def everything(result: SpeedCaseResult) -> str:
    flags = result.measured.flags if result.measured is not None else ()
    return "\n".join([result.outcome, result.message, *result.diagnosis, *flags])


REASONS = {
    "patched_events": "not corroborated",
    "patched_marks": "not corroborated",
    "patched_everything": "the GPU was still busy",
    "lazy_subclass": "subclass",
    "cache_by_pointer": "in a timed batch",
    "cache_by_shape": "in a timed batch",
    "cache_by_count": "in a timed batch",
    "stale_graph": "in a timed batch|illegal memory access",  # its inputs are gone, or unmapped
    "work_after_the_event": "not corroborated|in a timed batch",  # late, or on inputs that are gone
    "sleep_outside_the_events": "not corroborated",
    "made_when_collected": "not corroborated|in a timed batch",
    "kernel_left_running": "GPU",
    "polling": "not corroborated|in a timed batch",
    "deferred": "still written|still busy|in a timed batch|not corroborated",
    "armed_against_the_baselines": "not corroborated|had been ended|the GPU was still busy|kernels of your code still ran",
    "early_stream": "in a timed batch",
    "own_gate": "in a timed batch",
    "memory_kept": r"still held \d+ GiB of GPU memory after its calls",
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_earns_nothing(ran: Ran, name: str) -> None:
    result = timed(ran, name)
    assert (result.points.earned, result.points.graded) == (0, 4), everything(result)
    assert re.search(REASONS.get(name, ""), everything(result)), everything(result)


@pytest.mark.parametrize("name", ["right", "right_in_a_graph"])
def test_an_honest_answer_is_believed(ran: Ran, name: str) -> None:
    result = timed(ran, name)
    assert result.measured is not None, everything(result)
    assert result.measured.corroborated, everything(result)
    # The judge's clock lifts an honest claim in a race now and then; that it was timed twice is all that may be said of it.
    assert all(flag.startswith("timed twice: ") for flag in result.measured.flags), everything(result)


def test_an_honest_answer_has_its_points(ran: Ran) -> None:
    assert timed(ran, "right").points.earned == 4


def test_calls_merged_into_one_launch_gain_a_few_percent_of_the_shortest_call(tmp_path: Path) -> None:
    ran = start(tmp_path, {"right": HONEST["right"], "merged": MERGED}, SHORTEST).finish(200)
    honest, merged = timed(ran, "right"), timed(ran, "merged")
    assert (honest.outcome, honest.points.earned) == ("passed", 2), everything(honest)
    assert (merged.outcome, merged.points.earned > 2) == ("passed", False), everything(merged)


def test_nobody_slows_the_baselines_down(ran: Ran) -> None:
    """In the rounds with a thread that never rests, PyTorch takes as long as in those with an honest submission."""
    alone, beside = timed(ran, "right").measured, timed(ran, "thread_against_the_baselines").measured
    assert alone is not None
    if beside is not None:
        times = [next(one.time_s.median for one in each.entrants if one.name == "eager") for each in (alone, beside)]
        assert times[1] <= 1.2 * times[0]


def test_what_fails_only_under_timing_fails_its_speed_case_alone(ran: Ran) -> None:
    wrong, memory = timed(ran, "wrong_only_when_timed"), timed(ran, "out_of_memory_in_the_end")
    assert (wrong.outcome, "in a timed batch" in wrong.message) == ("failed", True), everything(wrong)
    assert memory.outcome == "out_of_memory", everything(memory)
    assert wrong.points.earned == memory.points.earned == 0


def test_a_slow_kernel_is_stopped_with_its_time(ran: Ran) -> None:
    slow = timed(ran, "slow")
    assert slow.outcome == "passed"
    assert "more than 20 times eager" in slow.message
    assert slow.points.earned == 0


def test_the_record_is_complete(ran: Ran) -> None:
    measured = timed(ran, "right").measured
    assert measured is not None
    orders = {one.order for one in measured.rounds}
    assert len(orders) > 1
    assert all(one.sm_clock_mhz and one.temperature_c for one in measured.rounds)
    assert {one.name for one in measured.entrants} == {"submission", "eager", "copy"}
    assert all(0 < one.roofline_share < 1.1 for one in measured.entrants)


def test_nothing_is_left(ran: Ran) -> None:
    assert ran.left == []


def test_another_program_on_the_gpu_is_no_fault_of_the_submission(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True) as neighbour:
        try:
            assert neighbour.stdout is not None
            assert neighbour.stdout.readline() == "works\n"
            reading = threading.Thread(target=neighbour.stdout.read, daemon=True)
            reading.start()
            ran = start(tmp_path, {"right": HONEST["right"]}).finish(200)
        finally:
            neighbour.kill()
    result = timed(ran, "right")
    assert result.outcome == "infra_error", everything(result)
    assert "another program is using this GPU" in result.message
    assert (result.points.graded, ran.code) == (0, 3)

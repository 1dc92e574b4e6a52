"""Before the rounds of a race: every contender runs until its time settles; a submission that is far too slow is stopped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from grader.judge.baselines import NULL, YARDSTICKS
from grader.judge.batches import Batches, bytes_of_set, open_bench
from grader.judge.cases import BoundSpeedCase
from grader.judge.evidence import Evidence
from grader.judge.gpu import wait_for_quiet
from grader.judge.ruler import Ruler
from grader.judge.timing import Bench
from grader.judge.track import Lineup, Runner, Track
from grader.problem import Call
from grader.protocol import MATRIX
from grader.verdict.speed import SUBMISSION, Roofline
from grader.verdict.tally import WARM_SETS

SETTLED = 0.03  # two batches in a row that differ by no more are warm
SETTLE_BATCHES = 12
SETTLE_LIMIT_S = 1.0
NOISE_S = 0.05  # of a single call by the judge's clock, on a bad day


class FarTooSlow(Exception):
    """A submission with which there is no point in rounds: a call takes `call_s` seconds."""

    def __init__(self, call_s: float) -> None:
        super().__init__(f"a call takes {call_s:.3g} s")
        self.call_s = call_s


@dataclass(frozen=True)
class Warm:
    """What is known of a race before its rounds.

    Attributes:
        batches: runs the batches of the rounds too.
        set_bytes: that the tensors of one call take.
        call_s: seconds of a call once warm, by contender.
    """

    batches: Batches
    roofline: Roofline
    set_bytes: int
    call_s: dict[str, float]


def warm_up(track: Track, case: BoundSpeedCase, lineup: Lineup, evidence: Evidence) -> Warm:
    """Warm everyone up; a contender that fails, and can be done without, leaves the lineup. Raises as `Batches` does, and
    FarTooSlow.
    """
    if not track.run.gauge.is_quiet():
        wait_for_quiet(track.run.gauge, lineup.submission.contender, was_running=True, attempt=1)
    with open_bench(track, case, WARM_SETS, WARM_SETS) as bench:
        batches = Batches(track, case, lineup, Ruler(track.run.device_name, case, bench.calls[0]), evidence)
        call_s: dict[str, float] = {}
        for runner in [lineup.null, *lineup.others]:
            track.note(f"warming up {runner.name}")
            with lineup.may_leave_out(runner.name):
                batches.invite(bench, runner, collects=True)
                if runner.name not in YARDSTICKS:
                    batches.check_baseline(bench, runner)
                call_s[runner.name] = _settled_s(batches, bench, runner)
                track.crew.baselines.note_compiled(runner.name, case)
        lineup.others = [runner for runner in lineup.others if runner.name in call_s]
        del call_s[NULL]  # its batches are as large as the submission's
        track.note("warming up your code")
        submission = lineup.submission
        batches.invite(bench, submission, collects=True)
        first = batches.run(bench, submission, 1, check=True, watched=True)  # it may compile
        roofline, set_bytes = roofline_of(case, bench.calls[0]), bytes_of_set(case, bench.calls[0], first.collected)

        def by_both_clocks(calls: int) -> float:
            nothing = batches.run(bench, lineup.null, calls)
            batch = batches.run(bench, submission, calls)
            return max(batch.claimed_s, (batch.wall_s - nothing.wall_s) / calls)

        limit_s = case.assignment.spec.timing.slow_limit * max(call_s[name] for name in case.opponents)
        took_s = shortest_s(by_both_clocks, limit_s)
        if took_s > limit_s:
            raise FarTooSlow(took_s)
        # A claim of nothing would ask for all the memory there is.
        call_s[SUBMISSION] = max(_settled_s(batches, bench, submission), took_s / 2)
    return Warm(batches, roofline, set_bytes, call_s)


def shortest_s(call_s: Callable[[int], float], limit_s: float) -> float:
    """Seconds of a call of the submission, looked at more than once where they are near the limit or beyond.

    Args:
        call_s: measures a call, by a batch of so many.
    """
    took_s = call_s(1)
    if took_s > limit_s:
        took_s = min(took_s, call_s(1))  # nobody loses points for one hiccup of the host
    if took_s < limit_s + NOISE_S:
        took_s = min(call_s(WARM_SETS) for _ in range(2))
    return took_s


def _settled_s(batches: Batches, bench: Bench, runner: Runner) -> float:
    """Seconds of a call, from the second of two batches that took about the same."""
    last, started = math.inf, time.monotonic()
    for _ in range(SETTLE_BATCHES):
        call_s = batches.run(bench, runner, len(bench.calls)).claimed_s
        if abs(call_s - last) <= SETTLED * call_s:
            break
        if math.isfinite(last) and time.monotonic() - started > SETTLE_LIMIT_S:
            break
        last = call_s
    return call_s


def roofline_of(case: BoundSpeedCase, call: Call) -> Roofline:
    """The yardstick of a case, and its own work and the case's."""
    cost = case.problem.cost(case.params, case.dtype)
    if case.speed.roofline == "matmul":
        return Roofline("matmul", 2 * MATRIX**3, cost.flops)
    first = next(iter(call.args.values()))
    return Roofline("copy", 2 * first.numel() * first.element_size(), cost.bytes_moved)

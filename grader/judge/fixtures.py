"""The fixtures of a grading, for the checks of an assignment's own and for the speed cases.

For a check: `run` (seed, device), `assignment`, `contender` (the submission's worker, loaded), `properties` (tries properties of right
answers), `evidence` (where a check leaves what it measured). For a speed case besides `speed_case` (`test_speed` is parametrised over
them), `track`, `hoarding`, `replay`, and pytest-benchmark's `benchmark`, whose timer is `replay`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from grader.assignment import Assignment
from grader.contender.contender import Contender
from grader.judge.admission import Admission
from grader.judge.cases import BoundSpeedCase, Place
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.properties import Properties
from grader.judge.run import Run
from grader.judge.schedule import Schedule, Works
from grader.judge.track import Track

EVIDENCE = pytest.StashKey[Evidence]()
PLACE = pytest.StashKey[Place]()  # of a test in the report


class Replay:
    """The times of a race as a timer: it is at 0 before a round and, after `step`, at the seconds that the round took."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque()
        self._shown_s = 0.0

    def load(self, times_s: Iterable[float]) -> None:
        """Times of the rounds to come, in seconds."""
        self._times_s = deque(times_s)

    def step(self) -> None:
        """One round. Raises IndexError where no time is left."""
        self._shown_s = self._times_s.popleft()

    def __call__(self) -> float:
        shown_s, self._shown_s = self._shown_s, 0.0
        return shown_s


@dataclass(eq=False)
class Fixtures:
    """A plugin of pytest."""

    _track: Track
    _hoarding: Hoarding
    _works: Works
    _admission: Admission
    _schedule: Schedule
    _replay: Replay = field(init=False, default_factory=Replay)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "speed_case" in metafunc.fixturenames:
            timed = pytest.mark.benchmark(timer=self._replay)
            sizes = self._track.run.speed_cases
            cases = [pytest.param(one, id=one.declared.id, marks=timed) for one in sizes]
            metafunc.parametrize("speed_case", cases, indirect=True)

    @pytest.fixture
    def run(self) -> Run:
        return self._track.run

    @pytest.fixture
    def track(self) -> Track:
        return self._track

    @pytest.fixture
    def hoarding(self) -> Hoarding:
        return self._hoarding

    @pytest.fixture
    def replay(self) -> Replay:
        return self._replay

    @pytest.fixture
    def evidence(self, request: pytest.FixtureRequest) -> Evidence:
        evidence: Evidence = request.node.stash.setdefault(EVIDENCE, Evidence())
        return evidence

    @pytest.fixture
    def assignment(self, request: pytest.FixtureRequest) -> Assignment:
        place: Place = request.node.stash[PLACE]
        return place.assignment

    @pytest.fixture
    def contender(self, request: pytest.FixtureRequest) -> Contender:
        place: Place = request.node.stash[PLACE]
        if place.sizes is not None:
            self._admission.check_timing(place, place.sizes)
        self._admission.check(place, None)
        contender = self._track.crew.worker(place.assignment)
        contender.log.mark(place.heading)
        return contender

    @pytest.fixture
    def properties(self, request: pytest.FixtureRequest) -> Properties:
        place = request.node.stash[PLACE]
        self._admission.check(place, None)
        return self._works.properties(place)

    @pytest.fixture
    def speed_case(self, request: pytest.FixtureRequest) -> BoundSpeedCase:
        """The largest size that this machine has the memory for."""
        place, items = request.node.stash[PLACE], request.session.items
        if not self._track.crew.has_worker(place.assignment):
            self._schedule.prepare_races(races(items[items.index(request.node) :]))
        self._track.crew.settle()  # workers that are starting will hold memory too
        self._track.run.gauge.look_again()
        return self._admission.fitting(place, place.sizes)


def races(items: Sequence[pytest.Item]) -> list[Place]:
    """The speed cases among these tests."""
    return [item.stash[PLACE] for item in items if item.stash[PLACE].sizes is not None]

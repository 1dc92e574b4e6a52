"""The fixtures of a grading, for the checks of an assignment's own and for the speed cases.

For a check: `run` (seed, device), `assignment`, `contender` (the submission's worker, loaded), `properties` (tries properties of right
answers), `evidence` (where a check leaves what it measured). For a speed case besides `speed_case` (`test_speed` is parametrised over
them), `track`, `hoarding`, `replay`, and pytest-benchmark's `benchmark`, whose timer is `replay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from grader.assignment import Assignment
from grader.contender.contender import Contender
from grader.judge.admission import Admission
from grader.judge.cases import BoundSpeedCase, Place, SpeedSizes
from grader.judge.evidence import Evidence
from grader.judge.hoarding import Hoarding
from grader.judge.properties import Properties
from grader.judge.replay import Replay
from grader.judge.run import Run
from grader.judge.schedule import Race, Schedule
from grader.judge.track import Track
from grader.judge.works import Works
from grader.verdict.prints import heading

EVIDENCE = pytest.StashKey[Evidence]()
TEST = pytest.StashKey["Test"]()


@dataclass(frozen=True)
class Test:
    """One of pytest's tests in the grading; `sizes` of a speed case."""

    __test__ = False

    place: Place
    sizes: SpeedSizes | None = None


class Fixtures:
    """A plugin of pytest."""

    def __init__(
        self,
        track: Track,
        hoarding: Hoarding,
        works: Works,
        assignments: Sequence[Assignment],
        speed_cases: Sequence[SpeedSizes],
        admission: Admission,
        schedule: Schedule,
    ) -> None:
        self._track = track
        self._hoarding = hoarding
        self._works = works
        self._assignments = {one.name: one for one in assignments}
        self._speed_cases = speed_cases
        self._admission = admission
        self._schedule = schedule
        self._replay = Replay()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "speed_case" in metafunc.fixturenames:
            timed = pytest.mark.benchmark(timer=self._replay)
            cases = [pytest.param(sizes, id=sizes.declared.id, marks=timed) for sizes in self._speed_cases]
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
        return self._assignments[request.node.stash[TEST].place.assignment]

    @pytest.fixture
    def contender(self, request: pytest.FixtureRequest, assignment: Assignment) -> Contender:
        test = request.node.stash[TEST]
        if test.sizes is not None:
            self._admission.check_timing(test.place, test.sizes)
        self._admission.check(test.place, None)
        contender = self._track.crew.worker(assignment)
        title = test.place.title if test.sizes is None else f"speed of {test.place.name}"
        contender.log.mark(heading(title, test.place.part, len(assignment.spec.parts)))
        return contender

    @pytest.fixture
    def properties(self, request: pytest.FixtureRequest) -> Properties:
        place = request.node.stash[TEST].place
        self._admission.check(place, None)
        return self._works.properties(place)

    @pytest.fixture
    def speed_case(self, request: pytest.FixtureRequest) -> BoundSpeedCase:
        """The largest size that this machine has the memory for."""
        test, items = request.node.stash[TEST], request.session.items
        assert test.sizes is not None
        if not self._track.crew.has_worker(self._assignments[test.place.assignment]):
            self._schedule.prepare_races(races(items[items.index(request.node) :]))
        self._track.crew.settle()  # workers that are starting will hold memory too
        self._track.run.gauge.look_again()
        return self._admission.fitting(test.place, test.sizes)


def races(items: Sequence[pytest.Item]) -> list[Race]:
    """The speed cases among these tests."""
    places = [item.stash[TEST].place for item in items if item.stash[TEST].sizes is not None]
    return [Race(place.assignment, place.part) for place in places]

"""Where the course's compiled kernels are kept, and who is called before it is asked for."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grader.assignment import load_course
from grader.judge.baselines import Baselines, call_unseen, kept_caches
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
from grader.judge.gpu import Gauge
from grader.judge.speed.clock import InputSets
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool, stage_runtime
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call
from grader.protocol import Prepare, Request
from tests.conftest import ROOT


@pytest.mark.parametrize("there_already", [False, True])
def test_no_other_user_may_enter_the_courses_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_already: bool
) -> None:
    """In a container workers are another user, and the caches' place is known to anybody who reads this."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    there = tmp_path / "gpu-lab-grader" / "H200-1-2-3"
    if there_already:
        there.mkdir(parents=True, mode=0o755)
    assert kept_caches("cuda", lambda: "H200-1-2-3") == there
    assert there.stat().st_mode & 0o777 == 0o700
    assert kept_caches("cpu") is None


def test_who_has_no_home_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "~")
    assert kept_caches("cuda") is None


@pytest.fixture(params=["forward", "backward"])
def case(request: pytest.FixtureRequest) -> BoundSpeedCase:
    """Flash attention in a small size."""
    return smaller(of_part(request.param))


@pytest.fixture
def backward() -> BoundSpeedCase:
    return smaller(of_part("backward"))


def of_part(name: str) -> BoundSpeedCase:
    every = bind_speed_cases(load_course(ROOT, ["flash_attention"]))
    (declared,) = [one.declared for one in every if one.declared.part.name == name]
    return declared


def smaller(case: BoundSpeedCase, n: int = 16) -> BoundSpeedCase:
    return replace(case, params=case.params.model_copy(update={"batch": 2, "n": n}))


class StandIn:
    """A worker without a process; keeps in `what` how its function was called. fails: what comes in place of an answer."""

    device, trusted = "cpu", True

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails, self.what, self._alive = fails, None, True
        self._memory: tuple[int, ...] = ()

    def do(self, request: Request, _limits: CallLimits, files: tuple[int, ...] = ()) -> None:
        if isinstance(request, Prepare):
            (one,) = request.sets
            tensors = [*one.args, *([one.upstream] if one.upstream else [])]
            layouts = [(each.dtype, each.shape, each.stride, each.start_bytes % 4096) for each in tensors]
            self.what: Any = layouts, one.upstream is not None, request.options, one.outputs
            self._memory = files

    def finish(self, *_: Any) -> None:
        if self.fails is not None:
            raise self.fails

    def kill(self) -> None:
        for file in self._memory:
            os.fstat(file)  # nobody has what is no longer there
        self._alive = False

    def lives(self) -> bool:
        return self._alive

    def send(self, *_: Any) -> None: ...
    def freeze(self) -> None: ...
    def ready(self) -> None: ...
    def load(self, *_: Any, **__: Any) -> None: ...


def how_called(case: BoundSpeedCase) -> Any:
    worker = StandIn()
    call_unseen(cast("Worker", worker), case)
    return worker.what


class Kept:
    """Baselines with caches, whose workers stand in. fails: what the next ones answer."""

    def __init__(self, folder: Path) -> None:
        self.caches, self.runtime = folder / "caches", stage_runtime(folder / "runtime")
        (self.caches / "inductor").mkdir(parents=True)
        self.fails: Exception | None = None
        self.all = Baselines(cast("WorkerPool", self), ROOT, self.caches)

    device = "cuda"

    def start(self, **_: Any) -> StandIn:
        """What a pool does."""
        return StandIn(self.fails)

    def begin(self, case: BoundSpeedCase, *roomy: BoundSpeedCase) -> None:
        """Until all that is done early has been done."""
        declared = replace(of_part(case.part.name), speed=SimpleNamespace(bands=[], others=[], roofline="compile"))  # type: ignore[arg-type]
        self.all.begin([declared], False, roomy)
        self.all.settle()

    def worker(self, case: BoundSpeedCase) -> StandIn:
        return cast("StandIn", self.all.worker("compile", case))

    @property
    def called(self) -> list[str]:
        """Who has been called."""
        return [name for name, one in self.all.workers.items() if cast("StandIn", one).what is not None]

    @property
    def notes(self) -> int:
        return len(list((self.caches / "inductor").iterdir()))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def test_torch_compile_is_called_early_where_it_has_compiled_that_before(kept: Kept, case: BoundSpeedCase) -> None:
    kept.all.note_compiled("compile", case)
    kept.begin(case, case)
    assert kept.called == ["compile"]
    worker = kept.worker(case)
    assert worker.lives()
    assert worker.what == how_called(case)


def test_a_worker_lives_on_after_it_and_has_nothing_of_it(case: BoundSpeedCase, tmp_path: Path) -> None:
    with closing(WorkerPool("cpu", tmp_path)) as pool:
        worker = Baselines(pool, ROOT, None).worker("eager", case)
        call_unseen(worker, case)
        assert worker.lives()
        assert "memfd" not in Path(f"/proc/{worker.pid}/maps").read_text()  # an arena


def test_not_before_it_has(kept: Kept, backward: BoundSpeedCase) -> None:
    """What it tunes by trying is to be tried when nobody else uses the GPU."""
    kept.begin(backward, backward)
    kept.all.note_compiled("eager", backward)
    kept.begin(backward, backward)
    assert kept.called == []


def test_not_where_there_is_no_room_for_that_size(kept: Kept, backward: BoundSpeedCase) -> None:
    kept.all.note_compiled("compile", backward)
    kept.begin(backward)
    kept.begin(backward, smaller(backward, n=8))
    assert kept.called == []


def test_nor_in_another_size_or_part_or_of_other_code(kept: Kept, case: BoundSpeedCase, tmp_path: Path) -> None:
    other = {"forward": "backward", "backward": "forward"}[case.part.name]
    others = [
        smaller(case, n=48),
        replace(case, case=case.case.model_copy(update={"dtype": "float32"})),
        replace(smaller(of_part(other)), params=case.params),
    ]
    for changed in ("baselines.py", "problem.py"):
        folder = tmp_path / changed / "flash_attention"
        folder.mkdir(parents=True)
        for name in ("baselines.py", "problem.py"):
            text = (case.assignment.folder / name).read_text()
            (folder / name).write_text(f"{text}# changed" if name == changed else text)
        others.append(replace(case, assignment=replace(case.assignment, folder=folder)))
    for one in others:
        kept.all.note_compiled("compile", one)
    program = kept.runtime / "grader" / "worker" / "load.py"
    text = program.read_text()
    program.write_text(f"{text}# another way to compile")
    kept.all.note_compiled("compile", case)
    program.write_text(text)
    assert kept.notes == len(others) + 1
    kept.begin(case, case)
    assert kept.called == []


@pytest.mark.parametrize(
    "error", [Fault("crashed", "ended"), Fault.no_worker("no room"), MemoryError(), torch.OutOfMemoryError()]
)
def test_who_fails_at_it_is_started_anew(kept: Kept, backward: BoundSpeedCase, error: Exception) -> None:
    kept.all.note_compiled("compile", backward)
    kept.fails = error
    kept.begin(backward, backward)
    assert kept.called == ["compile"]
    failed = kept.all.workers["compile"]
    assert not failed.lives()
    kept.fails = None
    anew = kept.worker(backward)
    assert anew is not failed
    assert anew.lives()


def test_where_there_is_no_memory_for_the_inputs_nobody_is_ended(kept: Kept, backward: BoundSpeedCase) -> None:
    def full(*_: Any) -> Call:
        raise torch.OutOfMemoryError

    kept.all.note_compiled("compile", backward)
    problem = SimpleNamespace(**{**vars(backward.problem), "make_inputs": full})
    kept.begin(backward, replace(backward, problem=problem))  # type: ignore[arg-type]
    worker = kept.all.workers["compile"]
    assert (kept.called, kept.worker(backward)) == ([], worker)


def test_it_is_called_as_it_will_be_in_its_race(case: BoundSpeedCase) -> None:
    """Or torch.compile would compile something else."""
    early, race = how_called(case), StandIn()
    call, cpu = case.inputs(1, 0, torch.device("cpu")), torch.device("cpu")
    with InputSets([call], case.problem.outputs(call), case.dtype, cpu, Gauge(cpu, measuring=False)) as bench:
        bench.invite(cast("Worker", race), collects=False)
    assert early == race.what
    layouts, has_upstream, options, _ = early
    assert len(layouts) == 3 + has_upstream
    assert has_upstream == (case.part.name == "backward")
    assert options == (True,)  # is_causal


def test_nothing_is_noted_where_nothing_is_kept(backward: BoundSpeedCase, tmp_path: Path) -> None:
    pool: Any = SimpleNamespace(device="cuda", runtime=ROOT)
    for caches in (None, tmp_path / "not there"):
        Baselines(pool, tmp_path, caches).note_compiled("compile", backward)
    nowhere = replace(backward, assignment=replace(backward.assignment, folder=tmp_path / "gone"))
    (tmp_path / "inductor").mkdir()
    Baselines(pool, tmp_path, tmp_path).note_compiled("compile", nowhere)
    assert [path.name for path in tmp_path.rglob("*")] == ["inductor"]

"""Where the course's compiled kernels are kept, and who is called before it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.assignment import load_course
from grader.contender.arena import Arena
from grader.contender.contender import Contender, WorkerUnavailable
from grader.contender.pool import WorkerPool
from grader.contender.replies import ContenderFault
from grader.judge import baselines
from grader.judge.baselines import Baselines
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
from grader.judge.gpu import Gauge
from grader.judge.timing import Bench
from grader.protocol import Prepare, Request
from tests.conftest import ROOT


@pytest.mark.parametrize("there_already", [False, True])
def test_no_other_user_may_enter_the_courses_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there_already: bool
) -> None:
    """In a container workers are another user, and the caches' place is known to anybody who reads this."""
    monkeypatch.setattr(baselines, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(baselines, "_toolchain", lambda: "H200-1-2-3")
    if there_already:
        (tmp_path / "cache" / "H200-1-2-3").mkdir(parents=True, mode=0o755)
    pool: Any = SimpleNamespace(device="cuda")
    caches = Baselines(pool, tmp_path).caches
    assert caches == tmp_path / "cache" / "H200-1-2-3"
    assert caches.stat().st_mode & 0o777 == 0o700


def test_who_has_no_home_or_no_gpu_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "cache_folder", lambda: None)
    for device in ("cuda", "cpu"):
        pool: Any = SimpleNamespace(device=device)
        assert Baselines(pool, tmp_path).caches is None


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


class Kept:
    """Baselines with caches, and workers that take `eager` for what is compiled. `called`: in which processes, early, for what."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.caches = folder / "caches"
        (self.caches / "inductor").mkdir(parents=True)
        monkeypatch.setattr(baselines, "_kept_caches", lambda: self.caches)
        load, unseen = Contender.load, baselines.call_unseen
        monkeypatch.setattr(Contender, "load", lambda self, *given, **_: load(self, *given))
        self.called: list[tuple[int, BoundSpeedCase]] = []

        def noted(worker: Contender, case: BoundSpeedCase) -> None:
            self.called.append((worker.pid, case))
            unseen(worker, case)

        monkeypatch.setattr(baselines, "call_unseen", noted)
        self.pool = WorkerPool("cpu", folder / "run")
        self.pool.device = "cuda"  # where caches are kept
        self.all = Baselines(self.pool, ROOT)
        self.pool.device = "cpu"

    def begin(self, case: BoundSpeedCase, *roomy: BoundSpeedCase) -> None:
        """Until all that is done early has been done."""
        declared = replace(of_part(case.part.name), speed=SimpleNamespace(bands=[], vendor=[], roofline="compile"))  # type: ignore[arg-type]
        self.all.begin([declared], False, roomy)
        self.all.settle()

    def worker(self, case: BoundSpeedCase) -> Contender:
        return self.all.contender("compile", case)

    @property
    def notes(self) -> int:
        return len(list((self.caches / "inductor").iterdir()))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kept]:
    found = Kept(tmp_path, monkeypatch)
    yield found
    found.pool.close()


def test_torch_compile_is_called_early_where_it_has_compiled_that_before(kept: Kept, case: BoundSpeedCase) -> None:
    kept.all.note_compiled("compile", case)
    kept.begin(case, case)
    worker = kept.worker(case)
    assert kept.called == [(worker.pid, case)]
    assert worker.lives()
    assert not has_mapped(worker)


def has_mapped(worker: Contender) -> bool:
    return "memfd" in Path(f"/proc/{worker.pid}/maps").read_text()  # an arena


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
    program = kept.pool.runtime / "grader" / "worker" / "load.py"
    text = program.read_text()
    program.write_text(f"{text}# another way to compile")
    kept.all.note_compiled("compile", case)
    program.write_text(text)
    assert kept.notes == len(others) + 1
    kept.begin(case, case)
    assert kept.called == []


@pytest.mark.parametrize(
    "error", [ContenderFault("crashed", "ended"), WorkerUnavailable("no room"), MemoryError(), torch.OutOfMemoryError()]
)
def test_who_fails_at_it_is_started_anew(
    kept: Kept, backward: BoundSpeedCase, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    had: list[bool] = []

    def fail(*_: Any) -> None:
        raise error

    close = Arena.close

    def closed(arena: Arena) -> None:
        had.append(any(has_mapped(one) for one in kept.all.workers.values() if one.alive))
        close(arena)

    kept.all.note_compiled("compile", backward)
    with monkeypatch.context() as patch:
        patch.setattr(Contender, "finish", fail)
        patch.setattr(Arena, "close", closed)
        kept.begin(backward, backward)
    ((pid, _),) = kept.called
    assert had == [False]  # nobody has what is no longer there
    anew = kept.worker(backward)
    assert anew.pid != pid
    assert anew.lives()


def test_where_there_is_no_memory_for_the_inputs_nobody_is_ended(
    kept: Kept, backward: BoundSpeedCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError

    kept.all.note_compiled("compile", backward)
    with monkeypatch.context() as patch:
        patch.setattr(baselines, "arena_for", full)
        kept.begin(backward, backward)
    assert kept.called == [(kept.worker(backward).pid, backward)]


class Asked:
    """A worker that is asked to prepare a bench, and keeps in `what` how its functions would be called."""

    device, trusted = "cpu", True

    def do(self, request: Request, *_: Any) -> None:
        if isinstance(request, Prepare):
            (one,) = request.sets
            tensors = [*one.args, *([one.upstream] if one.upstream else [])]
            layouts = [(each.dtype, each.shape, each.stride, each.start_bytes % 4096) for each in tensors]
            self.what = layouts, one.upstream is not None, request.options, one.outputs

    def send(self, *_: Any) -> None: ...
    def finish(self, *_: Any) -> None: ...
    def freeze(self) -> None: ...

    def lives(self) -> bool:
        return False


def test_it_is_called_as_it_will_be_in_its_race(case: BoundSpeedCase) -> None:
    """Or torch.compile would compile something else."""
    early, race = Asked(), Asked()
    baselines.call_unseen(early, case)  # type: ignore[arg-type]
    call, cpu = case.inputs(1, 0, torch.device("cpu")), torch.device("cpu")
    with Bench([call], case.problem.outputs(call), case.dtype, cpu, Gauge(cpu, measuring=False)) as bench:
        bench.invite(race, collects=False)  # type: ignore[arg-type]
    assert early.what == race.what
    layouts, has_upstream, options, _ = early.what
    assert len(layouts) == 3 + has_upstream
    assert has_upstream == (case.part.name == "backward")
    assert options == (True,)  # is_causal


def test_nothing_is_noted_where_nothing_is_kept(
    backward: BoundSpeedCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool: Any = SimpleNamespace(device="cuda", runtime=ROOT)
    for caches in (None, tmp_path / "not there"):
        monkeypatch.setattr(baselines, "_kept_caches", lambda there=caches: there)
        Baselines(pool, tmp_path).note_compiled("compile", backward)
    nowhere = replace(backward, assignment=replace(backward.assignment, folder=tmp_path / "gone"))
    monkeypatch.setattr(baselines, "_kept_caches", lambda: tmp_path)
    (tmp_path / "inductor").mkdir()
    Baselines(pool, tmp_path).note_compiled("compile", nowhere)
    assert [path.name for path in tmp_path.rglob("*")] == ["inductor"]

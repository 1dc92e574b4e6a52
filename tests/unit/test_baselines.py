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
from grader.contender.contender import Contender
from grader.contender.pool import WorkerPool
from grader.contender.replies import ContenderFault
from grader.judge import baselines
from grader.judge.baselines import Baselines
from grader.judge.cases import BoundSpeedCase, bind_speed_cases
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


@pytest.fixture
def case() -> BoundSpeedCase:
    """Flash attention, forward and backward, in a small size."""
    (declared,) = [
        one.declared
        for one in bind_speed_cases(load_course(ROOT, ["flash_attention"]))
        if one.declared.part.name == "backward"
    ]
    return smaller(declared, n=32)


def smaller(case: BoundSpeedCase, **size: Any) -> BoundSpeedCase:
    return replace(case, params=case.params.model_copy(update={"batch": 2, "n": 16} | size))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Baselines]:
    """With caches, and workers that take `eager` for what is compiled."""
    monkeypatch.setattr(baselines, "_kept_caches", lambda: tmp_path / "caches")
    load = Contender.load
    monkeypatch.setattr(Contender, "load", lambda self, *given, **_: load(self, *given))
    (tmp_path / "caches").mkdir()
    pool = WorkerPool("cpu", tmp_path / "run")
    pool.device = "cuda"  # where caches are kept
    found = Baselines(pool, ROOT)
    pool.device = "cpu"
    yield found
    pool.close()


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """For what case, and in which process, somebody was called early."""
    found: list[tuple[str, int]] = []
    call = baselines._call_early

    def noted(worker: Contender, case: BoundSpeedCase) -> None:
        found.append((case.id, worker.pid))
        call(worker, case)

    monkeypatch.setattr(baselines, "_call_early", noted)
    return found


def begun(kept: Baselines, case: BoundSpeedCase) -> Contender:
    """Its worker, when all that is done early has been done."""
    kept.begin([case], everyone=False)
    kept.settle()
    return kept.contender("compile", case)


def test_torch_compile_is_called_early_where_it_has_compiled_that_before(
    kept: Baselines, case: BoundSpeedCase, called: list[tuple[str, int]]
) -> None:
    kept.note_compiled("compile", case)
    worker = begun(kept, case)
    assert called == [(case.id, worker.pid)]
    assert worker.lives()
    assert "memfd" not in Path(f"/proc/{worker.pid}/maps").read_text()  # the arena


def test_not_before_it_has(kept: Baselines, case: BoundSpeedCase, called: list[tuple[str, int]]) -> None:
    """What it tunes by trying is to be tried when nobody else uses the GPU."""
    begun(kept, case)
    kept.note_compiled("eager", case)
    begun(kept, case)
    assert called == []


def test_nor_in_another_size_or_of_other_code(
    kept: Baselines, case: BoundSpeedCase, called: list[tuple[str, int]], tmp_path: Path
) -> None:
    kept.note_compiled("compile", smaller(case, n=48))
    kept.note_compiled("compile", replace(case, case=case.case.model_copy(update={"dtype": "float32"})))
    other = tmp_path / "flash_attention"
    other.mkdir()
    (other / "baselines.py").write_text((case.assignment.folder / "baselines.py").read_text() + "# changed")
    kept.note_compiled("compile", replace(case, assignment=replace(case.assignment, folder=other)))
    assert len(list((tmp_path / "caches").iterdir())) == 3
    begun(kept, case)
    assert called == []


@pytest.mark.parametrize("error", [ContenderFault("crashed", "ended"), MemoryError(), torch.OutOfMemoryError()])
def test_who_fails_at_it_is_started_anew(
    kept: Baselines,
    case: BoundSpeedCase,
    called: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(*_: Any) -> None:
        raise error

    kept.note_compiled("compile", case)
    with monkeypatch.context() as patch:
        patch.setattr(Contender, "finish", fail)
        kept.begin([case], everyone=False)
        kept.settle()
    ((told, pid),) = called
    anew = kept.contender("compile", case)
    assert told == case.id
    assert anew.pid != pid
    assert anew.lives()


def test_nothing_is_noted_where_nothing_is_kept(
    case: BoundSpeedCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "_kept_caches", lambda: None)
    pool: Any = SimpleNamespace(device="cuda")
    Baselines(pool, tmp_path).note_compiled("compile", case)
    monkeypatch.setattr(baselines, "_kept_caches", lambda: tmp_path / "not there")
    Baselines(pool, tmp_path).note_compiled("compile", case)
    assert list(tmp_path.iterdir()) == []

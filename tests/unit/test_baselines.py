"""Where the course's compiled kernels are kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.judge import baselines
from grader.judge.baselines import Baselines


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

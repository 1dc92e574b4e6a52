"""Whose containers `grader cleanup` takes for left behind, and what it does where others remove them too."""

from __future__ import annotations

import os
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from docker.errors import APIError

from grader import runfolder
from grader.cleanup import cleanup, is_over
from grader.sandbox import engine
from grader.sandbox.base import InfraError
from grader.sandbox.docker import DEADLINE_LABEL, OWNER_LABEL, RUN_LABEL


def labels(pid: int, started: float, host: str = "", deadline_s: float = 100) -> dict[str, str]:
    owner = f"{host or socket.gethostname()} {pid} {started}"
    return {OWNER_LABEL: owner, DEADLINE_LABEL: str(int(time.time() + deadline_s))}


def test_a_container_is_over_with_its_owner_or_its_deadline() -> None:
    ours = psutil.Process()
    assert not is_over(labels(ours.pid, ours.create_time()))
    assert is_over(labels(ours.pid, ours.create_time(), deadline_s=-1))
    assert is_over(labels(ours.pid, ours.create_time() - 100)), "another process had that number"
    assert not is_over(labels(ours.pid, ours.create_time() - 100, host="elsewhere"))


def test_an_owner_that_proc_hides_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(pid: int) -> psutil.Process:
        raise psutil.NoSuchProcess(pid)

    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    monkeypatch.setattr(psutil, "Process", hidden)
    assert not is_over(labels(1, 0.0))
    assert is_over(labels(child, 0.0))


@pytest.mark.parametrize("status", [404, 409, 500])
def test_a_container_that_somebody_else_removes_is_passed_over(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    names = ["grader-one", "grader-two"]

    def remove(identity: str, **_: object) -> None:
        if identity == "grader-one":
            raise APIError(
                "the daemon says", response=cast("Any", SimpleNamespace(status_code=status, reason="", url=""))
            )

    over = [{"Id": name, "Labels": {RUN_LABEL: name}} for name in names]
    api = SimpleNamespace(containers=lambda **_: over, remove_container=remove)
    monkeypatch.setattr(engine, "is_there", lambda: True)
    monkeypatch.setattr(engine, "connect", lambda: SimpleNamespace(api=api, close=lambda: None))
    monkeypatch.setattr(runfolder, "abandoned", list)
    if status == 500:
        with pytest.raises(InfraError, match="could not remove the container grader-one"):
            list(cleanup())
    else:
        assert list(cleanup()) == ["container grader-two"]

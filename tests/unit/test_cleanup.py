"""Whose containers `grader cleanup` takes for left behind."""

from __future__ import annotations

import os
import socket
import time

import psutil
import pytest

from grader.cleanup import is_over
from grader.sandbox.docker import DEADLINE_LABEL, OWNER_LABEL


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

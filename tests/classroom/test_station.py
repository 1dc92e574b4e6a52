"""Stations: which a machine has, who uses a GPU, and when it is taken out."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.classroom.lock import holder, lock
from grader.classroom.station import Station, shares_of_cores, stations
from grader.nvidia import ListedGpu
from grader.sandbox.base import InfraError, UsageError
from tests.support.gradings import a_run, is_free

ONE, TWO = ListedGpu("GPU-1", "H100"), ListedGpu("GPU-2", "H100")


@pytest.mark.parametrize(
    ("device", "found", "wanted", "names"),
    [
        ("auto", [ONE, TWO], [], ["GPU-1", "GPU-2"]),
        ("auto", [ONE, TWO], ["GPU-2"], ["GPU-2"]),
        ("cuda", [ONE], [], ["GPU-1"]),
        ("auto", [], [], ["cpu"]),
        ("cpu", [], [], ["cpu"]),
    ],
)
def test_a_machine_has_its_gpus_or_its_cpu(
    device: str, found: list[ListedGpu], wanted: list[str], names: list[str]
) -> None:
    made = stations(a_run(device=device), found, wanted)
    assert [one.name for one in made] == names
    assert [one.place for one in made] == [f"{socket.gethostname()} {name}" for name in names]


@pytest.mark.parametrize(
    ("device", "found", "wanted", "error", "words"),
    [
        ("auto", [ONE], ["GPU-7"], UsageError, r"--gpu GPU-7: no such GPU; this machine has: GPU-1 \(H100\)"),
        ("auto", [], ["GPU-7"], UsageError, "this machine has: none"),
        ("cpu", [ONE], ["GPU-1"], UsageError, "graded on the CPU"),
        ("cuda", [], [], InfraError, "this machine has none"),
    ],
)
def test_what_is_not_here(
    device: str, found: list[ListedGpu], wanted: list[str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        stations(a_run(device=device), found, wanted)


def test_gpus_share_the_cores_of_this_process() -> None:
    cores = range(5000, 5032)  # no machine's: sysfs says nothing of them
    assert shares_of_cores(cores, 1) == [[*cores]]
    assert shares_of_cores(cores, 2) == [[*range(5000, 5016)], [*range(5016, 5032)]]
    for count in range(1, 17):
        shares = shares_of_cores(cores, count)
        assert len(shares) == count
        assert sorted(core for share in shares for core in share) == [*cores]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert shares_of_cores(cores, 17) == [[]] * 17, "a core for each is not enough for a judge and its workers"


def test_no_two_gpus_share_a_physical_core() -> None:
    def of_sixteen(core: int) -> tuple[int, int]:
        return core % 16 // 8, core % 8  # two processors with eight cores of two threads each

    for count in range(1, 17):
        shares = shares_of_cores(range(32), count, of_sixteen)
        assert sorted(core for share in shares for core in share) == [*range(32)]
        physical = [{core % 16 for core in share} for share in shares]
        assert sum(map(len, physical)) == 16
        assert max(map(len, physical)) - min(map(len, physical)) <= 1
    assert shares_of_cores([0, 16, 1, 17], 3, of_sixteen) == [[]] * 3
    assert shares_of_cores(range(8), 2, lambda core: (0, core // 8)) == [[]] * 2, "eight threads of one core"


@pytest.mark.parametrize(
    ("row", "out"),
    [
        ("abc", True),
        ("ab", False),
        ("aaaa", False),
        ("aabb", False),
        ("aabac", True),
        ("ab-c", False),
        ("ab-cab", True),
        ("-abc", True),
    ],
)
def test_three_faults_in_a_row_under_different_hand_ins_take_a_station_out(row: str, out: bool) -> None:
    """A letter is a hand-in with a fault, a dash is one without."""
    station = Station(ONE)
    for letter in row:
        assert not station.out
        station.note(letter, "" if letter == "-" else "no CUDA")
    assert bool(station.out) == out
    if out:
        assert "GPU-1 is taken out" in station.out
        assert "the last: no CUDA" in station.out


# Locks ----------------------------------------------------------------------------------------------------------------


def test_one_has_a_lock_until_its_release(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    first = lock(path, "node3 GPU-1")
    assert first is not None
    assert lock(path) is None
    place, since = holder(path) or pytest.fail("it is held")
    assert (place, abs((datetime.now(UTC) - since).total_seconds()) < 60) == ("node3 GPU-1", True)
    first.close()
    assert holder(path) is None
    with lock(path) or pytest.fail("it is free"):
        assert lock(path) is None
    assert path.exists()


def test_every_user_can_open_the_lock_of_a_gpu(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert is_free(tmp_path / "x.lock")
    finally:
        os.umask(before)
    assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o644

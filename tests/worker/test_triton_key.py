"""What stands for Triton's files in the names of what it has compiled."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")

from triton.runtime import cache  # noqa: E402

from grader.pool.pool import WorkerPool  # noqa: E402
from grader.pool.replies import Fault  # noqa: E402
from grader.pool.watch import CallLimits  # noqa: E402
from grader.worker.__main__ import make_tritons_key_cheap  # noqa: E402


def test_workers_use_short_names_that_half_a_gigabyte_is_not_read_for(tmp_path: Path) -> None:
    file = tmp_path / "submission" / "gelu.py"
    file.parent.mkdir()
    file.write_text(
        "from triton.runtime import cache\nassert len(cache.triton_key()) < 100\ngelu = None\n", encoding="utf-8"
    )
    pool, limits = WorkerPool("cpu", tmp_path / "scratch"), CallLimits(time_s=60, memory_gib=8)
    with closing(pool), pool.start("cpu") as worker:
        worker.ready()
        with pytest.raises(Fault, match="gelu"):  # that it is no function is all there is to say
            worker.load(file, "gelu", None, limits)


@pytest.mark.parametrize("other", [(101, 5), (100, 6)])
def test_another_build_of_the_same_version_has_other_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: tuple[int, int]
) -> None:
    library = tmp_path / "_C" / "libtriton.so"
    library.parent.mkdir()
    monkeypatch.setattr(triton, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(cache, "triton_key", lambda: "")
    keys = []
    for size, date in ((100, 5), other):
        library.write_bytes(bytes(size))
        os.utime(library, (date, date))
        make_tritons_key_cheap()
        keys.append(cache.triton_key())
    assert keys[0] != keys[1]

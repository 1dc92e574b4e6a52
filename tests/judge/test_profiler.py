"""The judge's profiles: of files that are missing, that fail, and that take a launch for each row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.warm_judge import profile

pytestmark = pytest.mark.grading
FAILS = "def softmax(x):\n    raise ValueError('on purpose')\n"
ENDS = "import os\n\n\ndef softmax(x):\n    os._exit(3)\n"
BY_PYTORCH = "import torch\n\n\ndef softmax(x):\n    return x.contiguous().clone()\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "softmax.py has no function 'softmax'"),
        (FAILS, "it could not be traced: ValueError: on purpose"),
        (ENDS, "it could not be traced: "),
    ],
    ids=["empty", "raises", "exits"],
)
def test_a_file_that_cannot_be_profiled_says_why(tmp_path: Path, source: str, told: str) -> None:
    (tmp_path / "softmax.py").write_text(source)
    found = profile(tmp_path, ROOT, "softmax", "narrow")
    assert told in found.unknown
    assert (found.launches, found.remarks, found.predicted_ms) == ((), (), None)
    assert found.needed_bytes == 2 * 4 * 32768 * 781


def test_operators_of_pytorch_are_counted_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(BY_PYTORCH)
    found = profile(tmp_path, ROOT, "softmax", "narrow")
    (clone,) = (one for one in found.operators if one.written_bytes)
    assert (clone.place, clone.read_bytes, clone.written_bytes) == ("softmax.py:5", 4 * 32768 * 781, 4 * 32768 * 781)

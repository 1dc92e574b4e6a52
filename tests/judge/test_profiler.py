"""The judge's profiles: of files that are missing, that fail, and that take a launch for each row."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.judge.profiler import NO_GPU, texts_of
from grader.protocol import CompiledKernel
from tests.conftest import ROOT
from tests.profile.test_compiled import packed
from tests.support.warm_judge import profile

pytestmark = pytest.mark.grading
FAILS = "def softmax(x):\n    raise ValueError('on purpose')\n"
FAILS_IN_A_KERNEL, OUT_OF_BOUNDS = (
    "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef kernel(x_ptr):\n"
    f"    {line}\n\n\ndef softmax(x):\n    kernel[(1,)](x)\n"
    for line in ("tl.reshape(tl.load(x_ptr + tl.arange(0, 4)), (3, 5))", "tl.load(x_ptr + 1000000000)")
)
ENDS = "import os\n\n\ndef softmax(x):\n    os._exit(3)\n"
MANY_LINES = "def softmax(x):\n    raise ValueError('first line\\n' + 'a line of its own\\n' * 3000)\n"
NOTHING = "def softmax(x):\n    return None\n"
BY_PYTORCH = "import torch\n\n\ndef softmax(x):\n    return x.contiguous().clone()\n"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("", "softmax.py has no function 'softmax'"),
        (FAILS, "it could not be traced: ValueError: on purpose (softmax.py:2)"),
        (FAILS_IN_A_KERNEL, r"Shape element 0 must be a power of 2 (softmax.py:7)"),
        (
            OUT_OF_BOUNDS,
            "reads x_ptr[1000000000], 974408193 past the last of its 25591808 elements, in line 7: consistent",
        ),
        (ENDS, "it could not be traced: "),
        (MANY_LINES, "it could not be traced: ValueError: first line a line of its own"),
        (MANY_LINES, "… (softmax.py:2)"),
        (NOTHING, "the call launched no kernel, and no operator of PyTorch moved data"),
    ],
    ids=[
        "empty",
        "raises",
        "raises in a kernel",
        "is out of bounds",
        "exits",
        "raises many lines",
        "raises many lines and has a place",
        "does nothing",
    ],
)
def test_a_file_that_cannot_be_profiled_says_why(tmp_path: Path, source: str, told: str) -> None:
    (tmp_path / "softmax.py").write_text(source)
    found = profile(tmp_path, ROOT, "softmax", "narrow")
    assert told in found.unknown
    assert "\n" not in found.unknown
    assert len(found.unknown) < 500
    assert (found.launches, found.remarks) == ((), ())
    assert found.needed_bytes == 2 * 4 * 32768 * 781


def test_without_a_gpu_the_profile_says_why_nothing_was_counted(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(BY_PYTORCH)
    found = profile(tmp_path, ROOT, "softmax", "narrow", counted=True)
    assert (found.unknown, found.counters) == (NO_GPU, ())
    assert found.operators


def test_operators_of_pytorch_are_counted_by_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(BY_PYTORCH)
    found = profile(tmp_path, ROOT, "softmax", "narrow")
    (clone,) = (one for one in found.operators if one.written_bytes)
    assert (clone.place, clone.read_bytes, clone.written_bytes) == ("softmax.py:5", 4 * 32768 * 781, 4 * 32768 * 781)


def test_a_text_of_a_kernel_with_a_long_name_has_a_name_that_a_file_can_have() -> None:
    kernel = CompiledKernel("\N{CYRILLIC SMALL LETTER YA}" * 200, 4, 0, "", (packed("ptx", "x"),))
    ((name, text),) = texts_of([kernel]).items()
    assert text == "x"
    assert name.endswith("\N{CYRILLIC SMALL LETTER YA}.ptx")
    assert len(name.encode()) < 255

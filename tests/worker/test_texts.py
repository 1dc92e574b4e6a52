"""The compiler's texts that travel in a frame. That real kernels have them is tried in test_tracing.py."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from grader.profile.compiled import unpack
from grader.protocol import MAX_PACKED
from grader.worker import errors, texts


def kernel(**asm: Any) -> SimpleNamespace:
    return SimpleNamespace(asm=asm)


def noise(length: int) -> str:
    """A text that does not pack well."""
    return "".join(random.Random(1).choices("0123456789abcdef", k=length))


def test_texts_come_with_paths_as_the_student_knows_them() -> None:
    errors.set_root(Path("/scratch/staged"))
    found = texts.texts_of(kernel(ttgir='loc("/scratch/staged/kernel.py":3:1) é'), 10_000)
    assert [(one.kind, unpack(one)) for one in found] == [("ttgir", 'loc("kernel.py":3:1) é')]


def test_a_text_that_is_too_long_is_left_out() -> None:
    long, short = noise(2 * MAX_PACKED), noise(1000)
    found = texts.texts_of(kernel(ttgir=long, ptx=short), 10 * MAX_PACKED)
    assert [one.kind for one in found] == ["ptx"]


def test_texts_stay_within_the_rest_of_a_frame() -> None:
    (one,) = (len(text.packed) for text in texts.texts_of(kernel(ptx=noise(1000)), 10_000))
    found = texts.texts_of(kernel(ttgir=noise(1000), ptx=noise(1000)), 2 * one - 1)
    assert [text.kind for text in found] == ["ttgir"]


@pytest.mark.parametrize("disassembler", ["/nowhere/nvdisasm", "/bin/false"])
def test_there_is_no_sass_without_a_disassembler(disassembler: str) -> None:
    found = texts.texts_of(kernel(ptx="ret;", cubin=b"no ELF"), 1000, disassembler)
    assert [(one.kind, unpack(one)) for one in found] == [("ptx", "ret;")]

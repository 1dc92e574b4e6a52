"""A window of memory that shows many times over: what an index beyond 2^31 needs, in a few pages."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator

import numpy as np
import pytest

from grader.protocol import Ref
from grader.worker.cuda_cpu import windows

PAGE = mmap.PAGESIZE


@pytest.fixture
def memory() -> Iterator[int]:
    file = os.memfd_create("test")
    os.truncate(file, 4 * PAGE)
    yield file
    os.close(file)


def seen(floats: windows.Floats) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * floats.elements).from_address(floats.address))


def ref(start_bytes: int, elements: int) -> Ref:
    return Ref("float32", start_bytes, (elements,), (1,))


def test_a_window_shows_its_memory_over_and_over(memory: int) -> None:
    each = PAGE // 4
    os.pwrite(memory, np.arange(each, dtype=np.float32).tobytes(), PAGE)
    with windows.repeated(memory, [ref(PAGE, each), ref(2 * PAGE, each)], 5) as (x, y):
        assert x.elements == y.elements == 5 * each
        assert np.array_equal(seen(x).reshape(5, each), np.tile(np.arange(each), (5, 1)))
        seen(y)[3 * each + 7] = 42.0
        assert seen(y).reshape(5, each)[:, 7].tolist() == [42.0] * 5
        assert seen(y).sum() == 5 * 42.0
    assert os.pread(memory, 4, 2 * PAGE + 28) == np.float32(42.0).tobytes()


def test_before_and_after_there_is_nothing_for_16_gib(memory: int) -> None:
    with windows.repeated(memory, [ref(0, PAGE // 4)], 2) as (x,):
        start, libc = x.address, ctypes.CDLL(None, use_errno=True)
        reader, writer = os.pipe()
        assert libc.write(writer, ctypes.c_void_p(start), 1) == 1
        for address in (start - 1, start - 2**33, start + 2 * PAGE, start + 2**33):
            assert libc.write(writer, ctypes.c_void_p(address), 1) == -1  # a system call tells without a crash
            assert ctypes.get_errno() == errno.EFAULT
        os.close(reader)
        os.close(writer)


def test_too_much_address_space_is_a_memory_error(memory: int) -> None:
    with pytest.raises(MemoryError), windows.repeated(memory, [ref(0, PAGE)], 2**40):
        pass

"""libdevice's functions for Triton's interpreter are those that a GPU has, and what is not there says so."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.language.extra.cuda import libdevice as declared
from triton.runtime.interpreter import TensorHandle

from grader.worker.triton_cpu import libdevice

X = np.array([-3.7, -1.0, -0.3, 0.0, 0.2, 0.9, 1.0, 2.5], dtype=np.float32)
Y = np.array([2.0, 0.7, -1.5, 3.0, 1.0, -0.1, 4.0, 0.5], dtype=np.float32)
OF_TORCH = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "fabs": "abs",
    "rint": "round",
    "normcdf": "special.ndtr",
}
ONE = "floor ceil trunc rint fabs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan"
ONE += " asinh acosh atanh erf erfc normcdf"


def of_gpu(symbol: str, *arguments: np.ndarray, result: tl.dtype = tl.float32) -> np.ndarray:
    handles = [TensorHandle(one, tl.int32 if one.dtype == np.int32 else tl.float32) for one in arguments]
    found = libdevice.computed(symbol, handles, result)
    assert found.dtype == result
    return found.data


@pytest.mark.parametrize("name", ONE.split())
def test_functions_of_one_number_are_pytorchs(name: str) -> None:
    function = torch
    for part in OF_TORCH.get(name, name).split("."):
        function = getattr(function, part)
    found = of_gpu(f"__nv_{name}f", X)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, function(torch.tensor(X).double()).float().numpy(), rtol=2e-7, atol=1e-7)


def test_functions_of_more_numbers() -> None:
    np.testing.assert_allclose(of_gpu("__nv_fmaf", X, Y, X), X * Y + X, rtol=1e-5)
    np.testing.assert_allclose(of_gpu("__nv_powf", abs(X), Y), abs(X) ** Y, rtol=1e-6)
    np.testing.assert_allclose(of_gpu("__nv_powif", X, np.full(8, 3, dtype=np.int32)), X**3, rtol=1e-6)
    np.testing.assert_allclose(of_gpu("__nv_atan2f", X, Y), np.arctan2(X, Y), rtol=1e-6)
    np.testing.assert_allclose(of_gpu("__nv_ldexpf", X, np.full(8, 3, dtype=np.int32)), X * 8, rtol=1e-6)


def test_what_is_too_large_is_infinite_without_a_warning() -> None:
    assert np.isinf(of_gpu("__nv_expf", np.array([100.0], dtype=np.float32))).all()
    assert of_gpu("__nv_isinff", np.array([np.inf, 1.0], dtype=np.float32), result=tl.int32).tolist() == [1, 0]


def test_each_is_a_symbol_of_cudas() -> None:
    symbols = {one.removeprefix("__nv_") for one in re.findall(r"__nv_\w+", inspect.getsource(declared))}
    assert {name for name in libdevice.FUNCTIONS if name not in symbols and f"{name}f" not in symbols} == set()


@pytest.mark.parametrize("symbol", ["__nv_j0f", "__nv_fadd_rz", "tanhf"])
def test_what_is_not_there_says_that_a_gpu_has_to_grade_it(symbol: str) -> None:
    with pytest.raises(NotImplementedError, match="only a GPU can grade it"):
        of_gpu(symbol, X)


def test_functions_of_the_gpu_alone_need_one() -> None:
    from grader.worker.errors import REFUSALS

    libdevice.provide()
    for name in ("globaltimer", "smid", "num_warps"):
        with pytest.raises((AttributeError, NotImplementedError)) as refused:
            getattr(tl.extra.cuda, name)()
        assert REFUSALS.search(str(refused.value))

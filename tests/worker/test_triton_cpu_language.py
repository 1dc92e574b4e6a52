"""What Triton's language gives under the interpreter, held against PyTorch: a table of snippets, each a line or a few of a kernel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

N = 64


class Snippet(NamedTuple):
    """Lines of a kernel that make `y` of the blocks `a` and `b`, and what PyTorch makes of the tensors; rtol 0 is for the same bits.

    a, b, y: dtypes of inputs and output; the inputs are numbers around 1, of either sign.
    """

    lines: str
    torch: str
    dtype: str = "float32"
    out: str = ""
    rtol: float = 0.0


HALVES = ("bfloat16", "float16")
ALL = ("float32", *HALVES)
TABLE: dict[str, Snippet] = {}


def _add(
    name: str, lines: str, expected: str, dtypes: tuple[str, ...] = ("float32",), out: str = "", rtol: float = 0.0
) -> None:
    for dtype in dtypes:
        TABLE[name if dtypes == ("float32",) else f"{name} {dtype}"] = Snippet(
            lines, expected, dtype, out or dtype, rtol
        )


for name, sign in {"sum": "+", "difference": "-", "product": "*"}.items():
    _add(name, f"y = a {sign} b", f"a {sign} b", ALL)
_add("quotient", "y = (a.to(tl.float32) / b.to(tl.float32)).to(a.dtype)", "(a.float() / b.float()).to(a.dtype)", ALL)
_add("rounded after each step", "y = (a + b) * b - a", "(a + b) * b - a", HALVES)
_add("negative", "y = -a", "-a", ALL)
_add("constant", "y = a * 0.3 + 1.1", "a * 0.3 + 1.1", ("float32",), rtol=1e-6)
_add(
    "constant of bfloat16",
    "y = a + tl.full((N,), 0.3, tl.bfloat16)",
    "a + torch.full((N,), 0.3).bfloat16()",
    ("bfloat16",),
)
_add("zeros", "y = a + tl.zeros((N,), a.dtype)", "a", ALL)
_add("absolute", "y = tl.abs(a)", "a.abs()", ALL)
_add("larger", "y = tl.maximum(a, b)", "torch.maximum(a, b)", ALL)
_add("smaller", "y = tl.minimum(a, b)", "torch.minimum(a, b)", ALL)
_add("between", "y = tl.clamp(a, -0.5, 0.5)", "a.clamp(-0.5, 0.5)")
for _name in ("exp", "exp2", "sin", "cos", "floor", "ceil", "erf", "abs", "sigmoid"):
    _add(f"{_name} as a method", f"y = a.{_name}()", f"a.{_name}()", rtol=1e-5)
for _name in ("log", "log2", "sqrt", "rsqrt"):
    _add(f"{_name} as a method", f"y = tl.abs(a).{_name}()", f"a.abs().{_name}()", rtol=1e-5)
_add("larger by Python's name", "y = max(a, b)", "torch.maximum(a, b)", ALL)
_add("larger of three by Python's name", "y = max(a, b, 0.5)", "torch.maximum(a, b).clamp(min=0.5)")
_add("smaller by Python's name", "y = min(a, 0.5)", "a.clamp(max=0.5)")
_add("larger of two constants", "y = a * max(N, 8) + min(3, 2.5)", "a * N + 2.5")
_NAN = 'c = tl.where(b > 0, float("nan"), b); '
_NAN_TOO = "torch.where(b > 0, torch.nan, b)"
_add("larger beside NaN", f"{_NAN}y = tl.maximum(a, c)", f"torch.fmax(a, {_NAN_TOO})")
_add("smaller beside NaN", f"{_NAN}y = tl.minimum(c, a)", f"torch.fmin(a, {_NAN_TOO})")
_add(
    "larger with NaN told",
    f"{_NAN}y = tl.maximum(a, c, propagate_nan=tl.PropagateNan.ALL)",
    f"torch.maximum(a, {_NAN_TOO})",
)
_add("between, of NaN", f"{_NAN}y = tl.clamp(c, -0.5, 0.5)", f"{_NAN_TOO}.nan_to_num(nan=-0.5).clamp(-0.5, 0.5)")
_add("chosen", "y = tl.where(a > b, a, b)", "torch.where(a > b, a, b)", ALL)
_add("compared", "y = (a < b).to(tl.float32)", "(a < b).float()", ALL, "float32")
_add("equal", "y = (a == a).to(tl.int32) + (a != b).to(tl.int32)", "(a == a).int() + (a != b).int()", ALL, "int32")
_add("to float32", "y = a.to(tl.float32) * 3", "a.float() * 3", HALVES, "float32")
_add("to bfloat16", "y = a.to(tl.bfloat16)", "a.bfloat16()", ("float32", "float16"), "bfloat16")
_add("to float16", "y = a.to(tl.float16)", "a.half()", ("float32", "bfloat16"), "float16")
_add(
    "ties to even",
    "y = (1.0 + tl.arange(0, N) / 256.0).to(tl.bfloat16)",
    "(1 + torch.arange(N) / 256).bfloat16()",
    ("bfloat16",),
)
_add(
    "towards zero",
    "y = a.to(tl.bfloat16, fp_downcast_rounding='rtz')",
    "(a.view(torch.int32) & -65536).view(torch.float32)",
    out="bfloat16",
)
_add("infinite in bfloat16", "y = (a * 3.39e38).to(tl.bfloat16)", "(a * 3.39e38).bfloat16()", out="bfloat16")
_add(
    "not a number",
    "y = tl.where(a > 0, float('nan'), a).to(tl.bfloat16)",
    "torch.where(a > 0, torch.nan, a).bfloat16()",
    out="bfloat16",
)
_add("to an integer", "y = (a * 10).to(tl.int32)", "(a * 10).int()", ALL, "int32")
_add("from an integer", "y = tl.arange(0, N).to(tl.bfloat16) + a", "torch.arange(N).bfloat16() + a", ("bfloat16",))
_add("bits", "y = a.to(tl.int16, bitcast=True)", "a.view(torch.int16)", HALVES, "int16")
_add("from bits", "y = (a.to(tl.int16, bitcast=True) ^ -32768).to(tl.bfloat16, bitcast=True)", "-a", ("bfloat16",))
_add("bits of float32", "y = a.to(tl.int32, bitcast=True)", "a.view(torch.int32)", out="int32")
_add("mixed with float32", "y = a + b.to(tl.float32)", "a.float() + b.float()", HALVES, "float32")
for name in ("exp", "exp2", "sin", "cos", "erf", "floor", "ceil"):
    _add(name, f"y = tl.{name}(a)", f"a.{name}()", rtol=1e-6)
for name in ("log", "log2", "sqrt", "rsqrt"):
    _add(name, f"y = tl.{name}(tl.abs(a))", f"a.abs().{name}()", rtol=1e-6)
_add("sigmoid", "y = tl.sigmoid(a)", "a.sigmoid()", rtol=1e-6)
_add("softmax", "y = tl.softmax(a)", "a.softmax(0)", rtol=1e-5)
_add("fma", "y = tl.fma(a, b, a)", "a * b + a", rtol=1e-5)
_add("sum of all", "y = a * 0 + tl.sum(a, axis=0)", "a * 0 + a.sum()", rtol=1e-5)
_add(
    "sum of bfloat16",
    "y = tl.sum(a.to(tl.float32), axis=0) + tl.zeros((N,), tl.float32)",
    "a.float().sum().expand(N)",
    HALVES,
    "float32",
    1e-5,
)
_add("maximum of all", "y = a * 0 + tl.max(a, axis=0)", "a * 0 + a.max()", ALL)
_add("minimum of all", "y = a * 0 + tl.min(a, axis=0)", "a * 0 + a.min()", ALL)
_add(
    "place of the maximum",
    "y = tl.argmax(a, axis=0) + tl.zeros((N,), tl.int32)",
    "a.argmax().int().expand(N)",
    ALL,
    "int32",
)
_add(
    "place of the minimum",
    "y = tl.argmin(a, axis=0) + tl.zeros((N,), tl.int32)",
    "a.argmin().int().expand(N)",
    out="int32",
)
_add("sums up to here", "y = tl.cumsum(a, axis=0)", "a.cumsum(0)", rtol=1e-4)
_add("products up to here", "y = tl.cumprod(1 + a * 0.01, axis=0)", "(1 + a * 0.01).cumprod(0)", rtol=1e-5)
_add("sums from here", "y = tl.cumsum(a, axis=0, reverse=True)", "a.flip(0).cumsum(0).flip(0)", rtol=1e-4)
_add("own reduction", "y = a * 0 + tl.reduce(a, 0, larger_of)", "a * 0 + a.max()")
_add("own scan", "y = tl.associative_scan(a, 0, larger_of)", "a.cummax(0).values")
_add("sorted", "y = tl.sort(a)", "a.sort().values")
_add("turned round", "y = tl.flip(a, 0)", "a.flip(0)")
_add(
    "rows and columns",
    "y = tl.sum(a.reshape(8, 8) * 2, axis=1, keep_dims=True).broadcast_to(8, 8).reshape(N)",
    "(a.view(8, 8) * 2).sum(1, True).expand(8, 8).reshape(N)",
    rtol=1e-5,
)
_add("transposed", "y = tl.trans(a.reshape(4, 16)).reshape(N)", "a.view(4, 16).T.reshape(N)", ALL)
_add("joined and split", "c, d = tl.split(tl.join(a, b))\n    y = c - d", "a - b", ALL)
_add(
    "interleaved",
    "y = tl.interleave(tl.sum(tl.join(a, b).reshape(32, 4), axis=1), tl.zeros((32,), tl.float32))",
    "torch.stack([torch.stack([a, b], -1).reshape(32, 4).sum(1), torch.zeros(32)], -1).reshape(N)",
    rtol=1e-5,
)
_add("gathered", "y = tl.gather(a, (N - 1 - tl.arange(0, N)), axis=0)", "a.flip(0)")
_add(
    "matrix product",
    "y = four_times(tl.dot(a.reshape(4, 16), b.reshape(16, 4), input_precision='ieee'))",
    "(a.view(4, 16) @ b.view(16, 4)).view(16).repeat(4)",
    rtol=1e-5,
)
_add(
    "product in float32",
    "y = four_times(tl.dot(a.reshape(4, 16), b.reshape(16, 4)))",
    "(a.view(4, 16).float() @ b.view(16, 4).float()).view(16).repeat(4)",
    HALVES,
    "float32",
    1e-5,
)
_add(
    "product added to",
    "y = four_times(tl.dot(a.reshape(4, 16), b.reshape(16, 4), tl.full((4, 4), 2.0, tl.float32)))",
    "(a.view(4, 16).float() @ b.view(16, 4).float()).view(16).repeat(4) + 2",
    HALVES,
    "float32",
    1e-5,
)
_add(
    "rounded for the product",
    "p = tl.exp(a.to(tl.float32)).to(a.dtype)\n    y = four_times(tl.dot(p.reshape(4, 16), b.reshape(16, 4)))",
    "(a.float().exp().to(a.dtype).view(4, 16).float() @ b.view(16, 4).float()).view(16).repeat(4)",
    HALVES,
    "float32",
    1e-3,
)
_add(
    "integer quotient",
    "i = tl.arange(0, N) - 32\n    y = i // 5",
    "torch.div(torch.arange(N) - 32, 5, rounding_mode='trunc').int()",
    out="int32",
)
_add("remainder", "i = tl.arange(0, N) - 32\n    y = i % 5", "torch.fmod(torch.arange(N) - 32, 5).int()", out="int32")
_add(
    "bitwise",
    "i = tl.arange(0, N)\n    y = ((i & 12) | (i ^ 3)) + (i << 2) + (i >> 1) + ~i",
    "(lambda i: ((i & 12) | (i ^ 3)) + (i << 2) + (i >> 1) + ~i)(torch.arange(N)).int()",
    out="int32",
)
_add(
    "rounded up quotient",
    "y = tl.zeros((N,), tl.int32) + tl.cdiv(n, 10)",
    "torch.full((N,), 7, dtype=torch.int32)",
    out="int32",
)
_add("plain bool", "y = tl.where(flag, a, b)", "a", ALL)
_add("branch on a bool", "y = a\n    if flag:\n        y = b", "b")
_add(
    "int of 33 bits", "y = (large * 2 + tl.arange(0, N)).to(tl.int64)", "2 * (2**31 + 7) + torch.arange(N)", out="int64"
)
_add(
    "one counts",
    "i = tl.arange(0, N)\n    y = i * one + tl.cast(one, tl.int64) * one - tl.cdiv(one, 4) + tl.where(i < one, 1, 0)",
    "torch.arange(N) + (torch.arange(N) < 1)",
    out="int64",
)
_add("a float is a tensor", "y = a * scale.to(tl.float32) + b", "a * 0.75 + b", rtol=1e-6)
_add("a block of half times a float", "y = a * scale", "a.float() * 0.75", HALVES, "float32")
_add("a float in a function of float32", "y = tl.exp(a * scale)", "(a.float() * 0.75).exp()", HALVES, "float32", 1e-6)
_add("a float in a tuple", "y = a * factors[1]", "a.float() * 0.5", HALVES, "float32")
_add("one is a number", 'y = a\n    if hasattr(one, "to"):\n        y = b', "a")
_add("no tensor of one is lost", 'y = b\n    if hasattr(kept, "to") and hasattr(typed, "to"):\n        y = a', "a")
_add("numbers of a tuple", "low, high = 0, n\n    y = a * high.to(tl.float32) + low.to(tl.float32)", "a * 64")
_add("numbers of a tuple in a tuple", "c, (low, high) = a, (-7, 2)\n    y = c * (low // high)", "a * -3")
_add("a number with a type", "three: tl.int32 = 3\n    y = a * three.to(tl.float32)", "a * 3")
_add("a number changed in place", "one += 1\n    y = a * one.to(tl.float32)", "a * 2")
_add(
    "a constant of the kernel's own", "width: tl.constexpr = N // 2\n    y = a + tl.sum(tl.arange(0, width))", "a + 496"
)
_add("a constant by another name", "width: Fixed = N // 2\n    y = a + tl.sum(tl.arange(0, width))", "a + 496")
_add("a type alone", "c: tl.int32\n    y = a", "a")
_add("sum of bits", "y = ((a > 0) + (b > 0)).to(tl.int32)", "((a > 0) ^ (b > 0)).int()", out="int32")
_add("difference of bits", "y = ((a > 0) - (b > 0)).to(tl.int32)", "((a > 0) ^ (b > 0)).int()", out="int32")
_add("negative bit", "y = (-(a > 0)).to(tl.int32)", "(a > 0).int()", out="int32")
_add("product of bits", "y = ((a > 0) * (b > 0)).to(tl.int32)", "((a > 0) & (b > 0)).int()", out="int32")
_add("int beyond 32 bits", "y = (huge + tl.arange(0, N)).to(tl.int64)", "2**40 + torch.arange(N)", out="int64")
_add(
    "loop with a bound of its own", "y = a * 0\n    for i in range(0, n // 16):\n        y += a * i", "a * 6", rtol=1e-6
)
_add("while", "y = a * 0\n    i = 0\n    while i < 3:\n        y += a\n        i += 1", "a * 3", rtol=1e-6)
_add("unrolled", "y = a * 0\n    for i in tl.static_range(3):\n        y += a", "a * 3", rtol=1e-6)
_add("another function", "y = twice(a)", "a * 2", ALL)
_add("and of blocks", "y = tl.where(a > 0 and b > 0 and a < 1, a, b)", "torch.where((a > 0) & (b > 0) & (a < 1), a, b)")
_add("or of blocks", "y = tl.where(a > 0 or b > 0, a, b)", "torch.where((a > 0) | (b > 0), a, b)")
_add("a false constant in and", "y = tl.where((a > 0) and N < 3, a, b)", "b")
_add("a true constant in or", "y = tl.where((a > 0) or N > 3, a, b)", "a")
_add("not of a block", "y = tl.where(not (a > 0), a, b)", "torch.where(a > 0, b, a)")
_add("and of numbers", "y = a\n    if n > 3 and not (n > 100 or N < 3):\n        y = b", "b")
_add("imported by name", "y = exp2(imported_load(a_ptr + tl.arange(0, N)))", "a.exp2()", rtol=1e-6)
_add("a reduction imported by name", "y = a * 0 + reduce(a, 0, larger_of)", "a * 0 + a.max()")
_add("a loop imported by name", "y = a\n    for _ in static_range(2):\n        y = y + y", "a * 4")
_add("of an enclosing function", "y = thrice(a)", "a * 3")
_add("def in a docstring", "y = documented(a)", "a * 2")
_add("a tuple", "c = (a, b)\n    y = c[0] - c[1]", "a - b", ALL)
_add(
    "masked with other",
    "y = tl.load(a_ptr + tl.arange(0, N), mask=tl.arange(0, N) < 40, other=7.0)",
    "torch.where(torch.arange(N) < 40, a, torch.tensor(7.0, dtype=a.dtype))",
    ALL,
)
_add(
    "masked without other",
    "y = tl.load(a_ptr + tl.arange(0, N), mask=tl.arange(0, N) < 40)",
    "torch.where(torch.arange(N) < 40, a, torch.zeros(N, dtype=a.dtype))",
    ALL,
)
_add(
    "block pointer",
    "p = tl.make_block_ptr(a_ptr, (8, 6), (8, 1), (0, 0), (8, 8), (1, 0))\n"
    "    y = tl.load(tl.advance(p, (0, 0)), boundary_check=(0, 1), padding_option='zero').reshape(N)",
    "(a.view(8, 8) * (torch.arange(8) < 6)).reshape(N)",
    ALL,
)
_add(
    "descriptor",
    "d = tl.make_tensor_descriptor(a_ptr, [8, 8], [8, 1], [8, 8])\n    y = d.load([4, 0]).reshape(N)",
    "torch.cat([a[32:], a[:32] * 0])",
    ALL,
)
_add(
    "descriptor's atomic",
    "d = tl.make_tensor_descriptor(b_ptr, [8, 8], [8, 1], [8, 8])\n    d.atomic_add([0, 0], a.reshape(8, 8))\n"
    "    y = tl.load(b_ptr + tl.arange(0, N))",
    "a + b",
    rtol=1e-6,
)
_add(
    "atomic sum",
    "y = tl.atomic_add(b_ptr + tl.arange(0, N), a)\n    y = tl.load(b_ptr + tl.arange(0, N))",
    "a + b",
    ALL,
)
_add(
    "atomic sum of one",
    "tl.debug_barrier()\n    tl.atomic_add(b_ptr + tl.arange(0, N) * 0, tl.full((N,), 1.0, a.dtype))\n"
    "    y = tl.load(b_ptr + tl.arange(0, N) * 0)",
    "(b[0] * 0 + 64 + b[0]).expand(N)",
    ("float32",),
    rtol=1e-5,
)
_add(
    "atomic exchange",
    "y = tl.atomic_xchg(b_ptr + tl.arange(0, N), a) + 2 * tl.load(b_ptr + tl.arange(0, N))",
    "b + 2 * a",
)
_add(
    "atomic exchange of one under a mask",
    "i = tl.arange(0, N)\n    old = tl.atomic_xchg(b_ptr + i, 3.0, mask=i == 0)\n    y = tl.where(i == 0, old, tl.load(b_ptr + i))",
    "b.clone()",
)
_add(
    "atomic maximum",
    "tl.atomic_max(b_ptr + tl.arange(0, N), a)\n    y = tl.load(b_ptr + tl.arange(0, N))",
    "torch.maximum(a, b)",
)
_add(
    "barrier and hints",
    "tl.debug_barrier()\n    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, N), N), N)\n    y = tl.load(a_ptr + i)",
    "a",
)
_add("asserted", "tl.static_assert(N == 64)\n    tl.device_assert(tl.max(tl.abs(a), axis=0) < 100)\n    y = a", "a")

HEAD = f"""
import os
os.environ["TRITON_INTERPRET"] = "1"
import json
import torch, triton, triton.language as tl
from triton.language import constexpr as Fixed, load as imported_load, reduce, static_range
from triton.language.math import exp2
from grader.worker import triton_cpu

N = {N}
LENGTH = tl.constexpr(N)

@triton.jit
def larger_of(a, b):
    return tl.maximum(a, b)

@triton.jit
def twice(a):
    return a + a

@triton.jit
def four_times(a):
    return tl.broadcast_to(a.reshape(1, 16), (4, 16)).reshape(LENGTH)

def scaled_by(number):
    factor = tl.constexpr(number)

    @triton.jit
    def product(a):
        return a * factor

    @triton.jit
    def scaled(a):
        return product(a)

    return scaled

thrice = scaled_by(3)

@triton.jit
def documented(a):
    '''As
    def documented(a): return a + a
    '''
    return twice(a)
"""
KERNEL = """
@triton.jit(do_not_specialize=["kept"])
def kernel_{number}(a_ptr, b_ptr, y_ptr, n, flag, large, huge, one, scale, factors, kept, typed: tl.int32, N: triton.language.constexpr):
    a = tl.load(a_ptr + tl.arange(0, N))
    b = tl.load(b_ptr + tl.arange(0, N))
    {lines}
    tl.store(y_ptr + tl.arange(0, N), y)

def call_{number}():
    torch.manual_seed(0)
    a, b = (torch.randn(N).to(torch.{dtype}) for _ in range(2))
    expected = ({torch}).to(torch.{out})
    y = torch.zeros(N, dtype=torch.{out})
    kernel_{number}[(1,)](a, b, y, 64, True, 2**31 + 7, 2**40, 1, 0.75, (2, 0.5), 1, 1, N)
    torch.testing.assert_close(y, expected, rtol={rtol}, atol={rtol}, equal_nan=True)
"""
TAIL = """
def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

triton_cpu.provide()
print(json.dumps([said(globals()[f"call_{number}"]) for number in range(COUNT)]))
"""


def said_by(folder: Path, definitions: str, calls: list[str]) -> list[str]:
    """What each `call_...` raised, from one process: whether kernels are interpreted is decided when Triton is imported."""
    file = folder / "snippets.py"  # Triton reads the source of its functions
    file.write_text(HEAD + definitions + "".join(calls) + TAIL.replace("COUNT", str(len(calls))), encoding="utf-8")
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run.returncode == 0, run.stderr[-2000:]
    assert "RuntimeWarning" not in run.stderr  # numpy's
    said: list[str] = json.loads(run.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in each snippet."""
    kernels = [KERNEL.format(number=number, **one._asdict()) for number, one in enumerate(TABLE.values())]
    return dict(zip(TABLE, said_by(tmp_path_factory.mktemp("language"), "", kernels), strict=True))


@pytest.mark.parametrize("name", TABLE)
def test_the_interpreter_gives_what_pytorch_gives(name: str, said: dict[str, str]) -> None:
    assert said[name] == ""


SMALL = """
@triton.jit
def product(a_ptr, y_ptr, inner: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, 16)[:, None] * inner + tl.arange(0, inner)[None, :])
    tl.store(y_ptr + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], tl.dot(a, tl.trans(a)))
"""
CALL_SMALL = """
def call_{number}():
    product[(1,)](torch.ones(16, {inner}, dtype=torch.{dtype}), torch.zeros(16, 16), {inner})
"""


def test_a_product_with_few_factors_is_refused_as_by_a_gpu(tmp_path: Path) -> None:
    sizes = [(inner, dtype) for inner in (8, 16) for dtype in ("float32", "bfloat16")]
    calls = [CALL_SMALL.format(number=number, inner=inner, dtype=dtype) for number, (inner, dtype) in enumerate(sizes)]
    for (inner, dtype), words in zip(sizes, said_by(tmp_path, SMALL, calls), strict=True):
        assert ("K >= 16" in words) if inner < 16 else words == "", (inner, dtype, words)


GRIDS = {
    "(1, 65536)": "launched with 65536 programs along axis 1",
    "lambda _: (1, 65536)": "launched with 65536 programs along axis 1",
    "(2, 3)": "6.0",
    "lambda _: (2, 3)": "6.0",
    "(0, 70000)": "0.0",
}
COUNTED = """
@triton.jit
def counted(y_ptr):
    tl.atomic_add(y_ptr, 1.0)
"""
CALL_COUNTED = """
def call_{number}():
    y = torch.zeros(1)
    try:
        counted[{grid}](y)
    except Exception as error:
        assert y.item() == 0.0, "a program has run"
        raise
    raise RuntimeError(y.item())
"""


def test_a_grid_that_a_gpu_refuses_is_refused_before_any_program_runs(tmp_path: Path) -> None:
    calls = [CALL_COUNTED.format(number=number, grid=grid) for number, grid in enumerate(GRIDS)]
    for (grid, words), told in zip(GRIDS.items(), said_by(tmp_path, COUNTED, calls), strict=True):
        assert words in told, (grid, told)


# Global names that a kernel uses, each in the kernel's line, and the words of a GPU's compiler; "" if it takes them.
NAMES = {
    "y = a * PLAIN": "Cannot access global variable PLAIN from within @jit'ed function",
    "y = a * ANNOTATED": "Cannot access global variable ANNOTATED",
    "y = helper(a)": "Cannot access global variable helper",
    "y = a * CHOICES[0]": "Cannot access global variable CHOICES",
    "y = a * LATER": "LATER is not defined",
    "y = abs(a)": "abs is not defined",
    "y = a * float(PLAIN)": "Cannot access global variable PLAIN",
    "y = a + tl.reduce(a, 0, with_plain)": "Cannot access global variable PLAIN",
    "y = tl.associative_scan(a, 0, with_plain)": "Cannot access global variable PLAIN",
    "y = tl.associative_scan(a, 0, with_fixed) + tl.reduce(a, 0, with_fixed)": "",
    "y = a + tl.reduce(a, 0, with_branch)": "",
    "y = a * (FIXED if NARROW else PLAIN)": "",
    "y = twice(a) * FIXED + tl.sum(a) + imported(a)": "",
    "y = a.to(DTYPE) * Pair(FIXED, 1)[0] * tl.full((16,), 1.0, dtype=DTYPE)": "",
    "y = a if NOTHING is None else tl.where(a > 0, a, NOTHING)": "",
    "tl.static_assert(a.shape[0] == 16, 'not ' + str(PLAIN)); y = a": "",
    "y = a * DEFAULT + max(len(a.shape), int(FIXED), min(1, 2))": "",
}
NAMED = """
import collections
from triton.language import exp as imported

PLAIN, ANNOTATED, CHOICES, DTYPE = 2.0, 2.0, [1.0], tl.float32
ANNOTATED: tl.constexpr = 2.0
FIXED, NARROW, NOTHING = tl.constexpr(2), tl.constexpr(True), None
Pair = collections.namedtuple("Pair", ["low", "high"])

def helper(a):
    return a * 2

@triton.jit
def with_plain(a, b):
    return a + b * PLAIN

@triton.jit
def with_fixed(a, b):
    larger = a if NARROW else b
    return max(larger, b) * FIXED

@triton.jit
def with_branch(a, b):
    if a > b:
        return a * FIXED
    else:
        return b
"""
USES_NAME = """
@triton.jit
def uses_{number}(a_ptr, y_ptr, DEFAULT: tl.constexpr = PLAIN):
    a = tl.load(a_ptr + tl.arange(0, 16))
    {line}
    tl.store(y_ptr + tl.arange(0, 16), y)

def call_{number}():
    uses_{number}[(1,)](torch.ones(16), torch.zeros(16))
"""


def test_names_that_a_gpus_compiler_refuses_are_refused_where_they_are_used(tmp_path: Path) -> None:
    uses = [USES_NAME.format(number=number, line=line) for number, line in enumerate(NAMES)]
    for (line, words), found in zip(NAMES.items(), said_by(tmp_path, NAMED, uses), strict=True):
        assert (words in found) if words else found == "", (line, found)

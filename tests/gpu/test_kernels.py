"""The kernels of the repository on sizes that no case has, in this process: long rows of softmax, and attention in Gluon."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.variants import gluon_attention
from grader.problem import load_beside
from reference.softmax import softmax
from tests.conftest import ROOT

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

LONG = [
    (71, 4097, torch.float16),
    (70, 6001, torch.bfloat16),
    (9, 8208, torch.bfloat16),
    (5, 16400, torch.float32),
    (40, 8193, torch.bfloat16),
    (9, 12001, torch.float32),
    (6, 20000, torch.bfloat16),
    (5, 32767, torch.float32),
    (3, 32768, torch.float16),
    (3, 70001, torch.float32),
    (4, 33000, torch.float32),
    (1, 32769, torch.float32),
    (5, 65536, torch.float32),
    (5, 65536, torch.float16),
    (2, 5_000_001, torch.float32),  # more pieces than a GPU has places: two passes
    (5, 40007, torch.bfloat16),
    (33, 262144, torch.bfloat16),
    (2000, 32771, torch.bfloat16),
    (7, 32769, torch.float16),
    (16, 131071, torch.float16),
    (64, 50264, torch.float16),
]


@pytest.mark.parametrize(("rows", "columns", "dtype"), LONG)
@pytest.mark.parametrize("infinite", ["nothing", "a row", "all but the end", "all but the start"])
def test_long_rows_of_softmax(rows: int, columns: int, dtype: torch.dtype, infinite: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, columns, device="cuda", dtype=dtype) * 3 - 200
    where = {"a row": (0,), "all but the end": (..., slice(-5)), "all but the start": (..., slice(5, None))}
    if infinite in where:
        x[where[infinite]] = -math.inf
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-4}
    beside = torch.cat([x.flatten()[:1], x.flatten()])[1:].view_as(x)  # starts at no multiple of 16 bytes
    for view in (x, torch.cat([x, x], 1)[:, :columns], x.mT.contiguous().mT, beside):
        torch.testing.assert_close(softmax(view).float(), torch.softmax(view.float(), -1), equal_nan=True, **tolerance)


@pytest.fixture
def impatient_softmax(tmp_path: Path) -> Callable[[torch.Tensor], torch.Tensor]:
    """As where programs start in an order that no GPU is known to have: a program that looks once does not wait."""
    impatient = tmp_path / "impatient.py"
    text, found = re.subn(
        r"(?m)^LOOKS = .*$", "LOOKS = tl.constexpr(1)", (ROOT / "reference" / "softmax.py").read_text()
    )
    assert found == 1
    impatient.write_text(text)
    return load_beside(str(impatient), impatient.name).softmax


@pytest.mark.parametrize(("rows", "columns", "dtype"), LONG)
def test_programs_that_wait_in_vain_read_their_row(
    rows: int, columns: int, dtype: torch.dtype, impatient_softmax: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, columns, device="cuda", dtype=dtype) * 3 - 200
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 1e-4}
    torch.testing.assert_close(impatient_softmax(x).float(), torch.softmax(x.float(), -1), **tolerance)


@pytest.mark.parametrize("columns", [131071, 131072])
def test_programs_that_wait_in_vain_add_up_in_float64(
    columns: int, impatient_softmax: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Equal numbers are rounded alike: 4096 sums of 32 of them would be wrong by 4e-5 in float32."""
    x = torch.full((3, columns), -0.05, device="cuda")
    x[:, 0] = 0
    torch.testing.assert_close(impatient_softmax(x).double(), torch.softmax(x.double(), -1), rtol=2e-6, atol=0)


@pytest.mark.skipif("torch.cuda.get_device_capability()[0] != 9", reason="Gluon's kernel is for Hopper")
@pytest.mark.parametrize(("head_dim", "causal"), list(itertools.product((64, 128), (True, False))))
@pytest.mark.parametrize("n", [1, 100, 257, 1000, 1024])
def test_attention_in_gluon(n: int, head_dim: int, causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(5, n, head_dim, device="cuda", dtype=torch.float16) for _ in range(3))
    scores = q.double() @ k.double().mT / math.sqrt(head_dim)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    o, lse = gluon_attention.forward(q, k, v, causal)
    torch.testing.assert_close(o.double(), torch.softmax(scores, -1) @ v.double(), rtol=1e-2, atol=4e-3)
    torch.testing.assert_close(lse.double(), scores.logsumexp(-1), rtol=1e-4, atol=1e-4)

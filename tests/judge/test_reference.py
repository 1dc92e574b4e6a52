"""What of the reference kernels no grading on a CPU runs: tiles by tensor descriptors, which only a GPU with a copy engine gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.conftest import ROOT

PROGRAM = """
import json, sys
import torch
from reference import flash_attention as reference

torch.manual_seed(0)
errors = []
for by_descriptors in (True, False):
    reference.has_copy_engine = lambda x: by_descriptors
    for batch, n_q, n_k, d, causal, dtype in (
        (2, 100, 100, 64, True, torch.float32),
        (2, 70, 133, 16, False, torch.float32),
        (1, 129, 129, 128, True, torch.float16),
        (3, 64, 1, 32, False, torch.float16),
        (1, 1, 1, 16, True, torch.float32),
    ):
        # The next batch element's rows lie behind each one's last: NaN would show that a tile reaches there.
        q = torch.randn(batch, n_q, d, dtype=dtype, requires_grad=True)
        k, v = (torch.randn(batch, n_k, d, dtype=dtype, requires_grad=True) for _ in range(2))
        o = reference.flash_attention(q, k, v, causal)
        do = torch.randn_like(o)
        got = [o, *torch.autograd.grad(o, (q, k, v), do)]
        exact = torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
        expected = [exact, *torch.autograd.grad(exact, (q, k, v), do.double())]
        worst = max(float((one - other).detach().abs().max()) for one, other in zip(got, expected))
        with torch.no_grad():
            last = [x.clone() for x in (q, k, v)]
            for x in last:
                x[1:] = float("nan")
            alone = reference.flash_attention(*last, causal)[0]
        errors.append([worst, float(torch.finfo(dtype).eps), bool(torch.equal(alone, o[0]))])
json.dump(errors, sys.stdout)
"""


def test_descriptors_and_pointers_give_the_same_right_answers() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout)
    assert len(errors) == 10
    for worst, eps, alone in errors:
        assert worst < 16 * eps, errors
        assert alone, "a batch element's rows depend on the next one's"

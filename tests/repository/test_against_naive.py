"""Which shapes the reference kernels are held against plain PyTorch on, and when they count as slower."""

from __future__ import annotations

import math

from benchmarks.against_naive import Row, report, shapes
from grader.assignment import load_course
from tests.conftest import ROOT

GIB = 2**30


def test_every_assignment_has_shapes_that_fit_and_have_something_to_do() -> None:
    found = list(shapes(load_course(ROOT), 8 * GIB))
    assert {case.assignment.name for case in found} == {one.name for one in load_course(ROOT)}
    ids = {case.id for case in found}
    assert {"softmax-softmax-speed-wide", "flash_attention-backward-speed-causal", "softmax-softmax-3x1000"} <= ids
    for case in found:
        assert 0 < case.problem.cost(case.params, case.dtype).bytes_moved <= 8 * GIB
        assert case.id not in ("cuda_gelu-gelu-n-0", "cuda_gelu-gelu-beyond-2-31")


def test_a_shape_counts_once_and_another_layout_is_another_shape() -> None:
    ids = [case.id for case in shapes(load_course(ROOT, ["flash_attention"]), GIB)]
    assert "flash_attention-forward-n-200" in ids
    assert "flash_attention-forward-peaked" not in ids  # 200 tokens as well, with other numbers
    assert "flash_attention-forward-transposed" in ids  # 100 tokens, laid out differently
    assert "flash_attention-backward-n-100" in ids  # as the forward case, and its gradients


def test_slower_is_more_than_a_twentieth_by_the_gpus_time() -> None:
    assert not Row("a", "", 1.04, 1.0, ratio=1 / 1.04, wall_ratio=0.1).is_slower
    slow = Row("b", "", 1.06, 1.0, ratio=1 / 1.06, wall_ratio=9.0)
    assert slow.is_slower
    text = "\n".join(report([slow, Row("c", "", 1.0, 2.0, ratio=2.0, wall_ratio=math.pi)], ["d: no nvcc"]))
    assert "| b |  | 1060000.0 | 1000000.0 | 0.94 **slower** | 9.00 |" in text
    assert "2 shapes; slower than PyTorch by more than 5%: 1." in text
    assert "Left out: d: no nvcc." in text

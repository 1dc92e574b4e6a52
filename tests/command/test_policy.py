"""Whose kernel it was, through the real command line: what the source says, and what PyTorch did while it ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, TWICE, Course, Ran, Running, problem_toml
from tests.support.warm_judge import judge

pytestmark = pytest.mark.grading

POLICY = """
[policy]
forbidden = ["torch.add", ".add", "@"]
operators = ["neg"]
imports = ["functools", "numpy", "os", "torch", "triton", "threading"]

[[part]]"""
BY_HAND = (
    TWICE
    + """
def by_hand(x):
    y = torch.empty_like(x)
    twice[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y
"""
)
NOT_LAUNCHED = "no kernel of your own was launched; the work has to be done by your own kernel"
SOURCES = {
    "kernel_does_it": ("def double(x):\n    return by_hand(x)\n", "passed", ""),
    "tuned": (
        "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 128})], key=['n'])\n@triton.jit\n"
        "def tuned(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)\n"
        "def double(x):\n    y = torch.empty_like(x)\n"
        "    tuned[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, y, x.numel())\n"
        "    return y if x.numel() else by_hand(x)\n",
        "passed",
        "",
    ),
    "allowed_operator": ("def double(x):\n    return -(-x.clone()) if x.isnan().any() else by_hand(x)\n", "passed", ""),
    "asserted": (
        "import torch\ndef double(x):\n    y = by_hand(x)\n    assert not y.isnan().any()\n    assert torch.isfinite(y).all()\n"
        "    return y\n",
        "passed",
        "",
    ),
    "by_numbers": (
        "import torch\ndef double(x):\n    return torch.tensor([2 * float(one) for one in x], dtype=x.dtype)\n",
        "forbidden",
        NOT_LAUNCHED,
    ),
    "by_numpy": (
        "import numpy, torch\ndef double(x):\n    return torch.tensor(2 * numpy.asarray(x))\n",
        "forbidden",
        "by_numpy.py:3: PyTorch's operator `__array__` ran",
    ),
    "into_its_memory": (
        "import numpy, torch\nclass Seen:\n    def __init__(self, t):\n"
        "        self.__array_interface__ = {'shape': tuple(t.shape), 'typestr': '<f4', 'data': (t.data_ptr(), False), 'version': 3}\n"
        "def double(x):\n    y = by_hand(x)\n    seen = numpy.asarray(Seen(y))\n    seen += 1\n    seen -= 0.5\n    return y.clone()\n",
        "forbidden",
        "the submission returns what no kernel wrote: the host wrote",
    ),
    "by_an_array": (
        "import numpy, torch\ndef double(x):\n    y = by_hand(x)\n    return torch.from_numpy(numpy.ones(x.shape, numpy.float32))\n",
        "forbidden",
        "the submission returns what no kernel wrote: the host wrote",
    ),
    "by_numbers_beside_a_kernel": (
        "import torch\ndef double(x):\n    by_hand(x)\n    return torch.tensor([2 * float(one) for one in x], dtype=x.dtype)\n",
        "forbidden",
        "the submission returns what no kernel wrote: the host wrote",
    ),
    "with_a_table_of_its_own": (
        "import torch\ndef double(x):\n    table = torch.tensor([0.0, 1.0], dtype=x.dtype)\n"
        "    assert torch.as_tensor([1.0, 2.0]).numel() == len(table)\n    return by_hand(x)\n",
        "passed",
        "",
    ),
    "by_a_thread": (
        "from threading import Thread\ndef double(x):\n    out = by_hand(x)\n"
        "    thread = Thread(target=lambda: out.copy_(x * 2))\n    thread.start()\n    thread.join()\n    return out\n",
        "forbidden",
        "by_a_thread.py:4: PyTorch's operator `mul` ran",
    ),
    "by_name": (
        "import torch\ndef double(x):\n    return torch.add(x, x)\n",
        "forbidden",
        "by_name.py, line 3: uses torch.add; the work has to be done by your own kernel",
    ),
    "tried_out": (
        BY_HAND + "\ndef double(x):\n    return by_hand(x)\nx = torch.ones(3)\nprint(double(x) - torch.add(x, x))\n",
        "passed",
        "",
    ),
    "never_called": (
        BY_HAND + "USE_TORCH = False\ndef reference(x):\n    return torch.add(x, x)\n"
        "class Naive(torch.nn.Softmax):\n    def forward(self, x):\n        return x @ x\n"
        "def double(x):\n    if USE_TORCH:\n        return exec('x') or reference(x)\n    return by_hand(x)\n"
        "if __name__ == '__main__':\n    import subprocess\n",
        "passed",
        "",
    ),
    "by_a_string": (
        "import torch\ndef double(x):\n    return eval('torch.' + 'add')(x, by_hand(x) - x)\n",
        "forbidden",
        "PyTorch's operator `sub` ran",
    ),
    "by_torchs_compiler": (
        "import torch\n@torch.compile\ndef twice_(x):\n    return x + x\ndef double(x):\n    by_hand(x)\n    return twice_(x)\n",
        "forbidden",
        "by_torchs_compiler.py:4: PyTorch's operator `add` ran",
    ),
    "with_another_watch": (
        "import torch, triton\nWORDS = 'import grader.worker.operators as o\\no.OperatorWatch.note = print'\n"
        "getattr(triton.runtime.jit, '__buil' + 'tins__')['ex' + 'ec'](WORDS)\n"
        "def double(x):\n    by_hand(x)\n    return x + x\n",
        "forbidden",
        "the submission changes grader.worker.operators.OperatorWatch.note; the work has to be done by your own kernel",
    ),
    "with_other_code_in_the_watch": (
        "def double(x):\n    watch = __import__('grader.worker.operators').worker.operators\n"
        "    watch._is_logic.__code__ = (lambda *_: True).__code__\n    by_hand(x)\n    return x + x\n",
        "forbidden",
        "the submission changes grader.worker.operators._is_logic; the work",
    ),
    "out_of_sight": (
        "import torch\ndef double(x):\n    by_hand(x)\n    with torch._C._DisableTorchDispatch():\n        return x + x\n",
        "forbidden",
        "out_of_sight.py:4: the submission hides what runs (torch._C._DisableTorchDispatch)",
    ),
    "as_if_a_librarys": (
        "import torch, triton\nhidden = {}\nexec(compile('def add(x): return x + x', triton.__file__, 'exec'), hidden)\n"
        "def double(x):\n    by_hand(x)\n    return hidden['add'](x)\n",
        "forbidden",
        "as_if_a_librarys.py:3: the submission passes code off as a library's (compile)",
    ),
    "in_another_process": (
        "import os, torch\ndef double(x):\n    y = by_hand(x)\n    if (pid := os.fork()) == 0:\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n    return y\n",
        "forbidden",
        "in_another_process.py:4: the submission starts a process (os.fork)",
    ),
    "from_pytorchs_inside": (
        "from torch.utils.cpp_extension import load_inline\ndef double(x):\n    return by_hand(x)\n",
        "forbidden",
        "line 1: imports torch.utils.cpp_extension, which this assignment does not allow: take it out, or put it below",
    ),
    "by_operator": (
        "def double(x):\n    y = x.clone()\n    return y + x\n",
        "forbidden",
        "by_operator.py:3: PyTorch's operator `add` ran; the work",
    ),
    "decoy": (
        "import torch\ndef double(x):\n    try:\n        by_hand(x)\n    finally:\n        return torch.mul(x, 2)\n",
        "forbidden",
        "decoy.py:6: PyTorch's operator `mul` ran",
    ),
    "in_a_helper": (
        "from helper_of_mine import help\ndef double(x):\n    return help(x)\n",
        "forbidden",
        "helper_of_mine.py:2: PyTorch's operator `mul` ran",
    ),
    "forgotten_helper": (
        "import my_helper\ndef double(x):\n    return my_helper.twice(x)\n",
        "failed",
        "forgotten_helper.py, line 1: imports my_helper, and there is no my_helper.py in the submission",
    ),
    "unknown_import": (
        "import subprocess\ndef double(x):\n    return x * 2\n",
        "forbidden",
        "unknown_import.py, line 1: imports subprocess, which this assignment does not allow",
    ),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("policy")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    (submission / "helper_of_mine.py").write_text("def help(x):\n    return x * 2\n")
    for name, (source, _, _) in SOURCES.items():
        course.add(name, toml=problem_toml(f"{name}.py", ["one"]).replace("[[part]]", POLICY, 1))
        if name == "tuned":
            source = BY_HAND + source
        (submission / f"{name}.py").write_text(source + BY_HAND if "def by_hand" not in source else source)
        (course.folder / "reference" / f"{name}.py").write_text(SOURCES["kernel_does_it"][0] + BY_HAND)
    return Running(folder, [str(submission), "--course", str(course.folder), "--device", "cpu"]).finish()


@pytest.mark.parametrize("name", SOURCES)
def test_a_policy_is_kept(ran: Ran, name: str) -> None:
    _, outcome, words = SOURCES[name]
    case = ran.case(name, "one")
    assert (case.outcome, words in case.message) == (outcome, True), f"{case.outcome}: {case.message}"


def test_what_is_forbidden_earns_nothing(ran: Ran) -> None:
    assert ran.report is not None, ran.errors
    earned = {one.name: one.parts[0].points.earned for one in ran.report.assignments}
    assert earned == {name: 4.0 if outcome == "passed" else 0.0 for name, (_, outcome, _) in SOURCES.items()}


def test_the_students_line_is_shown(ran: Ran) -> None:
    """Its place is in the message: told once, and not twice."""
    case = ran.case("by_name", "one")
    assert "by_name.py, line 3: uses torch.add" in case.message
    assert case.traceback == "    return torch.add(x, x)\n"


def test_a_backward_pass_is_watched_too(tmp_path: Path) -> None:
    """Gradients that autograd computes come from no line of the student's."""
    (tmp_path / "flash_attention.py").write_text(
        "import torch\n\ndef flash_attention(q, k, v, is_causal=False):\n"
        "    s = (q[:, :, None] * k[:, None]).sum(-1) / q.shape[-1] ** 0.5\n"
        "    p = s - s.amax(-1, keepdim=True)\n    return (p[..., None] * v[:, None]).sum(2)\n"
    )
    (report,) = judge(tmp_path, ROOT, "flash_attention", "cpu", case="n-48").assignments
    for part in report.parts:
        assert part.outcome == "forbidden"
        assert any("operator `amax` ran" in case.message for case in part.cases)


def test_a_forward_of_ones_own_earns_its_points(tmp_path: Path) -> None:
    """PyTorch in the backward pass costs the part that calls it, in all its cases and properties."""
    right = ROOT / "tests" / "corpora" / "accepted" / "flash_attention" / "plain"
    source = (right / "flash_attention.py").read_text()
    by_pytorch = "        q, k, v, o, lse = ctx.saved_tensors\n"
    assert by_pytorch in source
    source = source.replace(by_pytorch, f"{by_pytorch}        s = q @ k.mT\n")
    (tmp_path / "flash_attention.py").write_text(source)
    (report,) = judge(tmp_path, ROOT, "flash_attention", "cpu", case="n-48").assignments
    forward, backward = report.parts
    assert {one.outcome for one in forward.cases} == {"passed", "skipped"}
    assert (backward.outcome, backward.points.earned) == ("forbidden", 0)
    assert {one.outcome for one in backward.cases} == {"forbidden", "skipped"}
    line = source[: source.index("s = q @ k.mT")].count("\n") + 1
    told = [one.message for one in backward.cases if one.outcome == "forbidden"]
    assert all(f"flash_attention.py, line {line}: uses the operator @" in one for one in told)

"""What of the reference kernels no grading on a CPU runs: tiles by tensor descriptors, which only a GPU with a copy engine gets, and
what GPUs that are not here have room for. And values and views that no case has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.corpus import Entry, entries
from tests.support.warm_judge import interpreted

pytestmark = pytest.mark.grading


PROGRAM = """
import json, sys
import torch
from reference import flash_attention as reference

NAN = float("nan")

def gradients(o, leaves, do):
    return [o, *torch.autograd.grad(o, leaves, do)]

def exact(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)

torch.manual_seed(0)
found = []
for by_descriptors, multiprocessors in ((True, 0), (True, 1 << 30), (False, 0)):
    reference.has_copy_engine = lambda x: by_descriptors
    reference.multiprocessors = lambda x: multiprocessors
    small = multiprocessors > 0
    assert reference.tile_of(reference.DQ_TILES, torch.zeros(2, 70, 16))[:2] == ((16, 64) if small else (128, 64))
    assert reference.tile_of(reference.DK_DV_TILES, torch.zeros(2, 70, 16), True)[:2] == ((64, 16) if small else (64, 128))
    for batch, n_q, n_k, d, causal, dtype in (
        (2, 100, 100, 64, True, torch.float32),
        (2, 70, 133, 16, False, torch.float32),
        (2, 129, 129, 128, True, torch.float16),
        (3, 64, 1, 32, False, torch.float16),
        (2, 40, 33, 16, False, torch.float16),
        (2, 1, 1, 16, True, torch.float32),
    ):
        q = torch.randn(batch, n_q, d, dtype=dtype, requires_grad=True)
        k, v = (torch.randn(batch, n_k, d, dtype=dtype, requires_grad=True) for _ in range(2))
        do = torch.randn_like(q)
        got = gradients(reference.flash_attention(q, k, v, causal), (q, k, v), do)
        expected = gradients(exact(q, k, v, causal), (q, k, v), do.double())
        worst = max(float((one - other).detach().abs().max()) for one, other in zip(got, expected))
        # What lies behind a batch element's last row is the next one's: a tile that reaches there takes up its NaN.
        leaves, upstream = [x.detach().clone() for x in (q, k, v)], do.clone()
        for x in (*leaves, upstream):
            x[1:] = NAN
        leaves = [x.requires_grad_() for x in leaves]
        alone = gradients(reference.flash_attention(*leaves, causal), leaves, upstream)
        found.append([worst / torch.finfo(dtype).eps, all(torch.equal(x[0], y[0]) for x, y in zip(alone, got))])
    # Dimensions of size 1 may have any strides, storage may begin anywhere, and gradients come expanded.
    wide = torch.randn(2, 5, 17)
    for x in (wide[:1, :1, 1:], wide[:, :, 1:], wide[:1, :, :16].expand(3, 5, 16), wide.transpose(0, 1)[:, :, :16]):
        leaves = [x.detach().requires_grad_() for _ in range(3)]
        got = gradients(reference.flash_attention(*leaves), leaves, torch.ones(()).expand(x.shape))
        expected = gradients(exact(*leaves, False), leaves, torch.ones(x.shape).double())
        worst = max(float((one - other).detach().abs().max()) for one, other in zip(got, expected))
        found.append([worst / torch.finfo(torch.float32).eps, True])
    # Five batch elements, in groups of two, two and one.
    q, k, v, do = torch.randn(4, 5, 200, 16)
    usual, reference.CACHE_BYTES = reference.CACHE_BYTES, 2 * 2 * k[0].numel() * 4
    assert reference.batches_at_once(k, True) == 2 and reference.batches_at_once(k, False) == 1
    for causal in (False, True):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        got = gradients(reference.flash_attention(*leaves, causal), leaves, do)
        expected = gradients(exact(*leaves, causal), leaves, do.double())
        worst = max(float((one - other).detach().abs().max()) for one, other in zip(got, expected))
        found.append([worst / torch.finfo(torch.float32).eps, True])
    reference.CACHE_BYTES = usual
    # Programs of the first batch element alone leave the next one's rows as they are.
    q, k, v = torch.randn(3, 2, 40, 16)
    o, lse, tile = torch.full((2, 40, 16), NAN), torch.full((2, 40), NAN), reference.FORWARD_TILES[4, 16]
    q_mem, o_mem = reference.by_tiles(tile.block_m, q, o)
    k_mem, v_mem = reference.by_tiles(tile.block_n, k, v)
    reference.flash_forward_kernel[(1,)](
        q_mem, k_mem, v_mem, o_mem, lse, 40, 40, 0.25, 1, head_dim=16, is_causal=False, **reference.options(tile, q)
    )
    found.append([float((o[0] - exact(q, k, v, False)[0]).abs().max()) / 1e-7, bool(o[1].isnan().all() & lse[1].isnan().all())])
json.dump(found, sys.stdout)
"""


def test_descriptors_and_pointers_give_the_same_right_answers() -> None:
    found = interpreted(PROGRAM)
    assert len(found) == 39
    for worst, alone in found:
        assert worst < 40, found  # times the dtype's resolution
        assert alone, f"a batch element's results depend on the next one's: {found}"


OVERFLOWING = """
import json, sys
import torch
from reference.flash_attention import flash_attention

def naive(q, k, v, causal):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(scores, dim=-1) @ v

torch.manual_seed(0)
found = []
for n, causal in ((200, False), (200, True), (150, False)):
    leaves = torch.randn(3, 2, n, 16)
    # The first 140 keys, more than a tile of any kernel, have a score of -1e40 with the first 100 queries, which is -inf.
    leaves[0, :, :, 0], leaves[0, :, :100, 0] = 0.0, 1e20
    leaves[1, :, :, 0], leaves[1, :, :140, 0] = 0.0, -1e20
    q, k, v = (x.requires_grad_() for x in leaves)
    o, expected = flash_attention(q, k, v, causal), naive(q, k, v, causal)
    pairs = [(o, expected)]
    if not causal:  # else rows that see no other key are NaN, and with them all gradients
        do = torch.randn_like(o)
        gradients = (torch.autograd.grad(one, (q, k, v), do) for one in (o, expected))
        pairs += [(one[..., 1:], other[..., 1:]) for one, other in zip(*gradients)]
    for one, other in pairs:
        same = one.isnan() == other.isnan()
        found.append([bool(same.all()), float((one - other).nan_to_num().abs().max()), bool(other.isnan().any())])
json.dump(found, sys.stdout)
"""


def test_scores_that_overflow_count_for_nothing_as_in_pytorch() -> None:
    found = interpreted(OVERFLOWING)
    assert [has_nan for _, _, has_nan in found] == [False] * 4 + [True] + [False] * 4
    for as_many_nan, worst, _ in found:
        assert as_many_nan, found
        assert worst < 1e-5, found


NEGATED = """
import json, sys
import torch
from reference.flash_attention import flash_attention
from reference.softmax import softmax
from reference.triton_gelu import triton_gelu

torch.manual_seed(0)
found = []
for negated in (
    torch._neg_view(torch.randn(2, 40, 16)),  # dense, so that nothing else makes a copy of it
    torch.randn(2, 40, 16, dtype=torch.complex64).conj().imag,
):
    plain = negated + 0.0
    assert negated.is_neg() and not plain.is_neg()
    answers = []
    for x in (negated, plain):
        leaves = [x.detach().requires_grad_() for _ in range(3)]
        o = flash_attention(*leaves)
        answers.append([softmax(x[0]), triton_gelu(x), o, *torch.autograd.grad(o, leaves, x)])
    found += [torch.equal(one, other) for one, other in zip(*answers)]
json.dump(found, sys.stdout)
"""


def test_tensors_that_stand_in_memory_with_the_opposite_sign() -> None:
    assert interpreted(NEGATED) == [True] * 12


SHARED_ROWS = """
import json, sys
import torch
import triton.language as tl
from reference import softmax as reference

reference.runs_at_once = lambda x: 1 << 20
reference.packed, reference.unpacked = lambda x: x, lambda x: x.to(tl.float32)  # instructions of a GPU
reference.LOOKS = 2  # an interpreter runs programs one after another: the last of a row finds all pairs, the others read it
torch.manual_seed(0)
found = []
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for rows, columns in ((1, 96), (3, 64), (4, 100), (7, 65), (3, 127), (16, 129), (16, 16), (17, 17), (16, 31)):
        x = torch.randn(rows, columns).to(dtype) - 200
        x[0, : columns - 3] = x[-1, 5:] = float("-inf")
        x[rows // 2] = float("-inf") if rows > 3 else 7
        if rows > 4:
            x[1, 0], x[2, -1] = float("nan"), float("inf")
        y = torch.full_like(x, 8)
        reference.softmax_of_long_rows(x, y, reference.Piece(64, 1, 64))
        right = torch.softmax(x.double(), -1)
        assert torch.equal(y.isnan(), right.isnan()), (rows, columns)
        found.append(float((y - right).nan_to_num().abs().max()) / torch.finfo(dtype).eps)
json.dump(found, sys.stdout)
"""


def test_programs_that_share_a_row_give_its_softmax() -> None:
    """Pieces of rows, and rows with edges before and after them; −inf for a piece, and for a row; NaN and +inf in edges; programs that
    see all others' pairs, and programs that wait in vain.
    """
    assert max(interpreted(SHARED_ROWS)) < 4


SAVED = """
import importlib.util, json, sys
import torch

def loaded(path):
    sys.path.insert(0, path.rpartition("/")[0])
    spec = importlib.util.spec_from_file_location("handed_in", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

attend = loaded(PATH).flash_attention
torch.manual_seed(0)
worst = {}
for causal in (False, True):
    q, k, v, do = (torch.randn(2, 128, 64) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    scores = q @ k.mT / 8
    if causal:
        scores = scores.masked_fill(~torch.ones(128, 128, dtype=torch.bool).tril(), float("-inf"))
    right = torch.softmax(scores, -1) @ v
    o = attend(q, k, v, causal)
    node = o.grad_fn
    while not hasattr(node, "saved_tensors"):  # of a view of what the function returned
        node = node.next_functions[0][0]
    (lse,) = [x for x in node.saved_tensors if x.shape == (2, 128)]
    pairs = dict(o=(o, right), lse=(lse, scores.logsumexp(-1)))
    gradients = zip(torch.autograd.grad(o, leaves, do), torch.autograd.grad(right, leaves, do))
    pairs |= dict(zip(("dq", "dk", "dv"), gradients))
    for name, (got, expected) in pairs.items():
        worst[name] = max(worst.get(name, 0.0), float((got - expected).abs().max()))
json.dump(worst, sys.stdout)
"""
# Kernels that keep the logsumexp in base 2, as Triton's tutorial does; and those that need streams of a GPU.
OTHERWISE = {
    "flash_attention-base_two_in_modules",
    "flash_attention-keys_scaled_before_the_backward",
    "flash_attention-side_streams",
}
ATTENTIONS = [one for one in entries("accepted") if one.assignment == "flash_attention" and one.id not in OTHERWISE]


@pytest.mark.parametrize(
    "entry",
    [None, *(pytest.param(one, marks=pytest.mark.everything) for one in ATTENTIONS)],
    ids=lambda one: "reference" if one is None else one.id,
)
def test_what_autograd_keeps_is_the_logsumexp_of_the_paper(entry: Entry | None, tmp_path: Path) -> None:
    """The one saved tensor of shape (batch, n) is L as FlashAttention-2 defines it, in natural units: other courses' tests look for it."""
    folder = ROOT / "reference" if entry is None else entry.submission(tmp_path)
    worst = interpreted(SAVED.replace("PATH", repr(str(folder / "flash_attention.py"))))
    assert all(error < 1e-2 for error in worst.values()), worst


COMPILING = """
import contextlib, io, json, re, sys
import torch
from triton import knobs
from triton.runtime.jit import JITFunction
from grader.gpu_table import gpus_of
from grader.worker.absent_gpu import triton_driver
from reference import flash_attention as reference
from reference import softmax

gpu, by_descriptors = next(iter(gpus_of("sm_" + sys.argv[1]).values())), sys.argv[1] == "90"
multiprocessors = 132 * (sys.argv[3] == "small")
knobs.nvidia.dump_ptxas_log = True
triton_driver.provide(gpu)
reference.has_copy_engine = lambda x: by_descriptors
reference.multiprocessors = lambda x: multiprocessors
launch, found = JITFunction.run, []

def compile_only(function, *args, grid, warmup, **options):
    words = io.StringIO()
    with contextlib.redirect_stdout(words):
        kernel = launch(function, *args, grid=grid, warmup=True, **options)
    spills = max(map(int, re.findall(r"(\\d+) bytes spill stores", words.getvalue())), default=-1)
    found.append([function.fn.__name__, kernel.metadata.shared, spills])
    return kernel

JITFunction.run = compile_only
for dtype, d, causal in json.loads(sys.argv[2]):
    found.append([f"{dtype} {d} {causal}", 0, 0])
    q, k, v = (torch.zeros(2, 200, d, dtype=getattr(torch, dtype), requires_grad=True) for _ in range(3))
    o = reference.flash_attention(q, k, v, causal)
    torch.autograd.grad(o, (q, k, v), torch.zeros_like(o))
softmax.runs_at_once = lambda x: 1 << 20
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    piece = softmax.PIECES[dtype].piece
    for columns in (40000, 40001, 256 * piece, 255 * piece - 1) if sys.argv[3] == "large" else ():
        x = torch.zeros(2, columns, dtype=dtype)
        found.append([f"softmax {dtype} {columns}", 0, 0])
        softmax.softmax_of_long_rows(x, torch.empty_like(x))
json.dump(found, sys.stdout)
"""
SHARED_BYTES = {"80": 163 << 10, "86": 99 << 10, "90": 227 << 10}  # that a block may have (CUDA C++ Programming Guide)
SPILLED_BYTES = 160  # in the widest tiles; thousands are what a form that does not fit has


# Each dtype with each head_dim, every other one causal; and the one that has a tile of its own where it is not. sm_80 has more
# room than sm_86, and the same tiles.
KINDS = [
    (dtype, d, (number + place) % 2 == 0)
    for number, dtype in enumerate(("bfloat16", "float32"))
    for place, d in enumerate((16, 32, 64, 128))
] + [("bfloat16", 64, False)]
WIDEST = [one for one in KINDS if one[1] >= 64]  # whose tiles take most memory and most registers
LONG_ROWS = 12  # of softmax: three dtypes, aligned and not, and the longest of both kinds that programs share


@pytest.mark.parametrize(
    ("arch", "inputs", "kinds"),
    [
        ("86", "large", WIDEST),
        ("90", "large", WIDEST),
        ("90", "small", KINDS[::4]),  # whose tiles are smaller
        *(
            pytest.param(*one, KINDS, marks=pytest.mark.everything)
            for one in (("86", "large"), ("90", "large"), ("90", "small"))
        ),
    ],
    ids=["86-large", "90-large", "90-small", "86-large-all", "90-large-all", "90-small-all"],
)
def test_every_kernel_fits_gpus_that_are_not_here(
    arch: str, inputs: str, kinds: list[tuple[str, int, bool]], tmp_path: Path
) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", COMPILING, arch, json.dumps(kinds), inputs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 4 * len(kinds) + 2 * LONG_ROWS * (inputs == "large"), found
    for name, shared, spilled in found:
        assert shared <= SHARED_BYTES[arch], (name, found)
        assert 0 <= spilled <= SPILLED_BYTES, (name, found)

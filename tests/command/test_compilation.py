"""Triton kernels on a machine without a GPU are compiled for GPUs as well: what only a compiler sees is found, and nothing else said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from grader.report.model import CaseResult, KernelResources
from tests.conftest import Course, Ran, Running, StartRun

pytestmark = [
    pytest.mark.grading,
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU kernels are compiled to be run"),
    pytest.mark.timeout(900),
]

TOML = """
title = "Doubling"
file = "{name}.py"
entry = "double"
language = "triton"
other_gpus = {other_gpus}

[limits]
time_limit_s = {{ cpu = 20, cuda = 20 }}
memory_gib = 4
build_limit_s = {limit_s}

[tolerance]
k = 6
scale = {{ y = "element" }}
floor = {{ float32 = 1e-6, bfloat16 = 1e-2 }}
floor_rms = {{ float32 = 1e-6, bfloat16 = 1e-2 }}

[[part]]
name = "double"
title = "y = 2 x"

[[part.group]]
name = "all"
title = "All"
points = 4
cases = [
  {{ name = "run", tries = "it is run", n = 10 }},
  {{ name = "both", tries = "it is run and compiled", n = 11, compiled = {both} }},
  {{ name = "compiled", tries = "it is compiled", n = 12, dtype = "bfloat16", compiled = true, interpreted = false }},
  {{ name = "neither", tries = "it is neither", n = 13, dtype = "bfloat16", interpreted = false }},
]
"""
SOURCE = """
import os, sys
import torch, triton
import triton.language as tl

def full(*_):
    raise OSError(28, "No space left on device")

@triton.jit
def twice(x):
    {helper}

{decorator}@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr{parameters}):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    {body}
    tl.store(y_ptr + i, twice(x), mask=i < n)

def double(x):
    {host}
    y = torch.empty_like(x)
    {launch}
    {after}
    return y
"""
PIECES = {"helper": "return x * 2", "body": "pass", "host": "pass", "after": "pass", "decorator": "", "parameters": ""}
LAUNCH = "kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64{arguments}, num_warps=16)"
FALLS_BACK = (
    "try:\n        "
    + LAUNCH.format(arguments=", K=512")
    + "\n    except triton.runtime.errors.OutOfResources:\n        "
)
FALLS_BACK += LAUNCH.format(arguments=", K=32")
INTERPRETED = "os.environ.get('TRITON_INTERPRET') == '1'"
# A product of two tiles that have to be in shared memory together: 2 × 128 × 128 × 4 bytes, and 2 × 128 × 512 × 2.
TILES = """m, k = tl.arange(0, 128), tl.arange(0, {size})
    a = tl.load(x_ptr + m[:, None] + k[None, :], mask=m[:, None] < 0, other=0.0).to(tl.{dtype})
    b = tl.load(x_ptr + k[:, None] + m[None, :], mask=m[None, :] < 0, other=0.0).to(tl.{dtype})
    x += tl.sum(tl.sum(tl.dot(a, b), 0), 0).to(x.dtype) * 0"""
AUTOTUNED = """configs = [triton.Config({"K": k}, num_warps=16) for k in (512, 32)]
@triton.autotune(configs[1:] if os.environ.get("TRITON_INTERPRET") == "1" else configs, key=["n"])
"""
KERNELS = {
    "right": {},
    "mixed": {"helper": "return x * 2 if x.dtype != tl.bfloat16 else tl.dot(tl.zeros([16, 16], tl.float32), tl.zeros([16, 16], x.dtype))"},
    "wide": {"body": TILES.format(size=128, dtype="float32")},
    "huge": {"body": TILES.format(size=512, dtype="float16")},
    "tuned": {"decorator": AUTOTUNED, "parameters": ", K: tl.constexpr", "body": TILES.format(size="K", dtype="float16")},
    "falls_back": {"body": TILES.format(size="K", dtype="float16"), "parameters": ", K: tl.constexpr", "launch": FALLS_BACK},
    "endless": {"helper": "for i in tl.static_range(1000000000):\n        x = x * 1\n    return x * 2"},
    "ends": {"host": f"if not ({INTERPRETED}): os._exit(0)"},
    "looks": {"after": "if not (y[:3] == 2 * x[:3]).all(): raise ValueError('not what a launch would have left')"},
    "prints": {"body": f"tl.static_print('{'words ' * 500}')"},
    "disk_full": {"host": f"if not ({INTERPRETED}): triton.runtime.jit.compute_cache_key = full"},
    "long_words": {"body": f"tl.static_assert(x.dtype != tl.bfloat16, '{'words ' * 9000}')"},
    "axis": {
        "launch": "kernel[lambda meta: (1, 69988 + meta['n'] if x.dtype == torch.bfloat16 else 1)]"
        "(x, y, x.numel(), BLOCK=64, num_warps=16)"
    },
    "wrong": {"helper": "return x * 3"},
}  # fmt: skip


RIGHT_IN_TRITON = SOURCE.format(**PIECES, launch=LAUNCH.format(arguments=""))
NOT_COMPILABLE = SOURCE.format(**PIECES | KERNELS["mixed"], launch=LAUNCH.format(arguments=""))
# For whom the case that is run is compiled too, and who is compiled for GPUs beside the grading one: each compilation takes a second.
BOTH = ("right", "wide", "huge", "tuned", "falls_back", "prints", "looks", "wrong")
ON_OTHERS = ("right", "mixed", "wide", "tuned")


def compilable(course: Course, name: str, limit_s: int = 120) -> None:
    """Add an assignment whose cases are run, run and compiled, compiled, and neither."""
    others = '["A100", "A10G"]' if name in ON_OTHERS else "[]"
    both = "true" if name in BOTH else "false"
    course.add(name, toml=TOML.format(name=name, limit_s=limit_s, other_gpus=others, both=both))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One grading of a submission with all of them."""
    folder = tmp_path_factory.mktemp("compilation")
    course, submission = Course(folder / "course"), folder / "submission"
    submission.mkdir()
    for name, changes in KERNELS.items():
        compilable(course, name, limit_s=4 if name == "endless" else 120)
        pieces = PIECES | {"launch": LAUNCH.format(arguments="")} | changes
        if "decorator" in changes:  # which says how many warps
            pieces["launch"] = pieces["launch"].replace(", num_warps=16", "")
        if name == "endless":  # the interpreter would never come to an end either
            pieces["helper"] = (
                f"if INTERPRETED:\n        return x * 2\n    else:\n        {pieces['helper'].replace('    ', '        ')}"
            )
        text = SOURCE.format(**pieces).replace(
            "@triton.jit\ndef twice",
            f"INTERPRETED: tl.constexpr = tl.constexpr({INTERPRETED})\n\n@triton.jit\ndef twice",
        )
        (submission / f"{name}.py").write_text(text)
    return Running(folder, [str(submission), "--course", str(course.folder), "--device", "cpu"]).finish()


def kernels(ran: Ran, name: str, case: str) -> dict[str, KernelResources]:
    assert ran.report is not None, ran.errors
    (found,) = [one for one in ran.report.assignments if one.name == name]
    return {kernel.arch: kernel for kernel in found.kernels if kernel.case == case}


def outcomes(ran: Ran, name: str) -> list[str]:
    return [ran.case(name, case).outcome for case in ("run", "both", "compiled", "neither")]


def words(case: CaseResult) -> str:
    return "\n".join([case.message, *case.diagnosis, case.traceback])


def test_a_right_kernel_is_compiled_for_every_architecture(ran: Ran) -> None:
    assert ran.code == 0, ran.errors
    assert outcomes(ran, "right") == ["passed", "passed", "skipped", "skipped"]
    assert "its kernels were compiled for sm_90, sm_80, sm_86" in ran.case("right", "compiled").message
    assert "compiled" not in ran.case("right", "neither").message
    for case in ("both", "compiled"):
        found = kernels(ran, "right", case)
        assert list(found) == ["sm_90", "sm_80", "sm_86"]
        assert all(one.name == "kernel" and one.registers and not one.problem for one in found.values())
    assert ran.left == []


def test_what_does_not_compile_fails_with_the_line(ran: Ran) -> None:
    assert outcomes(ran, "mixed") == ["passed", "passed", "failed", "skipped"]
    told = words(ran.case("mixed", "compiled"))
    assert "kernel does not compile for sm_90" in told
    assert "Both operands must be same dtype. Got fp32 and bf16" in told
    assert 'File "mixed.py", line 13\n    return x * 2 if x.dtype' in told
    assert kernels(ran, "mixed", "compiled")["sm_80"].registers is None


def test_a_block_too_large_for_another_gpu_is_told_and_costs_nothing(ran: Ran) -> None:
    assert outcomes(ran, "wide") == ["passed", "passed", "skipped", "skipped"]
    found = kernels(ran, "wide", "both")
    assert not found["sm_90"].problem
    assert "needs 131072 bytes of shared memory for a block, an A10G or RTX 3090 has 101376" in found["sm_86"].problem
    assert "compiled for sm_86: needs" in ran.output


def test_a_block_too_large_for_the_grading_gpu_fails(ran: Ran) -> None:
    assert outcomes(ran, "huge") == ["passed", "failed", "skipped", "skipped"]
    told = words(ran.case("huge", "both"))
    assert "bytes of shared memory for a block, an H100 or H200 has 232448: it cannot be launched" in told
    assert "consistent with tiles that are too large" in told


@pytest.mark.parametrize(("name", "why"), [("endless", "no answer within 4 s"), ("ends", "exit code 0")])
def test_where_nothing_can_be_compiled_nothing_is_held_against_it(ran: Ran, name: str, why: str) -> None:
    assert outcomes(ran, name) == ["passed", "passed", "skipped", "skipped"]
    assert (
        f"could not be compiled here: {why}" in ran.case(name, "compiled").message
        or why in ran.case(name, "compiled").message
    )
    assert "could not be compiled here" in ran.output


def test_what_the_tuner_leaves_out_is_not_held_against_a_kernel(ran: Ran) -> None:
    assert outcomes(ran, "tuned") == ["passed", "passed", "skipped", "skipped"]
    assert all(one.shared_bytes < 60_000 and not one.problem for one in kernels(ran, "tuned", "both").values())
    assert list(kernels(ran, "tuned", "both")) == ["sm_90", "sm_80", "sm_86"]


def test_what_a_launch_is_tried_and_done_without_is_not_either(ran: Ran) -> None:
    assert outcomes(ran, "falls_back") == ["passed", "passed", "skipped", "skipped"]
    assert not any(one.problem for one in kernels(ran, "falls_back", "both").values())


def test_a_fault_of_the_machine_is_not_the_kernels(ran: Ran) -> None:
    assert outcomes(ran, "disk_full") == ["passed", "passed", "skipped", "skipped"]
    assert (
        "could not be compiled here: OSError: [Errno 28] No space left on device"
        in ran.case("disk_full", "compiled").message
    )


def test_what_is_printed_while_it_is_compiled_is_not_what_ptxas_told(ran: Ran) -> None:
    assert kernels(ran, "prints", "both")["sm_90"].registers


def test_long_words_are_cut_and_told(ran: Ran) -> None:
    assert outcomes(ran, "long_words") == ["passed", "passed", "failed", "skipped"]
    assert "words words" in ran.case("long_words", "compiled").message


def test_results_that_no_launch_has_left_are_nobodys_fault(ran: Ran) -> None:
    assert outcomes(ran, "looks") == ["passed", "passed", "skipped", "skipped"]
    assert kernels(ran, "looks", "both")["sm_90"].registers
    assert "its first kernels, up to where it looks at results, were compiled" in ran.case("looks", "compiled").message


def test_a_grid_that_a_gpu_refuses_fails_with_kernel_axis_number_and_limit(ran: Ran) -> None:
    assert outcomes(ran, "axis") == ["passed", "passed", "failed", "skipped"]
    told = words(ran.case("axis", "compiled"))
    assert "kernel is launched with 70000 programs along axis 1 of its grid; a GPU allows 65535 there" in told
    assert "compile" not in told.replace("the input of compiled", "")
    assert "axis.py" in told
    assert all(one.registers and not one.problem for one in kernels(ran, "axis", "compiled").values())


def test_where_nothing_is_right_nothing_is_compiled(ran: Ran) -> None:
    assert outcomes(ran, "wrong") == ["failed", "failed", "skipped", "skipped"]
    assert kernels(ran, "wrong", "both") == kernels(ran, "wrong", "compiled") == {}


@pytest.mark.parametrize(("option", "expected"), [("--quick", ["sm_90"]), ("--no-compile", [])])
def test_who_asks_for_less_waits_for_less(
    course: Course, start_run: StartRun, tmp_path: Path, option: str, expected: list[str]
) -> None:
    """`grader check` compiles nothing: tests/command/test_check.py."""
    compilable(course, "right")
    (tmp_path / "right.py").write_text(RIGHT_IN_TRITON)
    ran = start_run(tmp_path, "--course", course.folder, option, "--device", "cpu").finish()
    assert ran.code == 0, ran.errors
    assert [arch for arch in ("sm_90", "sm_80", "sm_86") if arch in ran.output] == expected

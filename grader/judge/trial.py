"""One trial: make inputs, let a contender answer in the arena, look at what it left there, and compare with the oracle.

The order matters. What the contract forbids is looked for first (nothing returned, a wrong shape, a changed input, a
write out of bounds), because those explain wrong numbers; then the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from grader.contender.arena import Arena, Stray
from grader.contender.contender import Contender, Limits
from grader.contender.replies import ContenderFault, Returned
from grader.judge.cases import BoundCase
from grader.judge.comparison import compare
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.memory import DeviceMemoryWatch
from grader.judge.ownership import check_kernels, check_launches, check_operators
from grader.problem import Call
from grader.protocol import POISON_BYTE, SAMPLE_CUT
from grader.verdict import diagnosis

if TYPE_CHECKING:
    from grader.judge.state import Judge

UPSTREAM = "upstream gradient"


def run_trial(judge: Judge, case: BoundCase, contender: Contender, number: int, evidence: Evidence) -> None:
    """Grade the case's call `number`.

    Raises:
        CheckFailed: the answer is wrong.
        ContenderFault: there was no answer.
        CaseRefused: the case itself is at fault.
    """
    call = case.inputs(judge.seed, number, judge.device)
    judge.gradients[case.assignment.name, case.part.name] = call.upstream is not None
    if judge.device.type == "cpu" and case.case.cpu_windows > 1:
        _run_sample(judge, case, contender, call, evidence)
        return
    calls_after, repeats = case.case.calls - 1 - number, case.case.repeats
    got = answer(judge, case, contender, call, evidence, keep=calls_after + repeats > 1)
    compare(judge, case, call, got, evidence)
    if number:
        _check_kept(evidence)
    check_launches(evidence.launches, got.values(), case.assignment)
    for repeats_after in reversed(range(repeats - 1)):
        _repeat(judge, case, contender, call, got, evidence, keep=calls_after + repeats_after > 0)


def _check_kept(evidence: Evidence) -> None:
    """Whether a call left alone what the one before it had returned; else CheckFailed in a student's words."""
    if evidence.kept:
        raise CheckFailed(
            f"{evidence.kept[0]} lies in memory that an earlier call has returned and that is still in use: it is changed there",
            ("consistent with an output buffer that is kept and used again: each call must return a new tensor",),
        )


def _repeat(
    judge: Judge,
    case: BoundCase,
    contender: Contender,
    call: Call,
    first: dict[str, torch.Tensor],
    evidence: Evidence,
    keep: bool,
) -> None:
    """The same call again: what comes back must be what came back at `first`, to the last bit."""
    again = answer(judge, case, contender, call, evidence, keep=keep)
    may_vary = case.assignment.spec.tolerance.may_vary
    for name, tensor in again.items():
        if name not in may_vary and (told := diagnosis.differs(name, first[name], tensor)):
            raise CheckFailed(told[0], tuple(told[1:]))
    _check_kept(evidence)
    if varied := [name for name in may_vary if name in again and diagnosis.differs(name, first[name], again[name])]:
        compare(judge, case, call, again, Evidence())
        evidence.words = (
            f"{' and '.join(varied)} differed in the last digits between calls on the same inputs, within the error budget: "
            "sums in no fixed order do, and may here"
        )


def _run_sample(judge: Judge, case: BoundCase, contender: Contender, call: Call, evidence: Evidence) -> None:
    """A call on more elements than there is memory for: see where it reads and writes (`cpu_windows` of problem.toml)."""
    windows = case.case.cpu_windows
    elements = windows * max(tensor.numel() for tensor in call.args.values()) - SAMPLE_CUT
    hint = f"with {elements:,} elements, more than an int can count: consistent with an index or a length kept in 32 bits, int or float"
    try:
        got = answer(judge, case, contender, call, evidence, windows)
    except ContenderFault as fault:
        if fault.outcome != "failed":
            raise
        raise CheckFailed(fault.message, (hint,)) from None
    if all(bool((output.view(torch.uint8) == POISON_BYTE).all()) for output in got.values()):
        raise CheckFailed("nothing was written by any of the blocks that were tried", (hint,))


def answer(
    judge: Judge,
    case: BoundCase,
    contender: Contender,
    call: Call,
    evidence: Evidence,
    windows: int = 1,
    keep: bool = False,
) -> dict[str, torch.Tensor]:
    """The contender's outputs for `call`, after everything but their values was checked.

    keep: whether the worker is to keep them until the next call has returned; not where memory is measured, or there is little.
    """
    shapes = case.problem.outputs(call)
    if missing := set(shapes) - set(case.assignment.spec.tolerance.scale):
        toml = case.assignment.folder / "problem.toml"
        raise CaseRefused(f"{toml}: [tolerance] scale does not name the output {sorted(missing)[0]!r}")
    with arena_for(call, shapes, case.dtype, judge.device) as arena:
        watch = DeviceMemoryWatch(judge.device, enabled=case.case.max_extra_mib is not None)
        before = judge.gauge.memory_of_others() if case.case.max_extra_mib is not None else {}
        started = time.perf_counter()
        with watch:
            upstream = None if call.upstream is None else UPSTREAM
            reply = contender.call(
                arena,
                list(call.args),
                list(call.options.values()),
                upstream,
                _limits(judge, case),
                windows,
                profiled=case.case.profiled,
                keep=keep and case.case.max_extra_mib is None and case.case.memory_gib is None,
            )
        evidence.time_s += time.perf_counter() - started
        changed, strays = arena.changed_inputs(), arena.strays()
        got = {name: arena.output(name) for name in shapes}
    evidence.launches = reply.launches
    evidence.kept = tuple(name for name, one in zip(shapes, reply.returned, strict=False) if one.kind == "kept")
    check_operators(reply.operators, case.assignment)
    if case.case.profiled:
        evidence.gpu_time = check_kernels(judge, case.assignment, reply.kernels)
    check_returned(reply.returned, shapes, case.dtype, judge.device)
    check_memory(changed, strays, case.dtype)
    if case.case.max_extra_mib is not None and watch.extra_mib > case.case.max_extra_mib:
        if judge.gauge.memory_of_others() != before:
            raise CaseRefused("another program took or gave back GPU memory meanwhile: nobody can tell whose it was")
        raise CheckFailed(
            f"took {watch.extra_mib:.0f} MiB of GPU memory beside its tensors; {case.case.max_extra_mib:.0f} MiB are allowed: "
            "consistent with a matrix of all scores in memory"
        )
    return got


def arena_for(call: Call, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> Arena:
    upstream = {} if call.upstream is None else {UPSTREAM: call.upstream}
    return Arena(call.args | upstream, shapes, dtype, device, call.starts)


def _limits(judge: Judge, case: BoundCase) -> Limits:
    spec = case.assignment.spec.limits
    return Limits(case.case.time_limit_s or spec.time_limit_s[judge.device_name], spec.memory_gib)


def check_returned(
    returned: tuple[Returned, ...], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> None:
    """Whether what the worker says came back is what the contract asks for; else CheckFailed in a student's words."""
    wanted = str(dtype).removeprefix("torch.")
    if len(returned) != len(shapes):
        raise CheckFailed(f"{len(returned)} results came back, {len(shapes)} were expected")
    for (name, shape), one in zip(shapes.items(), returned, strict=True):
        what = f"{name} must be a torch.Tensor of shape {shape} and dtype {wanted}"
        if one.kind == "written":
            continue
        if one.kind == "not_differentiable":
            if one.type not in ("Tensor", "Parameter") or not one.shape:
                raise CheckFailed(f"the function returned {_article(one.type)}, so there is no gradient to compute")
            raise CheckFailed(
                "the result has no gradient: it was not made by a torch.autograd.Function (or its shape is wrong), so backward cannot run"
            )
        if one.kind == "other":
            raise CheckFailed(f"returned {_article(one.type)}; {what}")
        if one.kind == "subclass":
            raise CheckFailed(f"returned a tensor subclass, {one.type}; {what}")
        if one.shape != tuple(shape):
            raise CheckFailed(f"{name} has shape {one.shape}, expected {tuple(shape)}")
        if one.dtype != wanted:
            raise CheckFailed(f"{name} has dtype {one.dtype}, expected {wanted}: the output has the inputs' dtype")
        if one.device != device.type:
            raise CheckFailed(f"{name} lies on {one.device}, expected {device.type}")
        if one.kind == "input":
            raise CheckFailed(f"{name} is one of the inputs: the function must return a new tensor")


def check_memory(changed: Sequence[str], strays: Sequence[Stray], dtype: torch.dtype) -> None:
    """Whether inputs and guard bands are as they were; else CheckFailed in a student's words."""
    if changed:
        raise CheckFailed(f"the input {changed[0]} was changed: the function must leave its inputs as they are")
    if strays:
        raise CheckFailed(_describe_stray(strays[0], dtype))


def _article(name: str) -> str:
    if name == "NoneType":
        return "None"
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"


def _describe_stray(stray: Stray, dtype: torch.dtype) -> str:
    size = dtype.itemsize
    elements = f"{stray.elements} element{'s' if stray.elements > 1 else ''}"
    if stray.offset_bytes < 0:
        nearest = -(stray.offset_bytes // size)
        return f"wrote {elements} before the start of {stray.neighbour}: the nearest is {nearest} before element 0"
    return (
        f"wrote {elements} past the end of {stray.neighbour}, from {stray.offset_bytes // size} past it: "
        "consistent with a missing mask or bounds check"
    )

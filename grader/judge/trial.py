"""One trial: make inputs, let a contender answer in the arena, look at what it left there, and compare with the oracle.

The order matters. What the contract forbids is looked for first (nothing returned, a wrong shape, a changed input, a
write out of bounds), because those explain wrong numbers; then the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch

from grader.contender.arena import Arena, Stray, same_bits
from grader.contender.contender import Contender, Limits
from grader.contender.replies import ContenderFault
from grader.judge.cases import BoundCase, Piece
from grader.judge.comparison import compare
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence
from grader.judge.memory import DeviceMemoryWatch
from grader.judge.ownership import check_kernels, check_launches, check_operators
from grader.problem import Call, signature_fault
from grader.protocol import POISON_BYTE, SAMPLE_CUT, Returned
from grader.report.model import OutputError
from grader.verdict import diagnosis

if TYPE_CHECKING:
    from grader.judge.state import Judge

Asked: TypeAlias = tuple[list[str], str | None]  # names in the arena, of a call's tensors and of its upstream gradient

UPSTREAM = "upstream gradient"
OWN_GIB = 2.5  # that a call may take beside its results: a context, kernels, and what PyTorch keeps
OF_OTHERS = 1000  # and more: the numbers of calls that are made beside another; a case has fewer `calls`


def run_trial(judge: Judge, case: BoundCase, contender: Contender, number: int, evidence: Evidence) -> None:
    """Grade the case's call `number`.

    Raises:
        CheckFailed: the answer is wrong.
        ContenderFault: there was no answer.
        CaseRefused: the case itself is at fault.
    """
    sample = judge.device.type == "cpu" and case.case.cpu_windows > 1
    if case.case.pieces > 1 and not sample:
        _run_in_pieces(judge, case, contender, number, evidence)
        return
    call = case.inputs(judge.seed, number, judge.device)
    judge.gradients[case.assignment.name, case.part.name] = call.upstream is not None
    if sample:
        _run_sample(judge, case, contender, call, evidence)
        return
    if case.case.together > 1:
        others = [case.inputs(judge.seed, OF_OTHERS + other, judge.device) for other in range(1, case.case.together)]
        _run_together(judge, case, contender, [call, call, *others], evidence)
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
    evidence.words = "only where it reads and writes was looked at: its values show on a GPU"


def _run_together(judge: Judge, case: BoundCase, contender: Contender, calls: list[Call], evidence: Evidence) -> None:
    """Several calls, all made before the first result is looked at; with gradients before the first backward pass, in both orders."""
    with_gradients = calls[0].upstream is not None
    for reverse in (False, True) if with_gradients else (False,):
        got = answers(judge, case, contender, calls, evidence, reverse=reverse)
        _check_kept(evidence)
        for number, (call, outputs) in enumerate(zip(calls, got, strict=True), 1):
            try:
                compare(judge, case, call, outputs, evidence)
            except CheckFailed as failed:
                words = f"of call {number} of {len(calls)}: {failed.message}"
                raise CheckFailed(words, (_together_hint(with_gradients, reverse), *failed.details)) from None
        check_launches(evidence.launches, got[0].values(), case.assignment)


def _together_hint(with_gradients: bool, reverse: bool) -> str:
    if not with_gradients:
        return (
            "all calls were made before any result was looked at, the second one on the first one's tensors: where the other cases pass, "
            "consistent with something that is kept from one call to the next"
        )
    return (
        f"all forward passes ran before the backward passes, of which that of the {'last' if reverse else 'first'} call came first: where "
        "the other cases pass, consistent with something that a forward pass keeps elsewhere than in ctx and the next one overwrites"
    )


def _run_in_pieces(judge: Judge, case: BoundCase, contender: Contender, number: int, evidence: Evidence) -> None:
    """A call whose tensors leave no room for a second copy: inputs are made, and outputs compared, one piece of dimension 0 at a time."""
    pieces = case.cut()

    def inputs() -> Iterator[tuple[Piece, Call, int]]:
        """Each piece with its inputs, and how many entries of dimension 0 lie before it."""
        start = 0
        for piece in pieces:
            call = piece.inputs(judge.seed, number, judge.device)
            yield piece, call, start
            start += len(next(iter(call.args.values())))

    whole = _whole([{name: one.shape for name, one in call.args.items()} for _, call, _ in inputs()], case.dtype)
    with arena_for(whole, case.problem.outputs(whole), case.dtype, judge.device) as arena:
        for _, call, start in inputs():
            for name, tensor in call.args.items():
                arena.entries(name, start, len(tensor)).copy_(tensor)
        arena.settle()
        _ask(judge, case, contender, arena, [(list(whole.args), None)], whole, evidence)
        changed = [
            name
            for _, call, start in inputs()
            for name, tensor in call.args.items()
            if not same_bits(arena.entries(name, start, len(tensor)), tensor)
        ]
        check_memory(changed, arena.strays(), case.dtype)
        worst: list[OutputError] = []
        for piece, call, start in inputs():
            shapes = case.problem.outputs(call)
            got = {name: arena.entries(name, start, shape[0]).clone() for name, shape in shapes.items()}
            compare(judge, piece, call, got, evidence, before=start)
            pairs = zip(worst or evidence.errors, evidence.errors, strict=True)
            worst = [max(pair, key=lambda one: one.worst) for pair in pairs]
        evidence.errors = worst


def _whole(shapes: Sequence[Mapping[str, torch.Size]], dtype: torch.dtype) -> Call:
    """A call with the shapes of all pieces together, and without memory."""
    lengths = {name: sum(one[name][0] for one in shapes) for name in shapes[0]}
    return Call(
        args={
            name: torch.empty((length, *shapes[0][name][1:]), dtype=dtype, device="meta")
            for name, length in lengths.items()
        }
    )


def answer(
    judge: Judge,
    case: BoundCase,
    contender: Contender,
    call: Call,
    evidence: Evidence,
    windows: int = 1,
    keep: bool = False,
) -> dict[str, torch.Tensor]:
    """The contender's outputs for one call (see `answers`)."""
    (got,) = answers(judge, case, contender, [call], evidence, windows, keep)
    return got


def answers(
    judge: Judge,
    case: BoundCase,
    contender: Contender,
    calls: Sequence[Call],
    evidence: Evidence,
    windows: int = 1,
    keep: bool = False,
    reverse: bool = False,
) -> list[dict[str, torch.Tensor]]:
    """The contender's outputs for each of the calls, after everything but their values was checked.

    A tensor that is there several times, in one call or in several, is passed as one and the same tensor.

    keep: whether the worker is to keep them until the next call has returned; not where memory is measured, or there is little.
    reverse: whether the backward pass of the last call comes first.
    """
    inputs: dict[str, torch.Tensor] = {}

    def name_of(tensor: torch.Tensor, name: str) -> str:
        if (known := next((one for one, other in inputs.items() if other is tensor), None)) is None:
            inputs[known := name] = tensor
        return known

    asked: list[Asked] = []
    outputs: list[dict[str, str]] = []  # of each call: its outputs' names in the arena
    for number, call in enumerate(calls):
        suffix = f" of call {number + 1}" if number else ""
        names = [name_of(tensor, name + suffix) for name, tensor in call.args.items()]
        asked.append((names, None if call.upstream is None else name_of(call.upstream, UPSTREAM + suffix)))
        outputs.append({name: name + suffix for name in case.problem.outputs(call)})
    of_each = [(case.problem.outputs(call), call.starts, names) for call, names in zip(calls, outputs, strict=True)]
    shapes = {names[name]: shape for of_one, _, names in of_each for name, shape in of_one.items()}
    starts = {names[name]: start for _, of_one, names in of_each for name, start in of_one.items()}
    with Arena(inputs, shapes, case.dtype, judge.device, starts) as arena:
        _ask(judge, case, contender, arena, asked, calls[0], evidence, windows, keep, reverse)
        check_memory(arena.changed_inputs(), arena.strays(), case.dtype)
        return [{name: arena.output(place) for name, place in names.items()} for names in outputs]


def _ask(
    judge: Judge,
    case: BoundCase,
    contender: Contender,
    arena: Arena,
    asked: Sequence[Asked],
    first: Call,
    evidence: Evidence,
    windows: int = 1,
    keep: bool = False,
    reverse: bool = False,
) -> None:
    """Have the contender answer calls, the first of which is `first`, and check what can be without a look at the arena."""
    if missing := set(case.problem.outputs(first)) - set(case.assignment.spec.tolerance.scale):
        toml = case.assignment.folder / "problem.toml"
        raise CaseRefused(f"{toml}: [tolerance] scale does not name the output {sorted(missing)[0]!r}")
    if wrong := signature_fault(case.assignment.spec, first, case.problem.outputs(first)):
        raise CaseRefused(f"{case.assignment.folder / 'problem.toml'}: signature: {wrong}")
    shapes = {name: slot.shape for name, slot in arena.outputs.items()}
    measured = case.case.max_extra_mib is not None
    watch = DeviceMemoryWatch(judge.device, enabled=measured)
    before = judge.gauge.memory_of_others() if measured else {}
    free_gib = judge.free_gib() if case.case.memory_gib is not None else 0.0
    limits = _limits(judge, case)
    (args, upstream), *beside = asked
    contender.log.mark(case.name)
    started = time.perf_counter()
    try:
        with watch:
            reply = contender.call(
                arena,
                args,
                list(first.options.values()),
                upstream,
                replace(limits, time_s=limits.time_s * len(asked)),
                windows,
                profiled=case.case.profiled,
                keep=keep and not measured and case.case.memory_gib is None,
                beside=beside,
                reverse=reverse,
            )
    except ContenderFault as fault:
        results_gib = sum(slot.length for slot in arena.outputs.values()) / 2**30
        if fault.outcome != "out_of_memory" or case.case.memory_gib is None or free_gib >= results_gib + OWN_GIB:
            raise
        words = f"needs {results_gib + OWN_GIB:.1f} GiB of GPU memory beside its tensors where it allocates its results itself"
        raise ContenderFault("skipped", f"{words}, {free_gib:.1f} GiB were free") from None
    evidence.time_s += time.perf_counter() - started
    evidence.launches = reply.launches
    evidence.kept = tuple(name for name, one in zip(shapes, reply.returned, strict=False) if one.kind == "kept")
    check_operators(reply.operators, case.assignment)
    if case.case.profiled:
        evidence.gpu_time = check_kernels(judge, case.assignment, reply.kernels)
    check_returned(reply.returned, shapes, case.dtype, judge.device)
    if case.case.max_extra_mib is not None and watch.extra_mib > case.case.max_extra_mib:
        if judge.gauge.memory_of_others() != before:
            raise CaseRefused("another program took or gave back GPU memory meanwhile: nobody can tell whose it was")
        raise CheckFailed(
            f"took {watch.extra_mib:.0f} MiB of GPU memory beside its tensors; {case.case.max_extra_mib:.0f} MiB are allowed: "
            "consistent with a matrix of all scores in memory"
        )


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

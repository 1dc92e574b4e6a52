"""Asks a worker: puts a call's tensors into an arena, has the worker answer, and checks everything but the values.

Violations of the contract are checked first (no result, a wrong shape, a changed input, a write out of bounds), because
each of them explains wrong values.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from grader import protocol
from grader.judge.cases import BoundCase
from grader.judge.evidence import Evidence, described
from grader.judge.gpu import memory_watched
from grader.judge.ownership import check_operators
from grader.judge.run import Run
from grader.pool.arena import Arena, OutOfBounds
from grader.pool.fault import Fault
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.problem import Call, signature_fault
from grader.protocol import Returned

Asked: TypeAlias = tuple[list[str], str | None]  # names in the arena of a call's inputs, and of its upstream gradient

UPSTREAM = "upstream gradient"
OWN_GIB = 2.5  # GPU memory of a call beside its results: a context, kernels, PyTorch's cache


def answer(run: Run, case: BoundCase, worker: Worker, call: Call) -> dict[str, torch.Tensor]:
    """The worker's outputs for one call, by name (see `answers`)."""
    (got,) = answers(run, case, worker, [call], Evidence())
    return got


def answers(
    run: Run, case: BoundCase, worker: Worker, calls: Sequence[Call], evidence: Evidence, **how: Any
) -> list[dict[str, torch.Tensor]]:
    """The worker's outputs for each call, by name. Everything but their values has been checked; `how` is as in
    `ask`.

    A tensor that several calls share is passed to the student's function as one tensor.
    """
    inputs: dict[str, torch.Tensor] = {}

    def name_of(tensor: torch.Tensor, name: str) -> str:
        if (known := next((one for one, other in inputs.items() if other is tensor), None)) is None:
            inputs[known := name] = tensor
        return known

    asked: list[Asked] = []
    outputs: list[dict[str, str]] = []  # for each call, the names of its outputs in the arena
    for number, call in enumerate(calls):
        suffix = f" of call {number + 1}" if number else ""
        names = [name_of(tensor, name + suffix) for name, tensor in call.args.items()]
        asked.append((names, None if call.upstream is None else name_of(call.upstream, UPSTREAM + suffix)))
        outputs.append({name: name + suffix for name in case.problem.outputs(call)})
    of_each = [(case.problem.outputs(call), call.starts, names) for call, names in zip(calls, outputs, strict=True)]
    shapes = {names[name]: shape for of_one, _, names in of_each for name, shape in of_one.items()}
    starts = {names[name]: start for _, of_one, names in of_each for name, start in of_one.items()}
    with Arena(inputs, shapes, case.dtype, run.device, starts) as arena:
        ask(run, case, worker, arena, asked, calls[0], evidence, **how)
        got = [{name: arena.output(place) for name, place in names.items()} for names in outputs]
        check_memory(arena.changed_inputs(), arena.out_of_bounds(), case.dtype, got[0])
        return got


def ask(
    run: Run,
    case: BoundCase,
    worker: Worker,
    arena: Arena,
    asked: Sequence[Asked],
    first: Call,
    evidence: Evidence,
    windows: int = 1,
    keep: bool = False,
    reverse: bool = False,
) -> None:
    """Have the worker answer calls, and check its reply; `check_memory` checks the arena. Raises as `CallGrader.grade`.

    first: the first call. windows, keep, reverse: see `protocol.MakeCalls`; a case that measures or needs memory keeps
    nothing.
    """
    if missing := set(case.problem.outputs(first)) - set(case.assignment.spec.tolerance.scale):
        toml = case.assignment.folder / "problem.toml"
        raise Fault.of_machine(f"{toml}: [tolerance] scale does not name the output {sorted(missing)[0]!r}")
    if wrong := signature_fault(case.assignment.spec, first, case.problem.outputs(first)):
        raise Fault.of_machine(f"{case.assignment.folder / 'problem.toml'}: signature: {wrong}")
    shapes = {name: slot.shape for name, slot in arena.outputs.items()}
    measured = case.case.max_extra_mib is not None
    before = run.gauge.memory_of_others() if measured else {}
    free_gib = run.free_gib() if case.case.memory_gib is not None else 0.0
    limits = limits_of(run, case, len(asked))
    keep = keep and not measured and case.case.memory_gib is None
    record = "kernels" if case.case.profiled else "nothing"
    how: dict[str, Any] = {"windows": windows, "record": record, "keep": keep, "reverse": reverse}
    request = arena.request(asked, limit_s=limits.time_s, **_form_of(first), **how)
    worker.log.mark(case.place.heading)
    evidence.given = described(first, windows)
    started = time.perf_counter()
    try:
        with memory_watched(run.device, enabled=measured) as taken:
            reply = worker.do(request, limits, arena.files)
    except Fault as fault:
        results_gib = sum(slot.length for slot in arena.outputs.values()) / 2**30
        if fault.outcome != "out_of_memory" or case.case.memory_gib is None or free_gib >= results_gib + OWN_GIB:
            raise
        words = f"needs {results_gib + OWN_GIB:.1f} GiB of GPU memory beside its tensors where it allocates its results itself"
        raise Fault("skipped", f"{words}, {free_gib:.1f} GiB were free") from None
    finally:
        evidence.time_s += time.perf_counter() - started
    evidence.launches, evidence.launched = reply.launches, reply.launched
    evidence.kept = tuple(name for name, one in zip(shapes, reply.returned, strict=False) if one.kind == "kept")
    check_operators(reply.operators, case.assignment)
    evidence.kernels = reply.kernels
    check_returned(reply.returned, shapes, case.dtype, run.device)
    if case.case.max_extra_mib is not None and taken.mib > case.case.max_extra_mib:
        if run.gauge.memory_of_others() != before:
            raise Fault.of_machine(
                "another program took or gave back GPU memory meanwhile: nobody can tell whose it was"
            )
        raise Fault.wrong(
            f"took {taken.mib:.0f} MiB of GPU memory beside its tensors; {case.case.max_extra_mib:.0f} MiB are allowed: "
            "consistent with a matrix of all scores in memory"
        )


def request_for(arena: Arena, call: Call, limit_s: float, **how: Any) -> protocol.MakeCalls:
    """The request for one call in an arena made by `arena_for`; `how` is as in `Arena.request`."""
    upstream = None if call.upstream is None else UPSTREAM
    return arena.request([([*call.args], upstream)], limit_s=limit_s, **_form_of(call), **how)


def _form_of(call: Call) -> dict[str, Any]:
    """The fields of `protocol.MakeCalls` that say how a call is made and differentiated."""
    return {
        "options": () if call.by_name else tuple(call.options.values()),
        "named": tuple(call.options.items()) if call.by_name else (),
        "wanted": tuple(name in call.differentiated for name in call.args),
        "backwards": call.backwards,
    }


def arena_for(
    call: Call, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device, sparse: bool = False
) -> Arena:
    """An arena for one call; `sparse` is as in `Arena`."""
    upstream = {} if call.upstream is None else {UPSTREAM: call.upstream}
    return Arena(call.args | upstream, shapes, dtype, device, call.starts, sparse)


def limits_of(run: Run, case: BoundCase, calls: int) -> CallLimits:
    spec = case.assignment.spec.limits
    return CallLimits(calls * (case.case.time_limit_s or spec.time_limit_s[run.device_name]), spec.memory_gib)


def check_returned(
    returned: tuple[Returned, ...], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype, device: torch.device
) -> None:
    """Raise Fault if the results, as the worker describes them, break the contract. The message is for the
    student.
    """
    wanted = str(dtype).removeprefix("torch.")
    if len(returned) != len(shapes):
        raise Fault.wrong(f"{len(returned)} results came back, {len(shapes)} were expected")
    for (name, shape), one in zip(shapes.items(), returned, strict=True):
        what = f"{name} must be a torch.Tensor of shape {shape} and dtype {wanted}"
        if one.kind == "written":
            continue
        if one.kind == "not_differentiable":
            if one.type not in ("Tensor", "Parameter") or not one.shape:
                raise Fault.wrong(f"the function returned {_article(one.type)}, so there is no gradient to compute")
            why = "it was not made by a torch.autograd.Function (or its shape is wrong)"
            raise Fault.wrong(f"the result has no gradient: {why}, so backward cannot run")
        if one.kind == "other":
            raise Fault.wrong(f"returned {_article(one.type)}; {what}")
        if one.kind == "subclass":
            raise Fault.wrong(f"returned a tensor subclass, {one.type}; {what}")
        if one.shape != tuple(shape):
            raise Fault.wrong(f"{name} has shape {one.shape}, expected {tuple(shape)}")
        if one.dtype != wanted:
            raise Fault.wrong(f"{name} has dtype {one.dtype}, expected {wanted}: the output has the inputs' dtype")
        if one.device != device.type:
            raise Fault.wrong(f"{name} lies on {one.device}, expected {device.type}")
        if one.kind == "input":
            raise Fault.wrong(f"{name} is one of the inputs: the function must return a new tensor")


def check_memory(
    changed: Sequence[str],
    out_of_bounds: Sequence[OutOfBounds],
    dtype: torch.dtype,
    got: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Raise Fault if a call changed an input or wrote into a guard band. The message is for the student.

    Args:
        got: the outputs of the first call, for the map of a write out of bounds.
    """
    if changed:
        raise Fault.wrong(f"the input {changed[0]} was changed: the function must leave its inputs as they are")
    if out_of_bounds:
        write, size = out_of_bounds[0], dtype.itemsize
        elements = f"{write.elements} element{'s' if write.elements > 1 else ''}"
        if write.offset_bytes < 0:
            nearest = -(write.offset_bytes // size)
            words = f"wrote {elements} before the start of {write.neighbour}: the nearest is {nearest} before element 0"
        else:
            words = (
                f"wrote {elements} past the end of {write.neighbour}, from {write.offset_bytes // size} past it: "
                "consistent with a missing mask or bounds check"
            )
        raise Fault("failed", words, whose="answer", outside=(write, got or {}))


def _article(name: str) -> str:
    if name == "NoneType":
        return "None"
    return f"an {name}" if name[:1] in "aeiou" else f"a {name}"

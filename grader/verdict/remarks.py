"""Why a kernel is slow, in sentences: what the rules find, in the order of what it costs.

A remark is made if the predicted time of the same work without the cause is shorter by at least a share of it, `WORTH`. A cause whose
gain cannot be computed is told without one, after the others, where its evidence is plain.
"""

from __future__ import annotations

from collections.abc import Iterator

from grader.report.profile import MAX_REMARKS, Remark
from grader.verdict.changes import with_launch
from grader.verdict.prediction import Workload
from grader.verdict.rules import OF_CASES, OF_LAUNCHES, Found
from grader.verdict.traffic import Launch
from grader.verdict.units import ms_words

# A cause is not told beside one of these, whose effect it is, or which hides its own.
BEFORE = {
    "narrow-loads": {
        "uncoalesced",
        "strided-by-rows",
        "few-blocks",
        "small-blocks",
        "low-occupancy",
        "one-warp-for-a-long-row",
        "idle-lanes",
        "launch-per-piece",
        "doubles",
        "atomics-on-one-address",
    },
    "spills": {"no-tensor-cores"},
    "low-occupancy": {"small-blocks", "one-warp-for-a-long-row", "spills"},
    "small-blocks": {"one-warp-for-a-long-row"},
    "wave-tail": {"launch-per-piece"},
}


def remarks(case: Workload) -> tuple[Remark, ...]:
    """At most MAX_REMARKS, first those that cost the most; of one cause in several launches the costliest."""
    told = [one for found, seconds in _found(case) if (one := _remark(case, found, seconds)) is not None]
    causes = {one.cause for one in told}
    told = [one for one in told if not causes & BEFORE.get(one.cause, set())]
    told.sort(key=lambda one: -(one.costs_ms or 0.0))
    first: dict[str, Remark] = {}
    for one in told:
        first.setdefault(one.cause, one)
    kept = tuple(first.values())[:MAX_REMARKS]
    return tuple(one.model_copy(update={"costs_ms": None}) for one in kept) if not case.is_told else kept


def _found(case: Workload) -> Iterator[tuple[Found, float | None]]:
    """What the rules find, with the seconds of the case less that; None if they cannot be computed."""
    for of_launch in OF_LAUNCHES:
        for launch in case.launches:
            for one in of_launch(launch):
                less = one.without
                yield one, with_launch(case, launch, less).seconds if isinstance(less, Launch) else less
    for of_case in OF_CASES:
        for one in of_case(case):
            assert not isinstance(one.without, Launch)
            yield one, one.without


def _remark(case: Workload, found: Found, then: float | None) -> Remark | None:
    now, (file, line) = case.seconds, found.place
    is_small = then is not None and now - then < found.worth * now
    if is_small and not found.is_plain:
        return None
    if then is None or is_small:
        return Remark(cause=found.cause, sentence=f"{found.sentence}.", file=file, line=line)
    gain = (
        f" Predicted: {ms_words(now * 1e3)} ms as it is, {ms_words(then * 1e3)} ms without that."
        if case.is_told
        else ""
    )
    sentence, costs_ms = f"{found.sentence}.{gain}", (now - then) * 1e3
    return Remark(cause=found.cause, sentence=sentence, file=file, line=line, costs_ms=costs_ms)

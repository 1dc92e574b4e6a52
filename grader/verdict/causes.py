"""Groups failures by cause: pure functions over the results of a part, for every view of a report.

Two failures have one cause if their outcomes agree and a sentence of each ends in the same "consistent with ...", apart
from numbers. Failures without such a sentence have one cause if their messages differ in numbers alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from grader.report.model import CaseResult
from grader.verdict.cells import is_telling

CONSISTENT = "consistent with "
NUMBER = re.compile(r"\[[^][]*\]|\((?:\d+, ?)*\d*\)|[-−+]?\d[\d.,]*(?:e[-+]?\d+)?%?|\b(?:inf|nan)\b")
COMES_OUT = " what comes out "  # The words of a suspect begin so; OR stands between several that fit.
OR = "; or "
# The causes of suspects that a single element fits end so.
ONE_NUMBER = ", or with whatever else gives this one number"
PLACE = " is the first wrong element"  # What stands after these words in a message belongs to its case alone.
MAX_MAPS = 3  # A part shows at most this many maps.
# General causes, which fit any output that is not finite: `diagnosis` names them beside a nearer cause, or alone.
OF_NAN = "inf − inf, 0/0, exp of a large number, or numbers from beyond an input's end, where the grader has put NaN"
OF_INFINITY = (
    "an overflow, of what the formula makes or of exp of a number from beyond a tensor's end; or a division by 0"
)
GENERAL = tuple(NUMBER.sub("#", words) for words in (OF_NAN, OF_INFINITY))


@dataclass(frozen=True)
class Cause:
    """Failures with one cause.

    key: the outcome, and the common sentence or message without numbers; equal for the same cause in another part.
    example: the failure to show: the first with a telling map, else the first.
    sentence: names the cause in the example's message or diagnosis; empty if there is none.
    others: in the report's order.
    """

    key: tuple[str, str]
    example: CaseResult
    sentence: str
    others: tuple[CaseResult, ...]


def causes(cases: Iterable[CaseResult]) -> list[Cause]:
    """The failures among cases, grouped by cause: first the cause of the most cases, then the cause of the most
    remaining cases.

    Of causes with equally many cases, the first named comes first. A general cause counts only in a case without a
    nearer one: of nine cases with NaN, say, seven have a missing maximum as their cause, and the other two the general
    one.
    """
    left = [(case, _sentences(case)) for case in cases if case.outcome not in ("passed", "skipped")]
    found = []
    while left:
        counts = Counter[tuple[str, str]]()
        for _, sentences in left:
            counts.update([key for key in sentences if not _is_general(key)] or sentences.keys())
        key = max(counts, key=lambda one: counts[one])  # the first of the largest
        own = [(case, sentences[key]) for case, sentences in left if key in sentences]
        example, sentence = next((one for one in own if is_telling(one[0].map)), own[0])
        besides = {one for _, sentences in left if key in sentences for one in sentences if _is_general(one)}
        alike = [case for case, sentences in left if key in sentences or sentences.keys() <= besides]
        found.append(Cause(key, example, sentence, tuple(case for case in alike if case is not example)))
        left = [one for one in left if not any(one[0] is case for case in alike)]
    return found


def borne_out(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """A part's cases, without the causes that other cases refute: a cause from one element is kept if another case names it
    too, or if no other case has wrong numbers.
    """
    others = [one.diagnosis for one in cases if one.outcome == "failed" and one.errors]
    others = [lines for lines in others if not any(line.endswith(ONE_NUMBER) for line in lines)]

    def kept(line: str) -> list[str]:
        if not others or not line.endswith(ONE_NUMBER):
            return [line]
        output, words = _comes_out(line)
        alike = [(output, one) for one in words.split(OR)]
        return [one for lines in others for one in lines if _comes_out(one) in alike][:1]

    return [
        case.model_copy(update={"diagnosis": tuple(one for line in case.diagnosis for one in kept(line))})
        if case.diagnosis  # most have none, and copies of a hundred cases for each result take a tenth of a second
        else case
        for case in cases
    ]


def _comes_out(line: str) -> tuple[str, str]:
    """The output of a sentence about suspects, and their words."""
    output, _, rest = line.partition(COMES_OUT)
    return output, rest.partition(f": {CONSISTENT}")[0]


def alike(cases: Iterable[CaseResult]) -> CaseResult | None:
    """The first of several cases that all ended without success, with one outcome and one message; else None.

    Skipped cases count only where there are no others, and a single one then counts as several.
    """
    every = list(cases)
    ran = [case for case in every if case.outcome != "skipped"] or every
    if len({(case.outcome, case.message) for case in ran}) != 1 or ran[0].outcome == "passed":
        return None
    return ran[0] if ran[1:] or ran[0].outcome == "skipped" else None


def with_maps_of_causes(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """A part's cases; only the examples of its first causes keep their maps."""
    kept = [cause.example for cause in causes(cases)[:MAX_MAPS]]
    return [
        case if case.map is None or any(case is one for one in kept) else case.model_copy(update={"map": None})
        for case in cases
    ]


def _is_general(key: tuple[str, str]) -> bool:
    return key[1].startswith(GENERAL)


def _sentences(case: CaseResult) -> dict[tuple[str, str], str]:
    """The sentences of a case that name a cause, by outcome and cause; with "" by its message if there is none."""
    told = [one for one in (case.message, *case.diagnosis) if CONSISTENT in one]
    named = {(case.outcome, NUMBER.sub("#", one.partition(CONSISTENT)[2])): one for one in reversed(told)}
    message = case.message.partition(PLACE)[0] if PLACE in case.message else case.message
    return dict(reversed(named.items())) or {(case.outcome, NUMBER.sub("#", message)): ""}

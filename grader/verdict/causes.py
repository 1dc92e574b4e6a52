"""What failures have in common: pure functions over the results of a part, for every view of a report.

Two failures have one cause if they ended alike and a sentence of both ends in the same "consistent with ...", whatever numbers it has;
those without such a sentence, if their messages differ in numbers alone.
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
PLACE = " is the first wrong element"  # what a message says behind it is each case's own
MAX_MAPS = 3  # of a part
# General causes, which fit whatever is not finite, or not contiguous: `diagnosis` names them beside a nearer one, or alone.
OF_NAN = "inf − inf, 0/0, exp of a large number, or numbers from beyond an input's end, where the grader has put NaN"
OF_INFINITY = "an overflow, of what the formula makes or of exp of a number from beyond a tensor's end"
OF_STRIDES = "an index that takes an input to be contiguous, or an output to have its strides"
GENERAL = tuple(NUMBER.sub("#", words) for words in (OF_NAN, OF_INFINITY, OF_STRIDES))


@dataclass(frozen=True)
class Cause:
    """Failures with one cause.

    key: how they ended, and what they have in common, without numbers; the same for the same cause in another part.
    example: the one to show: the first with a telling map, else the first.
    sentence: of the example's message or diagnosis, in which the cause is named; empty if none is.
    others: in the report's order.
    """

    key: tuple[str, str]
    example: CaseResult
    sentence: str
    others: tuple[CaseResult, ...]

    @property
    def size(self) -> int:
        return 1 + len(self.others)


def causes(cases: Iterable[CaseResult]) -> list[Cause]:
    """The cases that neither passed nor were skipped by their causes: the cause of the most cases first, then that of most of the rest.

    Of causes of as many cases, that comes first which is told first. A general cause counts where a case has no other, and goes with a
    nearer one that has it too: NaN in nine cases is seven times a missing maximum, and the two of which no more is known.
    """
    left = [(case, _sentences(case)) for case in cases if case.outcome not in ("passed", "skipped")]
    found = []
    while left:
        counts = Counter(key for _, sentences in left for key in _near(sentences))
        key = max(counts, key=lambda one: counts[one])  # the first of the largest
        own = [(case, sentences[key]) for case, sentences in left if key in sentences]
        example, sentence = next((one for one in own if is_telling(one[0].map)), own[0])
        besides = {one for _, sentences in left if key in sentences for one in sentences if _is_general(one)}
        alike = [case for case, sentences in left if key in sentences or sentences.keys() <= besides]
        found.append(Cause(key, example, sentence, tuple(case for case in alike if case is not example)))
        left = [one for one in left if not any(one[0] is case for case in alike)]
    return found


def with_maps_of_causes(cases: Sequence[CaseResult]) -> list[CaseResult]:
    """A part's cases, of which only the examples of its first causes keep their maps."""
    kept = [cause.example for cause in causes(cases)[:MAX_MAPS]]
    return [
        case if case.map is None or any(case is one for one in kept) else case.model_copy(update={"map": None})
        for case in cases
    ]


def _is_general(key: tuple[str, str]) -> bool:
    return key[1].startswith(GENERAL)


def _near(sentences: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
    """The causes of a case that are more than general, or all where none is."""
    return [key for key in sentences if not _is_general(key)] or list(sentences)


def _sentences(case: CaseResult) -> dict[tuple[str, str], str]:
    """By outcome and cause, the sentences of a case that name a cause; its message under an empty sentence where none does."""
    told = [one for one in (case.message, *case.diagnosis) if CONSISTENT in one]
    named = {(case.outcome, NUMBER.sub("#", one.partition(CONSISTENT)[2])): one for one in reversed(told)}
    message = case.message.partition(PLACE)[0] if PLACE in case.message else case.message
    return dict(reversed(named.items())) or {(case.outcome, NUMBER.sub("#", message)): ""}

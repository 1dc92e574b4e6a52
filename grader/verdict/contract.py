"""What the levels of a part's contract tell about its failures: pure functions over outcomes by the names of cases.

A combination that contains a level which fails alone too costs nothing more (`fails_alone_too`). And the levels of all
cases that failed and passed together often say more about a fault than any wrong number (`pattern`): "fails whenever a
case has a transposed x: 9 of 9; passes otherwise: 31 of 31". A check, which ends at the first wrong case, asks a few
more cases for that sentence (`needed_for_a_pattern`).

A level may be without effect beside some others (a column stride where there is one column), so a few cases with it may
pass (MOSTLY).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import combinations, islice, zip_longest

from grader.assignment import Case, Factor, Part
from grader.report.model import UNDECIDED, Outcome

LEAST_FAILED = 2  # failures that a sentence must explain
BASE_WRONG = 3  # failures, and fewer cases that pass: what all of these share is wrong, and no level matters
MOST_COMBINATIONS = 4  # that a check asks for one sentence
MOSTLY = 0.75  # of the cases with a level that is told to fail


def fails_alone_too(part: Part, case: Case, outcomes: Mapping[str, Outcome]) -> str:
    """The name of the case that tries one of the levels of `case` alone, and went wrong; "" if there is none.

    Where as many levels fail alone as pass, what all these cases share is wrong too, and the failed case does not show
    that its own level is.
    """
    trivial = {one.name for one in part.cases if one.degenerate is not None}
    alone = [
        outcomes.get(level.name) for factor in part.factors for level in factor.levels[1:] if level.name not in trivial
    ]
    if sum(map(_went_wrong, alone)) >= alone.count("passed"):
        return ""
    for factor in part.factors:
        level = case.levels.get(factor.name)
        if level not in (None, factor.levels[0].name, case.name) and _went_wrong(outcomes.get(level)):
            return level
    return ""


def needed_for_a_pattern(part: Part, outcomes: Mapping[str, Outcome]) -> Iterator[Case]:
    """Cases that may let `pattern` say why one has failed: those of one level each, then, as long as too few have failed,
    combinations with a level that fails alone. `outcomes` is to hold a case's outcome before the next case is taken.
    """
    # One level of each factor, then another of each: whether the base is right is known soon.
    others = [[(factor.name, level.name) for level in factor.levels[1:]] for factor in part.factors]
    levels = [one for ones in zip_longest(*others) for one in ones if one is not None]
    unasked = {one.name: one for one in part.cases if one.name not in outcomes}
    for case in [unasked[name] for _, name in levels if name in unasked]:
        right = sum(outcomes.get(one.name) == "passed" and one.degenerate is None for one in part.cases)
        if sum(map(_went_wrong, outcomes.values())) >= max(BASE_WRONG, right + 1):
            return
        yield case
    wrong = {one for one in levels if _went_wrong(outcomes.get(one[1]))}
    with_one = (one for one in unasked.values() if one.is_combination and not wrong.isdisjoint(one.levels.items()))
    for case in islice(with_one, MOST_COMBINATIONS):
        if len(_counted(part, outcomes)[0]) >= LEAST_FAILED:
            return
        yield case


def pattern(part: Part, outcomes: Mapping[str, Outcome]) -> str:
    """A sentence on which levels decide whether a case fails; "" if they do not, or if every case fails.

    Cases count that ran, that have a level, and whose passing tells something.
    """
    failed, passed = _counted(part, outcomes)
    if len(failed) < LEAST_FAILED or not passed:
        return ""
    sure = {factor.name: _mostly_failed(factor, outcomes, failed, passed) for factor in part.factors}
    left, told = failed, list[dict[str, set[str]]]()  # as few factors as explain all failures, with the levels that do
    while left:
        explained = {name: sum(case.levels[name] in sure[name] for case in left) for name in sure}
        most = max(explained, key=explained.__getitem__)
        if not explained[most]:
            told = _pair(part, failed, passed)
            break
        told.append({most: sure[most]})
        left = [case for case in left if case.levels[most] not in sure[most]]
    if not told:
        return ""
    words = "; or ".join(
        " and ".join(_in_words(factor, levels[factor.name]) for factor in part.factors if factor.name in levels)
        for levels in told
    )
    met = [case for case in passed if any(all(case.levels[one] in levels[one] for one in levels) for levels in told)]
    how = "mostly with" if met else "whenever a case has"
    right = len(passed) - len(met)
    return f"fails {how} {words}: {len(failed)} of {len(failed) + len(met)}; passes otherwise: {right} of {right}"


def _counted(part: Part, outcomes: Mapping[str, Outcome]) -> tuple[list[Case], list[Case]]:
    """The cases with a level that failed, and those that passed, each with the base level of the factors that it does not name."""
    base = {factor.name: factor.levels[0].name for factor in part.factors}
    cases = [one.model_copy(update={"levels": base | one.levels}) for one in part.cases if one.levels]
    failed = [one for one in cases if _went_wrong(outcomes.get(one.name))]
    return failed, [one for one in cases if outcomes.get(one.name) == "passed" and one.degenerate is None]


def _went_wrong(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome != "passed" and outcome not in UNDECIDED


def _mostly_failed(
    factor: Factor, outcomes: Mapping[str, Outcome], failed: Collection[Case], passed: Collection[Case]
) -> set[str]:
    """The levels of a factor with which cases mostly fail, and which fail alone unless it is the base; none if all do."""
    bad, good = (Counter(case.levels[factor.name] for case in cases) for cases in (failed, passed))
    base = factor.levels[0].name
    names = {name for name in bad if bad[name] >= MOSTLY * (bad[name] + good[name])}
    names = {name for name in names if name == base or _went_wrong(outcomes.get(name))}
    return names if good.keys() - names else set()


def _in_words(factor: Factor, names: Collection[str]) -> str:
    """Levels in words, or the others of the factor where these are most of them."""
    all_but = 2 * len(names) > len(factor.levels) and factor.levels[0].name in names
    shown = (level.words for level in factor.levels if (level.name in names) != all_but)
    return f"{'anything but ' * all_but}{' or '.join(shown)}"


def _pair(part: Part, failed: Collection[Case], passed: Collection[Case]) -> list[dict[str, set[str]]]:
    """Two factors with one level each that all failures and no passed case have, if no other two do."""
    found = []
    for pair in combinations([one.name for one in part.factors], 2):
        met = {tuple(case.levels[name] for name in pair) for case in failed}
        if len(met) == 1 and met.isdisjoint(tuple(case.levels[name] for name in pair) for case in passed):
            found.append({name: {level} for name, level in zip(pair, min(met), strict=True)})
    return found if len(found) == 1 else []

"""The page of a profile: what it says, and that no word of a student's becomes markup."""

from __future__ import annotations

import re
import unicodedata

from grader.profile.command import page
from grader.profile.views import notes, tables, timed_words, title
from tests.profile.test_views import everything
from tests.report.building import replaced
from tests.report.parsing import HOSTILE, Parsed
from tests.support.validator import mistakes, needs_tidy


def test_everything_of_the_profile_is_there() -> None:
    found = everything()
    text = Parsed(page(found)).text
    said = [
        "mine",
        "shown, never graded",
        "moves 6.44 GB through L2, needed 2.15 GB: 3.0 ×",
        "none of the known causes of slow kernels was found.".capitalize(),
        "def triton_red_fused(",
        "your code, for each byte that was counted",
        "The roofline of this machine",
    ]
    for case in found.cases:
        said += [title(case), case.unknown, *notes(case), *timed_words(case), *(one.sentence for one in case.remarks)]
        for table in tables(case):
            said += [table.title, *table.head, *table.under, *(cell for row in table.rows for cell in row)]
    assert len(said) > 200
    assert [words for words in said if " ".join(words.split()) not in text] == []


def test_hostile_words_in_any_field_stay_words() -> None:
    spoilt, fields = replaced(everything(), str, lambda _: HOSTILE)
    found = page(spoilt)
    assert len(fields) > 20
    assert Parsed(found).foreign == set()
    assert "default-src 'none'; style-src 'sha256-" in found
    assert not re.search(r"(?:src|href)=\"|url\(|@import", page(everything()))
    assert {letter for letter in found if unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp")} == {"\n"}


@needs_tidy
def test_the_page_is_valid() -> None:
    assert mistakes(page(everything())) == []
    assert mistakes(page(replaced(everything(), str, lambda _: HOSTILE)[0])) == []

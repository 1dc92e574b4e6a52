"""Hints: for errors of Triton, nvcc and g++ that students meet, the next step. The report shows a hint below its error. `hints.toml` has
them all, each with an example.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from grader.protocol import code_of


class Hint(NamedTuple):
    """The next step after an error, `words`; the keys of a hint in `hints.toml` say what each is."""

    said: re.Pattern[str]
    place: re.Pattern[str]
    words: str


def _read() -> dict[str, Hint]:
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["hint"]
    return {
        row["name"]: Hint(re.compile(row["said"], re.MULTILINE), re.compile(row.get("place", "")), row["words"])
        for row in rows
    }


HINTS = _read()
SEARCHED = 2000  # characters that are searched: the time of some patterns grows with the square
# Comments and strings of Python, in lines of a traceback.
NO_CODE = re.compile(r"""#[^\n]*+|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?""")


def hint_for(message: str, traceback: str = "") -> str:
    """The name of the hint for an error, "" if none fits. `traceback`: the student's frames, or a compiler's lines below its error."""
    message, place = searched(message, traceback)
    found = (name for name, hint in HINTS.items() if hint.said.search(message) and hint.place.search(place))
    return next(found, "")


def searched(message: str, traceback: str) -> tuple[str, str]:
    """What patterns are looked for in: the beginning and the end of a long message, and the code of the last frame."""
    if len(message) > 2 * SEARCHED:
        message = f"{message[:SEARCHED]}\n{message[-SEARCHED:]}"
    _, of_python, place = traceback.rpartition("  File ")
    place = place[:SEARCHED]
    return message, NO_CODE.sub("", place) if of_python else code_of(place, strings=True)


def hints(message: str, traceback: str = "", entry: str = "", contract: str = "") -> tuple[str, ...]:
    """The sentence of the hint for an error, if there is one. `entry`: the student's function, as `contract` declares it."""
    if not (name := hint_for(message, traceback)):
        return ()
    said, _, words = HINTS[name]
    found = said.search(message)
    named = {"entry": entry, "contract": contract, **(found.groupdict() if found else {})}
    for key, value in named.items():
        words = words.replace(f"{{{key}}}", value)
    return (words,)

"""`--help` of every verb can be read in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from grader.cli import app


def verbs(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """A command and all below it, as words of the command line."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from verbs(below, (*words, name))


@pytest.mark.parametrize("words", list(verbs(typer.main.get_command(app))), ids=" ".join)
def test_help_fits_80_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    lines = shown.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "Usage:" not in line], "a sentence is cut off"
    margins = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    assert max(margins) <= 32, "names of options leave no room for what they mean"
    options = "\n".join(lines).partition("Options:\n")[2].partition("\n\n")[0]
    for option in options.split("\n  -"):
        assert option.count("\n") < 3, option

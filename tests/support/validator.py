"""Runs tidy, a validator of HTML."""

from __future__ import annotations

import shutil
import subprocess

import pytest

TIDY = shutil.which("tidy")
# Tidy takes the title of an SVG for the page's title, which may have no id.
MISTAKEN = 'Warning: <title> proprietary attribute "id"'

needs_tidy = pytest.mark.skipif(TIDY is None, reason="there is no HTML validator here: apt install tidy")


def mistakes(text: str) -> list[str]:
    """The faults of a page."""
    assert TIDY is not None
    command = [TIDY, "-quiet", "-errors", "-utf8", "--drop-empty-elements", "no", "--show-warnings", "yes"]
    told = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", timeout=60).stderr
    return [line for line in told.splitlines() if not line.endswith(MISTAKEN)]

"""Bytes and milliseconds in words, as a profile tells them."""

from __future__ import annotations


def bytes_words(size: float) -> str:
    """As `2.15 GB`."""
    if size >= 1e18:  # of a submission that has made it up
        return f"{size:.3g} B"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size < 1000 * factor else f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"


def ms_words(ms: float) -> str:
    return f"{ms:.0f}" if 100 <= ms < 1e9 else f"{ms:.3g}"

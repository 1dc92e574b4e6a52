"""Draws every picture of the README, the handouts and these pages again: python -m docs.pictures"""

from docs.pictures.everything import pictures

for path, text in pictures().items():
    path.write_text(text, encoding="utf-8")

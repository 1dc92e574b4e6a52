"""The form of the records in this repository: JSON with one entry a line, so that a diff shows which entries have changed.

python benchmarks/records.py    write every record again in this form; no number changes
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
Kind = Literal[
    "reference_record",
    "speed_record",
    "peers_record",
    "grader_quality",
    "attacks",
    "class_record",
    "report",
]
# Where the records of a kind lie, and how deep in them an entry lies: a race, a kernel, an attack, a case.
KINDS: dict[Kind, tuple[str, int]] = {
    "reference_record": ("benchmarks/reference_record*.json", 2),
    "speed_record": ("benchmarks/speed_record*.json", 4),
    "peers_record": ("benchmarks/peers_*.json", 4),
    "grader_quality": ("docs/grader_quality.json", 3),
    "attacks": ("docs/attacks.json", 1),
    "class_record": ("benchmarks/class_record.json", 2),
    "report": ("docs/sample/*/report.json", 8),
}


def text_of(record: Any, kind: Kind) -> str:
    """The record as JSON: a line for each entry, and for what lies less deep and holds nothing but numbers and words."""
    return _opened(record, KINDS[kind][1], "\n") + "\n"


def _opened(value: Any, levels: int, newline: str) -> str:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not levels or not any(isinstance(one, dict | list) for one in inner):
        return json.dumps(value, ensure_ascii=False)
    deeper = newline + " "
    if isinstance(value, list):
        inside = [_opened(one, levels - 1, deeper) for one in value]
    else:
        inside = [
            f"{json.dumps(key, ensure_ascii=False)}: {_opened(one, levels - 1, deeper)}" for key, one in value.items()
        ]
    opening, closing = "[]" if isinstance(value, list) else "{}"
    return f"{opening}{deeper}{f',{deeper}'.join(inside)}{newline}{closing}"


def records() -> Iterator[tuple[Path, Kind]]:
    """Every record in the repository."""
    for kind, (pattern, _) in KINDS.items():
        for path in sorted(ROOT.glob(pattern)):
            yield path, kind


def main() -> None:
    for path, kind in records():
        text = text_of(json.loads(path.read_text(encoding="utf-8")), kind)
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()

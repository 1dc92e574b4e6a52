"""docs/GRADER_QUALITY.md, made from its record, docs/grader_quality.json."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.corpus import entries

DEVICE_NAMES = {"cpu": "CPU", "cuda": "GPU"}
GAPS = """\
- **Sums in float16 or bfloat16.** A softmax whose row sum is rounded to float16 after each block of 4096, a FlashAttention whose output
  and sum are rounded to float16 after each tile of 64 keys, and a GeLU in float16 throughout stay within six times PyTorch's own error:
  the budget allows them.
- **The maximum taken before the mask**, in FlashAttention: harmless unless the scores that are then masked are far above the others.
- **A store without a mask**, in Triton: what lies beyond an output that the submission allocated is the submission's own memory. Where
  nothing of it is in use, nothing shows.
"""


def page(record: dict[str, Any]) -> str:
    """The page that a record makes."""
    lines = [
        "# How good the grader is",
        "",
        "Wrong kernels, each with one mistake that students make (`tests/mutants/`), and right ones, written in different ways",
        "(`tests/accepted/`). Made by `python -m tests.quality` from what happened on the devices named here; do not edit.",
        "",
    ]
    missing = [DEVICE_NAMES[device] for device in DEVICE_NAMES if device not in record]
    if missing:
        lines += [
            f"**Not run yet: {' and '.join(missing)}.** The same command on such a machine adds it. Until then nothing here says what it",
            "would find: races, bfloat16 and offsets beyond 2³¹ show only there.",
            "",
        ]
    lines += ["| device | assignment | wrong kernels caught | right kernels passed |", "|---|---|---:|---:|"]
    for mine in record.values():
        for assignment in _assignments():
            wrong, right = (_of(mine[kind], assignment) for kind in ("mutants", "accepted"))
            caught, passed = sum(map(_caught, wrong.values())), len(right) - sum(map(_caught, right.values()))
            lines.append(
                f"| {mine['machine']}, torch {mine['torch']} | {assignment} | {caught} of {len(wrong)} | {passed} of {len(right)} |"
            )
    lines += ["", "## What no case catches", "", *GAPS.splitlines(), ""]
    for device, mine in record.items():
        for assignment in _assignments():
            lines += _tables(DEVICE_NAMES[device], assignment, _of(mine["mutants"], assignment))
    lines += ["## Wrong kernels that are not wrong everywhere", ""]
    for entry in entries("mutants"):
        for device, name in DEVICE_NAMES.items():
            if entry.mutant.on(device) is None:  # type: ignore[arg-type]
                lines.append(f"- `{entry.id}`, not run on a {name}: {entry.mutant.mistake}")
    lines += ["", "## Right kernels", ""]
    lines += [f"- `{entry.id}`: {entry.accepted.how}" for entry in entries("accepted")]
    return "\n".join(lines) + "\n"


def _tables(device: str, assignment: str, found: dict[str, Any]) -> list[str]:
    catches = Counter(case for one in found.values() for case in one["caught_by"])
    alone: dict[str, list[str]] = {}
    for name, one in found.items():
        if len(one["caught_by"]) == 1:
            alone.setdefault(one["caught_by"][0], []).append(name.removeprefix(f"{assignment}-"))
    left_out = Counter(case for one in found.values() for case in one.get("left_out", ()))
    lines = [f"## {assignment} on a {device}", ""]
    if left_out:
        lines += [
            "Cases that need much of the GPU's memory, or look at how much is free, cannot run beside others. They ran for right",
            "kernels, and for those wrong ones that were to be caught by them, or about which the grader was wrong without them.",
            "Left out for others:",
            f"{', '.join(f'{case} for {count}' for case, count in left_out.items())} of {len(found)}.",
            "What follows is of the cases that ran.",
            "",
        ]
    if alone:
        lines += [
            "Cases that are the only one to catch some mistake:",
            "",
            "| case | mistakes it catches | of which no other does |",
        ]
        lines += ["|---|---:|---|"]
        lines += [f"| {case} | {catches[case]} | {', '.join(names)} |" for case, names in alone.items()]
        lines.append("")
    lines += ["| wrong kernel | its mistake | first case | outcome | cases that catch it |", "|---|---|---|---|---:|"]
    mistakes = {entry.id: entry.mutant.mistake for entry in entries("mutants")}
    for name, one in found.items():
        first = one["caught_by"][0] if one["caught_by"] else "**none**"
        count = f"{len(one['caught_by'])} of {one['ran']}"
        lines.append(
            f"| {name.removeprefix(f'{assignment}-')} | {mistakes[name]} | {first} | {one['outcome']} | {count} |"
        )
    return [*lines, ""]


def _assignments() -> list[str]:
    return sorted({entry.assignment for entry in entries("mutants")})


def _of(found: dict[str, Any], assignment: str) -> dict[str, Any]:
    return {name: one for name, one in found.items() if name.startswith(f"{assignment}-")}


def _caught(one: dict[str, Any]) -> bool:
    return bool(one["caught_by"])

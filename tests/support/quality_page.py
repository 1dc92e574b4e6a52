"""Makes docs/GRADER_QUALITY.md from its record, docs/grader_quality.json, and prints the record's rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from grader.assignment import Device
from tests.support import machine_mutants
from tests.support.corpus import HANGING_LIMIT_S, Entry, entries

DEVICE_NAMES: dict[Device, str] = {"cpu": "CPU", "cuda": "GPU"}
HOW = f"""\
- A wrong kernel is **caught** where the case that is to catch it is the first that does not pass, with the outcome and the words that
  its `mutant.toml` asks for; a few, for which more than one case may be the first, name none. Where anything else happens the command
  fails, and the kernel does not count as caught.
- Of a wrong kernel only the part of the assignment that has the mistake is run; of a right one everything.
- A kernel that hangs gets {HANGING_LIMIT_S["cpu"]} seconds for a call on a CPU and {HANGING_LIMIT_S["cuda"]} on a GPU,
  far less than a student has. On a GPU its grading ends with the first case that does not pass.
- On a GPU several judges share its memory. Cases that need much of it, or look at how much is free, run alone: for right kernels, for
  wrong ones that are to be caught by such a case, and for those about which the grader was wrong without. For all others they were
  left out, and nothing here says whether they would catch them.
- What no case catches is written by hand, from trials and from how the grader works.
"""
GAPS = """\
- **Sums in float16 or bfloat16**, where the inputs are of that dtype too. A softmax whose row sum is rounded to it after each block of
  4096, a FlashAttention whose output and sum are after each tile of 64 keys, and a GeLU in it throughout stay within six times PyTorch's
  own error: the budget allows them. With float32 inputs they are caught.
- **A store without a mask**, in Triton on a GPU: what lies beyond an output that the submission allocated is the submission's own memory.
  Where nothing of it is in use, nothing shows. On a CPU each access is held against its tensor.
"""


def page(record: dict[str, Any]) -> str:
    """The page for a record."""
    lines = [
        "# How good the grader is",
        "",
        "The grader is graded by wrong kernels, each with one mistake that students make (`tests/corpora/mutants/`), and by right",
        "ones, each written in another way (`tests/corpora/accepted/`). This is what happened on the devices named here; the page is",
        "made by `python -m tests.support.quality`. Every kernel, with its mistake and the cases that caught it when it was last run:",
        "",
        "    python -m tests.support.quality --rows                    # all of it; --device cpu or cuda: of one device",
        "    python -m tests.support.quality --rows --only softmax     # the kernels with this in their names",
        "",
        "| device | assignment | wrong kernels caught | how their first case ends | right kernels passed |",
        "|---|---|---:|---|---:|",
    ]
    for mine in (record[device] for device in DEVICE_NAMES if device in record):
        for assignment in _assignments():
            wrong, right = (_of(mine[kind], assignment) for kind in ("mutants", "accepted"))
            caught, passed = sum(map(_caught, wrong.values())), sum(map(_passed, right.values()))
            ends = ", ".join(
                f"{outcome.replace('_', ' ')} {count}"
                for outcome, count in Counter(one["outcome"] for one in wrong.values()).most_common()
            )
            lines.append(
                f"| {mine['machine']}, torch {mine['torch']} | {assignment} | {caught} of {len(wrong)} | {ends} "
                f"| {passed} of {len(right)} |"
            )
    lines.append("")
    for device, name in DEVICE_NAMES.items():
        if device not in record:
            lines += [f"Not run on a {name} yet: races, bfloat16 and offsets beyond 2³¹ show only on a GPU.", ""]
        elif missing := _missing(device, record[device]):
            lines += [
                f"{len(missing)} kernels of the corpora have not been run on a {name} yet; `--rows` names them.",
                "",
            ]
    lines += ["## What these numbers mean", "", *HOW.splitlines()]
    lines += ["", *machine_mutants.section(json.loads(machine_mutants.FOUND.read_text(encoding="utf-8")))]
    lines += ["## What no case catches", "", *GAPS.splitlines()]
    return "\n".join(lines) + "\n"


def rows(record: dict[str, Any], devices: Sequence[Device], only: str = "") -> str:
    """Every kernel with `only` in its name, as in mutants/softmax-plain: what is wrong or special with it, and what became of it."""

    def chosen(kind: Literal["mutants", "accepted"]) -> list[Entry]:
        return [entry for entry in entries(kind) if only in f"{kind}/{entry.id}"]

    lines = [
        "| | wrong kernel | its mistake | device | first case | outcome | cases that catch it |",
        "|---|---|---|---|---|---|---|",
    ]
    for device, entry in ((device, entry) for device in devices for entry in chosen("mutants")):
        one = record.get(device, {}).get("mutants", {}).get(entry.id)
        if entry.mutant.on(device) is None:
            ends = "|  | not run: it is right there, or its end is chance |"
        elif one is None:
            ends = "|  | not run yet |"
        else:
            first = one["caught_by"][0] if one["caught_by"] else "**none**"
            left_out = f", {len(one['left_out'])} left out" if "left_out" in one else ""
            ends = f"| {first} | {one['outcome']} | {len(one['caught_by'])} of {one['ran']}{left_out}"
        names = f"| {entry.assignment} | {entry.folder.name} | {entry.mutant.mistake} | {DEVICE_NAMES[device]}"
        lines.append(f"{names} {ends} |")
    lines.append("")
    for entry in chosen("accepted"):
        missing = [one for one in devices if entry.id not in record.get(one, {}).get("accepted", {})]
        not_run = "".join(f"; not run on a {DEVICE_NAMES[device]} yet" for device in missing)
        lines.append(f"- {entry.id}: {entry.accepted.how}{not_run}")
    return "\n".join(lines).rstrip() + "\n"


def _missing(device: Device, mine: dict[str, Any]) -> list[str]:
    there = mine["mutants"].keys() | mine["accepted"].keys()
    every = [*entries("mutants"), *entries("accepted")]
    return [entry.id for entry in every if entry.runs_on(device) and entry.id not in there]


def _assignments() -> list[str]:
    return sorted({entry.assignment for entry in entries("mutants")})


def _of(found: dict[str, Any], assignment: str) -> dict[str, Any]:
    return {name: one for name, one in found.items() if name.startswith(f"{assignment}-")}


def _caught(one: dict[str, Any]) -> bool:
    return bool(one["caught_by"]) and "fault" not in one


def _passed(one: dict[str, Any]) -> bool:
    return not one["caught_by"] and "fault" not in one

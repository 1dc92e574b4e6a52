"""Makes docs/GRADER_QUALITY.md from its record, docs/grader_quality.json, and prints the record's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from grader.assignment import Device
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
    lines += ["", "## What no case catches", "", *GAPS.splitlines()]
    return "\n".join(lines) + "\n"


def rows(record: dict[str, Any], devices: Sequence[Device], only: str = "") -> str:
    """Every kernel with `only` in its name, as in mutants/softmax-plain: what is wrong or special with it, and what became of it."""

    def chosen(kind: Literal["mutants", "accepted"]) -> list[Entry]:
        return [entry for entry in entries(kind) if only in f"{kind}/{entry.id}"]

    lines: list[str] = []
    names = {entry.id for entry in chosen("mutants")}
    for device in (one for one in devices if one in record):
        mine = record[device]
        for assignment in _assignments():
            if found := {name: one for name, one in _of(mine["mutants"], assignment).items() if name in names}:
                lines += tables(DEVICE_NAMES[device], assignment, found)
        if missing := [name for name in _missing(device, mine) if only in name]:
            lines += [f"## Not run on a {DEVICE_NAMES[device]} yet", "", *(f"- {name}" for name in missing), ""]
    elsewhere = [
        (entry, device) for entry in chosen("mutants") for device in devices if entry.mutant.on(device) is None
    ]
    if elsewhere:
        lines += ["## Wrong kernels that are not wrong everywhere", ""]
        lines += [
            f"- {entry.id}, not run on a {DEVICE_NAMES[device]}: {entry.mutant.mistake}" for entry, device in elsewhere
        ]
        lines.append("")
    if accepted := chosen("accepted"):
        lines += ["## Right kernels", "", *(f"- {entry.id}: {entry.accepted.how}" for entry in accepted)]
    return "\n".join(lines).rstrip() + "\n"


def _missing(device: Device, mine: dict[str, Any]) -> list[str]:
    there = mine["mutants"].keys() | mine["accepted"].keys()
    every = [*entries("mutants"), *entries("accepted")]
    return [entry.id for entry in every if entry.runs_on(device) and entry.id not in there]


def tables(device: str, assignment: str, found: dict[str, Any]) -> list[str]:
    catches = Counter(case for one in found.values() for case in one["caught_by"])
    alone: dict[str, tuple[list[str], list[str]]] = {}  # the names of all cases, and of the cases that ran
    for name, one in found.items():
        if len(one["caught_by"]) == 1:
            pair = alone.setdefault(one["caught_by"][0], ([], []))
            pair[bool(one.get("left_out"))].append(name.removeprefix(f"{assignment}-"))
    left_out = Counter(case for one in found.values() for case in one.get("left_out", ()))
    lines = [f"## {assignment} on a {device}", ""]
    if left_out:
        lines += [
            f"Cases that were left out for some of the {len(found)} wrong kernels, and are not counted for them below:",
            "",
            *(f"- {case}: left out for {count}" for case, count in left_out.items()),
            "",
        ]
    if alone:
        more = any(of_those_that_ran for _, of_those_that_ran in alone.values())
        lines += [
            "Cases that are the only one to catch some mistake:",
            "",
            "| case | mistakes it catches | of which no other does |"
            + (" of which no other that ran does; those left out were not tried |" if more else ""),
            "|---|---:|---|" + ("---|" if more else ""),
        ]
        for case, (of_all, of_those_that_ran) in alone.items():
            row = f"| {case} | {catches[case]} | {', '.join(of_all)} |"
            lines.append(f"{row} {', '.join(of_those_that_ran)} |" if more else row)
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
    return bool(one["caught_by"]) and "fault" not in one


def _passed(one: dict[str, Any]) -> bool:
    return not one["caught_by"] and "fault" not in one

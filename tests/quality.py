"""How good the grader is: every wrong and every right kernel of the corpus, with every case that catches it.

    python -m tests.quality                 run the corpus on this machine's device, then write the record and the page
    python -m tests.quality --jobs 4        several kernels at once; where there are GPUs, one on each
    python -m tests.quality --only softmax  only those whose name has this in it; the others keep what the record says
    python -m tests.quality --render        write the page again from the record

The record is docs/grader_quality.json, with a part for each device; the page is docs/GRADER_QUALITY.md. Where the grader was wrong about
a kernel, the record and what is printed say how, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from grader.assignment import Device
from grader.report.model import Report
from tests.conftest import ROOT
from tests.corpus import Entry, entries

RECORD = ROOT / "docs" / "grader_quality.json"
PAGE = ROOT / "docs" / "GRADER_QUALITY.md"
QUIET = ("passed", "skipped")
DEVICE_NAMES = {"cpu": "CPU", "cuda": "GPU"}
GAPS = """\
- **Sums in float16 or bfloat16.** A softmax whose row sum is rounded to float16 after each block of 4096, a FlashAttention whose output
  and sum are rounded to float16 after each tile of 64 keys, and a GeLU in float16 throughout stay within six times PyTorch's own error:
  the budget allows them.
- **The maximum taken before the mask**, in FlashAttention: harmless unless the scores that are then masked are far above the others.
- **A store without a mask**, in Triton: what lies beyond an output that the submission allocated is the submission's own memory. Where
  nothing of it is in use, nothing shows.
"""


def quality_of(entry: Entry, device: Device) -> dict[str, Any]:
    """What the cases say of one kernel: `caught_by`, those that do not pass, the first one's outcome, and how many ran.

    Of a wrong one the part with the mistake alone is looked at. `fault` is how the grader was wrong about it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        report = entry.grade(device, Path(scratch))
    ran = [(name, outcome) for name, outcome in _cases(report) if outcome != "skipped"]
    caught = [name for name, outcome in ran if outcome != "passed"]
    first = next((outcome for _, outcome in ran if outcome != "passed"), "passed")
    found: dict[str, Any] = {"ran": len(ran), "outcome": first, "caught_by": caught}
    fault = entry.fault(device, report)
    return found | ({"fault": fault} if fault else {})


def _cases(report: Report) -> Iterator[tuple[str, str]]:
    """Name and outcome of each case; the name with its part, where an assignment has several."""
    for one in report.assignments:
        for part in one.parts:
            for case in part.cases:
                yield (f"{part.name} {case.name}" if len(one.parts) > 1 else case.name), case.outcome


def run(device: Device, jobs: int, only: str) -> dict[str, Any]:
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    mine = record.setdefault(device, {})
    mine["machine"] = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    mine["torch"] = torch.__version__
    for kind in ("mutants", "accepted"):
        listed = [one for one in entries(kind) if kind == "accepted" or one.mutant.on(device) is not None]
        known = mine.get(kind, {})
        wanted = [one for one in listed if only in one.id or one.id not in known]
        with ThreadPoolExecutor(jobs) as pool:
            for entry, found in zip(wanted, pool.map(lambda entry: quality_of(entry, device), wanted), strict=True):
                known[entry.id] = found
                what = found.get("fault") or f"{len(found['caught_by'])} of {found['ran']} cases do not pass"
                print(f"{entry.id}: {what}", flush=True)
        mine[kind] = {one.id: known[one.id] for one in listed}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return record


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
    lines = [f"## {assignment} on a {device}", ""]
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


def faults(mine: dict[str, Any]) -> list[str]:
    """The kernels of a device's part of the record about which the grader was wrong."""
    return [name for kind in ("mutants", "accepted") for name, one in mine[kind].items() if "fault" in one]


def _caught(one: dict[str, Any]) -> bool:
    return bool(one["caught_by"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEVICE_NAMES, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--jobs", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--only", default="")
    parser.add_argument("--render", action="store_true")
    arguments = parser.parse_args()
    if not arguments.render:
        run(arguments.device, arguments.jobs, arguments.only)
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    PAGE.write_text(page(record), encoding="utf-8")
    sys.exit(any(map(faults, record.values())))


if __name__ == "__main__":
    main()

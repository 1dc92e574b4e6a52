"""How good the grader is: every wrong and every right kernel of the corpus, with every case that caught it when it was last run.

    python -m tests.support.quality                 run the corpus on this machine's device, then write the record and the page
    python -m tests.support.quality --jobs 4        several kernels at once; where there are GPUs, in so many judges, spread over them
    python -m tests.support.quality --only softmax  only those with this in their names, as in accepted/softmax-plain; the others stay
    python -m tests.support.quality --again         also those that the record has without a fault
    python -m tests.support.quality --limit-s 600   begin nothing new after so many seconds; the next run goes on from there
    python -m tests.support.quality --render        write the page again from the record
    python -m tests.support.quality --rows          print every kernel of the record, with the cases that catch it

The record is docs/grader_quality.json, with a part for each device; the page is docs/GRADER_QUALITY.md. The record is
written after each kernel. A later run grades kernels that are missing in the record or have a fault there. If the
grader is wrong about a kernel, the record and the output say how, and the exit code is 1; it is 2 if a time limit left
kernels over.

On a GPU several judges share its memory. Cases that need much of it, or measure it, run after all others, one kernel at
a time on each GPU: for right kernels, for wrong kernels that such a case must catch, and for kernels that the grader is
wrong about without them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import torch

from benchmarks.records import text_of
from grader.assignment import Device
from tests.conftest import ROOT
from tests.support import steady
from tests.support.corpus import Entry, Found, entries
from tests.support.quality_page import DEVICE_NAMES, page, rows
from tests.support.warm_judge import Cases

RECORD = ROOT / "docs" / "grader_quality.json"
PAGE = ROOT / "docs" / "GRADER_QUALITY.md"
Kind = Literal["mutants", "accepted"]
KINDS: tuple[Kind, ...] = ("mutants", "accepted")
SLOWEST = ("flash_attention", "softmax")  # first, so that no core waits for them at the end
HALF = "what runs alone has not been run yet"
SHOWN = 600  # characters of a fault


class Record:
    """A device's part of the record. Each change is written to the file."""

    def __init__(self, device: Device, path: Path = RECORD) -> None:
        self._path = path
        self.whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._device = device
        self.listed = {one.id: (kind, one) for kind in KINDS for one in entries(kind) if one.runs_on(device)}

    @property
    def mine(self) -> dict[str, Any]:
        mine: dict[str, Any] = self.whole.setdefault(self._device, {})
        return mine

    def begin(self, machine: str, version: str, anew: bool) -> None:
        """Raises SystemExit if the record is of another machine."""
        if anew:
            self.whole[self._device] = {}
        if (other := self.mine.get("machine", machine)) != machine:
            sys.exit(f"the record is of another machine, {other}: --again without --only makes it anew")
        self.mine.update(machine=machine, torch=version)
        self._write()

    def known(self, entry: Entry) -> dict[str, Any]:
        found: dict[str, Any] = self.mine.get(self.listed[entry.id][0], {}).get(entry.id, {})
        return found

    def wanted(self, only: str, again: bool) -> list[Entry]:
        """The kernels to be graded, the slowest first: an endless kernel waits for its limit in every case."""
        chosen = [
            entry
            for kind, entry in self.listed.values()
            if only in f"{kind}/{entry.id}" and (again or not (known := self.known(entry)) or "fault" in known)
        ]
        return sorted(
            chosen, key=lambda one: (not one.hangs(self._device), *(one.assignment != slow for slow in SLOWEST))
        )

    def put(self, entry: Entry, found: dict[str, Any]) -> None:
        self.mine.setdefault(self.listed[entry.id][0], {})[entry.id] = found
        self._write()

    def _write(self) -> None:
        for kind in KINDS:
            there = self.mine.get(kind, {})
            self.mine[kind] = {
                name: there[name] for name, (of, _) in self.listed.items() if of == kind and name in there
            }
        _replace(self._path, text_of(self.whole, "grader_quality"))


def _replace(path: Path, text: str) -> None:
    """Replace a file at once: a killed process leaves the old file."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def entry_of(entry: Entry, device: Device, found: Found, half: bool = False) -> dict[str, Any]:
    """The record's entry for one kernel.

    `caught_by` are the cases that do not pass, `outcome` the first one's outcome, `ran` the number of cases that ran,
    `left_out` the cases alone that were not worth their time, `fault` how the grader was wrong. A wrong kernel runs
    only the part with its mistake. With `half` the cases alone are still to be run, and the result so far is kept in
    the entry.
    """
    wrong = [(name, case.outcome) for name, case in found.ran if case.outcome != "passed"]
    said: dict[str, Any] = {
        "ran": len(found.ran),
        "outcome": wrong[0][1] if wrong else "passed",
        "caught_by": [name for name, _ in wrong],
    }
    if half:
        return said | {"fault": HALF, "half": found.model_dump(mode="json", exclude_defaults=True)}
    if left_out := found.names_left_out:
        said["left_out"] = left_out
    fault = entry.fault(device, found)
    return said | ({"fault": fault} if fault else {})


def run(device: Device, jobs: int, only: str, again: bool, limit_s: float) -> int:
    """Grade the wanted kernels. Returns how many are left over."""
    started = time.monotonic()
    record = Record(device)
    machine = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    record.begin(machine, torch.__version__, anew=again and not only)
    wanted = record.wanted(only, again)
    halves = (
        {}
        if again
        else {one.id: Found.model_validate(half) for one in wanted if (half := record.known(one).get("half"))}
    )
    beside, left = [one for one in wanted if one.id not in halves], len(wanted)
    several = device == "cuda"

    def tell(entry: Entry, said: dict[str, Any], seconds: float) -> None:
        record.put(entry, said)
        what = said.get("fault") or f"{len(said['caught_by'])} of {said['ran']} cases do not pass"
        print(f"{time.monotonic() - started:5.0f} s  {entry.id}, {seconds:.1f} s: {what[:SHOWN]}", flush=True)

    deadline = started + limit_s
    with closing(graded(beside, device, jobs, "beside others" if several else "all", deadline)) as done:
        for entry, found, seconds in done:
            half = several and entry.needs_those_alone(device, found)
            if half:
                halves[entry.id] = found
            left -= not half
            tell(entry, entry_of(entry, device, found, half), seconds)
    alone = [one for one in wanted if one.id in halves]
    with closing(graded(alone, device, len(steady.gpus()) if several else jobs, "alone", deadline)) as done:
        for entry, found, seconds in done:
            left -= 1
            tell(entry, entry_of(entry, device, halves[entry.id].with_those_alone(found)), seconds)
    print(f"{len(wanted) - left} kernels in {time.monotonic() - started:.0f} s")
    return left


def graded(
    wanted: Sequence[Entry], device: Device, jobs: int, only: Cases, deadline: float
) -> Generator[tuple[Entry, Found, float], None, None]:
    """Each graded kernel with its result and seconds, in the order of their ends. None begins after the deadline."""

    def grade(entry: Entry) -> tuple[Found, float] | None:
        begun = time.monotonic()
        if begun > deadline:
            return None
        with tempfile.TemporaryDirectory() as scratch:
            try:
                found = entry.grade(device, Path(scratch), only=only)
            except Exception as error:  # the others must be graded all the same
                found = Found(infra_errors=(f"{type(error).__name__}: {error}",))
        return found, time.monotonic() - begun

    if not wanted:
        return
    if device == "cuda":
        cores = len(os.sched_getaffinity(0)) // jobs
        print(
            f"{len(wanted)} kernels, {only}: {jobs} judges on {len(steady.gpus())} GPUs, {cores} cores for each",
            flush=True,
        )
    with steady.several(steady.places(jobs)) if device == "cuda" else nullcontext():
        pool = ThreadPoolExecutor(jobs)
        try:
            futures = {pool.submit(grade, entry): entry for entry in wanted}
            for future in as_completed(futures):
                if (done := future.result()) is not None:
                    yield futures[future], *done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # running gradings end with their judges


def faults(mine: dict[str, Any]) -> list[str]:
    """Names of the kernels in a device's part of the record that the grader was wrong about."""
    return [name for kind in KINDS for name, one in mine[kind].items() if "fault" in one]


def _interrupt(number: int, _frame: FrameType | None) -> None:
    """Interrupt once: further signals must not disturb the ends of the judges."""
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEVICE_NAMES)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--limit-s", type=float, default=math.inf)
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--rows", action="store_true")
    arguments = parser.parse_args()
    if arguments.rows:
        devices = [arguments.device] if arguments.device else list(DEVICE_NAMES)
        print(rows(json.loads(RECORD.read_text(encoding="utf-8")), devices, arguments.only), end="")
        return
    device: Device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    left = 0
    if not arguments.render:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _interrupt)
        jobs = arguments.jobs or (steady.good_count() if device == "cuda" else 2)
        left = run(device, jobs, arguments.only, arguments.again, arguments.limit_s)
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    _replace(PAGE, page(record))
    wrong = [(name, mine) for mine in record.values() for name in faults(mine)]
    for name, mine in wrong:
        told = next(mine[kind][name]["fault"] for kind in KINDS if name in mine[kind])
        print(f"FAULT {name}: {told[:SHOWN]}")
    if left:
        print(f"{left} kernels are left: the same command goes on with them")
    sys.exit(2 if left else bool(wrong))


if __name__ == "__main__":
    main()

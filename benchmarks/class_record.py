"""How many submissions an hour `grader class run` grades on the GPUs of this machine, on one of them and on all.

    python -m benchmarks.class_record [--count 24] [--one 12] [--work FOLDER] [--output NAME]
    python -m benchmarks.class_record --render [--output NAME]    write the page again from the record, grade nothing

Grades `--count` mixed hand-ins (right, wrong, broken, hostile by turns) on all GPUs at once, then the first `--one` of them
again on the first GPU alone. Writes NAME.json, each hand-in's seconds and points in both, and NAME.md, the table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.records import text_of
from grader import nvidia
from grader.assignment import load_course
from grader.classroom.folder import Attempt, RunFolder
from grader.classroom.run import Options, grade_class
from grader.report.json_file import REPORT, read_report
from grader.report.model import Report
from tests.conftest import ROOT
from tests.support.corpus import Entry, entries

OUTPUT = ROOT / "benchmarks" / "class_record"
COUNT, ONE = 24, 12
KINDS = ("right", "wrong", "broken", "hostile")
ATTACKS = (
    "forgery/forged-success",
    "bombs/fork",
    "bombs/output",
    "bombs/memory",
    "forgery/signals",
    "bombs/descriptors",
)
EXPLOITS = ROOT / "tests" / "corpora" / "exploits"


def hand_ins(folder: Path, count: int) -> None:
    """Make the folder of each student, of the four kinds by turns."""
    right, wrong = (by_turns(kind) for kind in ("accepted", "mutants"))
    for number in range(count):
        kind, turn = KINDS[number % len(KINDS)], number // len(KINDS)
        name = f"{number:02}-{kind}"  # by turns in the order of the roster, too
        own = folder / name
        if kind == "broken":
            broken(own, turn)
        elif kind == "hostile":
            course_files(own, "reference")
            shutil.copyfile(EXPLOITS / "exploit_tools.py", own / "exploit_tools.py")
            shutil.copyfile(EXPLOITS / ATTACKS[turn % len(ATTACKS)] / "softmax.py", own / "softmax.py")
        else:
            course_files(own, "reference")
            for entry in itertools.islice(right if kind == "right" else wrong, 2):
                with tempfile.TemporaryDirectory() as scratch:
                    shutil.copytree(entry.submission(Path(scratch)), own, dirs_exist_ok=True)
        own.joinpath("README.md").write_text(f"The answer of {name}.\n", encoding="utf-8")


def by_turns(kind: str) -> Iterator[Entry]:
    """The kernels of a corpus without end, of one assignment after the other."""
    found = entries(kind)  # type: ignore[arg-type]
    each = [[one for one in found if one.assignment == own.name] for own in load_course(ROOT)]
    return itertools.cycle(one for turn in itertools.zip_longest(*each) for one in turn if one is not None)


def course_files(own: Path, folder: str) -> None:
    own.mkdir(parents=True)
    for one in load_course(ROOT):
        shutil.copyfile(ROOT / folder / one.spec.file, own / one.spec.file)


def broken(own: Path, turn: int) -> None:
    """The starter's stubs, or answers of which some have an error or are missing."""
    course_files(own, "starter" if turn % 3 == 0 else "reference")
    files = [own / one.spec.file for one in load_course(ROOT)]
    if turn % 3 == 1:
        for path in files[:2]:
            path.write_text(path.read_text(encoding="utf-8") + "\nreturn (\n", encoding="utf-8")
    if turn % 3 == 2:
        for path in files[1:3]:
            path.unlink()


def graded(handins: Path, run: Path, options: Options) -> dict[str, dict[str, Any]]:
    """Grade a class, or what is left of it. Returns the facts of each hand-in by student."""
    if not run.exists():
        new = [sys.executable, "-m", "grader", "class", "new", str(run), "--from", str(handins), "--seed", "1"]
        subprocess.run(new, check=True, stdout=sys.stderr)
    folder = RunFolder(run)
    if not grade_class(folder, Console(stderr=True), options):
        raise SystemExit(
            "a fault of the machine spoilt a grading; started again with the same --work, it is graded again"
        )
    return facts_of_class({one.key: folder.attempts(one.handin) for one in folder.students().students})


def facts_of_class(found: Mapping[str, Mapping[Attempt, Path]]) -> dict[str, dict[str, Any]]:
    """The facts of each student's attempt that gave a grade, with the faults of those before it, from attempts and their folders."""
    pauses = pauses_before([attempt for own in found.values() for attempt in own])
    return {
        name: facts_of(attempt, read_report(path / REPORT))
        | {"pause_s": pauses[attempt.started], "spoilt": [one.fault for one in own if one.fault]}
        for name, own in found.items()
        for attempt, path in own.items()
        if not attempt.fault
    }


def pauses_before(attempts: Iterable[Attempt]) -> dict[datetime, float]:
    """By an attempt's start, the seconds since its GPU's last attempt ended; 0 for the first."""
    pauses, ends = {}, {}
    for one in sorted(attempts, key=lambda one: one.started):
        pauses[one.started] = round((one.started - ends.get(one.place, one.started)).total_seconds(), 1)
        ends[one.place] = one.ended
    return pauses


def facts_of(attempt: Attempt, report: Report) -> dict[str, Any]:
    parts = [part for _, part in report.parts]
    races = [race for part in parts if part.speed is not None for race in part.speed.cases]
    return {
        "gpu": attempt.place.split()[-1],
        "seconds": round((attempt.ended - attempt.started).total_seconds(), 1),
        "cases_s": round(sum(case.time_s for part in parts for case in part.cases), 1),
        "races_s": round(sum(race.time_s for race in races), 1),
        "correctness": report.correctness.earned,
        "speed": report.speed.earned,
        "open": report.score.possible - report.score.graded,
        "bands": "".join(
            "+" if band.reached else "?" if band.undecided else "-" for race in races for band in race.bands
        ),
        "faults": list(report.infra_errors),
    }


def page(record: dict[str, Any]) -> str:
    """The record as Markdown. Hand-ins that were graded in both ways are compared."""
    gpus = record["gpus"]
    rows = [
        f"| {name} | {own['one']['seconds']:.0f} | {own['all']['seconds']:.0f} | {points(own['one'])} | {points(own['all'])} |"
        for name, own in in_both(record).items()
    ]
    alone, beside = ([own[way]["seconds"] for own in in_both(record).values()] for way in ("one", "all"))
    one, every = (3600 / (mean_of(record, way, "seconds") + mean_of(record, way, "pause_s")) for way in ("one", "all"))
    every *= gpus
    ahead = "Each GPU's next grading started before the one before had ended. " if record.get("ahead") else ""  # once
    pauses = ""
    if any("pause_s" in own["one"] for own in in_both(record).values()):  # older records have no pauses
        pauses = f"| between two gradings | {mean_of(record, 'one', 'pause_s'):.1f} | {mean_of(record, 'all', 'pause_s'):.1f} |\n"
    different = [name for name, own in in_both(record).items() if points(own["one"]) != points(own["all"])]
    seconds = [own["all"]["seconds"] for own in record["handins"].values()]
    faults = [
        f"{name} ({' '.join(fault.split())})"
        for name, own in record["handins"].items()
        for facts in own.values()
        for fault in facts.get("spoilt", ())  # older records have none
    ]
    spoilt = f"\nSpoilt by a fault of the machine and graded again: {'; '.join(faults)}.\n" if faults else ""
    return (
        f"""# A class on {gpus} GPUs

Made by `python -m benchmarks.class_record --count {len(seconds)} --one {len(alone)}` on {gpus} × {record["gpu"]} of one machine
with {record["cores"]} cores.
{len(seconds)} hand-ins, right, wrong, broken and hostile by turns, were graded on all GPUs at once, in
{statistics.mean(seconds):.0f} s each; then {len(alone)} of them again on one GPU with nothing beside it.
{ahead}Compared are those that were graded both ways:

| | one GPU | {gpus} GPUs |
|---|---|---|
| seconds of a hand-in, mean | {statistics.mean(alone):.1f} | {statistics.mean(beside):.1f} |
| the slowest | {max(alone):.0f} | {max(beside):.0f} |
| of the mean, in races | {mean_of(record, "one", "races_s"):.1f} | {mean_of(record, "all", "races_s"):.1f} |
{pauses}| hand-ins an hour | {one:.0f} | {every:.0f} ({every / one:.2f} ×) |

Points that differ between the two: {", ".join(different) or "none"}.
{spoilt}
| hand-in | s alone | s beside another | points alone | points beside another |
|---|---|---|---|---|
"""
        + "\n".join(rows)
        + "\n"
    )


def in_both(record: dict[str, Any]) -> dict[str, Any]:
    return {name: own for name, own in record["handins"].items() if "one" in own}


def mean_of(record: dict[str, Any], way: str, fact: str) -> float:
    return statistics.mean(own[way].get(fact, 0) for own in in_both(record).values())


def points(facts: dict[str, Any]) -> str:
    more = f", {facts['open']:g} open" if facts["open"] else ""
    return f"{facts['correctness']:g} + {facts['speed']:g}{more} {facts['bands']}".strip()


def measure(work: Path, count: int, one: int) -> dict[str, Any]:
    found = nvidia.gpus()
    if len(found) < 2:
        raise SystemExit(f"this machine has {len(found)} GPU; the comparison needs two")
    handins = work / "handins"
    if not handins.exists():
        hand_ins(handins, count)
    names = sorted(path.name for path in handins.iterdir())
    # Not counted: it compiles the baselines, which are kept
    graded(handins, work / "warm", Options((found[0].uuid,), (names[0],)))
    beside = graded(handins, work / "all", Options())
    alone = graded(handins, work / "one", Options((found[0].uuid,), tuple(names[:one])))
    record: dict[str, Any] = {"gpu": found[0].name, "gpus": len(found), "cores": os.cpu_count()}
    handed = {name: {"all": beside[name]} | ({"one": alone[name]} if name in alone else {}) for name in names}
    return record | {"handins": handed}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--one", type=int, default=ONE, help="how many of them to grade again on one GPU")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--work", type=Path, help="where the classes lie; started again, it grades what is left there")
    chosen = parser.parse_args()
    path = chosen.output.with_suffix(".json")
    if not chosen.render:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])  # of every grading
        with tempfile.TemporaryDirectory() as scratch:
            record = measure(chosen.work or Path(scratch), chosen.count, chosen.one)
        path.write_text(text_of(record, "class_record"), encoding="utf-8")
    chosen.output.with_suffix(".md").write_text(page(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()

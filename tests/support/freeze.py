"""What the grader says of every kernel of the corpus, as one JSON, to be held against what it says after a change.

    python -m tests.support.freeze before.json                  grade the corpus, two kernels at a time (--jobs)
    python -m tests.support.freeze before.json --only softmax   only kernels with this in their names; the others stay
    python -m tests.support.freeze before.json --whole          all cases of wrong kernels too, not only until one fails: an hour
    python -m tests.support.freeze --compare before.json after.json

A kernel's entry has its points and each case: outcome, message, diagnosis, and errors with budgets to three digits. The
inputs are the same in every run. The comparison prints each difference, and its exit code is 1 if there is one.
Attacks are not graded here: tests/corpora/exploits has what must become of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from grader.report.model import Report
from tests.conftest import ROOT
from tests.support.corpus import Entry, entries
from tests.support.warm_judge import judge

KINDS = ("mutants", "accepted")
# What differs from run to run: folders, addresses and seconds.
CHANCE = re.compile(r"/tmp/[^\s'\"]*|0x[0-9a-f]{6,}|\b\d+\.\d+ s\b")


def said(report: Report) -> dict[str, Any]:
    """An entry of the JSON."""
    return {
        "points": [report.correctness.earned, report.correctness.graded],
        "infra_errors": [CHANCE.sub("…", one) for one in report.infra_errors],
        "cases": {
            f"{part.name} {case.name}": {
                "outcome": case.outcome,
                "message": CHANCE.sub("…", case.message),
                "diagnosis": [CHANCE.sub("…", one) for one in case.diagnosis],
                "errors": [rounded(one.model_dump()) for one in case.errors],
            }
            for one in report.assignments
            for part in one.parts
            for case in part.cases
        },
    }


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return f"{value:.3g}" if isinstance(value, float) else value


def frozen(entry: Entry, whole: bool) -> dict[str, Any]:
    stop_early = bool(entry.expected) and not whole
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return said(judge(entry.submission(Path(scratch)), ROOT, entry.assignment, "cpu", stop_early))
        except AssertionError as error:
            return {"fault": str(error)}


def freeze(path: Path, only: str, jobs: int, whole: bool) -> None:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Endless kernels wait for their limit in every case: a test of their own grades them.
    wanted = {f"{kind}/{one.id}": one for kind in KINDS for one in entries(kind) if not one.hangs("cpu")}
    started = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(frozen, one, whole): name for name, one in wanted.items() if only in name}
        for number, future in enumerate(as_completed(futures), 1):
            found[futures[future]] = future.result()
            print(f"{time.monotonic() - started:5.0f} s  {number} of {len(futures)}  {futures[future]}", flush=True)
            path.write_text(json.dumps({name: found[name] for name in sorted(found)}, indent=1), encoding="utf-8")


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differences(before.get(name), after.get(name), f"{where} › {name}" if where else name)
    elif before != after:
        yield f"{where}\n    before: {before}\n    after:  {after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--only", default="")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    arguments = parser.parse_args()
    if arguments.compare is None:
        freeze(arguments.path, arguments.only, arguments.jobs, arguments.whole)
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)
    found = list(differences(before, after))
    print("\n".join(found) or "no difference")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

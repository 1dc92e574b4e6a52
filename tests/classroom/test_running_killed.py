"""A class of twenty-six, of which some gradings are killed or stopped, and whose run is killed twice: each hand-in is counted once.

Each fifth grading is a real one, and all that are killed or stopped are; the others are scripts, which take next to nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from grader.classroom.tasks import DRAFTS, read_tasks
from grader.report.json_file import read_report
from tests.conftest import IMPORTS, Course, open_to_workers
from tests.support.gradings import Scripted

pytestmark = [pytest.mark.grading, pytest.mark.timeout(900)]

STUDENTS = 26
REAL = 5  # one hand-in of so many is graded by `grader run`
LIMIT_S = 30  # of a grading that takes three to six on idle cores
# `grader class run` on a machine with two GPUs, whose gradings run on the CPU.
RUN = """
import sys
from pathlib import Path
from grader.classroom.folder import RunFolder
from grader.classroom.grading import grader_run
from grader.classroom.run import Options, grade_class
from grader.console import console
from grader.nvidia import ListedGpu

folder, notes = RunFolder(Path(sys.argv[1])), Path(sys.argv[2])
run = grader_run(folder.run())

def command(handin, output, gpu):
    script = handin / "script.md"
    if not script.is_file():  # the course's own files, with which a station is tried: it works
        return ["true"]
    with (notes / "commands").open("a") as file:
        file.write(f"{handin.name} {gpu}\\n")
    is_real = "grader run" in script.read_text()
    words = ["/bin/sh", script, handin, output, "cpu", notes]
    return run(handin, output, None) if is_real else words

gpus = [ListedGpu("GPU-1", ""), ListedGpu("GPU-2", "")]
options = Options(limit_s=float(sys.argv[3]), command=command, found=lambda: gpus, locks=notes)
sys.exit(not grade_class(folder, console, options))
"""


class Graded:
    """The class, and the run of it that goes on."""

    def __init__(self, made: Scripted, folder: Path) -> None:
        self.made = made
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        open_to_workers(folder)
        self.output = folder / "output"
        self.run = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.output.open("ab") as output:
            self.run = subprocess.Popen(
                [sys.executable, "-c", RUN, str(self.made.run.path), str(self.made.notes), str(LIMIT_S)],
                env=os.environ | {"TMPDIR": str(self.temporary), "PYTHONPATH": IMPORTS, "COLUMNS": "200"},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.run

    def wait_for(self, condition: Callable[[], object], limit_s: float = 600) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, self.output.read_text()
            assert self.run.poll() is None, self.output.read_text()
            time.sleep(0.05)

    def wait_for_graded(self, number: int) -> None:
        tasks = self.made.run.path / "tasks"
        self.wait_for(lambda: len(list(tasks.glob("*/attempt.*"))) >= number)

    def wait_until_told(self, words: str) -> None:
        self.wait_for(lambda: words in " ".join(self.output.read_text().split()))

    def processes(self, words: str) -> list[psutil.Process]:
        """Those of the class with these words in their command, without the run itself."""
        found = []
        for process in psutil.process_iter():
            try:
                mine = str(self.temporary) in " ".join(process.environ().values()) and process.pid != self.run.pid
                if mine and process.status() != psutil.STATUS_ZOMBIE and words in _words(process):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def youngest(self, words: str, parent: str = "") -> psutil.Process:
        """Of those with these words, whose parents have the others: the youngest is far from its end.

        What still runs code of `-c`, a child of the run or what will become `grader run`, is left alone: if it were stopped, the
        run would wait for it, or nothing would end it.
        """
        found: list[psutil.Process] = []

        def have_one() -> bool:
            with suppress(psutil.Error):
                them = [one for one in self.processes(words) if "-c" not in one.cmdline()]
                found.extend(one for one in them if parent in _words(one.parent()))
            return bool(found)

        self.wait_for(have_one)
        return max(found, key=psutil.Process.create_time)

    def kill_the_run(self) -> int:
        """Kill it in the middle of two gradings. Returns how many were cut off."""
        self.wait_for(lambda: self.processes("grader.judge") and len(self.drafts()) >= 2)
        self.run.kill()
        self.run.wait()
        _, alive = psutil.wait_procs(self.processes("grader run"), timeout=60)
        assert not alive
        return len(self.drafts())

    def drafts(self) -> list[Path]:
        return list((self.made.run.path / "tasks").glob(f"*/{DRAFTS}"))


def _words(process: psutil.Process | None) -> str:
    return "" if process is None else " ".join(process.cmdline())


def test_each_is_counted_once_whatever_is_killed(tmp_path: Path, course: Course) -> None:
    course.add("double")
    # Slow enough that one GPU has not graded all that is left while the grading on the other one is stopped.
    ways = ["grader run", *["sleep 2; graded"] * (REAL - 1)]
    scripts = {f"s{number}": f"# {number}\n{ways[number % REAL]}" for number in range(STUDENTS)}
    made = Scripted(tmp_path, course.folder, scripts, speed=False)
    graded = Graded(made, tmp_path)

    graded.wait_for_graded(2)
    graded.youngest("grader run").kill()
    graded.wait_until_told("was ended by signal 9")
    graded.youngest("grader.judge", parent="grader run").kill()  # not the one that has just lost its parent
    graded.wait_until_told("the judge ended without a report")
    graded.youngest("grader run").send_signal(signal.SIGSTOP)
    cut_off = graded.kill_the_run()
    graded.start()
    graded.wait_for_graded(8)
    graded.youngest("grader run").send_signal(signal.SIGSTOP)
    graded.wait_until_told(f"more than {LIMIT_S} s and was ended")
    cut_off += graded.kill_the_run()
    graded.start()
    assert graded.run.wait(timeout=900) == 0, graded.output.read_text()

    tasks = read_tasks(made.run)
    assert len(tasks) == STUDENTS
    assert {(one.state, len(one.graded)) for one in tasks} == {("graded", 1)}, graded.output.read_text()
    faults = [attempt.fault for one in tasks for attempt in one.spoilt]
    assert sum("ended by signal 9" in fault for fault in faults) == 1, faults
    assert sum("the judge ended without a report" in fault for fault in faults) == 1, faults
    assert sum(f"more than {LIMIT_S} s" in fault for fault in faults) == 1, faults
    assert len(faults) == 3, faults
    for one in tasks:
        path = made.run.tasks(one.handin) / f"attempt.{one.graded[0].number}"
        report, is_real = read_report(path / "report.json"), "grader run" in scripts[one.students[0]]
        assert (report.score.earned, report.score.possible, report.seed) == ((4, 4, 1) if is_real else (0, 0, 1))
        assert (path / "report.html").is_file() == is_real
    # Nothing but what was spoilt or cut off was started twice.
    assert cut_off == 4
    assert len((made.notes / "commands").read_text().splitlines()) == STUDENTS + len(faults) + cut_off
    assert made.leftovers == []
    assert graded.processes("") == []
    assert list(graded.temporary.glob("grader-run-*")) == []

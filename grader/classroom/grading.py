"""One grading of a hand-in: `grader run` as a process, from its start to the folder of the attempt."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from grader.assignment import load_course
from grader.classroom.folder import RunFolder, write_whole
from grader.classroom.model import Attempt, Run
from grader.classroom.task import UNUSABLE, Task
from grader.console import EXIT_INFRA
from grader.report.json_file import REPORT, ReportError, read_report
from grader.report.model import Report
from grader.runfolder import remove
from grader.sandbox.base import RUN_LIMIT_S, UsageError
from grader.submission import SubmissionError, stage, survey

# `grader run` ends a judge that is silent or too long itself, after an hour at the latest; then it writes its report. A grading beyond
# this limit cannot do even that: its process was stopped, or a file system does not answer.
LIMIT_S = RUN_LIMIT_S + 600
STOP_LIMIT_S = 45  # an asked `grader run` has its judge write a last report (15 s), and ends it (20 s)
OUTPUT = "output.txt"
DRAFTS = ".attempt.*"
MAX_FAULT = 500
LAST_BYTES = 8000
FAULT = "infra_error: "
CLEANUP_LIMIT_S = 120
# Makes a program die with the process that started it, however that ends (PR_SET_PDEATHSIG, prctl(2)).
LEASH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[2], sys.argv[2:])
"""

# Makes the command of a grading, of a hand-in's folder, a folder for the report, and a GPU's UUID.
Command = Callable[[Path, Path, str | None], Sequence[str]]


def grader_run(run: Run, course: Path) -> Command:
    """Makes the command of one grading. Everything that it depends on is said, whatever the environment says."""

    def command(handin: Path, output: Path, gpu: str | None) -> list[str]:
        words = [sys.executable, "-P", "-m", "grader", "run", str(handin), "--output", str(output)]
        words += ["--course", str(course), "--seed", str(run.seed), "--sandbox", run.sandbox]
        words += ["--device", "cuda", "--gpu", gpu] if gpu else ["--device", "cpu"]
        words += [word for name in run.assignments for word in ("--assignment", name)]
        words += ["--image", run.image] if run.image else []
        words += ["--require-isolation"] if run.require_isolation else []
        words += [] if run.speed else ["--no-speed"]
        return words + (["--quick"] if run.effort == "quick" else [])

    return command


@dataclass(frozen=True)
class Handins:
    """Says why a hand-in cannot be graded, by what `grader run` looks at before it grades."""

    course: Path
    assignments: tuple[str, ...]

    def why_unusable(self, handin: Path) -> str:
        wanted = tuple(one.spec.file for one in load_course(self.course, self.assignments))
        stubs = self.course / "starter"
        known = [path.name for path in stubs.iterdir() if path.is_file()] if stubs.is_dir() else []
        with tempfile.TemporaryDirectory(prefix="grader-handin-") as folder:
            try:
                stage(handin, Path(folder, "submission"), wanted, survey(handin, wanted, known))
            except SubmissionError as error:
                return str(error).removeprefix(f"{handin}: ").removeprefix(f"{handin}/")
        return ""


class Grading:
    """A grading that goes on. The folder of the attempt is a draft until `publish`, and is removed by `discard`.

    Args:
        folder, task: the class, and what is graded; the caller has locked the task.
        command: see `Command`.
        place: for `Attempt`.
        holds: descriptors of locks that the process is to hold until its end.
        limit_s: of the whole grading.
    """

    def __init__(
        self,
        folder: RunFolder,
        task: Task,
        command: Command,
        gpu: str | None,
        place: str,
        holds: Sequence[int] = (),
        limit_s: float = LIMIT_S,
    ) -> None:
        self.task = task
        self.place = place
        self.started = datetime.now(UTC)
        self._begun = time.monotonic()
        self._limit_s = limit_s
        self._number = 1 + max((one.number for one in task.attempts), default=0)
        self._attempts = folder.tasks(task.handin).absolute()
        self._late = False
        self._handin = (folder.handins / task.handin).absolute()
        self.draft = Path(tempfile.mkdtemp(prefix=f".attempt.{self._number}-", dir=self._attempts))
        try:
            self._process = _start(command(self._handin, self.draft, gpu), self.draft / OUTPUT, holds)
        except BaseException:
            remove(self.draft)
            raise

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def poll(self) -> int | None:
        """The exit code, or None while the grading goes on; a grading beyond its limit is killed."""
        code = self._process.poll()
        if code is None and self.seconds > self._limit_s:
            self._late = True
            self.kill()
            code = self._process.wait()
        return code

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def result(self, why_unusable: Callable[[Path], str]) -> tuple[Attempt, Report | None]:
        """The attempt at the end of the process, and its report if there is a grade in it.

        Raises UsageError: `grader run` grades no hand-in in this way.
        """
        code = self._process.wait()
        report, fault = self._ending(code)
        if code == UNUSABLE and not self._late:
            last, fault = fault, why_unusable(self._handin)
            if not fault:
                raise UsageError(f"`grader run` refuses to grade as run.json says: {last}")
        attempt = Attempt(
            number=self._number,
            started=self.started,
            ended=datetime.now(UTC),
            exit_code=code,
            place=self.place,
            fault=fault[:MAX_FAULT],
        )
        return attempt, None if fault else report

    def publish(self, attempt: Attempt) -> bool:
        """Rename the draft, which is on the disk then. False if there is an attempt of that number; the draft is gone. Raises OSError."""
        write_whole(self.draft / "attempt.json", attempt.model_dump_json(indent=1) + "\n")
        self.draft.chmod(0o755)
        for path in (*self.draft.iterdir(), self.draft):
            _sync(path)
        try:
            self.draft.rename(self._attempts / f"attempt.{attempt.number}")
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            self.discard()
            return False
        _sync(self._attempts)
        return True

    def discard(self) -> None:
        """Kill what still runs, and remove the draft."""
        if self._process.poll() is None:
            self.kill()
            self._process.wait()
        remove(self.draft)

    def _ending(self, code: int) -> tuple[Report | None, str]:
        """The report, and why there is no grade."""
        if self._late:
            return None, f"the grading took more than {self._limit_s:g} s and was ended"
        if code < 0:
            return None, f"`grader run` was ended by signal {-code} ({signal.strsignal(-code)})"
        last = last_words(self.draft / OUTPUT)
        try:
            report = read_report(self.draft / REPORT)
        except ReportError as error:
            told = last if code in (UNUSABLE, EXIT_INFRA) else ""
            return None, told or f"`grader run` ended with {code}: {last or error}"
        if code == 0 and not report.incomplete:
            return report, ""
        return report, "; ".join(report.infra_errors) or f"`grader run` ended with {code}: {last}"

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _start(words: Sequence[str], output: Path, holds: Sequence[int]) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "GRADER_GPU"}
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
            pass_fds=holds,
        )


def last_words(output: Path) -> str:
    """The sentence with which `grader run` ended: its fault of the machine, or its last line."""
    with output.open("rb") as file:
        file.seek(-min(LAST_BYTES, output.stat().st_size), os.SEEK_END)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    faults = [line.removeprefix(FAULT) for line in lines if line.startswith(FAULT)]
    return next(iter([*faults[-1:], *lines[-1:]]), "")


def remove_drafts(attempts: Path) -> None:
    """Remove what killed runs left in the folder of a task that the caller has locked."""
    for draft in attempts.glob(DRAFTS):
        remove(draft)


def clean_up() -> str:
    """Remove what killed gradings left elsewhere: their workers, containers and folders. Returns why that was not possible, if so."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "grader", "cleanup"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CLEANUP_LIMIT_S,
            process_group=0,
        )
    except subprocess.TimeoutExpired:
        return f"`grader cleanup` took more than {CLEANUP_LIMIT_S} s"
    words = done.stdout.decode(errors="replace").strip().splitlines()
    return "" if done.returncode == 0 else f"`grader cleanup`: {words[-1] if words else done.returncode}"


def _sync(path: Path) -> None:
    """Have the disk hold a file or a folder, so that a power cut cannot leave an attempt without its report."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

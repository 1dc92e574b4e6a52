"""One grading of a hand-in: starts `grader run` as a process, and publishes its result as the folder of an attempt."""

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
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from grader.assignment import stub_names
from grader.classroom.folder import Attempt, ClassError, ClassRun, RunFolder, course_of, file_names, write_whole
from grader.classroom.station import Station
from grader.classroom.tasks import UNUSABLE, Task
from grader.console import EXIT_INFRA
from grader.report.json_file import REPORT, ReportError, read_report
from grader.report.model import Report
from grader.runfolder import remove
from grader.sandbox.base import RUN_LIMIT_S, UsageError
from grader.submission import SubmissionError, stage, survey

# `grader run` itself ends a silent or slow judge, after an hour at the latest. A grading beyond this limit hangs: its process was
# stopped, or a file system does not answer.
LIMIT_S = RUN_LIMIT_S + 600
STOP_LIMIT_S = 45  # after SIGTERM `grader run` gives its judge 15 s for a last report, and ends the judge within 20 s
OUTPUT = "output.txt"
MAX_FAULT = 500
LAST_BYTES = 8000
FAULT = "infra_error: "
# Runs a program on some cores that is killed as soon as the starting process ends (PR_SET_PDEATHSIG, prctl(2)).
LEASH = f"""\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
try:
    if sys.argv[2]: os.sched_setaffinity(0, map(int, sys.argv[2].split(",")))
except OSError:
    print("{FAULT}no core of this GPU's share is left; a new `grader class run` shares those that are")
    sys.exit({EXIT_INFRA})
if os.getppid() == int(sys.argv[1]): os.execv(sys.argv[3], sys.argv[3:])
"""

# Makes the command of a grading from the hand-in's folder, a folder for the report, and a GPU's UUID (None: the CPU).
Command = Callable[[Path, Path, str | None], Sequence[str]]


def grader_run(run: ClassRun) -> Command:
    """A `Command` for `grader run` with the class's options, all explicit, so that no environment variable changes them.

    Raises ClassError.
    """
    course = course_of(run)

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


def why_unusable(run: ClassRun, handin: Path) -> str:
    """Why `grader run` refuses a hand-in before it starts a judge; "" if it does not."""
    wanted, known = file_names(run)
    with tempfile.TemporaryDirectory(prefix="grader-handin-") as folder:
        try:
            stage(handin, Path(folder, "submission"), wanted, survey(handin, wanted, known))
        except SubmissionError as error:
            return str(error).removeprefix(f"{handin}: ").removeprefix(f"{handin}/")
    return ""


def grade_the_courses(command: Command, files: Path, station: Station, limit_s: float = LIMIT_S) -> tuple[int, str]:
    """Grade files of the course as a hand-in would be. Returns the exit code and what was said; nothing is kept.

    Args:
        files: the folder with the stubs, of which no code runs, or with the reference.
        limit_s: seconds of the grading.
    """
    with tempfile.TemporaryDirectory(prefix="grader-course-") as folder:
        output = Path(folder, OUTPUT)
        gpu = station.gpu.uuid if station.gpu else None
        process = _start(command(files.absolute(), Path(folder, "report"), gpu), output, station)
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
        said = output.read_text(encoding="utf-8", errors="replace").strip()
        return code, last_words(output) if code == EXIT_INFRA else said[-LAST_BYTES:]


def why_not_here(run: ClassRun) -> str:
    """Why this machine cannot grade the class as `run` says, apart from its GPU; "" if it can.

    Raises:
        ClassError: no judge takes the course.
    """
    course = course_of(run)
    stubs = course / "starter" if stub_names(course) else course / "reference"
    code, words = grade_the_courses(grader_run(run), stubs, Station(None))
    fault = words if code == EXIT_INFRA else ""
    if fault:  # before a judge had looked at the course
        plain = run.model_copy(update={"sandbox": "host", "require_isolation": False})
        code, words = grade_the_courses(grader_run(plain), stubs, Station(None))
    if code == UNUSABLE:
        raise ClassError(words)
    return fault


class RunningAttempt:
    """A grading in progress. The attempt's folder is a draft until `publish`; `discard` removes the draft.

    Args:
        folder, task: the class and the task.
        own: the task's lock, which `publish` and `discard` release, and which the process holds until its end, as that
            of the station.
        station: where it runs.
        limit_s: seconds of the whole grading.
    """

    def __init__(
        self,
        folder: RunFolder,
        task: Task,
        own: FileIO,
        command: Command,
        station: Station,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.task = task
        self._station = station
        self._started = datetime.now(UTC)
        self._begun = time.monotonic()
        self._own = own
        self._limit_s = limit_s
        self._number = 1 + max((one.number for one in task.attempts), default=0)
        self._attempts = folder.tasks(task.handin).absolute()
        self._late = False
        handin = (folder.handins / task.handin).absolute()
        self.draft = Path(tempfile.mkdtemp(prefix=f".attempt.{self._number}-", dir=self._attempts))
        try:
            words = command(handin, self.draft, station.gpu.uuid if station.gpu else None)
            self._process = _start(words, self.draft / OUTPUT, station, own)
        except BaseException:
            remove(self.draft)
            raise

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    def poll(self) -> int | None:
        """The exit code, or None if the grading goes on. Kills a grading beyond its limit."""
        code = self._process.poll()
        if code is None and self.seconds > self._limit_s:
            self._late = True
            _signal(self._process, signal.SIGKILL)
            code = self._process.wait()
        return code

    def ask_to_end(self) -> None:
        _signal(self._process, signal.SIGTERM)

    def result(self, why_unusable: Callable[[], str]) -> tuple[Attempt, Report | None]:
        """Wait for the end of the process. Returns the attempt, and the report unless the attempt has a fault.

        Args:
            why_unusable: why the hand-in cannot be graded; "" if it can.

        Raises:
            UsageError: `grader run` refused its options, which are the same for every hand-in.
        """
        code = self._process.wait()
        last = last_words(self.draft / OUTPUT)
        report, fault = None, ""
        if self._late:
            fault = f"the grading took more than {self._limit_s:g} s and was ended"
        elif code < 0:
            fault = f"`grader run` was ended by signal {-code} ({signal.strsignal(-code)})"
        else:
            try:
                report = read_report(self.draft / REPORT)
                if code != 0 or report.incomplete:
                    fault = "; ".join(report.infra_errors) or f"`grader run` ended with {code}: {last}"
            except ReportError as error:
                told = last if code in (UNUSABLE, EXIT_INFRA) else ""
                fault = told or f"`grader run` ended with {code}: {last or error}"
            if code == UNUSABLE:
                fault, refused = why_unusable(), fault
                if not fault:
                    raise UsageError(f"`grader run` refuses to grade as run.json says: {refused}")
        attempt = Attempt(
            number=self._number,
            started=self._started,
            ended=datetime.now(UTC),
            exit_code=code,
            place=self._station.place,
            fault=fault[:MAX_FAULT],
        )
        return attempt, None if fault else report

    def publish(self, attempt: Attempt) -> bool:
        """Sync the draft to the disk and rename it to the attempt's folder. Raises OSError.

        Returns False, and discards the draft, if an attempt with this number exists.
        """
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
        self._own.close()
        return True

    def discard(self) -> None:
        """Kill the process if it still runs, remove the draft, and release the task."""
        if self._process.poll() is None:
            _signal(self._process, signal.SIGKILL)
            self._process.wait()
        remove(self.draft)
        self._own.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a grading and all that it has started in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _start(words: Sequence[str], output: Path, station: Station, own: FileIO | None = None) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "GRADER_GPU"}
    held = [one.fileno() for one in (own, station.held) if one]
    cores = ",".join(map(str, station.cores))
    with output.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LEASH, str(os.getpid()), cores, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            process_group=0,
            pass_fds=held,
        )


def last_words(output: Path) -> str:
    """The last sentence of `grader run` about a fault of the machine; without such a sentence, its last line."""
    with output.open("rb") as file:
        file.seek(-min(LAST_BYTES, output.stat().st_size), os.SEEK_END)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    faults = [line.removeprefix(FAULT) for line in lines if line.startswith(FAULT)]
    return next(iter([*faults[-1:], *lines[-1:]]), "")


def _sync(path: Path) -> None:
    """Sync a file or folder to the disk, so that a power cut cannot leave an attempt without its report."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

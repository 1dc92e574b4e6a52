"""Turns a worker's death (a deadline, a signal, an exit) into a sentence with the student's lines from the worker's
last words.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from grader.pool.fault import Fault
from grader.pool.log import Log
from grader.pool.watch import Allowance

NO_ANSWER, STOPPED = "no answer within", ": stopped"  # begin and end of the message for a call that took too long
LAST_WORDS = "Timeout ("  # begins the stack that faulthandler prints into the log: the worker's last words
LAST_WORDS_S = 3.0  # on a busy machine faulthandler's thread must wait for a core
LOOK_INTERVAL_S = 0.05
MAX_FRAMES = 8  # the innermost
MAX_SOURCE_BYTES, MAX_LINE = 1 << 20, 200
# A frame of Triton's interpreter while it calls a function for each element.
ELEMENT_BY_ELEMENT = re.compile(r'/triton/runtime/interpreter\.py", line \d+ in (generic_reduce|generic_scan)\n')
SLOW_IN_PYTHON = (
    "it was in tl.reduce or tl.associative_scan with a function of your own, which Triton's interpreter calls in Python for each element: "
    "right code can take this long on a CPU, and a moment on a GPU; tl.max, tl.sum and tl.cumsum are quick in both"
)
BEYOND = "consistent with a store or load beyond the end of a tensor, as when a mask is missing"
# What the library of C++ prints before it aborts a program that does not catch an exception.
THROWN = re.compile(
    r"^terminate called after throwing an instance of '([^'\n]{1,200})'(?:\n  what\(\):  ([^\n]{1,500}))?", re.MULTILINE
)
SIGNALS = {
    "SIGSEGV": f"segmentation fault (SIGSEGV): {BEYOND}",
    "SIGABRT": "aborted (SIGABRT): by abort(), as an error check of the file's own may call it, or by the allocator, whose memory was "
    "overwritten, as by a store beyond the end of a tensor",
    "SIGBUS": f"bus error (SIGBUS): {BEYOND}",
    "SIGKILL": "killed (SIGKILL), as the system does when memory runs out",
}


def wait_for_last_words(log: Log) -> None:
    """Give a late worker a moment to print its stack; faulthandler prints in many pieces."""
    until, before = time.monotonic() + LAST_WORDS_S, ""
    while time.monotonic() < until:
        text = log.text()
        if LAST_WORDS in text and text == before:
            return
        before = text
        time.sleep(LOOK_INTERVAL_S)


def late(limit_s: float, allowance: Allowance, log: Log, folder: Path | None, on_cpu: bool) -> Fault:
    """The fault of a call that took longer than `limit_s`, or used up the allowance. `folder` is the folder of the
    student's file.
    """
    text = log.text()
    place = student_frames(text, folder)
    if not allowance.left_s:
        return Fault("timed_out", f"{allowance.words}: stopped", place)
    details = (SLOW_IN_PYTHON,) if on_cpu and ELEMENT_BY_ELEMENT.search(text) else ()
    return Fault("timed_out", f"{NO_ANSWER} {limit_s:g} s{STOPPED}", place, details)


def ended(code: int | None, in_bubblewrap: bool, log: Log, folder: Path | None) -> Fault:
    """The fault of a call whose worker ended by itself. `code` is Popen's returncode; None if only the connection was
    closed.
    """
    if in_bubblewrap and code is not None and code - 128 in signal.valid_signals():
        code = 128 - code  # bubblewrap reports a signal as a shell does
    if code is None:
        return Fault("crashed", "closed its connection to the grader")
    if code >= 0:
        return Fault("crashed", f"ended the process with exit code {code} instead of returning")
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    text = log.text()
    why = SIGNALS.get(name, name)
    if name == "SIGABRT" and (thrown := THROWN.search(text)):
        why = "an exception of C++ was thrown and not caught: " + ": ".join(filter(None, thrown.groups()))
    return Fault("crashed", f"the process ended: {why}", student_frames(text, folder))


def student_frames(text: str, folder: Path | None) -> str:
    """The frames of faulthandler's output that lie in `folder`, as Python shows a traceback: the innermost last, each with its
    line. "" if no file was loaded.
    """
    if folder is None:
        return ""
    root = re.escape(str(folder) + os.sep)
    frames = re.findall(rf'File "{root}([^"\n]{{1,200}})", line (\d{{1,7}}) in (\S{{1,100}})', text)[:MAX_FRAMES]
    told = []
    for file, number, of in reversed(frames):
        told.append(f'  File "{file}", line {number}, in {of}')
        try:
            path = (folder / file).resolve()  # the student can write any path into the log
            is_own = (
                path.is_relative_to(folder.resolve()) and path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES
            )
            lines = path.read_bytes().decode(errors="replace").splitlines() if is_own else []
        except OSError:
            continue
        if 0 < int(number) <= len(lines) and (line := lines[int(number) - 1].strip()):
            told.append(f"    {line[:MAX_LINE]}")
    return "\n".join(told)

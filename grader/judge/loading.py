"""Loads a file of the course or of a submission into a worker; CUDA C++ is built first."""

from __future__ import annotations

import re
from pathlib import Path

from grader.assignment import Assignment
from grader.judge.environment import find_compiler
from grader.nvidia import find_nvcc
from grader.pool.cuda_cpu import provide_runtime
from grader.pool.fault import Fault
from grader.pool.last_words import NO_ANSWER, STOPPED
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import Build

AT_IMPORT = re.compile(r'^  File "([^"\n]+)", line (\d+), in <module>\n    (.+)$', re.MULTILINE)
IMPORTS = re.compile(r"(import|from)\b")


def load_file(worker: Worker, folder: Path, assignment: Assignment) -> Worker:
    """Load the assignment's file from `folder`, and return the worker. A fault ends its worker.

    Raises:
        Fault: the file could not be built or imported, or lacks its entry.
    """
    spec = assignment.spec
    time_s = spec.limits.import_limit_s + (spec.limits.build_limit_s if spec.language == "cuda" else 0)
    limits = CallLimits(time_s, spec.limits.memory_gib)
    build = None
    if spec.language == "cuda" and (compiler := find_compiler(worker.device)):
        on_cpu = worker.device == "cpu"
        if on_cpu:
            provide_runtime(worker.runtime, compiler)
        build = Build(
            compiler, spec.limits.build_limit_s, find_nvcc() if on_cpu else None, spec.gpu.arch, spec.signature
        )
    try:
        worker.load(folder / spec.file, spec.entry, build, limits, gpu=None if worker.device == "cuda" else spec.gpu)
    except Fault as fault:
        worker.kill()
        if fault.whose == "machine":
            raise
        fault.of_file = True
        if fault.message.startswith(NO_ANSWER):
            doing = "built and loaded" if spec.language == "cuda" else "imported"
            fault.message = f"{fault.message.removesuffix(STOPPED)} while {spec.file} was {doing}{STOPPED}"
            fault.details = (*at_import(fault.traceback), *fault.details)
        raise
    return worker


def at_import(traceback: str) -> tuple[str, ...]:
    """What a file that takes too long to import did: a sentence about its last line outside of all functions, if that is known."""
    *_, found = [None, *AT_IMPORT.finditer(traceback)]
    if found is None:
        return ()
    file, line, source = found.groups()
    told = f"line {line} of {file} was running, `{source}`"
    if IMPORTS.match(source):
        return (told,)
    return (
        f'{told}, as it does whenever the file is imported: put what tries your kernels out below `if __name__ == "__main__":`',
    )

"""Loads a file of the course or of a submission into a worker; CUDA C++ is built first."""

from __future__ import annotations

from pathlib import Path

from grader.assignment import Assignment
from grader.contender.contender import CallLimits, Contender
from grader.contender.cuda_cpu import provide_runtime
from grader.contender.replies import ContenderFault
from grader.judge.environment import find_compiler
from grader.nvidia import find_nvcc
from grader.protocol import Build


def load_file(contender: Contender, folder: Path, assignment: Assignment) -> Contender:
    """Load the assignment's file from `folder`, and return the contender. A fault ends its worker.

    Raises:
        ContenderFault: the file could not be built, imported, or lacks its entry.
        WorkerUnavailable: the worker did not start, by a fault of the machine.
    """
    contender.ready()
    spec = assignment.spec
    time_s = spec.limits.import_limit_s + (spec.limits.build_limit_s if spec.language == "cuda" else 0)
    limits = CallLimits(time_s, spec.limits.memory_gib)
    build = None
    if spec.language == "cuda" and (compiler := find_compiler(contender.device)):
        on_cpu = contender.device == "cpu"
        if on_cpu:
            provide_runtime(contender.runtime, compiler)
        build = Build(
            compiler, spec.limits.build_limit_s, find_nvcc() if on_cpu else None, spec.gpu.arch, spec.signature
        )
    try:
        contender.load(
            folder / spec.file, spec.entry, build, limits, gpu=None if contender.device == "cuda" else spec.gpu
        )
    except ContenderFault:
        contender.kill()
        raise
    return contender

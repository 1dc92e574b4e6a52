"""Reads a submission's source in a process with limits, so that source that takes too long to parse cannot hold up the
judge.

The process runs `grader/verdict/policy.py`, whose time grows with the length of the source only.

    python -m grader.judge.reading FOLDER CPU_LIMIT_S PARENT_PID

The judge writes questions to its standard input and reads answers from its standard output, as lines of JSON.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader.contender import processes
from grader.verdict import text
from grader.verdict.policy import ForbiddenUse, cuda_findings, cuda_kernels, included_from, read_python
from grader.verdict.sources import triton_kernels

CPU_LIMIT_S = 20
MEMORY_LIMIT_BYTES = 2 << 30
PATIENCE_S = 300.0  # seconds of wall time, for a machine so busy that the process gets no turn
MAX_SHOWN = 3
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Question:
    """The file of one assignment, and its policy: allowed `imports` (None: no policy) and `forbidden` names."""

    file: str
    entry: str
    language: str
    imports: tuple[str, ...] | None
    forbidden: tuple[str, ...]


@dataclass(frozen=True)
class Uses:
    """Forbidden uses of a source: the first MAX_SHOWN, how many there are, how many of all are imports of missing modules, and
    the source lines of those that are shown.
    """

    findings: tuple[ForbiddenUse, ...] = ()
    count: int = 0
    absent: int = 0
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        plain, gradients: forbidden uses that a call reaches without gradients, and with them.
        unreadable: why a file of the submission cannot be read as source, or "".
        kernels: names of the kernels that the submission defines.
    """

    plain: Uses = Uses()
    gradients: Uses = Uses()
    unreadable: str = ""
    kernels: frozenset[str] = frozenset()


def read(
    folder: Path, files: Sequence[str], questions: Sequence[Question], cpu_limit_s: int = CPU_LIMIT_S
) -> list[Answer | None]:
    """An answer to each question; None if the process met its limits at that question.

    Args:
        folder: the staged submission.
        files: names of its files.
        cpu_limit_s: seconds of processor time.

    Raises:
        subprocess.TimeoutExpired: the process got no turn on this machine for PATIENCE_S seconds.
    """
    answers: list[Answer | None] = []
    while len(answers) < len(questions):
        found = _ask(folder, files, questions[len(answers) :], cpu_limit_s)
        answers += found
        if len(answers) < len(questions):
            answers.append(None)  # a new process answers the next question
    return answers


def _ask(folder: Path, files: Sequence[str], questions: Sequence[Question], cpu_limit_s: int) -> list[Answer]:
    with tempfile.TemporaryFile() as asked:
        for one in ({"files": list(files)}, *map(asdict, questions)):
            asked.write(json.dumps(one).encode() + b"\n")
        asked.seek(0)
        command = [sys.executable, "-P", "-m", "grader.judge.reading", str(folder), str(cpu_limit_s), str(os.getpid())]
        package = str(Path(__file__).parents[2])
        told = processes.output_of(command, PATIENCE_S, stdin=asked, env={**os.environ, "PYTHONPATH": package})
    return [_answer(line) for line in told.decode().splitlines() if line.endswith("}")]


def _answer(line: str) -> Answer:
    found = json.loads(line)
    return Answer(_uses(found["plain"]), _uses(found["gradients"]), found["unreadable"], frozenset(found["kernels"]))


def _uses(found: dict[str, Any]) -> Uses:
    return Uses(
        tuple(ForbiddenUse(**one) for one in found["findings"]), found["count"], found["absent"], tuple(found["lines"])
    )


def main() -> None:
    """Answer the questions one by one. The kernel kills this process if the judge ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[3]):
        return
    resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]),) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a syntax tree holds no garbage, and looking through it takes a third of the time
    folder, (head, *questions) = Path(sys.argv[1]), [json.loads(line) for line in sys.stdin]
    for asked in questions:
        answer = _read(folder, head["files"], Question(**asked))
        print(json.dumps(asdict(answer) | {"kernels": sorted(answer.kernels)}), flush=True)
        gc.collect()  # the modules of this question, which know each other


def _read(folder: Path, files: Sequence[str], question: Question) -> Answer:
    if question.language == "cuda":
        return _read_cuda({name: (folder / name).read_bytes() for name in files}, question)
    sources = {name: (folder / name).read_bytes() for name in files if name.endswith(".py")}
    plain, gradients = read_python(sources, question.file, question.entry, question.imports, question.forbidden)
    return Answer(
        _shown(plain.findings, sources),
        _shown(gradients.findings, sources),
        next((told for name in gradients.files if (told := text.fault(name, sources[name]))), ""),
        triton_kernels(sources),
    )


def _read_cuda(sources: Mapping[str, bytes], question: Question) -> Answer:
    texts = {name: text.decoded(source) for name, source in sources.items()}
    codes = included_from(question.file, texts)
    found = [] if question.imports is None else cuda_findings(codes, question.file, question.forbidden)
    uses = _shown(found, sources)
    told = (
        text.fault(name, sources[name]) or text.left_over(name, code) or text.stray_character(name, code)
        for name, code in codes.items()
    )
    return Answer(uses, uses, next(filter(None, told), ""), cuda_kernels(codes.values()))


def _shown(found: Sequence[ForbiddenUse], sources: Mapping[str, bytes]) -> Uses:
    shown = tuple(found[:MAX_SHOWN])
    lines = tuple(text.lines(text.decoded(sources[one.file]))[one.line - 1].strip()[:200] for one in shown)
    return Uses(shown, len(found), sum(one.absent for one in found), lines)


if __name__ == "__main__":
    main()

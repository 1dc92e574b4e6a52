"""Reads a submission's source in a process with limits, so that source that takes too long to parse cannot hold up the
judge.

The process runs `grader/verdict/sources.py` and `policy.py` there, whose time grows with the length of the source only.

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
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from grader.pool import processes
from grader.verdict import text
from grader.verdict.policy import cuda_findings, cuda_kernels, included_from
from grader.verdict.sources import ForbiddenUse, imported_from, refused_imports, triton_kernels, uses_of

CPU_LIMIT_S = 20
MEMORY_LIMIT_BYTES = 2 << 30
PATIENCE_S = 300.0  # seconds of wall time, for a machine so busy that the process gets no turn
MAX_SHOWN, MAX_HINTS = 3, 200
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Question:
    """The file of one assignment, and its policy: allowed `imports` (None: no policy) and `forbidden` names."""

    file: str
    language: str
    imports: tuple[str, ...] | None
    forbidden: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        refused: the first MAX_SHOWN imports and uses for which the source must not be run. count: how many there are.
        hints: the first MAX_HINTS places that use what the student should write; none of them decides anything.
        unreadable: why a file of the submission cannot be read as source, or "".
        kernels: names of the kernels that the submission defines.
    """

    refused: tuple[ForbiddenUse, ...] = ()
    count: int = 0
    hints: tuple[ForbiddenUse, ...] = ()
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
    refused, hints = (tuple(ForbiddenUse(**one) for one in found[name]) for name in ("refused", "hints"))
    return Answer(refused, found["count"], hints, found["unreadable"], frozenset(found["kernels"]))


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
    read = imported_from(question.file, sources)
    refused, hints = list[ForbiddenUse](), list[ForbiddenUse]()
    if question.imports is not None:
        refused = list(refused_imports(read, sources, question.imports))
        hints = list(islice(uses_of(read, question.forbidden), MAX_HINTS))
    needed = imported_from(question.file, sources, at_once=True)
    return Answer(
        _with_code(refused[:MAX_SHOWN], sources),
        len(refused),
        _with_code(hints, sources),
        next((told for one in needed if (told := text.fault(one.file, sources[one.file]))), ""),
        triton_kernels(sources),
    )


def _read_cuda(sources: Mapping[str, bytes], question: Question) -> Answer:
    texts = {name: text.decoded(source) for name, source in sources.items()}
    codes = included_from(question.file, texts)
    found = [] if question.imports is None else cuda_findings(codes, question.file, question.forbidden)
    told = (
        text.fault(name, sources[name]) or text.left_over(name, code) or text.stray_character(name, code)
        for name, code in codes.items()
    )
    refused = _with_code(found[:MAX_SHOWN], sources)
    return Answer(refused, len(found), (), next(filter(None, told), ""), cuda_kernels(codes.values()))


def _with_code(found: Sequence[ForbiddenUse], sources: Mapping[str, bytes]) -> tuple[ForbiddenUse, ...]:
    lines = {file: text.lines(text.decoded(sources[file])) for file in {one.file for one in found}}
    return tuple(replace(one, code=lines[one.file][one.line - 1].strip()[:200]) for one in found)


if __name__ == "__main__":
    main()

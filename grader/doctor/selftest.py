"""The self-test: a grading of y = 2 x, in which a right kernel must pass, a wrong one fail, and three that try to escape fail."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grader import grading
from grader.doctor.finding import OURS, Finding, Unneeded, broken
from grader.messages import Place, Request
from grader.pool.jail import Jail
from grader.report.model import CaseResult, Isolation, Report
from grader.runfolder import run_folder
from grader.sandbox.base import InfraError

PROBLEM = '''
"""y = 2 x."""

import torch

from grader.problem import Call, Cost, Params


class DoubleParams(Params):
    n: int


def make_inputs(params, dtype, generator):
    return Call(args={"x": torch.randn(params.n, generator=generator, device=generator.device, dtype=dtype)})


def outputs(call):
    return {"y": tuple(call.args["x"].shape)}


def oracle(call):
    return {"y": 2 * call.args["x"].double()}


def baseline(call):
    return {"y": 2 * call.args["x"]}


def cost(params, dtype):
    return Cost(8 * params.n, params.n)
'''
TOML = """
title = "Doubling"
file = "double.py"
entry = "double"
language = "triton"
limits = { time_limit_s = { cpu = 10, cuda = 10 }, memory_gib = 8 }
tolerance = { k = 6, scale = { y = "element" }, floor = { float32 = 1e-6 }, floor_rms = { float32 = 1e-6 } }

[[part]]
name = "double"
title = "y = 2 x"

[[part.group]]
name = "all"
title = "All"
points = 1
cases = [
  { name = "right", tries = "a right kernel", n = 1000 },
  { name = "wrong", tries = "a wrong kernel", n = 1001 },
  { name = "files", tries = "a kernel that wants another user's file", n = 1002 },
  { name = "processes", tries = "a kernel that looks for other processes", n = 1003 },
  { name = "network", tries = "a kernel that calls somebody", n = 1004 },
]
"""
STUB = "def double(x):\n    raise NotImplementedError\n"
REFERENCE = "def double(x):\n    return 2 * x\n"
# One file has all kernels, so that one worker is enough. A kernel that tries to escape gives the right answer only if it does.
SUBMISSION = """
import socket

def right(x):
    return 2 * x

def wrong(x):
    return 2 * x + 0.01

def files(x):
    with open({path!r}) as file:
        return 2 * x if file.read() == {secret!r} else 0 * x

def processes(x):
    with open("/proc/{pid}/cmdline") as file:
        return 2 * x if file.read() == {command!r} else 0 * x

def network(x):
    socket.create_connection(("127.0.0.1", {port}), timeout=2).close()
    return 2 * x

def double(x):
    kernel = {{1000: right, 1001: wrong, 1002: files, 1003: processes, 1004: network}}[len(x)]
    try:
        return kernel(x)
    except OSError:
        return 0 * x
"""
REACHED = {"files": "read another user's file", "processes": "saw other processes", "network": "reached the network"}
SEE = "see bubblewrap and user namespaces, above"


def findings(jail: Jail) -> Iterator[Finding]:
    """Grade a small submission in a small course: right kernel, wrong kernel, escape.

    Args:
        jail: the strongest jail of this machine; the grading requires isolation if that jail isolates.
    """
    place = Place(sandbox="host", require_isolation=Isolation(jail=jail.name).isolated)
    try:
        with run_folder() as folder, outside(folder) as submission:
            write_course(folder, submission)
            request = Request(submission=folder / "submission", course=folder, place=place)
            report = grading.grade(request, lambda _event: None)
    except (InfraError, OSError) as error:
        yield Finding("fault", f"no judge could be started: {error}", OURS)
        raise Unneeded("not tried") from None
    yield from judge(report)


@contextmanager
def outside(folder: Path) -> Iterator[str]:
    """A context with three things that a submission must not reach: a public file in `folder`, this process, a port of this machine.

    Gives the submission that tries to reach them.
    """
    folder.chmod(0o711)
    file, secret = folder / "secret", secrets.token_hex(16)
    file.write_text(secret)
    file.chmod(0o644)
    command = Path("/proc/self/cmdline").read_text()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        yield SUBMISSION.format(path=str(file), secret=secret, pid=os.getpid(), command=command, port=port)


def judge(report: Report) -> list[Finding]:
    """The findings about this machine in the grading's report."""
    cases = {case.name: case for one in report.assignments for part in one.parts for case in part.cases}

    def expected(case: CaseResult, outcome: str, words: str) -> Finding:
        if case.outcome == outcome:
            return Finding("fine", words)
        return broken(f"{outcome} was expected, it is {case.outcome.replace('_', ' ')}: {case.message}", OURS)

    isolation, tried = report.isolation, [cases[name] for name in REACHED]
    got = [REACHED[case.name] for case in tried if case.outcome == "passed"]
    told = f"not blocked ({isolation.words}){': it ' if got else ''}{', '.join(got)}"
    if odd := [case for case in tried if case.outcome not in ("passed", "failed")]:
        escape = expected(odd[0], "failed", "")
    elif not isolation.isolated:
        escape = Finding("caution", told, SEE)
    elif got:
        escape = Finding("fault", told, "grade nobody else's code here, and tell the grader's authors")
    else:
        words = f"blocked by {isolation.words}: no file of another user, no process and no network was reached"
        escape = Finding("fine", words)
    right = expected(cases["right"], "passed", f"passes, on {report.environment.gpu or 'the CPU'}")
    return [right, expected(cases["wrong"], "failed", "fails"), escape]


def write_course(folder: Path, submission: str) -> None:
    assignment = folder / "assignments" / "double"
    assignment.mkdir(parents=True)
    (assignment / "problem.toml").write_text(TOML)
    (assignment / "problem.py").write_text(PROBLEM)
    for room, source in (("reference", REFERENCE), ("starter", STUB), ("submission", submission)):
        (folder / room).mkdir()
        (folder / room / "double.py").write_text(source)

"""A grading of y = 2 x by three kernels: the right one passes, the wrong one fails, the one that tries to get out earns nothing."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from grader.contender.jail import Jail
from grader.doctor.finding import OURS, Finding
from grader.grading import Grading, Request
from grader.report.model import CaseResult, Report
from grader.runfolder import run_folder
from grader.sandbox.place import Place

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
  { name = "escape", tries = "a kernel that tries to get out", n = 1002 },
]
"""
STUB = "def double(x):\n    raise NotImplementedError\n"
REFERENCE = "def double(x):\n    return 2 * x\n"
# Three kernels in one file, so that one worker is enough. Whether the last one reached the network is seen at the other end;
# whether it read the file, by its right answer.
SUBMISSION = """
import socket

def right(x):
    return 2 * x

def wrong(x):
    return 2 * x + 0.01

def escape(x):
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=2).close()
    except OSError:
        pass
    try:
        with open({path!r}) as file:
            return 2 * x if file.read() == {secret!r} else 0 * x
    except OSError:
        return 0 * x

def double(x):
    return {{1000: right, 1001: wrong, 1002: escape}}[len(x)](x)
"""
SEE = "see bubblewrap and user namespaces, above"


@contextmanager
def begun(jail: Jail) -> Iterator[Callable[[], list[Finding]]]:
    """Start a judge that gets ready meanwhile; what this gives does the gradings. Both raise InfraError, OSError.

    Args:
        jail: the strongest here; isolation is asked for where there is one.
    """
    place = Place(sandbox="host", require_isolation=jail.name != "none")
    with run_folder() as folder, socket.create_server(("127.0.0.1", 0)) as listener, Grading(place) as grading:
        listener.setblocking(False)
        file, secret = folder / "secret", secrets.token_hex(16)
        file.touch(mode=0o600)
        file.write_text(secret)
        port = listener.getsockname()[1]
        _write_course(folder, SUBMISSION.format(port=port, path=str(file), secret=secret))

        def grade() -> list[Finding]:
            report = grading.run(Request(folder / "submission", folder, place=place), lambda _event: None)
            return judge(report, _has_caller(listener))

        yield grade


def judge(report: Report, connected: bool) -> list[Finding]:
    """What the gradings say of this machine. `connected`: somebody called the self-test over the network."""
    cases = {case.name: case for one in report.assignments for part in one.parts for case in part.cases}
    right, wrong, escape = (cases[name] for name in ("right", "wrong", "escape"))
    return [
        _expected("right kernel", right, "passed", f"passes, on {report.environment.gpu or 'the CPU'}"),
        _expected("wrong kernel", wrong, "failed", "fails"),
        _escape(escape, connected, report.isolation.jail, report.isolation.words),
    ]


def _expected(name: str, case: CaseResult, outcome: str, words: str) -> Finding:
    if case.outcome == outcome:
        return Finding(name, "fine", words)
    told = f"{outcome} was expected, it is {case.outcome.replace('_', ' ')}: {case.message}"
    return Finding(name, "fault", told, OURS)


def _escape(case: CaseResult, connected: bool, jail: str, words: str) -> Finding:
    if case.outcome not in ("passed", "failed"):
        return _expected("escape", case, "failed", "")
    got = ["read a private file"] * (case.outcome == "passed") + ["reached the network"] * connected
    if not got:
        return Finding("escape", "fine", f"blocked by {words}: no private file was read, no network reached")
    told = f"not blocked ({words}): it {' and '.join(got)}"
    if jail == "bubblewrap":
        return Finding("escape", "fault", told, "grade nobody else's code here, and tell the grader's authors")
    return Finding("escape", "caution", told, SEE)


def _has_caller(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except OSError:
        return False
    return True


def _write_course(folder: Path, submission: str) -> None:
    assignment = folder / "assignments" / "double"
    assignment.mkdir(parents=True)
    (assignment / "problem.toml").write_text(TOML)
    (assignment / "problem.py").write_text(PROBLEM)
    for room, source in (("reference", REFERENCE), ("starter", STUB), ("submission", submission)):
        (folder / room).mkdir()
        (folder / room / "double.py").write_text(source)

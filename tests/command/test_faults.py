"""Every fault a submission can have, run through the real command line: each has its outcome and words, and costs nobody else anything."""

from __future__ import annotations

import re

import pytest

from tests.conftest import IN_DOCKER_TOO, Course, Ran, Running, problem_toml
from tests.support import containers

# One grading of all cases, some of which end by a time limit.
pytestmark = [pytest.mark.grading, pytest.mark.timeout(900)]

# Each case's body runs inside `double(x)`; a case named "right..." is answered rightly and must pass whatever its neighbours did.
CASES: dict[str, str] = {
    "right-first": "return x * 2",
    "exception": "return undefined_name",
    "right-1": "return x * 2",
    "sys-exit": "sys.exit(0)",
    "os-exit": "os._exit(0)",
    "right-2": "return x * 2",
    "segfault": "ctypes.string_at(8)",
    "right-3": "return x * 2",
    "endless-loop": "while True: pass",
    "endless-loop-in-c": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(1000)",
    "right-4": "return x * 2",
    "prints": "[os.write(1, b'x' * 1_000_000) for _ in range(2000)]; return x * 2",
    "prints-endlessly": "while True: os.write(2, b'y' * 1_000_000)",
    "forks": "[time.sleep(1000) for _ in range(300) if os.fork() == 0]; time.sleep(1000)",
    "right-5": "return x * 2",
    "orphans": "spawn_orphan(); return x * 2",
    "memory": "hoard = [b'z' * 50_000_000 for _ in range(1000)]; return x * 2",
    "memory-in-child": "os.fork() or [b'z' * 50_000_000 for _ in range(1000)]; time.sleep(1000)",
    "right-6": "return x * 2",
    "none": "return None",
    "list": "return [x * 2]",
    "nan": "return x * float('nan')",
    "wrong-dtype": "return (x * 2).double()",
    "wrong-shape": "return (x * 2)[:-1]",
    "wrong-device": "return (x * 2).to('meta')",
    "its-input": "return x",
    "a-view-of-its-input": "return x.view(-1)",
    "changed-input": "y = x * 2; x.zero_(); return y",
    "subclass": "return torch.nn.Parameter(x * 2)",
    "own-subclass": "return (x * 2).as_subclass(Lazy)",
    "unwritten": "y = torch.empty_like(x); y[:4] = x[:4] * 2; return y",
    "write-past-the-end": "y = x * 2; ctypes.memset(x.data_ptr() + 4 * x.numel(), 0, 8); return y",
    "write-before-the-start": "y = x * 2; ctypes.memset(x.data_ptr() - 4, 0, 4); return y",
    "hang-up": "[os.close(f) for f in range(3, 64) if is_channel(f)]; time.sleep(1000)",
    "forged-frame": "forge_reply({}); time.sleep(0.5); return x * 2",
    "forged-success": "forge_reply({'returned': [{'kind': 'written'}]}); time.sleep(0.5); return x * 2",
    "right-7": "return x * 2",
    "huge-frame": "forge(b'\\xff\\xff\\xff\\xff'); time.sleep(1000)",
    "garbage-frame": "forge(b'\\x00\\x00\\x00\\x04nope'); time.sleep(1000)",
    "deep-frame": "forge(b'\\x00\\x01\\x86\\xa0' + b'[' * 100_000); time.sleep(1000)",
    "right-last": "return x * 2",
}

PRELUDE = """
import ctypes, json, os, signal, socket, stat, struct, subprocess, sys, time
import torch

class Lazy(torch.Tensor):
    pass

def is_channel(descriptor):
    try:
        mode = os.fstat(descriptor).st_mode
        return stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)
    except OSError:
        return False

def forge(data):
    for descriptor in range(3, 64):
        if is_channel(descriptor):
            try:
                os.write(descriptor, data)
            except OSError:
                pass  # not the one that is read

def forge_reply(reply):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    body = json.dumps(reply | {"id": frame.f_locals["request"].id}).encode()
    forge(struct.pack(">I", len(body)) + body)

def spawn_orphan():
    "A grandchild in a session of its own, whose parent is gone."
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        os._exit(0)
    os.wait()

def double(x):
    return CASES[x.numel() - 10](x)
"""

# case: outcome, and what the student must read
EXPECTED: dict[str, tuple[str, str]] = {
    "exception": ("failed", "NameError: name 'undefined_name' is not defined"),
    "sys-exit": ("crashed", "SystemExit"),
    "os-exit": ("crashed", "ended the process with exit code 0"),
    "segfault": ("crashed", "segmentation fault"),
    "endless-loop": ("timed_out", "no answer within 3 s"),
    "endless-loop-in-c": ("timed_out", "no answer within 4 s"),
    "prints": ("passed", ""),
    "prints-endlessly": ("timed_out", "no answer within 5 s"),
    "forks": ("crashed|timed_out", ""),  # by their number, or, where nobody gets a turn, by the time
    "orphans": ("passed", ""),
    "memory": ("out_of_memory", "more than 1.5 GiB of host memory"),
    "memory-in-child": ("out_of_memory", "more than 1.5 GiB of host memory"),
    "none": ("failed", "returned None"),
    "list": ("failed", "returned a list"),
    "nan": ("failed", "got nan"),
    "wrong-dtype": ("failed", "dtype float64, expected float32"),
    "wrong-shape": ("failed", "has shape"),
    "wrong-device": ("failed", "lies on meta, expected cpu"),
    "its-input": ("failed", "one of the inputs"),
    "a-view-of-its-input": ("failed", "one of the inputs"),
    "changed-input": ("failed", "the input x was changed"),
    "subclass": ("failed", "a tensor subclass, Parameter"),
    "own-subclass": ("failed", "a tensor subclass, Lazy"),
    "unwritten": ("failed", "y[4] is the first wrong element"),
    "write-past-the-end": ("failed", "wrote 2 elements past the end of x, from 0 past it"),
    "write-before-the-start": ("failed", "wrote 1 element before the start of x"),
    "hang-up": ("crashed", ""),
    "forged-frame": ("failed", "0 results came back"),
    "forged-success": ("failed", "never written"),
    "huge-frame": ("crashed", "connection was misused"),
    "garbage-frame": ("crashed", "connection was misused"),
    "deep-frame": ("crashed", "connection was misused"),
}
# Each has a time limit of its own: of a part in which two end alike no more is run. Memory fills, and 2 GB are read, in seconds.
APART = {
    "endless-loop": 3,
    "endless-loop-in-c": 4,
    "prints-endlessly": 5,
    "prints": 60,
    "memory": 61,
    "memory-in-child": 62,
}


MORE = """
[[part.group]]
name = "laws"
title = "Laws"
points = 1
checks = ["test_law"]

[[part]]
name = "other"
title = "Another part"

[[part.group]]
name = "more"
title = "More"
points = 2
cases = [
  { name = "other", tries = "other", n = 1 },
]
"""
ON_A_GPU = """
[[part.group]]
name = "half"
title = "Half precision"
points = 1
cases = [
  { name = "half", tries = "half", n = 12, dtype = "bfloat16", interpreted = false },
]
"""
LAW = """
from hypothesis import strategies as st

def test_law(properties):
    "It holds."
    properties.hold(lambda trial: trial.ask(trial.inputs), n=st.integers(1, 4))
"""
HANGS_FROM_11 = """
def double(x):
    print("asked for", x.numel())
    while x.numel() > 10: pass
    return x * 2
"""


@pytest.fixture(scope="module", params=["host", IN_DOCKER_TOO])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run over all of it, with files that cannot even be loaded beside."""
    if request.param == "docker":
        containers.need()
    folder = tmp_path_factory.mktemp("faults")
    course = Course(folder / "course")
    toml = problem_toml("faults.py", list(CASES), limit_s=8, memory_gib=1.5)
    for name, limit_s in APART.items():
        toml = toml.replace(f'name = "{name}", ', f'name = "{name}", time_limit_s = {limit_s}, ')
    course.add("faults", toml=toml)
    submission = folder / "submission"
    submission.mkdir()
    functions = "".join(f"def f{index}(x):\n    {body}\n\n" for index, body in enumerate(CASES.values()))
    table = f"CASES = [{', '.join(f'f{index}' for index in range(len(CASES)))}]\n"
    (submission / "faults.py").write_text(PRELUDE + functions + table)
    for name, content in LOADING.items():
        course.add(name, ["one", "two"], limit_s=8)
        if content is not None:
            (submission / f"{name}.py").write_text(content)
    toml = problem_toml("hanging.py", ["fine", "first", "second", "third", "fourth"], limit_s=1, extra=ON_A_GPU + MORE)
    course.add("hanging", toml=toml.replace("float16 =", "bfloat16 = 1e-2, float16 ="))
    (course.folder / "assignments/hanging/test_law.py").write_text(LAW)
    (submission / "hanging.py").write_text(HANGS_FROM_11)
    before = {path: path.read_bytes() for path in submission.iterdir()}
    arguments = [str(submission), "--course", str(course.folder), "--device", "cpu"]
    result = Running(folder, arguments, place=request.param).finish()
    assert {path: path.read_bytes() for path in submission.iterdir()} == before, "the submission was written to"
    return result


LOADING: dict[str, str | None] = {
    "absent": None,
    "stub": "def double(x):\n    raise NotImplementedError('double: to do')\n",
    "edited_stub": "# my name\ndef double(x):\n    raise NotImplementedError('double: to do')\n",
    "bad_syntax": "def double(x)\n    return x * 2\n",
    "bad_import": "import no_such_module\n",
    "no_name": "from helper_of_mine import three\n",
    "no_function": "def tripple(x):\n    return x * 3\n",
    "no_callable": "double = 2\n",
    "no_arguments": "def double():\n    return 2\n",
    "exits": "import sys\nsys.exit(0)\n",
    "exits_hard": "import os\nos._exit(0)\n",
    "hangs": "while True:\n    pass\n",
    "no_options": "import argparse\nargparse.ArgumentParser().parse_args()\n\ndef double(x):\n    return x * 2\n",
    "fine": "from helper_of_mine import two\n\ndef double(x):\n    return x * two\n",
    "helper_of_mine": "two = 2\n\ndef double(x):\n    return x * two\n",
}
OF_CALLS = {"absent", "stub", "edited_stub", "no_arguments", "no_options", "fine", "helper_of_mine"}
LOADING_EXPECTED: dict[str, tuple[str, str, str]] = {
    "absent": ("not_implemented", "there is no absent.py in the submission", ""),
    "stub": ("not_implemented", "still the starter's stub", ""),
    "edited_stub": ("not_implemented", "double: to do", 'File "edited_stub.py", line 3, in double'),
    "bad_syntax": ("failed", "SyntaxError", 'File "bad_syntax.py", line 1'),
    "bad_import": (
        "failed",
        "bad_import.py, line 1: imports no_such_module, and there is no no_such_module.py in the submission, nor a package",
        'File "bad_import.py", line 1',
    ),
    "no_name": (
        "failed",
        "cannot import name 'three' from 'helper_of_mine' (helper_of_mine.py)",
        'File "no_name.py", line 1',
    ),
    "no_function": ("failed", "has no function 'double', only tripple", ""),
    "no_callable": ("failed", "is a int, not a function", ""),
    "no_arguments": ("failed", "cannot be called with 1 arguments", ""),
    "exits": ("crashed", "SystemExit", 'File "exits.py", line 2'),
    "exits_hard": ("crashed", "exit code 0", ""),
    "hangs": ("timed_out", "no answer within 4 s while hangs.py was imported: stopped", 'File "hangs.py", line '),
    "no_options": ("passed", "", ""),
    "fine": ("passed", "", ""),
    "helper_of_mine": ("passed", "", ""),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_fault_has_its_outcome_and_its_words(ran: Ran, name: str) -> None:
    outcome, words = EXPECTED[name]
    case = ran.case("faults", name)
    everything = "\n".join([case.message, *case.diagnosis])
    assert case.outcome in outcome.split("|"), f"{case.outcome}: {everything}"
    assert words in everything


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("right")])
def test_cases_beside_a_fault_are_graded_as_usual(ran: Ran, name: str) -> None:
    assert ran.case("faults", name).outcome == "passed"


@pytest.mark.parametrize("name", LOADING_EXPECTED)
def test_a_file_that_cannot_be_loaded_says_why(ran: Ran, name: str) -> None:
    outcome, words, frame = LOADING_EXPECTED[name]
    for case in (ran.case(name, "one"), ran.case(name, "two")):
        assert case.outcome == outcome
        assert words in case.message
        assert frame in case.traceback
        assert case.of_file == (name not in OF_CALLS)
        assert "grader" not in case.traceback, "the traceback shows frames that are not the student's"


def test_the_run_ends_as_graded(ran: Ran) -> None:
    assert ran.code == 0, ran.errors
    assert ran.report is not None
    assert not ran.report.infra_errors


def test_nothing_is_left_behind(ran: Ran) -> None:
    assert ran.left == []


def test_a_flood_of_output_is_capped_in_the_report(ran: Ran) -> None:
    assert ran.report is not None
    log = next(one.log for one in ran.report.assignments if one.name == "faults")
    assert log.total_bytes > 2_000_000_000
    assert len(log.text) < 200_000
    assert "left out" in log.text


def test_a_crash_names_the_students_line(ran: Ran) -> None:
    assert 'File "faults.py", line' in ran.case("faults", "segfault").traceback


@pytest.mark.parametrize("name", ["endless-loop", "endless-loop-in-c"])
def test_who_takes_too_long_reads_where(ran: Ran, name: str) -> None:
    *_, place, _ = ran.case("faults", name).traceback.splitlines()  # and the line itself
    assert place.startswith('  File "faults.py", line ')
    assert place.endswith(f"in f{list(CASES).index(name)}")


def test_a_file_that_takes_too_long_to_import_reads_which_line_ran(ran: Ran) -> None:
    assert re.match(
        r"line [12] of hangs.py was running, `(while True:|pass)`, as it does whenever",
        ran.case("hangs", "one").diagnosis[0],
    )


def test_where_a_worker_was_is_nothing_that_it_printed(ran: Ran) -> None:
    assert ran.report is not None
    (log,) = (one.log for one in ran.report.assignments if one.name == "hangs")
    assert log.text == ""


def test_a_wrong_group_earns_nothing_and_loses_only_its_own(ran: Ran) -> None:
    assert ran.report is not None
    points = {one.name: one.parts[0].points for one in ran.report.assignments}
    assert points["faults"].earned == 0
    assert points["faults"].graded == 4
    assert points["fine"].earned == 4


def test_the_terminal_shows_every_assignment_and_the_score(ran: Ran) -> None:
    assert "Score" in ran.output
    for name in LOADING:
        assert f"{name}.py" in ran.output


def test_the_rest_of_a_part_in_which_two_cases_hang_is_not_run(ran: Ran) -> None:
    assert ran.report is not None
    (hanging,) = (one for one in ran.report.assignments if one.name == "hanging")
    assert [number for number in range(10, 15) if f"asked for {number}" in hanging.log.text] == [10, 11, 12]
    assert ran.case("hanging", "fine").outcome == "passed"
    told = "not run: first and second of this part gave no answer within 1 s; mend these first"
    for name in ("third", "fourth", "test_law"):
        case = ran.case("hanging", name)
        assert (case.outcome, case.message) == ("timed_out", told)
    hung, other = (part.points for part in hanging.parts)
    assert (hung.earned, hung.graded, hung.possible) == (0, 5, 6), "what cannot be run here stays open"
    assert ran.case("hanging", "half").outcome == "skipped"
    assert (ran.case("hanging", "other").outcome, other.earned, other.possible) == ("passed", 2, 2)
    assert 'third, fourth, "It holds."  timed out' in ran.output
    assert told in " ".join(ran.output.replace("│", " ").split())

"""The walls between rooms: who may import whom, and what nobody may do. Read from the source, so that no import is missed."""

from __future__ import annotations

import ast
import functools
import sys
from pathlib import Path

import pytest

from grader.contender.pool import stage_runtime
from tests.repository.test_house import HOUSE, PACKAGE, PAGE, imported, rooms_of_page

FILES = sorted(HOUSE)
WORKER = [file for file in FILES if file.startswith("worker/")]
PURE = [file for file in FILES if file.startswith(("verdict/", "report/", "profile/"))]
TRUSTED = [file for file in FILES if file not in WORKER]

# Modules that start processes or threads, open connections, share memory, or tell the time.
PROCESSES_AND_CLOCKS = {
    "asyncio", "concurrent", "ctypes", "fcntl", "mmap", "multiprocessing", "psutil", "resource", "select", "selectors",
    "signal", "socket", "socketserver", "subprocess", "threading", "time", "timeit", "urllib", "http", "cuda", "pynvml",
}  # fmt: skip
CLOCK_CALLS = {"now", "utcnow", "today", "perf_counter", "monotonic", "process_time", "sleep"}
OS_CALLS = {
    "system", "popen", "fork", "forkpty", "kill", "killpg", "pipe", "environ", "getenv", "putenv", "posix_spawn", "posix_spawnp",
    "execv", "execve", "execvp", "execl", "spawnv", "spawnl", "times", "wait", "waitpid", "startfile",
}  # fmt: skip
UNPICKLERS = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "copyreg",
    "jsonpickle",
}
OF_YAML = {"yaml", "yaml.BaseLoader", "yaml.CBaseLoader", "yaml.YAMLError"}  # makes strings, lists and dicts alone


@functools.cache
def imports_of(file: str) -> set[str]:
    """Every module that a file imports, anywhere in it; `from a import b` gives a and a.b."""
    return {name for names in imported(file, HOUSE[file]) for name in names}


def called(node: ast.Call) -> str:
    """The dotted name of what is called, where it has one."""
    return dotted(node.func)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


@functools.cache
def names_used(file: str) -> set[str]:
    return {dotted(node) for node in ast.walk(HOUSE[file]) if isinstance(node, ast.Attribute | ast.Name)}


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


# The checks themselves can see ----------------------------------------------------------------------------------------


def test_imports_are_found_wherever_they_are_written() -> None:
    source = """
import a.b, c as d
from e import f
from . import g
from .h import i
from ..j import k
def later():
    import l
    if True:
        from m.n import o
importlib.import_module("p")
__import__("q.r")
"""
    found = {name for names in imported("worker/load.py", ast.parse(source)) for name in names}
    outside = {"a.b", "c", "e", "e.f", "l", "m.n", "m.n.o", "p", "q.r"}
    ours = {"grader.worker.g", "grader.worker.h", "grader.worker.h.i", "grader.j", "grader.j.k"}
    assert outside | ours <= found
    assert ("grader.worker.g", "grader.worker") in imported("worker/__init__.py", ast.parse("from . import g"))


def test_the_rooms_are_not_empty() -> None:
    assert {"worker/__main__.py", "worker/load.py", "worker/run.py"} <= set(WORKER)
    assert {"verdict/tolerance.py", "verdict/diagnosis.py", "report/model.py", "report/terminal.py"} <= set(PURE)
    assert {"judge/trial.py", "contender/contender.py", "protocol.py"} <= set(TRUSTED)


# The worker stands alone ----------------------------------------------------------------------------------------------


def test_no_row_of_the_page_opens_a_wall() -> None:
    """test_house.py holds each import against these rows."""
    rooms = {room: others or set() for room, others in rooms_of_page(PAGE).items()}
    assert rooms["worker/"] == {"protocol.py"}
    assert [room for room, others in rooms.items() if "worker/" in others] == []
    assert not (rooms["verdict/"] | rooms["report/"] | rooms["profile/"]) & {
        "judge/",
        "contender/",
        "sandbox/",
        "cli.py",
        "grading.py",
    }


def test_a_worker_is_given_nothing_but_itself_and_the_protocol(tmp_path: Path) -> None:
    """The wall stands on disk too: what is not there cannot be imported."""
    runtime = stage_runtime(tmp_path / "runtime")
    there = {path.relative_to(runtime).as_posix() for path in runtime.rglob("*.py")}
    assert there == {"grader/__init__.py", "grader/protocol.py", *(f"grader/{file}" for file in WORKER)}


def test_the_package_itself_imports_nothing() -> None:
    """A worker runs `grader/__init__.py`: what that imported, it would have to be given."""
    assert imports_of("__init__.py") <= {"__future__", "__future__.annotations"}


def test_the_protocol_imports_only_the_standard_library() -> None:
    found = {name.partition(".")[0] for name in imports_of("protocol.py")}
    assert found <= sys.stdlib_module_names


def test_assignments_do_not_import_the_worker_nor_submissions() -> None:
    root = PACKAGE.parent / "assignments"
    files = sorted(root.glob("*/*.py"))
    assert len(files) >= 4
    for file in files:
        found = {name for names in imported(file.name, ast.parse(file.read_text(encoding="utf-8"))) for name in names}
        assert [name for name in found if is_within(name, "grader.worker")] == []
        assert not {"reference", "starter"} & {name.partition(".")[0] for name in found}


# Verdicts and reports are pure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", PURE)
def test_verdicts_and_reports_know_no_process_and_no_clock(file: str) -> None:
    found = {name.partition(".")[0] for name in imports_of(file)}
    assert found & PROCESSES_AND_CLOCKS == set()
    used = names_used(file)
    assert [name for name in used if name.startswith("os.") and name.split(".")[1] in OS_CALLS] == []
    assert [name for name in used if name.rpartition(".")[2] in CLOCK_CALLS and "." in name] == []
    assert not {f"os.{name}" for name in OS_CALLS} & imports_of(file)


@pytest.mark.parametrize("file", PURE)
def test_verdicts_and_reports_know_no_gpu(file: str) -> None:
    used = names_used(file) | imports_of(file)
    assert [name for name in used if is_within(name, "torch.cuda")] == []
    assert [name for name in imports_of(file) if is_within(name, "triton")] == []
    assert [name for name in used if name.endswith((".cuda", ".to_device", ".synchronize"))] == []


@pytest.mark.parametrize("file", [file for file in PURE if file.startswith(("report/", "profile/"))])
def test_reports_need_no_torch(file: str) -> None:
    assert not any(is_within(name, "torch") for name in imports_of(file))


# Nothing that a worker sends is executed ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", TRUSTED)
def test_nothing_trusted_unpickles_evaluates_or_executes(file: str) -> None:
    assert {name.partition(".")[0] for name in imports_of(file)} & UNPICKLERS == set()
    calls = [called(node) for node in ast.walk(HOUSE[file]) if isinstance(node, ast.Call)]
    forbidden = {
        "eval",
        "exec",
        "compile",
        "builtins.eval",
        "builtins.exec",
        "torch.load",
        "torch.jit.load",
        "numpy.load",
        "np.load",
    }
    assert [name for name in calls if name in forbidden] == []
    used = names_used(file) | imports_of(file)
    assert not used & (forbidden | {"torch.serialization", "torch.multiprocessing", "multiprocessing.connection"})
    assert {name for name in used if is_within(name, "yaml")} - OF_YAML == set()
    renamed = [
        one.name for node in ast.walk(HOUSE[file]) if isinstance(node, ast.Import) for one in node.names if one.asname
    ]
    assert "yaml" not in renamed


# A staged submission is only ever read as bytes; nothing trusted imports from a path but a course's own problem.py.
MAY_IMPORT_A_FILE = {"problem.py", "__main__.py"}  # the second takes the current folder out of the import path


@pytest.mark.parametrize("file", [file for file in TRUSTED if file not in MAY_IMPORT_A_FILE])
def test_nothing_trusted_imports_a_file_by_its_path(file: str) -> None:
    used = names_used(file) | imports_of(file)
    found = [
        name
        for name in used
        if name.startswith(("importlib.util", "importlib.machinery", "runpy")) or name == "sys.path"
    ]
    assert found == []
    assert [name for name in used if name.endswith(("exec_module", "spec_from_file_location", "run_path"))] == []


@pytest.mark.parametrize("file", TRUSTED)
def test_no_command_goes_through_a_shell(file: str) -> None:
    for node in ast.walk(HOUSE[file]):
        if isinstance(node, ast.Call):
            assert not any(word.arg == "shell" for word in node.keywords), f"{file}:{node.lineno}"
            assert called(node) not in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")


# What waits for torch -------------------------------------------------------------------------------------------------


def closure(start: str) -> set[str]:
    """Everything that is imported when a module of ours is, through our own modules."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in imports_of(waiting.pop()) - seen:
            seen.add(name)
            path = "/".join(name.split(".")[1:])
            if is_within(name, "grader"):
                waiting += [one for one in (f"{path}.py", f"{path}/__init__.py") if one in HOUSE]
    return seen


FIRST = ["assignment.py", "submission.py", "grading.py", "cli.py", "report/model.py", "report/terminal.py"]


@pytest.mark.parametrize("file", [*FIRST, "contender/pool.py"])
def test_the_command_line_and_the_first_worker_do_not_wait_for_torch(file: str) -> None:
    """`grader list`, a wrong path or a wrong key is answered at once; torch takes seconds to import."""
    assert not {name.partition(".")[0] for name in closure(file)} & {"torch", "triton", "numpy"}

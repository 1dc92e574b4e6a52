"""The walls between rooms: who may import whom, and what nobody may do. Read from the source, so that no import is missed."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import grader
from grader.contender.pool import stage_runtime

PACKAGE = Path(grader.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
WORKER = [file for file in FILES if file.startswith("worker/")]
PURE = [file for file in FILES if file.startswith(("verdict/", "report/"))]
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


def tree(file: str, root: Path = PACKAGE) -> ast.Module:
    return ast.parse((root / file).read_text(encoding="utf-8"), filename=file)


def module_name(file: str) -> str:
    parts = ["grader", *Path(file).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(parsed: ast.Module, name: str, *, is_package: bool = False) -> Iterator[str]:
    """Every module that a file imports, anywhere in it, with relative imports resolved; `from a import b` gives a and a.b."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = name.split(".")[: len(name.split(".")) - node.level + is_package]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and called(node) in ("__import__", "importlib.import_module", "import_module"):
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


@functools.cache
def imports_of(file: str) -> set[str]:
    return set(imports(tree(file), module_name(file), is_package=file.endswith("__init__.py")))


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
    return {dotted(node) for node in ast.walk(tree(file)) if isinstance(node, ast.Attribute | ast.Name)}


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
    found = set(imports(ast.parse(source), "grader.worker.load"))
    outside = {"a.b", "c", "e", "e.f", "l", "m.n", "m.n.o", "p", "q.r"}
    ours = {"grader.worker.g", "grader.worker.h", "grader.worker.h.i", "grader.j", "grader.j.k"}
    assert outside | ours <= found
    assert "grader.worker.g" in set(imports(ast.parse("from . import g"), "grader.worker", is_package=True))


def test_the_rooms_are_not_empty() -> None:
    assert {"worker/__main__.py", "worker/load.py", "worker/run.py"} <= set(WORKER)
    assert {"verdict/tolerance.py", "verdict/diagnosis.py", "report/model.py", "report/terminal.py"} <= set(PURE)
    assert {"judge/trial.py", "contender/contender.py", "protocol.py"} <= set(TRUSTED)


# The worker stands alone ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", WORKER)
def test_the_worker_imports_nothing_of_ours_but_the_protocol(file: str) -> None:
    ours = {name for name in imports_of(file) if is_within(name, "grader")}
    allowed = ("grader.protocol", "grader.worker")
    assert [name for name in ours - {"grader"} if not any(is_within(name, one) for one in allowed)] == []


@pytest.mark.parametrize("file", TRUSTED)
def test_nothing_imports_the_worker(file: str) -> None:
    assert [name for name in imports_of(file) if is_within(name, "grader.worker")] == []


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
        found = set(imports(tree(str(file), root), file.stem))
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


@pytest.mark.parametrize("file", [file for file in PURE if file.startswith("report/")])
def test_reports_need_no_torch(file: str) -> None:
    assert not any(is_within(name, "torch") for name in imports_of(file))


@pytest.mark.parametrize("file", PURE)
def test_verdicts_and_reports_do_not_know_judge_contender_or_sandbox(file: str) -> None:
    rooms = ("grader.judge", "grader.contender", "grader.sandbox", "grader.worker", "grader.cli", "grader.grading")
    assert [name for name in imports_of(file) if any(is_within(name, room) for room in rooms)] == []


# Nothing that a worker sends is executed ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", TRUSTED)
def test_nothing_trusted_unpickles_evaluates_or_executes(file: str) -> None:
    assert {name.partition(".")[0] for name in imports_of(file)} & UNPICKLERS == set()
    calls = [called(node) for node in ast.walk(tree(file)) if isinstance(node, ast.Call)]
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
        one.name for node in ast.walk(tree(file)) if isinstance(node, ast.Import) for one in node.names if one.asname
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
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Call):
            assert not any(word.arg == "shell" for word in node.keywords), f"{file}:{node.lineno}"
            assert called(node) not in ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput")


# What waits for torch -------------------------------------------------------------------------------------------------


def closure(start: str) -> set[str]:
    """Everything that is imported when a module of ours is, through our own modules."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        file = waiting.pop()
        parsed = _WithoutTypes().visit(tree(file))
        for name in imports(parsed, module_name(file), is_package=file.endswith("__init__.py")):
            if name in seen:
                continue
            seen.add(name)
            path = "/".join(name.split(".")[1:])
            if is_within(name, "grader"):
                waiting += [one for one in (f"{path}.py", f"{path}/__init__.py") if one in FILES]
    return seen


class _WithoutTypes(ast.NodeTransformer):
    """Takes out what only a type checker imports."""

    def visit_If(self, node: ast.If) -> ast.If | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


FIRST = ["assignment.py", "submission.py", "grading.py", "cli.py", "report/model.py", "report/terminal.py"]


@pytest.mark.parametrize("file", [*FIRST, "contender/pool.py"])
def test_the_command_line_and_the_first_worker_do_not_wait_for_torch(file: str) -> None:
    """`grader list`, a wrong path or a wrong key is answered at once; torch takes seconds to import."""
    assert not {name.partition(".")[0] for name in closure(file)} & {"torch", "triton", "numpy"}

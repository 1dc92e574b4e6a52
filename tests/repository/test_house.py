"""The house as docs/HOUSE.md has it: who imports whom, what is too large, which fields come late, where
tests lie, and that each class has a name of its own. Read from the source.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import grader

PACKAGE = Path(grader.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "HOUSE.md").read_text(encoding="utf-8")

HIDDEN = "TYPE_CHECKING"
MAX_CLASS_LINES, MAX_METHODS, MAX_FUNCTION_LINES = 250, 20, 60
TABLES = {"cli.py run": "its options are a table"}
INHERITED = {"report/terminal.py ReportConsole.quiet": "a field of rich's Console"}
Sources = dict[str, ast.Module]  # by path below grader/


def sources(texts: dict[str, str] | None = None) -> Sources:
    if texts is None:
        paths = PACKAGE.rglob("*.py")
        texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {file: ast.parse(text) for file, text in texts.items()}


HOUSE = sources()
# Modules without a test file of their own, by the file below tests/ that tries them, or by why none does. What that file tries of
# them may move to a file of their name; then the entry goes.
TRIED_ELSEWHERE = {
    "command/test_canary.py": "judge/canary.py worker/gpu_only.py",
    "command/test_check.py": "check.py",
    "command/test_command.py": "__main__.py console.py judge/__main__.py",
    "command/test_compilation.py": "judge/compilation.py",
    "command/test_conformance.py": "sandbox/host.py",
    "command/test_course.py": "judge/environment.py",
    "command/test_doctor.py": "doctor/with_torch.py",
    "command/test_every_check.py": "judge/admission.py",
    "command/test_faults.py": "judge/loading.py",
    "command/test_hints.py": "verdict/hints.py",
    "command/test_policy.py": "judge/ownership.py",
    "command/test_speed_cheats.py": "judge/test_speed.py",
    "contender/test_contender.py": "contender/last_words.py contender/log.py contender/replies.py "
    "contender/worker.py worker/__main__.py worker/errors.py",
    "contender/test_jail.py": "course.py",
    "contender/test_processes.py": "contender/usage.py",
    "doctor/test_doctor.py": "doctor/containers.py doctor/examine.py doctor/finding.py doctor/gpus.py "
    "doctor/selftest.py doctor/show.py doctor/software.py doctor/space.py doctor/walls.py",
    "judge/test_race.py": "judge/batches.py judge/track.py",
    "judge/test_results.py": "judge/evidence.py",
    "judge/test_sanitizing.py": "contender/tools.py",
    "judge/test_timing.py": "worker/memory.py",
    "report/test_model.py": "report/json_file.py",
    "report/test_page.py": "report/precision.py report/races.py",
    "report/test_profiling.py": "report/profile.py",
    "report/test_terminal.py": "report/checking.py report/failures.py report/style.py",
    "repository/test_budget_claims.py": "judge/comparison.py",
    "repository/test_reference.py": "worker/compiling.py",
    "repository/test_wheel.py": "fingerprint.py",
    "sandbox/test_engine.py": "image.py sandbox/base.py sandbox/choice.py sandbox/place.py",
    "test_grading.py": "job.py",
    "test_problem.py": "judge/cases.py",
    "verdict/test_causes.py": "verdict/cells.py",
    "verdict/test_diagnosis.py": "verdict/rounding.py verdict/suspects.py",
    "verdict/test_gpu_time.py": "verdict/sources.py",
    "verdict/test_policy.py": "worker/operators.py",
    "verdict/test_resources.py": "gpu_table.py",
    "worker/test_builds.py": "worker/load.py",
    "worker/test_cuda_cpu.py": "contender/cuda_cpu.py worker/lines.py",
    "worker/test_nvcc.py": "worker/entries.py",
    "worker/test_run.py": "worker/timing.py worker/yardsticks.py",
    "a future of a thread, all of it": "background.py",
    "facts, handed to all others": "judge/run.py",
}


# Who imports whom -----------------------------------------------------------------------------------------------------


def module_of(file: str) -> str:
    return f"grader/{file}".removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(file: str, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """What each import of a file may be of, the likelier first, anywhere in it: `from a import b` is of a.b where that is a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module_of(file).split(".")
            package = package[: len(package) - node.level + file.endswith("__init__.py")] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from ((one.value,) for one in node.args[:1] if isinstance(one, ast.Constant))


def imports(house: Sources) -> dict[str, set[str]]:
    """Which files each file imports. The package itself is not told."""
    files = {module_of(file): file for file in house if file != "__init__.py"}
    found: dict[str, set[str]] = {}
    for file, tree in house.items():
        ours = ([files[name] for name in names if name in files] for names in imported(file, tree))
        found[file] = {fits[0] for fits in ours if fits} - {file}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Files that import each other, by whatever way: what is left when files that import nothing else of it are taken away."""
    left = {file: set(others) for file, others in graph.items()}
    for _ in graph:
        for ways in (left, {file: {one for one in left if file in left[one]} for file in left}):
            for file in [one for one, others in ways.items() if not others & left.keys()]:
                left.pop(file, None)
    return [sorted(left)] if left else []


def rooms_of_page(page: str) -> dict[str, set[str] | None]:
    """For each room, from the ground up, the rooms that it may import; None for every one above but those that its row names."""
    table = page.partition("| room | imports |")[2].partition("\n\n")[0]
    rooms: dict[str, set[str]] = {}
    for row in table.splitlines()[2:]:
        own, others, _ = (re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|"))
        if "every room above but" in row:
            others = [one for one in rooms if one not in others]
        for room in own:
            rooms[room] = set(others)
    return dict(rooms)


def room_of(file: str, rooms: Iterable[str]) -> str:
    return next((room for room in rooms if file == room), file.partition("/")[0] + "/" * ("/" in file))


def forbidden_arrows(house: Sources, page: str) -> list[str]:
    rooms, floors = rooms_of_page(page), list(rooms_of_page(page))
    found = []
    for file, others in imports(house).items():
        for other in others:
            own, its = room_of(file, floors), room_of(other, floors)
            if own != its and its not in (rooms.get(own) or ()):
                found.append(f"{file} imports {other}")
    return found


def test_the_graph_has_all_files_and_no_circle() -> None:
    graph = imports(HOUSE)
    assert len(graph) > 100
    assert sum(map(len, graph.values())) > 300
    assert circles(graph) == []


def test_no_arrow_is_against_the_page() -> None:
    assert forbidden_arrows(HOUSE, PAGE) == []


def test_the_page_goes_from_the_ground_up_and_has_every_room() -> None:
    rooms = rooms_of_page(PAGE)
    floors = list(rooms)
    for number, (room, others) in enumerate(rooms.items()):
        assert set(others or ()) <= set(floors[:number]), f"{room} is above what it imports"
    assert {room_of(file, floors) for file in HOUSE} - {"__init__.py"} == set(floors)


def test_the_page_names_every_module_of_the_judge() -> None:
    table = PAGE.partition("## The modules of the judge")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w.]+\.py)`", table)
    there = {file.removeprefix("judge/") for file in HOUSE if file.startswith("judge/")} - {"__init__.py"}
    assert sorted(named) == sorted(there)
    files = re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE.partition("## The modules of the judge")[0])
    assert [file for file in files if file not in HOUSE and not (PACKAGE.parent / file).exists()] == []


def test_nothing_is_hidden_from_the_graph() -> None:
    assert hidden(HOUSE) == set()


def hidden(house: Sources) -> set[str]:
    """Files with imports for a type checker alone."""
    return {
        f"{file} {HIDDEN}"
        for file, tree in house.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith(HIDDEN)
    }


# What is too large ----------------------------------------------------------------------------------------------------


def too_large(house: Sources) -> set[str]:
    """Classes and functions beyond the limits, as `file name`."""
    found = set()
    for file, tree in house.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
                if lines(node) > MAX_CLASS_LINES or methods > MAX_METHODS:
                    found.add(f"{file} {node.name}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines(node) > MAX_FUNCTION_LINES:
                found.add(f"{file} {node.name}")
    return found


def lines(node: ast.stmt) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


def test_no_class_and_no_function_is_too_large() -> None:
    assert too_large(HOUSE) == TABLES.keys()


# Fields that are there from the start ---------------------------------------------------------------------------------


def born_late(house: Sources) -> set[str]:
    """Fields that a method assigns and neither `__init__` nor the class does, nor those of the classes that it extends."""
    classes = {node.name: node for tree in house.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found = set()
    for file, tree in house.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not any(
                "dataclass" in ast.unparse(one) for one in node.decorator_list
            ):
                extended = [classes[name] for base in node.bases if (name := ast.unparse(base)) in classes]
                born = {name for one in (node, *extended) for name in born_in(one)}
                found |= {
                    f"{file} {node.name}.{name}"
                    for one in methods_of(node)
                    for name in fields_of(one)
                    if name not in born
                }
    return found


def born_in(node: ast.ClassDef) -> Iterator[str]:
    """Fields that a class has from the start."""
    yield from (name for one in node.body for name in names_of(one))
    yield from (name for one in methods_of(node) if one.name in ("__init__", "__new__") for name in fields_of(one))


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def names_of(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a class gives a value."""
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (one.id for one in targets if isinstance(one, ast.Name))


def fields_of(method: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Fields of `self` that a method assigns."""
    own = method.args.args[0].arg if method.args.args else ""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == own:
            yield node.attr


def test_every_field_is_born_in_init() -> None:
    assert born_late(HOUSE) == INHERITED.keys()


# Names ----------------------------------------------------------------------------------------------------------------

IMITATED = "worker/absent_gpu/"  # its classes have the names that students know from PyTorch and Triton


def named_twice(house: Sources) -> set[str]:
    """Names that several public classes have."""
    ours = [tree for file, tree in house.items() if not file.startswith(IMITATED)]
    names = Counter(node.name for tree in ours for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {name for name, count in names.items() if count > 1 and not name.startswith("_")}


def test_each_class_has_a_name_of_its_own() -> None:
    assert named_twice(HOUSE) == set()


# Where tests lie ------------------------------------------------------------------------------------------------------

TESTS = Path(__file__).parent.parent
NO_ROOM = {"command", "corpora", "gpu", "repository", "support"}  # of grader/


def files_of_rooms() -> set[str]:
    """Those of rooms, by path below tests/."""
    found = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    return {file for file in found if file.partition("/")[0] not in NO_ROOM}


def modules(house: Iterable[str]) -> set[str]:
    """What has tests of its own: files of the package and of its rooms, and a package in a room as one."""
    cut = {"/".join(file.split("/")[:2]) for file in house}
    return {file if file.endswith(".py") else f"{file}.py" for file in cut} - {
        file for file in cut if "__init__" in file
    }


def module_tried(file: str, house: Iterable[str]) -> str | None:
    """The module of test_<module>.py, or of test_<module>_<aspect>.py, in the room that has the module's name."""
    room, _, name = file.rpartition("/")
    name = name.removeprefix("test_").removesuffix(".py")
    fitting = [
        module
        for module in modules(house)
        if module.rpartition("/")[0] == room and f"{name}_".startswith(f"{Path(module).stem}_")
    ]
    return max(fitting, key=len, default=None)


def misplaced(tests: set[str], house: Iterable[str], elsewhere: dict[str, str]) -> set[str]:
    """Test files of no module, modules without one, and modules in the table that are not there or have one."""
    tried = {file: module_tried(file, house) for file in tests}
    without = modules(house) - set(tried.values())
    listed = {module for names in elsewhere.values() for module in names.split()}
    return (
        {f"{file} is of no module" for file, module in tried.items() if module is None and file not in elsewhere}
        | {f"{module} has no test file" for module in without - listed}
        | {f"{module} is listed without need" for module in listed - without}
    )


def test_each_module_has_its_test_file_and_each_test_file_its_module() -> None:
    assert misplaced(files_of_rooms(), HOUSE, TRIED_ELSEWHERE) == set()
    assert [file for file in TRIED_ELSEWHERE if file.endswith(".py") and not (TESTS / file).is_file()] == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, set()),
        ({"a/test_stranger.py": True}, {"a/test_stranger.py is of no module"}),
        ({"b/test_x.py": True}, {"b/test_x.py is of no module"}),
        ({"a/test_xy.py": True}, {"a/test_xy.py is of no module"}),
        ({"a/test_all.py": True}, set()),
        ({"a/test_x_at_night.py": True}, set()),
        ({"a/test_x.py": False, "a/test_x_at_night.py": True}, set()),
        ({"a/test_x.py": False}, {"a/x.py has no test file"}),
        ({"a/test_deep.py": False}, {"a/deep.py has no test file"}),
        ({"test_top.py": False}, {"top.py has no test file"}),
        ({"a/test_bare.py": True}, {"a/bare.py is listed without need"}),
    ],
)
def test_a_test_file_out_of_its_place_is_seen(change: dict[str, bool], expected: set[str]) -> None:
    house = ["__init__.py", "top.py", "a/__init__.py", "a/x.py", "a/bare.py", "a/deep/__init__.py", "a/deep/y.py"]
    there = {"test_top.py", "a/test_x.py", "a/test_deep.py"}
    there = (there | change.keys()) - {file for file, stays in change.items() if not stays}
    assert misplaced(there, house, {"a/test_all.py": "a/bare.py"}) == expected
    assert "a/gone.py is listed without need" in misplaced(there, house, {"data": "a/bare.py a/gone.py"})


# The checks themselves can see ----------------------------------------------------------------------------------------

SMALL = """
| room | imports | never |
|---|---|---|
| `a.py`, `b/model.py` | | |
| `b/` | `a.py`, `b/model.py` | knows |
| `c/` | `a.py` | |
| `top.py` | every room above but `c/` | |

"""


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.py", "from grader.b import x"),
        ("a.py", "def later():\n    import grader.b.x"),
        ("b/model.py", "from grader.b.x import y"),
        ("b/x.py", "if TYPE_CHECKING:\n    from grader.c.z import y"),
        ("b/x.py", "from ..c import z"),
        ("c/z.py", "from grader.b.model import y"),
        ("c/z.py", "importlib.import_module('grader.b.x')"),
        ("top.py", "import grader.c.z"),
        ("stranger.py", "import grader.a"),
    ],
)
def test_an_arrow_against_the_page_is_seen_wherever_it_is_written(file: str, text: str) -> None:
    texts = dict.fromkeys(("a.py", "b/model.py", "b/x.py", "c/z.py", "top.py"), "") | {
        "b/__init__.py": "",
        "c/__init__.py": "",
    }
    allowed = {
        "b/x.py": "from grader import a\nfrom . import model",
        "top.py": "import grader.b.x",
        "c/z.py": "import grader.a",
    }
    assert forbidden_arrows(sources(texts | allowed), SMALL) == []
    (arrow,) = forbidden_arrows(sources(texts | allowed | {file: text}), SMALL)
    assert arrow.startswith(f"{file} imports ")


def test_a_circle_is_seen_and_a_way_to_it_is_none() -> None:
    texts = {
        "a.py": "import grader.b",
        "b.py": "def f():\n    from grader import c",
        "c.py": "import grader.a",
        "d.py": "",
    }
    texts |= {"before.py": "import grader.a, grader.d", "d.py": "import grader.e", "e.py": ""}
    assert circles(imports(sources(texts))) == [["a.py", "b.py", "c.py"]]
    assert circles(imports(sources(texts | {"c.py": "import grader.e"}))) == []


@pytest.mark.parametrize(
    ("check", "text", "expected"),
    [
        (too_large, "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES, {"m.py f"}),
        (too_large, "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES - 1), set()),
        (too_large, "class C:\n" + "    x = 1\n" * MAX_CLASS_LINES, {"m.py C"}),
        (too_large, "class C:\n" + "    def f(self): ...\n" * (MAX_METHODS + 1), {"m.py C"}),
        (too_large, "class C:\n" + "    def f(self): ...\n" * MAX_METHODS, set()),
        (born_late, "class C:\n    y = 1\n    def f(me):\n        me.x = me.y = 1", {"m.py C.x"}),
        (
            born_late,
            "class C:\n    x: int\n    def f(self):\n        self.z, (self.x, _) = g()",
            {"m.py C.x", "m.py C.z"},
        ),
        (born_late, "class C:\n    def f(self):\n        with g() as self.x: ...", {"m.py C.x"}),
        (
            born_late,
            "class C:\n    def __init__(self):\n        self.x = 0\n    def f(self):\n        self.x += 1",
            set(),
        ),
        (born_late, "@dataclass\nclass C:\n    x: int\n    def f(self):\n        self.x = 1", set()),
        (hidden, "import typing\nif typing.TYPE_CHECKING:\n    import x", {"m.py TYPE_CHECKING"}),
        (hidden, "TYPE_CHECKING = {'typing'}", set()),
        (named_twice, "class C: ...\ndef f():\n    class C: ...", {"C"}),
        (named_twice, "class _C: ...\nclass _C: ...\nclass D: ...", set()),
    ],
)
def test_what_is_forbidden_is_seen(check: Callable[[Sources], object], text: str, expected: object) -> None:
    assert check(sources({"m.py": text})) == expected

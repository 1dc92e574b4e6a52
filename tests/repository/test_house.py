"""The house as docs/HOUSE.md has it: who imports whom. Read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import grader

PACKAGE = Path(grader.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "HOUSE.md").read_text(encoding="utf-8")

HIDDEN = "TYPE_CHECKING"
Sources = dict[str, ast.Module]  # by path below grader/


def sources(texts: dict[str, str] | None = None) -> Sources:
    if texts is None:
        paths = PACKAGE.rglob("*.py")
        texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return {file: ast.parse(text) for file, text in texts.items()}


HOUSE = sources()
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
    ("text", "expected"),
    [
        ("import typing\nif typing.TYPE_CHECKING:\n    import x", {"m.py TYPE_CHECKING"}),
        ("TYPE_CHECKING = {'typing'}", set()),
    ],
)
def test_a_hidden_import_is_seen(text: str, expected: set[str]) -> None:
    assert hidden(sources({"m.py": text})) == expected

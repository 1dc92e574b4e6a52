"""Which room of grader/ imports which: a dot in a room's row for each room that it imports, all on one side of the diagonal."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import grimp

from docs.pictures.drawing import box, heading, picture
from grader.report.svg import Mark, Plot, label, line

ROOT = Path(__file__).parents[2]
LEFT, TOP, CELL, DOT = 140, 170, 22, 8


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("grader", cache_dir=None)


def rooms() -> list[str]:
    """The rooms from the top down, as pyproject.toml's contract "layers" orders them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [one["layers"] for one in contracts if one["id"] == "layers"]
    return [room.strip() for layer in layers for room in layer.split("|") if room.strip() != "__main__"]


def imported(room: str, listed: list[str]) -> set[str]:
    """The rooms that a module of this room imports, but for the models of a report and a profile, which all may. `grader profile`, the
    command, is no part of its room here: it stands above all others (pyproject.toml, "profile-command").
    """
    modules = {f"grader.{room}", *graph().find_descendants(f"grader.{room}")} - {"grader.profile.command"}
    found = {name for one in modules for name in graph().find_modules_directly_imported_by(one)}
    found -= {"grader.report.model", "grader.profile.model"}
    return {name.split(".")[1] for name in found if "." in name} & set(listed) - {room}


def imports() -> Plot:
    """The matrix of imports between rooms."""
    listed = rooms()
    size = CELL * len(listed)
    marks: list[Mark] = heading(
        "Which room imports which",
        "A dot: the room on the left imports the room above. No room imports one that stands above it. Left out:",
        "report/model.py and profile/model.py, which every room may import, and profile/command.py, a command like those of cli.py.",
    )
    for number, room in enumerate(listed):
        at = (number + 0.5) * CELL
        marks.append(label(LEFT - 10, TOP + at, room, "code", "end"))
        name = label(LEFT + at, TOP - 10, room, "code")
        turned = {"transform": f"rotate(-60 {LEFT + at:g} {TOP - 10})"}
        marks.append(Mark(name.tag, name.attributes | turned, name.text))
        marks.append(line(LEFT, TOP + at + CELL / 2, LEFT + size, TOP + at + CELL / 2, "grid"))
        marks.append(line(LEFT + at + CELL / 2, TOP, LEFT + at + CELL / 2, TOP + size, "grid"))
        marks.append(box(LEFT + at - CELL / 2, TOP + at - CELL / 2, CELL, CELL, "frame", 0))
        for other in sorted(imported(room, listed), key=listed.index):
            across = LEFT + (listed.index(other) + 0.5) * CELL
            marks.append(box(across - DOT / 2, TOP + at - DOT / 2, DOT, DOT, "tint-good", DOT / 2))
    description = "; ".join(
        f"{room} imports {', '.join(sorted(imported(room, listed))) or 'no room'}" for room in listed
    )
    return picture("imports", "Imports between the rooms of grader/", description, TOP + size + 10, marks)

"""The pictures: drawn by code from what they show, fit for an <img>, and true."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import grimp
import pytest
import torch

from docs.pictures import attention, gelu, house, report, softmax
from docs.pictures.everything import COURSE, pictures
from tests.conftest import ROOT

PICTURES = pictures()
NAMES = [str(path.relative_to(ROOT)) for path in PICTURES]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(COURSE.glob("*/README.md"))]
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
SVG = "{http://www.w3.org/2000/svg}"
TAGS = {"svg", "title", "desc", "style", "rect", "line", "path", "circle", "text"}


def shown() -> list[tuple[Path, str, Path]]:
    """Every image of the pages: the page, its words, its file."""
    return [
        (page, words, (page.parent / target).resolve())
        for page in PAGES
        for words, target in SHOWN.findall(page.read_text(encoding="utf-8"))
    ]


def test_the_files_are_what_the_code_draws() -> None:
    drawn = {path: text for path, text in PICTURES.items() if path.is_file() and path.read_text("utf-8") == text}
    assert PICTURES.keys() - drawn.keys() == set(), "run: make pictures"
    assert {path for folder in (COURSE, ROOT / "docs") for path in folder.rglob("*.svg")} == PICTURES.keys()


def test_every_picture_is_on_a_page_with_words_for_those_who_do_not_see_it() -> None:
    assert {path for _, _, path in shown()} == PICTURES.keys()
    assert [(page.name, words) for page, words, _ in shown() if len(words) < 80] == []


@pytest.mark.parametrize("text", PICTURES.values(), ids=NAMES)
def test_a_picture_is_fit_for_an_img(text: str) -> None:
    root = ET.fromstring(text)
    assert {one.tag for one in root.iter()} <= {SVG + tag for tag in TAGS}
    assert [len(one.text or "") > 10 for one in root if one.tag in (SVG + "title", SVG + "desc")] == [True, True]
    names = {name for one in root.iter() for name in one.attrib}
    assert [name for name in names if "href" in name or name.startswith("on") or name == "style"] == []
    style = root.findtext(f"{SVG}style") or ""
    assert "@media (prefers-color-scheme: dark)" in style
    assert not re.search(r"url\(|@import|@font-face", style)
    assert re.findall(r"https?:[^\"]*", text) == ["http://www.w3.org/2000/svg"]


GRAPH = grimp.build_graph("grader")
imports = GRAPH.find_modules_directly_imported_by
ROOMS = {room for one in house.PROCESSES for room in one.rooms} | set(house.SHARED)


def room_of(module: str) -> str:
    """The longest name of a room that a module lies in; "" for a module of none."""
    path = module.removeprefix("grader.").replace(".", "/")
    return max((room for room in ROOMS if f"{path}.py" == room or f"{path}/".startswith(room)), key=len, default="")


def test_the_house_has_every_room_in_the_process_that_runs_it() -> None:
    def rooms(start: str, but: str = "") -> set[str]:
        """Rooms whose code a process imports that starts with this module."""
        graph = grimp.build_graph("grader")
        for module in [one for one in graph.modules if but and room_of(one) == but]:
            graph.remove_module(module)
        return {room_of(one) for one in (start, *graph.find_upstream_modules(start))} - {""}

    # `grader doctor` is the exception: it looks at walls from inside, and has no submission
    front, judge = rooms("grader.cli", but="doctor/"), rooms("grader.judge.__main__")
    worker = rooms("grader.worker.__main__")
    assert set(house.FRONT.rooms) == front - judge | {"doctor/"}
    assert set(house.JUDGE.rooms) == judge - front
    assert set(house.WORKER.rooms) == worker - judge
    assert set(house.SHARED) == front & judge
    assert worker == {"worker/", house.REQUESTS.form}
    assert {module for module in GRAPH.modules if not room_of(module)} == {
        "grader",
        "grader.__main__",
        "grader.combinations",
    }


def test_what_crosses_a_wall_of_the_house_is_known_on_both_sides() -> None:
    at_home = {room: process.name for process in house.PROCESSES for room in process.rooms}
    for one in house.CROSSINGS:
        assert at_home[one.start] != at_home[one.end]
        importers = {room_of(name) for name in GRAPH.modules for other in imports(name) if room_of(other) == one.form}
        assert {one.start, one.end} <= importers, one


def test_tiles_of_the_causal_map_are_what_the_mask_says() -> None:
    n = attention.length(COURSE / "flash_attention")
    visible = torch.ones(n, n, dtype=torch.bool).tril()
    for row, column, kind in attention.tiles(n):
        tile = visible[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64]
        assert kind == ("computed" if tile.all() else "masked" if tile.any() else "skipped")
    assert attention.counted(n).total() == math.ceil(n / 64) ** 2


def test_a_querys_maximum_and_sum_after_each_tile_are_those_of_its_keys() -> None:
    scores = torch.tensor(attention.scores(300), dtype=torch.float64)
    for _, last, m, total, _ in attention.online(300):
        seen = scores[: last + 1]
        assert m == seen.max().item()
        assert total == pytest.approx((seen - m).exp().sum().item())


def test_a_rows_maximum_and_sum_after_each_block_are_those_of_its_columns() -> None:
    row = torch.tensor(softmax.ROW, dtype=torch.float64)
    steps = softmax.steps()
    for number, (m, total, factor, _) in enumerate(steps, 1):
        seen = row[: number * softmax.BLOCK]
        assert m == seen.max().item()
        assert total == pytest.approx((seen - m).exp().sum().item())
        assert 0 <= factor <= 1
    assert len(row) % softmax.BLOCK, "the last block is to have a lane beyond the row"
    assert any(factor < 1 for _, _, factor, _ in steps[1:]), "the maximum is to rise"


@pytest.mark.parametrize("name", ["cuda_gelu", "triton_gelu"])
def test_a_gelus_case_has_a_last_block_that_is_not_full(name: str) -> None:
    n = gelu.size(COURSE / name)
    assert all(n % one for one in (gelu.THREADS, gelu.VECTOR, gelu.BLOCK_SIZE))
    assert gelu.gelu(1.3) == pytest.approx(torch.nn.functional.gelu(torch.tensor(1.3).double(), approximate="tanh"))


def test_the_picture_of_a_terminal_has_all_that_the_terminal_shows() -> None:
    """But for maps, which have other letters in colour than without it."""
    lines: dict[float, str] = {}
    for mark in report.terminal().marks:
        if mark.tag == "text":
            line = float(str(mark.attributes["y"]))
            lines[line] = lines.get(line, "") + mark.text.replace(" ", "")
    shown = (report.SAMPLES / "wrong" / "terminal.txt").read_text(encoding="utf-8").splitlines()
    missing = [one for one in shown if one.replace(" ", "") not in lines.values()]
    assert [one for one in missing if not set(one) & set("·█")] == []

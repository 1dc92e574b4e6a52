"""What a compiler has built for one worker is there for the next, and only as long as nothing that it is made of changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from grader.assignment import load_assignment
from grader.pool.surroundings import environment
from grader.protocol import Build
from grader.worker import load
from tests.conftest import ROOT

GELU = load_assignment(ROOT / "assignments" / "cuda_gelu").spec.signature
SOURCE = """extern "C" void gelu(const float* x, float* y, long long n, long long stream) {
    for (long long i = 0; i < n; i++) y[i] = x[i] + stream;
}
"""
# Builds for the CPU with g++ what nvcc is given, notes the architecture, and says what ptxas would.
NVCC = """#!/bin/sh
for word in "$@"; do
    case "$last$word" in -o*) target=$word;; *.cu) source=$word;; -arch=*) echo "$word" >> "$PWD.built";; esac
    case "$word" in -o) last=-o;; *) last=;; esac
done
printf 'extern "C" const char* grader_last_error() { return nullptr; }\\n' > "$target.cpp"
g++ -shared -fPIC -o "$target" -x c++ "$source" "$target.cpp" && echo "ptxas info    : Used 32 registers"
"""


class Stream(NamedTuple):
    """A stream where there is no GPU."""

    cuda_stream: int


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADER_BUILDS", str(tmp_path / "builds"))
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "gelu.cu").write_text(SOURCE)
    (folder / "helper.cuh").write_text("// nothing\n")
    return folder / "gelu.cu"


def put(source: Path, text: str, *how: str) -> Path:
    library = source.parent.parent / "made"
    library.write_text(text)
    folder = load.build_folder(source, *how)
    load.keep_build(folder, library, f"told of {text}")
    return folder


def test_what_was_built_is_there_with_what_was_told(source: Path) -> None:
    folder = put(source, "one", "nvcc", "sm_90")
    assert folder == load.build_folder(source, "nvcc", "sm_90")
    assert [(folder / name).read_text() for name in (load.LIBRARY, load.TOLD)] == ["one", "told of one"]


@pytest.mark.parametrize("changed", ["gelu.cu", "helper.cuh", "more/new.h"])
def test_another_source_is_another_library(source: Path, changed: str) -> None:
    before = load.build_folder(source, "nvcc")
    (source.parent / changed).parent.mkdir(exist_ok=True)
    (source.parent / changed).write_text(SOURCE + "// changed\n")
    assert load.build_folder(source, "nvcc") != before


def test_a_header_by_another_name_makes_another_library(source: Path) -> None:
    before = load.build_folder(source, "nvcc")
    (source.parent / "helper.cuh").rename(source.parent / "other.cuh")
    assert load.build_folder(source, "nvcc") != before


def test_another_compiler_makes_another_library_and_so_does_another_file(source: Path) -> None:
    other = source.with_name("other.cu")
    other.write_text(SOURCE)
    asked = (source, "nvcc", "sm_90"), (source, "nvcc", "sm_80"), (source, "nvcc"), (other, "nvcc", "sm_90")
    assert len({load.build_folder(path, *how) for path, *how in asked}) == 4


def test_who_comes_second_finds_the_first_ones(source: Path) -> None:
    """And nothing of theirs is left lying about."""
    folder = put(source, "one")
    assert put(source, "two") == folder
    assert (folder / load.LIBRARY).read_text() == "one"
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_worker_does_not_build_again_what_another_has_built(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "nvcc"
    compiler.write_text(NVCC)
    compiler.chmod(0o755)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    build = Build(str(compiler), 60.0, None, "sm_90", GELU)

    def built() -> list[str]:
        return (tmp_path / "submission.built").read_text().split()

    for _ in range(2):
        assert load.load_c_abi(source, "gelu", build).ptxas == "ptxas info    : Used 32 registers"
    assert built() == ["-arch=sm_90"]
    (found,) = (tmp_path / "builds").iterdir()
    (found / load.TOLD).unlink()  # somebody cleans up, or the disk was full
    assert load.load_c_abi(source, "gelu", build).ptxas == "ptxas info    : Used 32 registers"
    assert built() == ["-arch=sm_90"] * 2
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    launch: Any = load.load_c_abi(source, "gelu", build).function
    assert built() == [*["-arch=sm_90"] * 2, "-arch=sm_80"]
    x, y = torch.ones(5), torch.zeros(5)
    launch.on_stream(torch.cuda.ExternalStream(77) if torch.cuda.is_available() else Stream(77))(x, y)
    assert y.tolist() == [1.0 + 77] * 5


def test_a_library_that_cannot_be_kept_is_used_all_the_same(source: Path, tmp_path: Path) -> None:
    (tmp_path / "builds").write_text("in the way")
    folder = put(source, "one")
    assert not folder.exists()


def test_only_a_submissions_workers_share_libraries(tmp_path: Path) -> None:
    scratch, caches = tmp_path / "scratch", tmp_path / "caches"
    folders = [
        environment("cuda", tmp_path, scratch, where, trusted)["GRADER_BUILDS"]
        for where, trusted in ((caches, False), (caches, True), (None, False))
    ]
    assert folders == [str(caches / "builds"), str(scratch / "builds"), str(scratch / "builds")]

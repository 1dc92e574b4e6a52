"""scripts/bootstrap.sh: which installer is asked for which build of PyTorch. Python, pip and uv are fakes that write down their calls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT

# Makes the environment when asked to, and itself the Python in it; `-m pip` and uv install unless their words are among $UNREACHABLE's.
FAKE = """#!/bin/sh
case "$*" in
*"-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python && exit ;;
*"pip --version" | "-c import "*) exit ;;
*find_nvcc*) echo "$NVCC"; exit ;;
"- "*) echo "PyTorch 1.0, $1 $2"; exit ;;
esac
echo "$(basename "$0") $*" >> calls
case "$*" in *"$UNREACHABLE"*) exit 1 ;; esac
touch .venv/bin/grader && chmod +x .venv/bin/grader
"""
PIP = "python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "
UV = "uv pip install --quiet --python .venv/bin/python --compile-bytecode --constraint constraints.txt "
ALL, NVCC = "--editable .[dev]", "--editable .[nvcc]"
INDEX = "--no-deps --extra-index-url /an/index torch"
CPU = "--no-deps --torch-backend cpu torch"
NOTHING = "nothing is unreachable"
Bootstrap = Callable[..., tuple[list[str], str]]


@pytest.fixture
def bootstrap(tmp_path: Path) -> Bootstrap:
    """Runs the script in a checkout of its own; returns the calls that install, and what was said."""
    for name in ("scripts/bootstrap.sh", "pyproject.toml", "constraints.txt", "grader/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "cp", "mkdir", "touch", "chmod", "basename", "dirname"):
        (tools / name).symlink_to(shutil.which(name) or name)

    def run(*programs: str, unreachable: str = NOTHING, **variables: str) -> tuple[list[str], str]:
        for name in ("python3", *programs):
            (tools / name).write_text(FAKE)
            (tools / name).chmod(0o755)
        environment = {"PATH": str(tools), "UNREACHABLE": unreachable, "NVCC": "/opt/cuda/bin/nvcc", **variables}
        done = subprocess.run(
            ["sh", "scripts/bootstrap.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        calls = tmp_path / "calls"
        told = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return told, done.stdout

    return run


class Row(NamedTuple):
    """programs: that are there besides Python; calls: what installs, in this order; says: words of the output."""

    calls: list[str]
    programs: tuple[str, ...] = ()
    unreachable: str = NOTHING
    variables: Mapping[str, str] = {}
    says: str = "bootstrap: PyTorch 1.0"


WITH_PIP = {
    "pip alone installs the usual build": Row([PIP + ALL], says="with pip"),
    "an index that is named is asked for PyTorch alone": Row(
        [PIP + INDEX, PIP + ALL], variables={"TORCH_INDEX_URL": "/an/index"}
    ),
    "an index out of reach is told": Row(
        [PIP + INDEX, PIP + ALL], (), "/an/index", {"TORCH_INDEX_URL": "/an/index"}, "nothing came of TORCH_INDEX_URL"
    ),
    "an index is asked through uv": Row([UV + INDEX, UV + ALL], ("uv",), variables={"TORCH_INDEX_URL": "/an/index"}),
}
WITHOUT_GPU = {
    "uv is asked for the CPU build": Row([UV + CPU, UV + ALL], ("uv",), says="with uv"),
    "a CPU build out of reach is told": Row([UV + CPU, UV + ALL], ("uv",), "--torch-backend", says="out of reach"),
    "who sets up for another machine chooses": Row(
        [UV + CPU.replace("cpu", "auto"), UV + ALL], ("uv",), variables={"UV_TORCH_BACKEND": "auto"}
    ),
    "without a toolkit nvcc comes as a package": Row([PIP + ALL, PIP + NVCC], variables={"NVCC": ""}),
    "nvcc out of reach is done without": Row(
        [PIP + ALL, PIP + NVCC], (), "[nvcc]", {"NVCC": ""}, "nvcc is out of reach"
    ),
}
WITH_GPU = {
    "uv installs the usual build": Row([UV + ALL], ("uv", "nvidia-smi")),
    "a GPU's machine has a toolkit of its own": Row([UV + ALL], ("uv", "nvidia-smi"), variables={"NVCC": ""}),
    "where uv fails pip installs": Row(
        [UV + ALL, PIP + ALL],
        ("uv", "nvidia-smi"),
        "--compile-bytecode",
        says="uv could not install this; now with pip",
    ),
}


def tried(bootstrap: Bootstrap, row: Row) -> None:
    calls, words = bootstrap(*row.programs, unreachable=row.unreachable, **row.variables)
    assert [call for call in calls if not call.startswith("nvidia-smi")] == row.calls
    assert row.says in words


@pytest.mark.parametrize("row", [*WITH_PIP.values(), *WITH_GPU.values()], ids=[*WITH_PIP, *WITH_GPU])
def test_what_is_installed(bootstrap: Bootstrap, row: Row) -> None:
    tried(bootstrap, row)


@pytest.mark.skipif(
    any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")), reason="this machine has a GPU"
)
@pytest.mark.parametrize("row", WITHOUT_GPU.values(), ids=WITHOUT_GPU)
def test_what_is_installed_without_a_gpu(bootstrap: Bootstrap, row: Row) -> None:
    tried(bootstrap, row)


def test_nothing_is_installed_twice(bootstrap: Bootstrap) -> None:
    bootstrap()
    assert bootstrap() == ([], "")

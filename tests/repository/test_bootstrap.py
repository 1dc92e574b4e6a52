"""scripts/bootstrap.sh: which installer is asked for which build of PyTorch. Python, pip and uv are fakes that write down their calls."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

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
ALL = "--editable .[dev]"
NOTHING = "nothing is unreachable"
Bootstrap = Callable[..., tuple[list[str], str]]
without_gpu = pytest.mark.skipif(
    any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg")), reason="this machine has a GPU"
)


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


def test_pip_alone_installs_the_usual_build_in_one_call(bootstrap: Bootstrap) -> None:
    calls, words = bootstrap()
    assert calls == [PIP + ALL]
    assert "with pip" in words
    assert "bootstrap: PyTorch 1.0" in words


def test_nothing_is_installed_twice(bootstrap: Bootstrap) -> None:
    bootstrap()
    assert bootstrap() == ([], "")


@without_gpu
def test_without_a_gpu_uv_is_asked_for_the_cpu_build(bootstrap: Bootstrap) -> None:
    calls, words = bootstrap("uv")
    assert calls == [UV + "--no-deps --torch-backend cpu torch", UV + ALL]
    assert "with uv" in words


@without_gpu
def test_a_cpu_build_out_of_reach_is_told_and_the_usual_one_taken(bootstrap: Bootstrap) -> None:
    calls, words = bootstrap("uv", unreachable="--torch-backend")
    assert calls == [UV + "--no-deps --torch-backend cpu torch", UV + ALL]
    assert "out of reach" in words


@without_gpu
def test_who_sets_up_for_another_machine_chooses_the_build(bootstrap: Bootstrap) -> None:
    calls, _ = bootstrap("uv", UV_TORCH_BACKEND="auto")
    assert calls[0] == UV + "--no-deps --torch-backend auto torch"


@without_gpu
@pytest.mark.parametrize("unreachable", [NOTHING, "[nvcc]"])
def test_without_a_gpu_and_a_toolkit_nvcc_comes_as_a_package_or_is_done_without(
    bootstrap: Bootstrap, unreachable: str
) -> None:
    calls, words = bootstrap(NVCC="", unreachable=unreachable)
    assert calls == [PIP + ALL, PIP + "--editable .[nvcc]"]
    assert ("nvcc is out of reach" in words) == (unreachable != NOTHING)


def test_a_gpus_machine_has_a_toolkit_of_its_own(bootstrap: Bootstrap) -> None:
    calls, _ = bootstrap("uv", "nvidia-smi", NVCC="")
    assert [call for call in calls if call.startswith("uv")] == [UV + ALL]


def test_with_a_gpu_uv_installs_the_usual_build(bootstrap: Bootstrap) -> None:
    calls, _ = bootstrap("uv", "nvidia-smi")
    assert [call for call in calls if call.startswith("uv")] == [UV + ALL]


def test_where_uv_fails_pip_installs(bootstrap: Bootstrap) -> None:
    calls, words = bootstrap("uv", "nvidia-smi", unreachable="--compile-bytecode")
    assert [call for call in calls if not call.startswith("nvidia-smi")] == [UV + ALL, PIP + ALL]
    assert "uv could not install this; now with pip" in words


@pytest.mark.parametrize("unreachable", [NOTHING, "/an/index"])
@pytest.mark.parametrize(("programs", "installer"), [((), PIP), (("uv",), UV)])
def test_the_index_that_is_named_is_asked_for_pytorch_alone(
    bootstrap: Bootstrap, programs: tuple[str, ...], installer: str, unreachable: str
) -> None:
    calls, words = bootstrap(*programs, TORCH_INDEX_URL="/an/index", unreachable=unreachable)
    assert calls == [installer + "--no-deps --extra-index-url /an/index torch", installer + ALL]
    assert ("nothing came of TORCH_INDEX_URL" in words) == (unreachable != NOTHING)

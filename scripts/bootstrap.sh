#!/bin/sh
# Makes .venv beside this folder and installs grader with everything it needs, as pinned in constraints.txt.
# Run again it does nothing unless pyproject.toml or constraints.txt have changed. Needs Python >= 3.11 and nothing else.
#
# uv installs where it is there, in seconds; pip where it is not, or where uv fails: it does not read pip's settings.
# PyTorch's usual build brings 3 GB of CUDA libraries. A machine without a GPU gets the CPU build from uv; UV_TORCH_BACKEND=auto,
# cu130, ... chooses another, as for the login node of a cluster. TORCH_INDEX_URL is an index of PyTorch builds to look in
# besides the usual one, with uv or pip, as the Dockerfile takes it.
set -eu
cd "$(dirname "$0")/.."

python=""
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "bootstrap: Python 3.11 or newer was not found; install it (Debian, Ubuntu: apt install python3 python3-venv)" >&2
    exit 1
fi

stamp=$(cat pyproject.toml constraints.txt grader/__init__.py scripts/bootstrap.sh | cksum)
if [ -x .venv/bin/grader ] && [ "$(cat .venv/installed 2>/dev/null || true)" = "$stamp" ]; then
    exit 0
fi

if [ ! -x .venv/bin/python ]; then
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv .venv
    elif "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --without-pip .venv # Debian keeps ensurepip in a package of its own; the system's pip can do it
    else
        echo "bootstrap: Python has neither venv nor pip here; install them (Debian, Ubuntu: apt install python3-venv)" >&2
        exit 1
    fi
fi
if .venv/bin/python -m pip --version >/dev/null 2>&1; then
    pip=".venv/bin/python -m pip"
else
    pip="$python -m pip --python .venv/bin/python"
fi
say() { echo "bootstrap: $*"; }
with_uv() { uv pip install --quiet --python .venv/bin/python --compile-bytecode --constraint constraints.txt "$@"; }
with_pip() { $pip install --quiet --disable-pip-version-check --constraint constraints.txt "$@"; }
tool=pip
command -v uv >/dev/null 2>&1 && tool=uv
gpu=no
if [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || nvidia-smi -L >/dev/null 2>&1; then gpu=yes; fi
if [ "$tool" = uv ]; then say "installing into .venv with uv"; else
    say "installing into .venv with pip (PyTorch is large; this takes a few minutes the first time)"
fi
# PyTorch's own indexes are asked for PyTorch alone, for they have other packages too; and not for long, for they may be out of reach.
torch_alone() { (export PIP_RETRIES=1 UV_HTTP_RETRIES=1; "with_$tool" --no-deps "$@" torch); }
if [ -n "${TORCH_INDEX_URL:-}" ]; then
    torch_alone --extra-index-url "$TORCH_INDEX_URL" || say "nothing came of TORCH_INDEX_URL; now PyTorch's usual build"
elif [ "$tool $gpu" = "uv no" ]; then
    torch_alone --torch-backend "${UV_TORCH_BACKEND:-cpu}" || say "PyTorch's CPU build is out of reach; now its usual build"
fi
"with_$tool" --editable '.[dev]' || {
    [ "$tool" = uv ] || exit 1
    say "uv could not install this; now with pip"
    with_pip --editable '.[dev]'
}
# Without it, a file that only nvcc refuses would have all points here and none on the grading GPU.
if [ $gpu = no ] && [ -z "$(.venv/bin/python -c 'from grader.nvidia import find_nvcc; print(find_nvcc() or "")')" ]; then
    "with_$tool" --editable '.[nvcc]' || say "nvcc is out of reach: CUDA C++ is compiled by the C++ compiler alone"
fi
say "$(.venv/bin/python - $gpu <<'END'
import runpy, sys, sysconfig
from importlib.metadata import version
from pathlib import Path

packages = Path(sysconfig.get_path("purelib"))
build = runpy.run_path(str(packages / "torch/version.py")).get("cuda")
size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
words = f"for CUDA {build}" if build else "the CPU build"
if build and sys.argv[1] == "no":
    words += ", which this machine has no GPU for: TORCH_INDEX_URL in scripts/bootstrap.sh"
print(f"PyTorch {version('torch')}, {words}; all packages take {size / 1e9:.1f} GB")
END
)"
echo "$stamp" > .venv/installed

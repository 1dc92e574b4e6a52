#!/bin/sh
# Makes .venv beside this folder and installs grader with everything it needs, as pinned in constraints.txt.
# Run again it does nothing unless pyproject.toml or constraints.txt have changed. Needs Python >= 3.11 and nothing else.
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
echo "bootstrap: installing into .venv (PyTorch is large; this takes a few minutes the first time)"
$pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
echo "$stamp" > .venv/installed

#!/usr/bin/env bash
# All tests that this machine can run: most of them side by side (pytest-xdist), then those that need the machine for themselves.
# Arguments are passed on to both, as `--durations 20`.
cd "$(dirname "$0")/.." || exit
code=0
.venv/bin/pytest tests -m "not alone" "$@" || code=1
.venv/bin/pytest tests -m alone -n 0 "$@" || code=1
exit $code

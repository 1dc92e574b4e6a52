#!/usr/bin/env bash
# All tests that this machine can run: the quick suite, those that grade (side by side, by pytest-xdist), those that need the machine
# for themselves. tests/README.md tells more. `after-quick` leaves out the quick suite; further arguments are passed on to each pytest.
# GRADER_EVERYTHING=1 tries each promise in every place too, and 200 submissions in a row.
cd "$(dirname "$0")/.." || exit
code=0
some="and not everything"
if [ "${GRADER_EVERYTHING:-}" = 1 ]; then
    some=""
    export GRADER_ALL_ATTACKS=1 GRADER_SOAK="${GRADER_SOAK:-200}"
fi
if [ "${1:-}" = after-quick ]; then shift; else .venv/bin/pytest "$@" || code=1; fi
.venv/bin/pytest tests -m "(grading or docker) and not alone $some" "$@" || code=1
.venv/bin/pytest tests -m "alone $some" -n 0 "$@" || code=1
exit $code

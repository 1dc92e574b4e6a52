#!/usr/bin/env bash
# All tests: two halves side by side, for most of them wait for one process at a time; then those that need the machine for themselves.
# What is given is passed on to pytest for the half that is shown first, as `--ignore tests/unit`.
#
# With job control (-m), or what runs in the background, and all that it starts, would ignore Ctrl-C. Each pytest is a process group
# then, and this script has to end them.
set -eum
cd "$(dirname "$0")/.."
told=$(mktemp)
corpora="tests/accepted tests/exploits tests/mutants tests/sandbox"
failed=
half=
current=
end() {
    for group in $half $current; do kill -INT -- "-$group" 2>/dev/null || true; done
    wait
    rm -f "$told"
}
trap end EXIT
trap 'exit 130' INT TERM

# A pytest with these arguments, waited for in a way that signals interrupt; the second word says in `failed` which one it was.
run() {
    local name=$1
    shift
    .venv/bin/pytest "$@" &
    current=$!
    wait "$current" || failed="$failed $name"
    current=
}
# shellcheck disable=SC2086
.venv/bin/pytest -m "not alone and not docker" $corpora >"$told" 2>&1 &
half=$!
# shellcheck disable=SC2046,SC2086
run beside -m "not alone" $(printf -- '--ignore %s ' $corpora) "$@"
# shellcheck disable=SC2086
run containers -m "not alone and docker" $corpora
wait "$half" || failed="$failed corpora"
half=
cat "$told"
run alone -m alone
[ -z "$failed" ] || { echo "test.sh: failed:$failed" >&2; exit 1; }

#!/bin/sh
# A Docker daemon with the CPU grading image, for the tests of --sandbox docker: made from Debian's packages and Python's alone, no
# registry of images is asked. As root, on Debian or Ubuntu:
#
#   eval "$(scripts/test-image.sh start FOLDER)"    starts a daemon, unless one answers; builds the image, unless it is there
#   scripts/test-image.sh stop FOLDER               ends that daemon
#
# FOLDER is for the daemon's files and may be kept for the next time. What is done is told on stderr.
set -eu
verb=${1:?start or stop}
folder=$(mkdir -p "${2:?a folder}" && cd "$2" && pwd)
cd "$(dirname "$0")/.."
say() { echo "test-image: $*" >&2; }

. scripts/dockerd.sh
if [ "$verb" = stop ]; then
    stop_dockerd
    exit 0
fi

missing=""
for need in dockerd:docker.io debootstrap:debootstrap; do
    command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
done
if [ -n "$missing" ]; then
    say "installing$missing"
    # shellcheck disable=SC2086
    { apt-get install -y -qq --no-install-recommends $missing || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; }; } >&2
fi

DOCKER_HOST=${DOCKER_HOST:-unix://$folder/docker.sock}
export DOCKER_HOST
ask() { .venv/bin/python -m tests.support.ask_docker "$@"; }
start_dockerd # the build uses the host's network

version=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
3.11) suite=bookworm ;;
3.13) suite=trixie ;;
*) say "no Debian release has Python $version, for which this machine has packages"; exit 1 ;;
esac
# The packages of constraints.txt lie in it: other ones make another image.
base=grader-test-base:$suite-$(cat pyproject.toml constraints.txt | sha256sum | cut -c 1-12)
if ! ask has "$base"; then
    say "making a base image of Debian $suite"
    rm -rf "$folder/root"
    debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,python3-pip,g++,ca-certificates "$suite" "$folder/root" >"$folder/debootstrap.log" 2>&1 ||
        { say "$(tail -n 3 "$folder/debootstrap.log")"; exit 1; }
    # The packages of constraints.txt as this machine gets them, so that the build needs none of its settings.
    .venv/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*project["dependencies"], *project["optional-dependencies"]["nvcc"], "setuptools", sep="\n")' >"$folder/requirements.txt"
    .venv/bin/python -m pip download --quiet --quiet --disable-pip-version-check --only-binary=:all: --constraint constraints.txt \
        --requirement "$folder/requirements.txt" --dest "$folder/root/opt/wheels" >&2
    printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >"$folder/root/etc/pip.conf"
    tar -C "$folder/root" -c . | ask load "$base"
    rm -rf "$folder/root"
fi
say "building the image"
GRADER_IMAGE=${GRADER_IMAGE:-gpu-lab-grader:test}
.venv/bin/grader image build --course . --tag "$GRADER_IMAGE" --device cpu --base-image "$base" --network host >"$folder/build.log" 2>&1 ||
    { say "$(tail -n 20 "$folder/build.log")"; exit 1; }
say "$(tail -n 1 "$folder/build.log")"
echo "export DOCKER_HOST=$DOCKER_HOST GRADER_IMAGE=$GRADER_IMAGE"

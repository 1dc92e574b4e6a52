#!/bin/sh
# Docker and the grading image on a machine that has a GPU and neither Docker nor a network.
#
#   scripts/gpu-image.sh pack FOLDER [PYTHON]       on a Debian or Ubuntu with a network, as root: puts the engine and the wheels that
#                                                   such a machine lacks into FOLDER; PYTHON is that machine's version, as 3.12
#   eval "$(scripts/gpu-image.sh start FOLDER)"     on the machine with the GPU, as root, in a copy of this repository: starts the
#                                                   engine and builds the image. `python3`, or $PYTHON, is one that imports torch
#   scripts/gpu-image.sh stop FOLDER                there: ends the engine and removes its files
#
# `make gpu-docker FOLDER=...` there does start, tests and stop. Python, PyTorch, Triton and nvcc in the image are that machine's own.
# No NVIDIA toolkit is needed: a grading gives its container the GPU's device nodes. What is done is told on stderr.
set -eu
verb=${1:?pack, start or stop}
folder=$(mkdir -p "${2:?a folder}" && cd "$2" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
say() { echo "gpu-image: $*" >&2; }
ask() { PYTHONPATH="$folder/site:$PWD" "$python" -m tests.support.ask_docker "$@"; }
. scripts/dockerd.sh
DEFAULT_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin # of a container

# The engine's programs and the libraries that they may miss, without debugging information; the wheels of pyproject.toml but for
# those that a machine with PyTorch on a GPU has.
pack() {
    missing=""
    for need in dockerd:docker.io strip:binutils xz:xz-utils; do
        command -v "${need%%:*}" >/dev/null || missing="$missing ${need##*:}"
    done
    if [ -n "$missing" ]; then
        say "installing$missing"
        # shellcheck disable=SC2086
        { apt-get install -y -qq --no-install-recommends $missing || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; }; } >&2
    fi
    rm -rf "$folder/engine" "$folder/wheels"
    mkdir -p "$folder/engine/bin" "$folder/engine/lib"
    for program in dockerd containerd containerd-shim-runc-v2 runc docker-init; do
        cp -L "$(command -v $program)" "$folder/engine/bin/"
        strip "$folder/engine/bin/$program"
    done
    for program in dockerd runc; do ldd "$(command -v $program)"; done | awk '/=>/ && !/\/lib[cm]\.so/ { print $3 }' | sort -u |
        while read -r library; do cp -L "$library" "$folder/engine/lib/"; done
    version=${1:-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
    say "downloading wheels for Python $version"
    "$python" -c '
import re, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
there = {"torch", "triton", "numpy", "cuda-bindings"}
print(*(one for one in project if re.match(r"[\w-]+", one)[0] not in there), "ninja", "pytest-timeout", "pytest-xdist", "setuptools", sep="\n")' >"$folder/requirements.txt"
    "$python" -m pip download --quiet --disable-pip-version-check --python-version "$version" --only-binary=:all: \
        --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --constraint constraints.txt \
        --requirement "$folder/requirements.txt" --dest "$folder/wheels" >&2
    rm "$folder/requirements.txt"
    tar -C "$folder" -c engine | xz -T0 >"$folder/engine.tar.xz"
    rm -r "$folder/engine"
    say "$folder: $(du -sh "$folder" | cut -f 1)"
}

# Where the engine keeps images. It shares files between their layers on every file system but one that is made of layers itself,
# as a container's root is: there it would copy the whole base image for each step, so these files go to memory instead.
prepare_data() {
    mkdir -p "$folder/data"
    [ "$(stat -f -c %T "$folder/data")" = overlayfs ] || return 0
    say "the engine's files go to memory"
    mount -t tmpfs -o mode=0711 tmpfs "$folder/data" || say "which is not allowed: building takes long, and much of the disk"
}

# A tar of this machine's programs, Python and packages, of nothing else: without homes, keys and this repository. What Docker's
# build would download is in it: /opt/wheels for pip, and no lists of packages for apt, which has g++ here.
base_image() {
    overlay=$folder/overlay
    rm -rf "$overlay"
    mkdir -p "$overlay/opt" "$overlay/etc" "$overlay/usr" "$overlay/root" "$overlay/run" "$overlay/tmp" \
        "$overlay/var/tmp" "$overlay/var/cache/apt/archives/partial"
    chmod 1777 "$overlay/tmp" "$overlay/var/tmp"
    cp -r "$folder/wheels" "$overlay/opt/wheels"
    printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >"$overlay/etc/pip.conf"
    "$python" - "$overlay" <<'END' >"$folder/paths"
import os, sys
from pathlib import Path
from grader.nvidia import find_nvcc

overlay = Path(sys.argv[1])
if sys.prefix == "/opt/venv":
    sys.exit("gpu-image: this Python lies in /opt/venv, where the image has its own; move it, or name another in PYTHON")
packages = [path for path in dict.fromkeys(sys.path) if path.endswith("-packages") and Path(path).is_dir()]
# The image's environment, in /opt/venv, finds these packages beside its own.
inside = overlay / f"opt/venv/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
inside.mkdir(parents=True)
(inside / "machine.pth").write_text("".join(f"{path}\n" for path in packages))
# Where pip is among them, an environment is made without one.
pip = overlay / "opt/venv/bin/pip"
pip.parent.mkdir()
pip.write_text('#!/bin/sh\nexec /opt/venv/bin/python3 -m pip "$@"\n')
pip.chmod(0o755)
nvcc = find_nvcc()
if nvcc and not Path("/usr/local/cuda/bin/nvcc").exists():
    (overlay / "usr/local").mkdir(parents=True)
    (overlay / "usr/local/cuda").symlink_to(Path(nvcc).resolve().parent.parent)
system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/var/lib/dpkg"]
more = [sys.base_prefix, *packages, *([str(Path(nvcc).resolve().parent.parent)] if nvcc else [])]
named = [path for path in dict.fromkeys([*system, *more]) if os.path.lexists(path)]
print(*(path for path in named if not any(path.startswith(f"{one}/") for one in named)), sep="\n")
END
    # Docker takes no path twice: what is put in place of a file of this machine is left out of those.
    (cd "$overlay" && find etc usr ! -type d) >"$folder/put"
    {
        sed 's|^|/|' "$folder/put"
        printf '/etc/%s\n' apt/sources.list apt/sources.list.d ssh shadow gshadow
        printf '%s\n' "$folder" "$PWD/assignments" "$PWD/reference" "$PWD/starter"
    } >"$folder/left-out"
    printf '%s\n' opt root run tmp var/tmp var/cache >>"$folder/put"
    tar -c -P --one-file-system --anchored --no-wildcards --exclude-from "$folder/left-out" -T "$folder/paths" \
        -C "$overlay" -T "$folder/put" |
        ask load "$1" "ENV PATH=$("$python" -c 'import os, sys; print(os.path.dirname(os.path.realpath(sys.executable)))'):$DEFAULT_PATH"
    rm -rf "$overlay" "$folder/paths" "$folder/put" "$folder/left-out"
}

start() {
    [ "$(id -u)" = 0 ] || { say "an engine is root's"; exit 1; }
    "$python" -c 'import torch' 2>/dev/null || { say "$python cannot import torch; name one that can in PYTHON"; exit 1; }
    if [ ! -d "$folder/site" ]; then
        say "unpacking"
        tar -C "$folder" -xJf "$folder/engine.tar.xz"
        "$python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps --target "$folder/site" "$folder"/wheels/*.whl >&2
        # Only the libraries that this machine has not: its own fit its programs better.
        for library in "$folder"/engine/lib/*; do
            if ldconfig -p | grep -q "$(basename "$library") "; then rm "$library"; fi
        done
    fi
    DOCKER_HOST=${DOCKER_HOST:-unix://$folder/docker.sock}
    GRADER_IMAGE=${GRADER_IMAGE:-gpu-lab-grader}
    # An image that was made once is expected from then on: of this engine that is true while it runs.
    export DOCKER_HOST GRADER_IMAGE PYTHONPATH="$folder/site:$PWD" XDG_STATE_HOME="$folder/state"
    if ! ask ping; then
        prepare_data
        (
            PATH="$folder/engine/bin:$PATH" LD_LIBRARY_PATH="$folder/engine/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
            export PATH LD_LIBRARY_PATH
            start_dockerd
        )
    fi
    base=gpu-lab-grader-base:$("$python" -c 'import sys, torch; print("%d.%d" % sys.version_info[:2], torch.__version__.replace("+", "-"), sep="-")')
    if ! ask has "$base"; then
        say "making a base image of this machine's Python and programs: a minute or two"
        base_image "$base"
    fi
    # The versions are this machine's, so constraints.txt does not hold here.
    rm -rf "$folder/context"
    mkdir "$folder/context"
    cp -r pyproject.toml setup.py README.md LICENSE Dockerfile .dockerignore grader assignments reference starter "$folder/context/"
    : >"$folder/context/constraints.txt"
    device=cpu
    [ ! -e /dev/nvidiactl ] || device=cuda
    say "building the image, for $device"
    "$python" -m grader image build --course "$folder/context" --device $device --base-image "$base" --network none >"$folder/build.log" 2>&1 ||
        { say "$(tail -n 20 "$folder/build.log")"; exit 1; }
    say "$(tail -n 1 "$folder/build.log")"
    echo "export DOCKER_HOST=$DOCKER_HOST GRADER_IMAGE=$GRADER_IMAGE PYTHONPATH=$PYTHONPATH XDG_STATE_HOME=$XDG_STATE_HOME"
}

case $verb in
pack) pack "${3:-}" ;;
start) start ;;
stop)
    stop_dockerd
    umount "$folder/data" 2>/dev/null || true
    rm -rf "$folder/data" "$folder/exec" "$folder/site" "$folder/engine" "$folder/context" "$folder/state"
    ;;
*) say "pack, start or stop"; exit 2 ;;
esac

"""Jails: the walls around a worker, strongest first.

    bubblewrap   own namespaces. The worker sees the system's programs and libraries, Python and its packages, and its
                 submission, all read-only. It may write to its scratch folder and, on a GPU, to the kernel cache of the
                 submission's workers. It sees no other files, no other processes and no network. If the judge is root,
                 the worker is another user as well.
    uid          another user without capabilities, if the judge is root: for a container, whose walls are the rest of
                 the jail
    none         a process of the judge's user, without walls

The other user is a new one for each grading. Each jail admits the GPU's device nodes, and CUDA IPC works across it.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from grader.course import hidden_courses, is_installed
from grader.nvidia import find_ncu
from grader.pool import processes
from grader.runfolder import remove

JailName = Literal["bubblewrap", "uid", "none"]

# User ids that neither distributions nor systemd give away. USERS_OF_FEW is for containers with at most 65536 users.
USERS = range(2_010_000_000, 2_100_000_000)
USERS_OF_FEW = range(20_000, 60_000)
NOBODY = 65534
TRIAL_LIMIT_S = 60.0  # long, because a busy machine must not get a weaker jail
EMPTY_LIMIT_S = 60.0
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")
GPU_NODES = ("nvidia*", "nvidia-caps/*", "dxg")
SHARED = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")  # folders that all users may write to
DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")  # needed for CUDA; the last one on WSL
CAP_SETPCAP = 8
# The trial of a jail does a worker's first steps: it writes to its folder and, on a GPU, opens the driver's device
# nodes.
TRIAL = """
import os, sys
open(sys.argv[1], "w").close()
for node in sys.argv[2:]:
    os.close(os.open(node, os.O_RDWR))
"""


@dataclass(frozen=True)
class Jail:
    """How workers are confined. `programs` are the paths of bwrap and setpriv, as far as the jail needs them."""

    name: JailName
    programs: tuple[str, ...] = ()

    @property
    def uid(self) -> int:
        """The user id of a worker on the host."""
        return worker_uid() if os.geteuid() == 0 and self.name != "none" else os.geteuid()

    def empty(self, scratch: Path) -> None:
        """Remove a worker's files from its folder. In a container the judge's root may not, so the worker's user
        does.
        """
        if self.name != "uid":
            # Started through `processes`: another thread that ends a worker kills unknown children of the judge.
            with suppress(subprocess.TimeoutExpired):
                remove(scratch, lambda command: processes.output_of(command, EMPTY_LIMIT_S, env={"PATH": os.defpath}))
            return
        script = "chmod -R u+rwX . ; find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +"
        command = [*_drop(self.programs[-1]), "sh", "-c", script]
        with suppress(subprocess.TimeoutExpired):
            processes.output_of(command, EMPTY_LIMIT_S, cwd=scratch)

    def empty_shared_folders(self) -> None:
        """Remove what the workers' user, which is a new one for each grading, has left in folders that all may write to.
        Only `uid` lets workers reach these.
        """
        if self.name == "uid" and self.uid != NOBODY:
            mine = f"find {' '.join(SHARED)} -xdev -user {self.uid}"
            script = f"{mine} -type d -exec chmod u+rwx {{}} + ; {mine} -delete"
            with suppress(subprocess.TimeoutExpired):
                processes.output_of([*_drop(self.programs[-1]), "sh", "-c", script], EMPTY_LIMIT_S, cwd="/")

    def prepare(self, run_folder: Path, scratch: Path) -> None:
        """Make a worker's folder, and let the worker write to it and reach it. Without chown, which a container's root may not use.

        All workers of a submission are one user. They stay out of each other's folders because nobody can list the
        folders' random names.
        """
        scratch.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0 and self.name != "none":
            scratch.chmod(0o777)
            scratch.parent.chmod(0o711)
        if self.name == "uid":
            run_folder.chmod(0o711)

    def command(self, program: Sequence[str], writable: Sequence[Path], readable: Sequence[Path]) -> list[str]:
        """The command that runs `program` in this jail.

        Args:
            writable: folders that the worker may write to; the first is its working folder.
            readable: paths that the worker may read, beside the system and Python.
        """
        match self.name:
            case "none":
                return list(program)
            case "uid":
                # A container has no other users whom many processes would slow down, so the judge goes first.
                return ["nice", "-n", "10", *_drop(self.programs[-1]), *program]
            case "bubblewrap":
                options = [f"--unshare-{one}" for one in ("pid", "net", "ipc", "uts", "cgroup-try")]
                options += ["--hostname", "worker", "--die-with-parent"]
                drop: list[str] = []
                if os.geteuid() == 0:
                    options += ["--cap-drop", "ALL"]
                    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):  # setpriv needs these and drops them
                        options += ["--cap-add", capability]
                    drop = _drop(self.programs[1])
                return [self.programs[0], *options, *_files(writable, readable), "--", *drop, *program]


NO_JAIL = Jail("none")


def strongest_jail(folder: Path | None = None, device: str = "cpu") -> Jail:
    """The strongest jail that works on this machine. Each is tried, because its programs may be installed and
    forbidden.

    Args:
        folder: in which the jail must work: another user may not reach a run's folder inside a private one.
        device: on `cuda` a worker must be able to open the driver's device nodes that this process can open.
    """
    return next((jail for jail in candidates() if not fault(jail, folder, device)), NO_JAIL)


def candidates() -> list[Jail]:
    """The jails whose programs this machine has, the strongest first."""
    setpriv, bwrap = shutil.which("setpriv"), shutil.which("bwrap")
    root = os.geteuid() == 0
    found = []
    if bwrap is not None and (setpriv is not None or not root):
        found.append(Jail("bubblewrap", tuple(filter(None, (bwrap, setpriv)))))
    if root and setpriv is not None:
        found.append(Jail("uid", (setpriv,)))
    return found


def fault(jail: Jail, where: Path | None = None, device: str = "cpu") -> str:
    """Why a worker cannot run in this jail, or ""; arguments as for `strongest_jail`."""
    nodes = [str(node) for node in DRIVER_NODES if os.access(node, os.R_OK | os.W_OK)] if device == "cuda" else []
    with tempfile.TemporaryDirectory(dir=where) as folder:
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        for above in (Path(folder), where or Path(folder)):
            jail.prepare(above, scratch)
        trial = jail.command([sys.executable, "-I", "-c", TRIAL, str(scratch / "file"), *nodes], [scratch], [])
        try:
            done = subprocess.run(
                trial, stdin=subprocess.DEVNULL, capture_output=True, cwd=scratch, timeout=TRIAL_LIMIT_S
            )
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
    words = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return words[-1] if done.returncode != 0 else ""


@functools.cache
def worker_uid() -> int:
    """The user of this judge's workers if the judge is root: a random id per process, `NOBODY` if there are too few ids
    here.

    The kernel counts processes by user across all containers, so one submission could use up another's share. Processes
    of one user may also signal and trace each other.
    """
    try:
        table = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError:  # a kernel without user namespaces
        return secrets.choice(USERS)
    spans = [(int(first), int(count)) for first, _, count in map(str.split, table.splitlines())]
    for users in (USERS, USERS_OF_FEW):
        if any(first <= users[0] and users[-1] < first + count for first, count in spans):
            return secrets.choice(users)
    return NOBODY


def _drop(setpriv: str) -> list[str]:
    """The command that becomes the worker's user, without groups, capabilities or new privileges.

    If this process may not empty the bounding set, as in a container, the set is left: some versions of setpriv would
    refuse. Without new privileges no capability can be raised from it.
    """
    uid = worker_uid()
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    bounds = ["--bounding-set=-all"] if int(held, 16) >> CAP_SETPCAP & 1 else []
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [setpriv, *user, "--inh-caps=-all", *bounds, "--no-new-privs", "--"]


def _files(writable: Sequence[Path], readable: Sequence[Path]) -> Iterator[str]:
    """Options for the worker's view of the file system: only paths named here exist."""
    yield from ("--tmpfs", "/tmp", "--dir", "/var/tmp", "--proc", "/proc", "--dev", "/dev")
    yield from ("--perms", "0755", "--dir", "/etc")  # bubblewrap would create the folder for root alone
    for path in SYSTEM:
        if Path(path).is_symlink():
            yield from ("--symlink", os.readlink(path), path)  # noqa: PTH115
        else:
            yield from ("--ro-bind-try", path, path)
    for name in ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    courses = hidden_courses()
    seen = [path for path in SYSTEM if not Path(path).is_symlink()]
    masks = _masks(seen, courses)
    for path in masks:
        yield from ("--tmpfs", path)
    tools = tool_folders(courses)
    for path in tools:
        yield from _at("--ro-bind-try", path)
    for path in (inside := _masks(tools, courses)):
        yield from ("--tmpfs", path)
    for pattern in GPU_NODES:
        for node in sorted(Path("/dev").glob(pattern)):
            if not node.is_dir():
                yield from ("--dev-bind", str(node), str(node))
    for folder in readable:
        yield from _at("--ro-bind", str(folder))
    for folder in writable:
        yield from _at("--bind", str(folder))
    # These lie in memory, where a worker of the grader's own user could store files that nobody counts.
    for path in (*masks, *inside, "/tmp", "/dev", "/"):
        yield from ("--remount-ro", path)
    yield from ("--chdir", str(writable[0]))


def _at(bind: str, path: str) -> Iterator[str]:
    """Bind a path to its own place. Folders above it are created, and may be passed by the worker's user."""
    for parent in reversed(Path(path).parents):
        if parent != Path("/"):
            yield from ("--perms", "0755", "--dir", str(parent))
    yield from (bind, path, path)


def _masks(folders: Sequence[str], courses: Sequence[Path]) -> list[str]:
    """The paths of these courses inside these folders, as a worker finds them."""
    real = [(Path(folder), Path(folder).resolve()) for folder in folders]
    pairs = ((folder, target, course) for folder, target in real for course in courses if course.is_dir())
    inside = [str(folder / one.relative_to(target)) for folder, target, one in pairs if one.is_relative_to(target)]
    return list(dict.fromkeys(inside))


def tool_folders(courses: Sequence[Path]) -> list[str]:
    """The folders of the interpreter, its packages, and the tools that the environment names: programs, CUDA toolkit,
    libraries.

    A folder around a course is left out, unless the course is installed among Python's packages: `_masks` covers that
    one.
    """
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders = [sys.prefix, sys.base_prefix, *packages]
    # Folders that `.pth` files among the packages add to Python's path, as of another environment with PyTorch
    for file in (file for folder in packages for file in sorted(Path(folder).glob("*.pth"))):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                folders.append(os.path.normpath(file.parent / line.strip()))
    folders += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders += [str(Path(os.environ["TRITON_PTXAS_PATH"]).parent)] if os.environ.get("TRITON_PTXAS_PATH") else []
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH"):
        folders += os.environ.get(name, "").split(os.pathsep)
    folders += [str(Path(ncu).resolve().parent)] if (ncu := find_ncu()) else []
    # A compiler's headers and libraries lie in the folder above its bin/.
    compilers = (shutil.which(name) for name in ("nvcc", os.environ.get("CXX", "g++"), "clang++"))
    folders += [str(Path(found).resolve().parent.parent) for found in compilers if found]
    system = tuple(f"{one}/" for one in SYSTEM)

    def is_wanted(folder: str) -> bool:
        seen = f"{folder}/".startswith(system)
        return not seen or any(Path(folder).resolve().is_relative_to(one) for one in courses)

    kept = dict.fromkeys(folder for folder in folders if folder.startswith("/") and is_wanted(folder))
    closed = [Path("/tmp"), *(one for one in courses if not is_installed(one))]
    with suppress(RuntimeError):  # a user unknown to the system has no home unless HOME is set
        closed.append(Path.home())
    found = [one.resolve() for one in closed]
    return [folder for folder in kept if not any(one.is_relative_to(Path(folder).resolve()) for one in found)]

"""What a worker may touch.

    bubblewrap   namespaces of its own: it sees the system read-only, Python's packages, its submission, its scratch folder and, on
                 a GPU, what the submission's workers have compiled; no other files, no processes but its own, no network. Where
                 the judge is root the worker is another user as well.
    uid          another user without any capability, where the judge is root: in a container, whose walls are the rest of the jail
    none         a process like any other of this user

That other user is a new one in each grading. The GPU comes in as its device nodes. CUDA IPC works across all of these.
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

from grader.contender import processes
from grader.course import hidden_courses, is_installed
from grader.runfolder import remove

JailName = Literal["bubblewrap", "uid", "none"]

# Numbers that no system gives to users of its own, nor systemd to containers'; and where a container has no more than 65536.
USERS = range(2_010_000_000, 2_100_000_000)
USERS_OF_FEW = range(20_000, 60_000)
NOBODY = 65534
TRIAL_LIMIT_S = 60.0  # long, for a busy machine must not get a weaker jail
EMPTY_LIMIT_S = 60.0
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/sys")
ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf", "localtime")
GPU_NODES = ("nvidia*", "nvidia-caps/*", "dxg")
IN_MEMORY = (Path("/tmp"), Path("/dev/shm"))  # of a container
DRIVER_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/dxg")  # without which there is no CUDA; the last one on WSL
CAP_SETPCAP = 8
# What a worker does first: write to its folder, and, on a GPU, open the driver's device nodes.
TRIAL = """
import os, sys
open(sys.argv[1], "w").close()
for node in sys.argv[2:]:
    os.close(os.open(node, os.O_RDWR))
"""


@dataclass(frozen=True)
class Jail:
    """How workers are confined. `programs` is where bwrap and setpriv lie, those that it needs."""

    name: JailName
    programs: tuple[str, ...] = ()

    @property
    def uid(self) -> int:
        """The user that a worker is, as the host counts users."""
        return worker_uid() if os.geteuid() == 0 and self.name != "none" else os.geteuid()

    @property
    def parent(self) -> int | None:
        """The process id of its parent as a worker sees it; None where that is the judge's own."""
        return 1 if self.name == "bubblewrap" else None

    def empty(self, scratch: Path) -> None:
        """Remove what a worker has left in its folder: others want the space. A container's root may not, but its user may."""
        if self.name != "uid":
            # By programs that are known to be ours: another thread that ends a worker takes others for what it has left behind.
            with suppress(subprocess.TimeoutExpired):
                remove(scratch, lambda command: processes.output_of(command, EMPTY_LIMIT_S, env={"PATH": os.defpath}))
            return
        script = "chmod -R u+rwX . ; find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} +"
        command = [*_drop(self.programs[-1]), "sh", "-c", script]
        with suppress(subprocess.TimeoutExpired):
            processes.output_of(command, EMPTY_LIMIT_S, cwd=scratch)

    def empty_container(self) -> None:
        """Remove what workers have left in a container where all may write: it takes memory. On a host, do nothing."""
        if self.name == "uid" and not _has_capability(CAP_SETPCAP):
            for folder in IN_MEMORY:
                self.empty(folder)

    def prepare(self, run_folder: Path, scratch: Path) -> None:
        """Let the worker write to its folder, and find a way to it. No chown: a container's root may not.

        All workers of a container are one user: what keeps them out of each other's folders is that nobody can list their names.
        """
        if os.geteuid() == 0 and self.name != "none":
            scratch.chmod(0o777)
        if self.name == "uid":
            for folder in {run_folder, scratch.parent}:
                folder.chmod(0o711)

    def command(self, program: Sequence[str], writable: Sequence[Path], readable: Sequence[Path]) -> list[str]:
        """The command that runs `program` in this jail.

        Args:
            writable: folders that it may write to; the first is its current one.
            readable: what it may read beside the system and Python.
        """
        match self.name:
            case "none":
                return list(program)
            case "uid":
                # In a container nobody but the judge suffers from processes without number: it goes first.
                return ["nice", "-n", "10", *_drop(self.programs[-1]), *program]
            case "bubblewrap":
                drop = _drop(self.programs[1]) if os.geteuid() == 0 else []
                return [self.programs[0], *_namespaces(), *_files(writable, readable), "--", *drop, *program]


NO_JAIL = Jail("none")


def strongest_jail(folder: Path | None = None, device: str = "cpu") -> Jail:
    """The best that works on this machine; each is tried out, for programs and namespaces may be there and forbidden.

    Args:
        folder: where it has to work: another user may find no way into a run's folder that lies in a private one.
        device: with `cuda` a worker must be able to open the driver's device nodes that this process can open.
    """
    return next((jail for jail in candidates() if not fault(jail, folder, device)), NO_JAIL)


def candidates() -> list[Jail]:
    """The jails that this machine has the programs for, the strongest first."""
    setpriv, bwrap = shutil.which("setpriv"), shutil.which("bwrap")
    root = os.geteuid() == 0
    found = []
    if bwrap is not None and (setpriv is not None or not root):
        found.append(Jail("bubblewrap", tuple(filter(None, (bwrap, setpriv)))))
    if root and setpriv is not None:
        found.append(Jail("uid", (setpriv,)))
    return found


def fault(jail: Jail, where: Path | None = None, device: str = "cpu") -> str:
    """Why a worker could not live in this jail, or nothing; the arguments are those of `strongest_jail`."""
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
    """The user that this judge's workers become where it is root, in no other grading on this machine; `NOBODY` where it knows too few.

    The kernel counts processes by user, in all containers together: one submission could use up another's share. And processes of one
    user may signal and trace each other.
    """
    try:
        table = Path("/proc/self/uid_map").read_text(encoding="ascii")
    except OSError:  # a kernel without namespaces of users
        return secrets.choice(USERS)
    spans = [(int(first), int(count)) for first, _, count in map(str.split, table.splitlines())]
    for users in (USERS, USERS_OF_FEW):
        if any(first <= users[0] and users[-1] < first + count for first, count in spans):
            return secrets.choice(users)
    return NOBODY


def _drop(setpriv: str) -> list[str]:
    """Become the worker's user, without groups, capabilities or a way to get any.

    Where this process may not empty the bounding set, as in a container, setpriv would refuse to or leave it as it is, depending on its
    version; nothing raises a capability out of it, for there are no new privileges.
    """
    uid = worker_uid()
    bounds = ["--bounding-set=-all"] if _has_capability(CAP_SETPCAP) else []
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [setpriv, *user, "--inh-caps=-all", *bounds, "--no-new-privs", "--"]


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(held, 16) >> number & 1)


def _namespaces() -> list[str]:
    options = [f"--unshare-{one}" for one in ("pid", "net", "ipc", "uts", "cgroup-try")]
    options += ["--hostname", "worker", "--die-with-parent"]
    if os.geteuid() == 0:  # to become another user, which drops these too
        options += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            options += ["--cap-add", capability]
    return options


def _files(writable: Sequence[Path], readable: Sequence[Path]) -> Iterator[str]:
    """The view of the file system: nothing but what is named here."""
    yield from ("--tmpfs", "/tmp", "--dir", "/var/tmp", "--proc", "/proc", "--dev", "/dev")
    yield from ("--perms", "0755", "--dir", "/etc")  # which bubblewrap would make for root alone
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
    # These lie in memory: a worker that is the grader's own user could keep there what nobody counts.
    for path in (*masks, *inside, "/tmp", "/dev", "/"):
        yield from ("--remount-ro", path)
    yield from ("--chdir", str(writable[0]))


def _at(bind: str, path: str) -> Iterator[str]:
    """Bind a path where it is; the folders above it are made, and may be passed through by the worker's user."""
    for parent in reversed(Path(path).parents):
        if parent != Path("/"):
            yield from ("--perms", "0755", "--dir", str(parent))
    yield from (bind, path, path)


def _masks(folders: Sequence[str], courses: Sequence[Path]) -> list[str]:
    """The paths of these courses inside these folders, as a worker that sees the folders would find them."""
    real = [(Path(folder), Path(folder).resolve()) for folder in folders]
    pairs = ((folder, target, course) for folder, target in real for course in courses if course.is_dir())
    inside = [str(folder / one.relative_to(target)) for folder, target, one in pairs if one.is_relative_to(target)]
    return list(dict.fromkeys(inside))


def tool_folders(courses: Sequence[Path]) -> list[str]:
    """Where the interpreter and its packages are, and what the environment names beside: programs, CUDA's toolkit and libraries.

    A folder around a course is left out, unless the course was installed among Python's packages: `_masks` covers that one.
    """
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders = [sys.prefix, sys.base_prefix, *packages, *_added_folders(packages)]
    folders += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders += [str(Path(os.environ["TRITON_PTXAS_PATH"]).parent)] if os.environ.get("TRITON_PTXAS_PATH") else []
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH"):
        folders += os.environ.get(name, "").split(os.pathsep)
    # A compiler brings its own headers and libraries along, in the folder above its bin/.
    compilers = (shutil.which(name) for name in ("nvcc", os.environ.get("CXX", "g++"), "clang++"))
    folders += [str(Path(found).resolve().parent.parent) for found in compilers if found]
    system = tuple(f"{one}/" for one in SYSTEM)

    def is_wanted(folder: str) -> bool:
        seen = f"{folder}/".startswith(system)
        return not seen or any(Path(folder).resolve().is_relative_to(one) for one in courses)

    kept = dict.fromkeys(folder for folder in folders if folder.startswith("/") and is_wanted(folder))
    closed = [Path("/tmp"), *(one for one in courses if not is_installed(one))]
    with suppress(RuntimeError):  # a user whom no list of users names has no home, unless HOME says so
        closed.append(Path.home())
    found = [one.resolve() for one in closed]
    return [folder for folder in kept if not any(one.is_relative_to(Path(folder).resolve()) for one in found)]


def _added_folders(packages: Sequence[str]) -> Iterator[str]:
    """The folders that `.pth` files among the packages add to Python's path, as of another environment that has PyTorch."""
    for file in (file for folder in packages for file in sorted(Path(folder).glob("*.pth"))):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.strip() and not line.startswith(("#", "import ", "import\t")):
                yield os.path.normpath(file.parent / line.strip())

"""A Slurm of one controller and two nodes on this machine, each node with a GPU that is none: a character device of that name."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
NODES = ("n1", "n2")
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
CONF = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
PartitionName=gpu Nodes={nodes} Default=YES MaxTime=60 State=UP
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 RealMemory=1000 Gres=gpu:1\n"


def why_not() -> str:
    """Why there can be no cluster here; empty where there can."""
    if os.geteuid() != 0:
        return "Slurm's daemons are started as root"
    missing = [one for one in PROGRAMS if shutil.which(one) is None]
    return f"Debian's slurmctld and slurmd are not installed ({', '.join(missing)})" if missing else ""


class Cluster:
    """A cluster that runs. environment: makes Slurm's programs ask it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def wait(self, look: Callable[[], T], limit_s: float = 240) -> T:
        """What `look` returns, as soon as that is true."""
        deadline = time.monotonic() + limit_s
        while not (found := look()):
            assert time.monotonic() < deadline, (
                self.ask("squeue") + (self._folder / "controller.log").read_text()[-3000:]
            )
            time.sleep(0.3)
        return found

    def running(self) -> dict[str, str]:
        """The node of each array task that runs, by its index."""
        lines = self.ask("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%K %N").splitlines()
        return dict(line.split() for line in lines)

    def kill_node(self, name: str) -> None:
        """As when a machine loses its power: the node's daemon and all processes of its jobs are gone at once."""
        of_jobs = [  # no children of the daemon: their environment says whose they are
            one
            for one in psutil.process_iter(["environ"])
            if (one.info["environ"] or {}).get("SLURMD_NODENAME") == name
        ]
        # Those first that would report that another is gone: the daemon, and the `slurmstepd` that each job is a child of.
        victims = [psutil.Process(int((self._folder / f"{name}.pid").read_text()))]
        for one in of_jobs:
            with suppress(psutil.Error):
                victims += [parent for parent in one.parents() if parent.name() == "slurmstepd"]
        for end in (psutil.Process.suspend, psutil.Process.kill):
            for one in [*victims, *of_jobs]:
                with suppress(psutil.Error):
                    end(one)
        (self._folder / f"{name}.pid").unlink()  # which a daemon that ends by itself removes

    def start_node(self, name: str) -> None:
        subprocess.run(["slurmd", "-f", self._folder / "slurm.conf", "-N", name], env=self.environment, check=True)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start a cluster; it is ended afterwards. Its folder has a short path, for Slurm's sockets in it have at most 107 characters."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    host, ports = socket.gethostname(), _free_ports(1 + len(NODES))
    nodes = zip(NODES, ports[1:], strict=True)
    text = CONF.format(host=host, port=ports[0], folder=folder, nodes=",".join(NODES))
    text += "".join(NODE.format(name=name, host=host, port=port) for name, port in nodes)
    for name in ("state", *NODES):
        (folder / name).mkdir(parents=True)
    (folder / "slurm.conf").write_text(text)
    gres = ["AutoDetect=off\n"]
    for number, name in enumerate(NODES):
        os.mknod(folder / f"gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        gres.append(f"NodeName={name} Name=gpu File={folder}/gpu{number}\n")
    (folder / "gres.conf").write_text("".join(gres))
    made = Cluster(folder)
    try:
        subprocess.run(["slurmctld", "-f", folder / "slurm.conf"], env=made.environment, check=True)
        for name in NODES:
            made.start_node(name)
        made.wait(lambda: "idle" in made.ask("sinfo", "--noheader", "--format=%T %D"), 60)
        yield made
    finally:
        with suppress(AssertionError, subprocess.TimeoutExpired):
            made.ask("scancel", "--signal=KILL", "--user=root")
        for path in folder.glob("*.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGTERM)
        for path in folder.glob("*.pid"):  # a daemon removes its file when it has ended
            deadline = time.monotonic() + 20
            while path.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports

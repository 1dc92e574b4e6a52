"""What runs left behind that were ended by SIGKILL, or by a machine that stopped: containers, processes, folders.

Runs that still go on are left alone: a container has the name of its owner and a deadline on it, a folder is locked by its run.
A CPU's shared memory and a GPU's are of processes, and end with them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping

import psutil

from grader import runfolder
from grader.sandbox.base import InfraError


def cleanup() -> Iterator[str]:
    """Remove what is left, and tell of each thing removed.

    Raises:
        InfraError: a daemon that should be there does not answer; folders and processes are done with by then.
    """
    yield from _folders()
    from grader.sandbox import engine

    if engine.is_there():
        yield from _containers()


def _folders() -> Iterator[str]:
    for folder in runfolder.abandoned():
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if any(str(folder) in value for value in process.environ().values()):
                    process.kill()
                    yield f"process {process.pid} of a run in {folder}"
        runfolder.remove(folder)
        if folder.exists():
            raise InfraError(f"{folder}: could not be removed; it needs the user who made it, or root")
        yield f"folder {folder}"


def _containers() -> Iterator[str]:
    from grader.sandbox import docker, engine

    client = engine.connect()
    try:
        with engine.in_words("list the containers"):
            found = client.api.containers(all=True, filters={"label": docker.RUN_LABEL})
        for one in found:
            labels = one["Labels"]
            if not is_over(labels):
                continue
            with engine.in_words(f"remove the container {labels[docker.RUN_LABEL]}"), _gone_is_fine():
                client.api.remove_container(one["Id"], v=True, force=True)
                yield f"container {labels[docker.RUN_LABEL]}"
    finally:
        client.close()


def is_over(labels: Mapping[str, str]) -> bool:
    """Whether the time of the container with these labels is up, or its owner was a process of this machine that is gone."""
    from grader.sandbox.docker import DEADLINE_LABEL, OWNER_LABEL

    deadline, owner = labels.get(DEADLINE_LABEL, "0"), labels.get(OWNER_LABEL, "")
    if not deadline.isdigit() or time.time() > int(deadline):
        return True
    host, pid, started = [*owner.split(), "", "", ""][:3]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(started)) > 1
    except psutil.NoSuchProcess:
        return not _exists(int(pid))


def _exists(pid: int) -> bool:
    """Whether there is such a process, though /proc may be mounted so that it shows nobody else's (hidepid, proc(5))."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    from docker.errors import NotFound

    with contextlib.suppress(NotFound):
        yield

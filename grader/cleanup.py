"""Removes the remains of killed runs: containers, processes, folders.

Running gradings are left alone: a container's labels name its owner and a deadline, and a run locks its folder. Shared
memory, on a CPU and on a GPU, ends with the processes that hold it.
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

GONE = (404, 409)  # the daemon's status codes if another process has removed the container or is removing it


def cleanup() -> Iterator[str]:
    """Remove the remains of killed runs. Yields a description of each removed thing.

    Raises:
        InfraError: an expected daemon does not answer; folders and processes have been removed by then.
    """
    for folder in runfolder.abandoned():
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                # A judge's environment cannot be read, and its arguments name the folder; a worker's environment does.
                if str(folder) in process.cmdline() or any(str(folder) in one for one in process.environ().values()):
                    process.kill()
                    yield f"process {process.pid} of a run in {folder}"
        runfolder.remove(folder)
        if folder.exists():
            raise InfraError(f"{folder}: could not be removed; it needs the user who made it, or root")
        yield f"folder {folder}"
    from docker.errors import APIError

    from grader.sandbox import docker, engine

    if not engine.is_there():
        return
    with contextlib.closing(engine.connect()) as client:
        with engine.in_words("list the containers"):
            found = client.api.containers(all=True, filters={"label": docker.RUN_LABEL})
        for one in (one for one in found if is_over(one["Labels"])):
            name = f"container {one['Labels'][docker.RUN_LABEL]}"
            with engine.in_words(f"remove the {name}"):
                try:
                    client.api.remove_container(one["Id"], v=True, force=True)
                except APIError as error:
                    if error.status_code not in GONE:
                        raise
                    continue
            yield name


def is_over(labels: Mapping[str, str]) -> bool:
    """Whether a container's deadline has passed, or its owner was a process of this machine that has ended. `labels`: the container's."""
    from grader.sandbox.docker import DEADLINE_LABEL, OWNER_LABEL

    deadline, owner = labels.get(DEADLINE_LABEL, "0"), labels.get(OWNER_LABEL, "")
    if not deadline.isdigit() or time.time() > int(deadline):
        return True
    host, pid, started = [*owner.split(), "", "", ""][:3]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's process
    with contextlib.suppress(psutil.NoSuchProcess):  # /proc may hide it (hidepid, proc(5))
        return abs(psutil.Process(int(pid)).create_time() - float(started)) > 1
    return False

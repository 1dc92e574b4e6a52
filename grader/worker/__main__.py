"""The worker's program: set up, say "ready", then answer one frame at a time until the contender hangs up."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from grader import protocol

PR_SET_PDEATHSIG = 1
MAX_FILE_BYTES = 1 << 30


def main() -> None:
    """Usage: python -m grader.worker SOCKET_FD cpu|cuda PARENT_PID"""
    descriptor, device, parent = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    _leave_no_orphan(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))
    faulthandler.enable()
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    reader = protocol.Reader(connection)

    import torch

    with contextlib.suppress(ImportError):  # where there is no Triton, the student's own import says so
        import triton.language  # noqa: F401
    if device == "cuda":
        torch.cuda.init()
        torch.zeros(1, device="cuda")

    from grader.worker import load, run

    protocol.send(connection, {"id": 0, "ok": True})
    function: Any = None
    while (frame := reader.receive()) is not None:
        files, reader.files = reader.files, []
        try:
            if frame["do"] == "load":
                function = load.load(
                    Path(frame["path"]), frame["entry"], frame["compiler"], device, frame["build_limit_s"]
                )
                reply: protocol.Frame = {"ok": True}
            else:
                reply = run.call(function, frame, files, device)
        except BaseException as error:
            reply = {"ok": False, "error": load.describe(error)}
        finally:
            for file in files:
                os.close(file)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the student may have closed or replaced them
                stream.flush()
        protocol.send(connection, reply | {"id": frame["id"]})
        gc.collect()
    os._exit(0)


def _leave_no_orphan(parent: int) -> None:
    """Die when the judge dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()

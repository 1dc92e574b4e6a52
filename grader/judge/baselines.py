"""The baselines and yardsticks of a benchmark run: trusted code, each in a worker of its own that never sees a submission.

eager, compile     `eager` of the assignment's baselines.py, as it is and through torch.compile
reference          the staff's kernel in reference/
copy, matmul       yardsticks: the machine's limits (`grader/worker/yardsticks.py`)
null               the null worker, whose time is the cost of handing tensors over
any other name     the function of that name in baselines.py, such as a vendor's kernel
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Future, wait
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from grader.assignment import Device
from grader.background import later
from grader.judge.cases import BoundSpeedCase
from grader.judge.environment import driver_version
from grader.judge.loading import load_file
from grader.pool.cuda_cpu import cache_folder
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool, end_all
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import Yardstick

NULL = "null"
COMPILE = "compile"
YARDSTICKS = ("copy", "matmul", NULL)
LIMITS = CallLimits(time_s=300.0, memory_gib=64.0)  # torch.compile with cold caches on a busy machine


class Baselines:
    """Starts the workers of baselines and yardsticks, and loads the code that a case needs.

    Args:
        caches: folder of compiled kernels of the course, kept from run to run; None if nothing is kept.
    """

    def __init__(self, pool: WorkerPool, course: Path, caches: Path | None) -> None:
        self._pool, self._course, self.caches = pool, course, caches
        self.workers: dict[str, Worker] = {}
        self._holds: dict[str, str] = {}  # what each worker has loaded
        self._ahead: list[Future[Worker]] = []

    def load_ahead(self, cases: Sequence[BoundSpeedCase], everyone: bool) -> None:
        """Have the worker of each baseline of these cases load its first case in the background: what torch.compile compiles
        first takes 10 s on a GPU.

        Args:
            everyone: whether to load all baselines, not only those of bands and roofline.
        """
        first = {name: case for case in reversed(cases) for name in (NULL, *case.entrants(everyone))}
        self._ahead = [later(partial(self._loaded, name, case)) for name, case in first.items()]

    def settle(self) -> None:
        """Wait until nothing is loaded in the background: that would disturb a benchmark, and a case that measures memory."""
        wait(self._ahead)
        self._ahead = []  # if one has failed, `worker` raises its error again

    def end(self) -> None:
        """End all workers. `worker` starts them again on demand."""
        self.settle()
        end_all(self.workers.values())

    def worker(self, name: str, case: BoundSpeedCase) -> Worker:
        """The worker of this name, with the code of the case loaded.

        Raises:
            Fault: the code cannot be loaded, by a fault of the course or of the machine.
        """
        self.settle()
        return self._loaded(name, case)

    def _loaded(self, name: str, case: BoundSpeedCase) -> Worker:
        worker = self.workers.get(name)
        if worker is None or not worker.lives():
            worker = self.workers[name] = self._pool.start(owner="course", caches=self.caches)
            self._holds.pop(name, None)
        what = name if name in YARDSTICKS else f"{name} of {case.id}"  # each case compiles anew
        if self._holds.get(name) != what:
            try:
                if name in YARDSTICKS:
                    worker.do(Yardstick(name), LIMITS)
                elif name == "reference":
                    load_file(worker, self._course / "reference", case.assignment)
                else:
                    file, entry = case.assignment.folder / "baselines.py", "eager" if name == COMPILE else name
                    worker.load(file, entry, None, LIMITS, compiled=name == COMPILE)
            except Fault as fault:
                if fault.whose == "machine":
                    raise
                raise Fault.of_machine(f"the baseline {name} of {case.id} cannot be loaded: {fault.message}") from None
            self._holds[name] = what
        return worker


def kept_caches(device: Device) -> Path | None:
    """The folder of kept kernels; None without a GPU. No other user may enter: the folder holds the compiled reference,
    and its path is no secret.
    """
    folder = cache_folder() if device == "cuda" else None
    if folder is None:
        return None
    caches = folder / _toolchain()
    caches.mkdir(parents=True, exist_ok=True)
    caches.chmod(0o700)
    return caches


def _toolchain() -> str:
    """The versions that compiled kernels depend on: GPU, driver, torch and triton."""
    parts = [torch.cuda.get_device_name(), driver_version() or "", torch.__version__, version("triton")]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts))

"""The baselines and yardsticks of a race: trusted code, each in a worker of its own that never sees a submission.

eager, compile     `eager` of the assignment's baselines.py, as it is and through torch.compile
reference          the staff's kernel in reference/
copy, matmul       yardsticks: the machine's limits (`grader/worker/yardsticks.py`)
null               the null worker, whose time is the cost of handing tensors over
any other name     the function of that name in baselines.py, such as a vendor's kernel
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

from grader.assignment import Device
from grader.judge.asking import UPSTREAM, arena_for
from grader.judge.cases import BoundSpeedCase
from grader.judge.environment import driver_version
from grader.judge.loading import load_file
from grader.pool.cuda_cpu import cache_folder
from grader.pool.fault import Fault
from grader.pool.pool import WorkerPool, end_all
from grader.pool.watch import CallLimits
from grader.pool.worker import Worker
from grader.protocol import Prepare, Release, Time, Yardstick

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
        self._loaded: dict[str, str] = {}
        self._starting = threading.Lock()
        self._loading: ThreadPoolExecutor | None = None

    def begin(
        self,
        cases: Sequence[BoundSpeedCase],
        everyone: bool,
        roomy: Sequence[BoundSpeedCase] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the workers of these cases in the background, and have each load the code of its first case.

        torch.compile's worker needs many seconds for that. If an earlier run has compiled the case, the worker also
        makes one call: otherwise the whole race would wait for its first call.

        Args:
            everyone: whether to start all baselines, not only those of bands and roofline.
            roomy: cases, in the size that fits beside all other workers.
            meanwhile: a function that takes long, run at the same time.
        """
        first = {name: case for case in reversed(cases) for name in (NULL, *case.entrants(everyone))}
        sizes = {case.id: case for case in roomy}
        self._loading = ThreadPoolExecutor(1 + len(first), thread_name_prefix="loading")
        self._loading.submit(meanwhile)
        for name, case in first.items():
            self._loading.submit(self._load_early, name, case, sizes.get(case.id))

    def _load_early(self, name: str, case: BoundSpeedCase, size: BoundSpeedCase | None) -> None:
        with suppress(Exception):  # `worker` will raise this again
            worker = self.worker(name, case)
            if name == COMPILE and size is not None and (note := self._note_of(size)) is not None and note.exists():
                call_unseen(worker, size)

    def note_compiled(self, name: str, case: BoundSpeedCase) -> None:
        """Note that torch.compile has compiled the case, so that the next run may call it early. Never earlier:
        torch.compile tunes by timing, and needs the GPU for itself.
        """
        if name == COMPILE and (note := self._note_of(case)) is not None:
            with suppress(OSError):  # the folder is full: the next run waits a second longer
                note.touch()

    def _note_of(self, case: BoundSpeedCase) -> Path | None:
        """The file that says that torch.compile has compiled this case, size and code; None if nothing is kept."""
        if self.caches is None:
            return None
        worker = self._pool.runtime / "grader" / "worker"
        sources = (case.assignment.folder / "baselines.py", case.assignment.folder / "problem.py", worker / "load.py")
        try:
            code = b"".join(source.read_bytes() for source in sources)
        except OSError:
            return None
        what = f"{case.id} {case.case.dtype} {case.params!r} {hashlib.sha256(code).hexdigest()}"
        return self.caches / "inductor" / f"compiled-{hashlib.sha256(what.encode()).hexdigest()[:32]}"

    def settle(self) -> None:
        """Wait until no worker is loading. Threads may wait together."""
        if (loading := self._loading) is not None:
            loading.shutdown()
            self._loading = None

    def end(self) -> None:
        """End all workers. `worker` starts them again on demand."""
        self.settle()
        end_all(self.workers.values())

    def worker(self, name: str, case: BoundSpeedCase) -> Worker:
        """The worker of this name, with the code of the case loaded.

        Raises:
            Fault: the code cannot be loaded, by a fault of the course or of the machine.
        """
        with self._starting:
            worker = self.workers.get(name)
            if worker is None or not worker.lives():
                worker = self.workers[name] = self._pool.start(owner="course", caches=self.caches)
                self._loaded.pop(name, None)
        what = name if name in YARDSTICKS else f"{name} of {case.id}"  # each case compiles anew
        if self._loaded.get(name) != what:
            worker.ready()
            try:
                self._load(worker, name, case)
            except Fault as fault:
                if fault.whose == "machine":
                    raise
                raise Fault.of_machine(f"the baseline {name} of {case.id} cannot be loaded: {fault.message}") from None
            self._loaded[name] = what
        return worker

    def _load(self, worker: Worker, name: str, case: BoundSpeedCase) -> None:
        if name in YARDSTICKS:
            worker.do(Yardstick(name), LIMITS)
        elif name == "reference":
            load_file(worker, self._course / "reference", case.assignment)
        else:
            entry = "eager" if name == COMPILE else name
            worker.load(case.assignment.folder / "baselines.py", entry, None, LIMITS, compiled=name == COMPILE)


def call_unseen(worker: Worker, case: BoundSpeedCase) -> None:
    """Make one call on inputs as in a race, and ignore the answer. A failure ends the worker.

    Raises:
        Fault: there was no answer.
        MemoryError, RuntimeError: there was no memory for the inputs.
    """
    device = torch.device(worker.device)
    call = case.inputs(secrets.randbits(53), 0, device)
    upstream = None if call.upstream is None else UPSTREAM
    with arena_for(call, {}, case.dtype, device) as arena:
        try:
            sets = (arena.operands([*call.args], upstream, []),)
            worker.do(Prepare(arena.address, sets, tuple(call.options.values()), None), LIMITS, arena.files)
            worker.send(Time(1, 1, watched=False, gate=0))
            worker.finish(1, LIMITS)
            worker.do(Release(), LIMITS)
        except BaseException:
            worker.kill()  # before the memory that the worker has mapped is freed
            raise


def kept_caches(device: Device, toolchain: Callable[[], str] | None = None) -> Path | None:
    """The folder of kept kernels; None without a GPU. No other user may enter: the folder holds the compiled reference,
    and its path is no secret.

    Args:
        toolchain: names everything that compiled kernels depend on; looked up by default.
    """
    folder = cache_folder() if device == "cuda" else None
    if folder is None:
        return None
    caches = folder / (toolchain or _toolchain)()
    caches.mkdir(parents=True, exist_ok=True)
    caches.chmod(0o700)
    return caches


def _toolchain() -> str:
    """The versions that compiled kernels depend on: GPU, driver, torch and triton."""
    parts = [torch.cuda.get_device_name(), driver_version() or "", torch.__version__, version("triton")]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts))

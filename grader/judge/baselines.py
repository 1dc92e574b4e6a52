"""The contenders that a submission is held against: trusted code, each in a worker of its own, which never sees a submission.

eager, compile     `eager` of the assignment's baselines.py, as it is and through torch.compile
reference          the staff's answer in reference/
copy, matmul       what the machine can do at most (`grader/worker/yardsticks.py`)
null               nothing; what handing inputs over and taking outputs back costs
any other name     the function of that name in baselines.py, such as a vendor's kernel
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

from grader.assignment import Device
from grader.contender.contender import Contender, Limits
from grader.contender.cuda_cpu import cache_folder
from grader.contender.pool import WorkerPool, end_all
from grader.contender.replies import ContenderFault
from grader.judge.asking import UPSTREAM, arena_for
from grader.judge.cases import BoundSpeedCase
from grader.judge.environment import driver_version
from grader.judge.evidence import CaseRefused
from grader.judge.loading import load_file
from grader.protocol import Prepare, Release, Time, Yardstick

NULL = "null"
COMPILE = "compile"
YARDSTICKS = ("copy", "matmul", NULL)
LIMITS = Limits(time_s=300.0, memory_gib=64.0)  # torch.compile with cold caches, on a busy machine


class Baselines:
    """Starts trusted contenders and loads them with what a case asks for.

    Args:
        caches: the folder where compiled kernels of the course are kept from one run to the next; None where none are.
    """

    def __init__(self, pool: WorkerPool, course: Path, caches: Path | None) -> None:
        self._pool, self._course, self.caches = pool, course, caches
        self.workers: dict[str, Contender] = {}
        self._loaded: dict[str, str] = {}
        self._loading: ThreadPoolExecutor | None = None

    def begin(
        self,
        cases: Sequence[BoundSpeedCase],
        everyone: bool,
        roomy: Sequence[BoundSpeedCase] = (),
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Start the contenders of these cases in the background, and have each load what its first case needs: that takes torch.compile's
        worker many seconds. What it has compiled in an earlier run it is asked for once, or every contender of a race would wait for that.

        Args:
            roomy: the sizes for which there is memory beside all else.
            meanwhile: what else takes long, and can be done beside that.
        """
        first = {name: case for case in reversed(cases) for name in (NULL, *case.contenders(everyone))}
        sizes = {case.id: case for case in roomy}
        self.start(first)
        self._loading = ThreadPoolExecutor(1 + len(first), thread_name_prefix="loading")
        self._loading.submit(meanwhile)
        for name, case in first.items():
            self._loading.submit(self._load_early, name, case, sizes.get(case.id))

    def _load_early(self, name: str, case: BoundSpeedCase, size: BoundSpeedCase | None) -> None:
        with suppress(Exception):  # whoever asks for it will be told
            worker = self.contender(name, case)
            if name == COMPILE and size is not None and (note := self._note_of(size)) is not None and note.exists():
                call_unseen(worker, size)

    def note_compiled(self, name: str, case: BoundSpeedCase) -> None:
        """Remember that torch.compile has been compiled for the case, and may be called early from now on. Not before: what it tunes by
        trying is to be tried where nobody else uses the GPU.
        """
        if name == COMPILE and (note := self._note_of(case)) is not None:
            with suppress(OSError):  # a folder that is full: the next run waits a second longer
                note.touch()

    def _note_of(self, case: BoundSpeedCase) -> Path | None:
        """A file beside what torch.compile has compiled, for this case, size and code; None where nothing is kept."""
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
        """Wait until nobody is loading any more. Several threads may."""
        if (loading := self._loading) is not None:
            loading.shutdown()
            self._loading = None

    def end(self) -> None:
        """End all workers; one that is asked for again is started again."""
        self.settle()
        end_all(self.workers.values())

    def start(self, names: Iterable[str]) -> None:
        """Start the workers of these contenders in the background."""
        for name in names:
            worker = self.workers.get(name)
            if worker is None or not worker.lives():
                self.workers[name] = self._pool.start(self._pool.device, self.caches)
                self._loaded.pop(name, None)

    def contender(self, name: str, case: BoundSpeedCase) -> Contender:
        """A contender with what belongs to the case loaded.

        Raises:
            CaseRefused: it cannot be loaded: a fault of the course or of this machine.
        """
        self.start([name])
        worker = self.workers[name]
        what = name if name in YARDSTICKS else f"{name} of {case.id}"  # torch.compile is asked anew for each case
        if self._loaded.get(name) != what:
            worker.ready()
            try:
                self._load(worker, name, case)
            except ContenderFault as fault:
                raise CaseRefused(f"the baseline {name} of {case.id} cannot be loaded: {fault.message}") from None
            self._loaded[name] = what
        return worker

    def _load(self, worker: Contender, name: str, case: BoundSpeedCase) -> None:
        if name in YARDSTICKS:
            worker.do(Yardstick(name), LIMITS)
        elif name == "reference":
            load_file(worker, self._course / "reference", case.assignment)
        else:
            entry = "eager" if name == COMPILE else name
            worker.load(case.assignment.folder / "baselines.py", entry, None, LIMITS, compiled=name == COMPILE)


def call_unseen(worker: Contender, case: BoundSpeedCase) -> None:
    """One call on inputs as a race has them, whose answer nobody looks at. A worker that does not come through it is ended.

    Raises:
        ContenderFault, WorkerUnavailable: it gave no answer.
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
            worker.kill()  # before the memory goes that it has mapped
            raise


def kept_caches(device: Device, toolchain: Callable[[], str] | None = None) -> Path | None:
    """A folder that no other user may enter: it holds the reference compiled, and in a container its place is no secret.

    Args:
        toolchain: its name; what compiled kernels depend on, unless given.
    """
    folder = cache_folder() if device == "cuda" else None
    if folder is None:
        return None
    caches = folder / (toolchain or _toolchain)()
    caches.mkdir(parents=True, exist_ok=True)
    caches.chmod(0o700)
    return caches


def _toolchain() -> str:
    """What compiled kernels depend on: the GPU, its driver, torch and triton."""
    parts = [torch.cuda.get_device_name(), driver_version() or "", torch.__version__, version("triton")]
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(parts))

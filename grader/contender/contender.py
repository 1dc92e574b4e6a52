"""A contender: a worker that loads one file, calls its function, and times batches of calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader import protocol
from grader.contender.fault import Fault
from grader.contender.replies import fault_of
from grader.contender.watch import CallLimits
from grader.contender.worker import Worker
from grader.protocol import Build, Gpu, Reply, Returned

__all__ = ["CallLimits", "Contender"]


class Contender(Worker):
    """A worker for one file, of a submission or of the course. All methods raise Fault if there is no
    answer.
    """

    def do(self, request: protocol.Request, limits: CallLimits, files: tuple[int, ...] = ()) -> Reply:
        """Send a request and return its reply. Raises the fault that the reply reports.

        Args:
            files: file descriptors of the arenas that the request names.
        """
        return self._done(self.ask(request, limits, files))

    def load(
        self,
        path: Path,
        entry: str,
        build: Build | None,
        limits: CallLimits,
        compiled: bool = False,
        gpu: Gpu | None = None,
    ) -> None:
        """Load a file and its function `entry`.

        Args:
            build: how to build CUDA C++; None for Python.
            compiled: whether to wrap the function in torch.compile, for a baseline.
            gpu: the GPU for which a worker without one answers a file's questions.
        """
        self.loaded_from = path.parent
        try:
            self.ptxas = self.do(protocol.Load(str(path), entry, build, compiled, limits.time_s, gpu), limits).ptxas
        except Fault as fault:
            if not fault.traceback and fault.whose == "library":
                fault.whose = "toolchain"  # the worker ended or hung, and nobody knows in whose code
            raise

    def finish(self, calls: int, limits: CallLimits) -> Reply:
        """Wait for the batch of `calls` calls that a `Time` request has started.

        The reply has the claimed seconds of each call, and `kinds` if the results were written to given outputs.
        Otherwise `collect` asks for the results.
        """
        reply = self._done(self.reply(limits, is_timed=True))
        if len(reply.times_s) != calls:
            raise self._no_answer()
        return reply

    def collect(self, order: Sequence[int], limits: CallLimits) -> tuple[tuple[Returned, ...], ...]:
        """Have each call's results copied to the place of that number (see `protocol.Prepare`). Returns the kinds of
        the results.
        """
        reply = self.do(protocol.Collect(tuple(order)), limits)
        if not reply.kinds:
            raise self._no_answer()
        return reply.kinds

    def _done(self, reply: Reply) -> Reply:
        if reply.broken:
            self.kill()
        self.off_stream = self.off_stream or reply.off_stream
        self.same_value = self.same_value or reply.same_value
        if reply.error is not None:
            raise fault_of(reply.error, on_cpu=self.device == "cpu")
        return reply

    def _no_answer(self) -> Fault:
        self.kill()
        return Fault("crashed", "the worker answered a timed batch with something that is no answer")

"""A worker that holds one file: load it, have its function called, time batches of calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader import protocol
from grader.contender.replies import ContenderFault, fault_of
from grader.contender.watch import Limits
from grader.contender.worker import Worker, WorkerUnavailable
from grader.protocol import Build, Gpu, Reply, Returned

__all__ = ["Contender", "Limits", "WorkerUnavailable"]


class Contender(Worker):
    """A worker for one file, of a submission or of the course. All methods raise ContenderFault where there is no answer."""

    def do(self, request: protocol.Request, limits: Limits, files: tuple[int, ...] = ()) -> Reply:
        """Ask, and raise the fault that the reply tells of. `files` are those of the arenas that the request names."""
        return self._done(self.ask(request, limits, files))

    def load(
        self,
        path: Path,
        entry: str,
        build: Build | None,
        limits: Limits,
        compiled: bool = False,
        gpu: Gpu | None = None,
    ) -> None:
        """Load the student's file, built where `build` is not None, or a baseline's, by torch.compile where `compiled`.

        gpu: what a worker without a GPU answers a file that asks about it.
        """
        self.loaded_from = path.parent
        try:
            self.ptxas = self.do(protocol.Load(str(path), entry, build, compiled, limits.time_s, gpu), limits).ptxas
        except ContenderFault as fault:
            if not fault.traceback and fault.raised_by == "library":
                fault.raised_by = "toolchain"  # it ended or hung, and nobody knows in whose code
            raise

    def finish(self, calls: int, limits: Limits) -> Reply:
        """Wait for the batch of so many calls that a `Time` has asked for.

        Returns a reply with the seconds that it says each call took, a claim, and with `kinds` if it says to have written to the outputs
        of the sets; otherwise `collect` has to be asked for the results.
        """
        reply = self._done(self.reply(limits, is_timed=True))
        if len(reply.times_s) != calls:
            raise self._no_answer()
        return reply

    def collect(self, order: Sequence[int], limits: Limits) -> tuple[tuple[Returned, ...], ...]:
        """Have each call's results copied to the place of that number (see `protocol.Prepare`). Returns every kind of what came back."""
        reply = self.do(protocol.Collect(tuple(order)), limits)
        if not reply.kinds:
            raise self._no_answer()
        return reply.kinds

    def _done(self, reply: Reply) -> Reply:
        if reply.broken:
            self.kill()
        self.off_stream = self.off_stream or reply.off_stream
        if reply.error is not None:
            raise fault_of(reply.error, on_cpu=self.device == "cpu")
        return reply

    def _no_answer(self) -> ContenderFault:
        self.kill()
        return ContenderFault("crashed", "the worker answered a timed batch with something that is no answer")

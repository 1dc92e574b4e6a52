"""The requests of a worker as verbs: load a file, call its function, time batches of calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from grader import protocol
from grader.contender.replies import ContenderFault, fault_of
from grader.contender.watch import Limits
from grader.contender.worker import Worker, WorkerUnavailable
from grader.protocol import Build, Reply, Returned

__all__ = ["Contender", "Limits", "WorkerUnavailable"]


class Addressed(Protocol):
    """Memory of the judge's that a worker can map."""

    @property
    def address(self) -> protocol.Memory: ...


class Tensors(Addressed, Protocol):
    """Such memory with tensors in it: an Arena, which brings torch. A judge starts workers before it has that."""

    @property
    def outputs(self) -> Mapping[str, Any]: ...
    @property
    def files(self) -> tuple[int, ...]: ...
    def operands(self, args: Iterable[str], upstream: str | None, outputs: Iterable[str]) -> protocol.Operands: ...
    def places(self, outputs: Iterable[str]) -> tuple[protocol.Ref, ...]: ...


class Contender(Worker):
    """A worker for one file, of a submission or of the course."""

    def load(self, path: Path, entry: str, build: Build | None, limits: Limits, compiled: bool = False) -> None:
        """Load the student's file, built where `build` is not None, or a baseline's, by torch.compile where `compiled`.

        Raises:
            ContenderFault: it cannot be loaded.
        """
        self.loaded_from = path.parent
        try:
            self.ptxas = self._do(protocol.Load(str(path), entry, build, compiled, limits.time_s), limits).ptxas
        except ContenderFault as fault:
            if not fault.traceback and fault.raised_by == "library":
                fault.raised_by = "toolchain"  # it ended or hung, and nobody knows in whose code
            raise

    def call(
        self,
        arena: Tensors,
        args: list[str],
        options: Sequence[protocol.Option],
        upstream: str | None,
        limits: Limits,
        windows: int = 1,
        target: tuple[str, int] | None = None,
        apart: bool = False,
        profiled: bool = False,
        keep: bool = False,
        beside: Sequence[tuple[list[str], str | None]] = (),
        reverse: bool = False,
    ) -> Reply:
        """Run the loaded function on inputs of the arena; its outputs are in the arena afterwards.

        Args:
            beside: names of inputs and upstream gradient of further calls. The arena's outputs are those of the first call, then of each
                of these. `protocol.Call` explains the others.

        Raises:
            ContenderFault: there was no answer.
        """
        calls = [(args, upstream), *beside]
        names = list(arena.outputs)
        count = len(names) // len(calls)
        request = protocol.Call(
            arena.address,
            tuple(
                arena.operands(inputs, gradient, names[number * count : (number + 1) * count])
                for number, (inputs, gradient) in enumerate(calls)
            ),
            tuple(options),
            limits.time_s,
            reverse,
            windows,
            target,
            apart,
            profiled,
            keep,
        )
        return self._do(request, limits, arena.files)

    def load_yardstick(self, name: str, limits: Limits) -> None:
        """Load one of `grader/worker/yardsticks.py` instead of a file. Raises ContenderFault."""
        self._do(protocol.Yardstick(name), limits)

    def prepare(
        self,
        arena: Tensors,
        sets: Sequence[tuple[list[str], str | None, list[str]]],
        options: Sequence[protocol.Option],
        results: tuple[Tensors, list[list[str]]] | None,
        gate: Addressed | None,
        limits: Limits,
    ) -> None:
        """Map arenas for timed batches, until `release`.

        Args:
            sets: the names of each set's inputs, upstream gradient and outputs in the arena; no outputs where they are collected.
            results: where `collect` is to copy results to: an arena, and the names of each call's outputs there.
            gate: memory whose first word a batch waits for.

        Raises:
            ContenderFault: the worker failed to.
        """
        files, collected = arena.files, None
        if results is not None:
            place, names = results
            collected = protocol.Results(place.address, tuple(place.places(one) for one in names))
            files += place.files
        operands = tuple(arena.operands(*one) for one in sets)
        address = None if gate is None else gate.address
        self._do(protocol.Prepare(arena.address, operands, tuple(options), collected, address), limits, files)

    def begin(self, calls: int, keep: int, watched: bool, gate: int = 0) -> None:
        """Ask for a batch (see `protocol.Time`); `finish` waits for the answer. Raises ContenderFault where the worker takes no request."""
        self.send(protocol.Time(calls, keep, watched, gate))

    def wait_until_queued(self, limit_s: float) -> None:
        """Wait until the worker says that the calls of the batch that was asked for stand behind its gate; no longer than `limit_s`.

        Any word will do: a worker that gives one too early starts to be timed too early.
        """
        self.wait_for_a_word(limit_s)

    def finish(self, calls: int, limits: Limits) -> Reply:
        """Wait for a batch of so many calls that was asked for.

        Returns a reply with the seconds that it says each call took, a claim, and with `kinds` if it says to have written to the outputs
        of the sets; otherwise `collect` has to be asked for the results.

        Raises:
            ContenderFault: there was no answer.
        """
        reply = self._done(self.reply(limits, is_timed=True))
        if len(reply.times_s) != calls:
            raise self._no_answer()
        return reply

    def collect(self, order: Sequence[int], limits: Limits) -> tuple[tuple[Returned, ...], ...]:
        """Have the results of the last batch copied to where `prepare` said.

        Args:
            order: for each call, the number of the place that its results are to go to.

        Returns every kind of what came back. Raises ContenderFault.
        """
        reply = self._do(protocol.Collect(tuple(order)), limits)
        if not reply.kinds:
            raise self._no_answer()
        return reply.kinds

    def _no_answer(self) -> ContenderFault:
        self.kill()
        return ContenderFault("crashed", "the worker answered a timed batch with something that is no answer")

    def tidy(self, limits: Limits) -> None:
        """Have it collect its garbage, which it does not do in timed batches. Raises ContenderFault."""
        self._do(protocol.Tidy(), limits)

    def release(self, limits: Limits) -> None:
        """Unmap what `prepare` has mapped. Raises ContenderFault."""
        self._do(protocol.Release(), limits)

    def _do(self, request: protocol.Request, limits: Limits, files: tuple[int, ...] = ()) -> Reply:
        """Ask, and raise the fault that the reply tells of."""
        return self._done(self.ask(request, limits, files))

    def _done(self, reply: Reply) -> Reply:
        if reply.broken:
            self.kill()
        if reply.error is not None:
            raise fault_of(reply.error, on_cpu=self.device == "cpu")
        return reply

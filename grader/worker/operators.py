"""Which of PyTorch's own operators a call of the submission runs, and from which of its lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from grader.worker.errors import place_of

MAX_OPERATORS = 64
MAX_DEPTH = 60
LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("triton",))


class OperatorWatch(TorchDispatchMode):
    """While it is on, notes each ATen operator that runs on this call's behalf; autograd carries it on into backward passes.

    What Triton does for itself, as its interpreter does, is left out.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: dict[str, str] = {}

    @property
    def seen(self) -> list[dict[str, str]]:
        """Each operator's `name`, without its overload, and `place`, the line that was the first to call it, as `softmax.py:7`.

        The place is empty where no line of the student's called, as in autograd.
        """
        return [{"name": name, "place": place} for name, place in self._seen.items()]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first operator would import all of torch._dynamo, which takes seconds

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        packet = getattr(func, "overloadpacket", None)
        name = getattr(packet, "__name__", "")
        if getattr(func, "namespace", "aten") == "aten" and name not in self._seen and len(self._seen) < MAX_OPERATORS:
            place = _caller()
            if place is not None:
                self._seen[name] = place
        return func(*args, **(kwargs or {}))


def _caller() -> str | None:
    """The student's line on top of the stack; nothing where there is none; None where Triton called."""
    frame: Any = sys._getframe(1).f_back  # none where autograd called, in a thread of its own
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        if place := place_of(frame):
            return place
        if any(library in frame.f_code.co_filename for library in LIBRARIES):
            return None
        frame = frame.f_back
    return ""

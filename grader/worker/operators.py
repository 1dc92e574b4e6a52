"""Records the ATen operators that run in a submission's call, each with the student's line, and tensors that become
lists or arrays.

PyTorch takes a mode off while the mode's own handler runs, and with it while an operator of the student's
(`torch.library`) computes below the handler. So the watch runs such an operator itself, and is on again meanwhile.
"""

from __future__ import annotations

import _thread
import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.library import Library
from torch.utils._python_dispatch import TorchDispatchMode

from grader.protocol import MAX_OPERATORS, RanOperator
from grader.worker.errors import place_of

MAX_DEPTH = 60  # So many frames of a stack are searched; an operator that none of them explains has no line.
HOST_VALUES = ("numpy", "tolist", "__array__", "__dlpack__")
# The folders whose code runs operators of its own. A folder of the submission's may have the same name.
LIBRARIES = tuple(
    f"{folder}{os.sep}" for found in [find_spec("triton")] if found for folder in found.submodule_search_locations or ()
)
# PyTorch's operators, by their names with the overload; whatever is registered later, the student may have written.
BUILT_IN = frozenset(torch._C._dispatch_get_all_op_names())
NAMESPACES = frozenset({"_", *(name.partition("::")[0] for name in BUILT_IN)})
# Operators that allocate memory and write nothing into it.
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"})
# Where a kernel is looked for, below autograd and the modes. The last is for operators that take no tensor.
BELOW_MODES = torch._C._dispatch_keyset_full_after(DispatchKey.Python)
FOR_NO_TENSOR = DispatchKey.BackendSelect
# Makers of contexts in which the submission's code runs, in each of its threads; `absent_gpu/` adds one.
CONTEXTS: list[Callable[[], AbstractContextManager[object]]] = []


class OperatorWatch(TorchDispatchMode):
    """While entered, records each ATen operator that runs in this thread. Autograd carries the mode into backward
    passes.

    Operators that Triton's interpreter runs are left out, and operators of the student's, which are entered: what runs
    inside them is recorded. `watching` records other threads too.

    Args:
        seen: the record of another watch, to be shared.
        run: called in place of each operator with the operator, its arguments and its options; returns the result.
    """

    supports_higher_order_operators = True  # a kernel in `torch.library.wrap_triton` is launched by one

    def __init__(self, seen: dict[str, str] | None = None, run: Callable[..., Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen: dict[str, str] = {} if seen is None else seen
        self._run = run

    @property
    def seen(self) -> tuple[RanOperator, ...]:
        """Each operator once, without its overload."""
        return tuple(RanOperator(name, place) for name, place in self._seen.items())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise the first operator would import all of torch._dynamo, which takes seconds

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if isinstance(func, OpOverload) and (func.namespace != "aten" or func.name() not in BUILT_IN):
            with self.another():
                return below_modes(func, args, kwargs or {})
        packet = getattr(func, "overloadpacket", None)
        name = getattr(packet, "__name__", "")
        with torch._C.DisableTorchFunction():  # the modes of PyTorch's functions: what runs here is an operator
            if getattr(func, "namespace", "aten") == "aten" and name not in self._seen and not _is_logic(name, args):
                self.note(name, caller())
            return func(*args, **(kwargs or {})) if self._run is None else self._run(func, args, kwargs or {})

    def note(self, name: str, place: str | None) -> None:
        """Record a name once; does nothing if `place` is None. The judge forbids whatever fills the record."""
        if place is not None and name not in self._seen and len(self._seen) < MAX_OPERATORS:
            self._seen[name] = place

    def another(self) -> OperatorWatch:
        """A watch for another thread, with the same record."""
        return OperatorWatch(self._seen, self._run)


def below_modes(operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Run the kernel of an operator that PyTorch would choose below all modes. A mode that is on stays on inside it."""
    keys = torch._C._dispatch_tls_local_include_set()
    for tensor in tensors_in([*arguments, *options.values()]):
        keys = keys | torch._C._dispatch_keys(tensor)
    keys = (keys - torch._C._dispatch_tls_local_exclude_set()) & BELOW_MODES
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), FOR_NO_TENSOR.name):
        keys = keys.remove(FOR_NO_TENSOR)
    return operator.redispatch(keys, *arguments, **options)


def protect_pytorchs_operators() -> None:
    """Refuse kernels of the submission's for operators of PyTorch's own, which the watch takes for what they are called."""
    make: Callable[..., None] = Library.__init__

    def checked(library: Library, ns: str, *arguments: Any, **options: Any) -> None:
        if ns in NAMESPACES and _is_students(sys._getframe(1)):
            raise RuntimeError(f"{ns} is PyTorch's: a torch.library.Library of your own needs a namespace of its own")
        make(library, ns, *arguments, **options)

    setattr(Library, "__init__", checked)  # noqa: B010 (mypy allows no assignment)


def _is_students(frame: Any) -> bool:
    """Whether the student's code is on the stack, and no import between: PyTorch's own modules register operators."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        if place_of(frame):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """A block in which functions of PyTorch's run unrecorded, by no mode and no subclass.

    Only for the worker's own work on objects that are exactly `torch.Tensor`. Nothing of the student's may run in the
    block, so Python collects no garbage there either.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def in_contexts() -> Iterator[None]:
    """A block of the submission's code in this thread, within all `CONTEXTS`."""
    with contextlib.ExitStack() as stack:
        for make in CONTEXTS:
            stack.enter_context(make())
        yield


@contextlib.contextmanager
def watching(watch: OperatorWatch) -> Iterator[None]:
    """A block of the submission's code within `CONTEXTS`: records operators in it, in threads that it starts too, and
    tensors that become arrays or lists.
    """
    with watch, in_contexts(), _threads(watch), _host_values(watch):
        yield


@contextlib.contextmanager
def _threads(watch: OperatorWatch) -> Iterator[None]:
    inner, start = threading.Thread._bootstrap_inner, _thread.start_new_thread  # type: ignore[attr-defined]

    def watched_inner(thread: threading.Thread) -> None:
        with watch.another(), in_contexts():
            inner(thread)

    def watched_start(function: Callable[..., Any], *arguments: Any) -> int:
        def run(*args: Any, **options: Any) -> None:
            with watch.another(), in_contexts():
                function(*args, **options)

        return start(run, *arguments)

    threading.Thread._bootstrap_inner, _thread.start_new_thread = watched_inner, watched_start  # type: ignore[attr-defined]
    try:
        yield
    finally:
        threading.Thread._bootstrap_inner, _thread.start_new_thread = inner, start  # type: ignore[attr-defined]


@contextlib.contextmanager
def _host_values(watch: OperatorWatch) -> Iterator[None]:
    """Record conversions of tensors: no operator shows what NumPy and lists compute from them."""
    kept = {name: vars(torch.Tensor).get(name) for name in HOST_VALUES}

    def noted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def get(*arguments: Any, **options: Any) -> Any:
            # PyTorch's own printing makes lists, so only the student's own calls count; NumPy calls `__array__` from
            # its own code.
            frame: Any = sys._getframe(1)
            watch.note(name, caller() if name.startswith("__") else place_of(frame) or None)
            return method(*arguments, **options)

        return get

    for name in HOST_VALUES:
        setattr(torch.Tensor, name, noted(name, getattr(torch.Tensor, name)))
    try:
        yield
    finally:
        for name, method in kept.items():
            if method is None:
                delattr(torch.Tensor, name)
            else:
                setattr(torch.Tensor, name, method)


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among an operator's arguments, those in lists too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def on_cpu(values: Iterable[Any]) -> list[torch.Tensor]:
    """The strided tensors among an operator's arguments or results that lie in CPU memory."""
    return [one for one in tensors_in(values) if one.device.type == "cpu" and one.layout == torch.strided]


def written_by(
    operator: OpOverload, arguments: Sequence[Any], options: dict[str, Any]
) -> Iterator[tuple[Any, list[torch.Tensor]]]:
    """The parameters that an operator writes to, each with the tensors in CPU memory that it was given."""
    for number, parameter in enumerate(operator._schema.arguments):
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            yield parameter, on_cpu([arguments[number] if number < len(arguments) else options.get(parameter.name)])


def _is_logic(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an operator only combines conditions: `torch.isfinite` multiplies two."""
    return name == "mul" and all(isinstance(one, torch.Tensor) and one.dtype == torch.bool for one in args)


def caller() -> str | None:
    """The student's innermost line on the stack; "" if there is none; None if Triton's code calls."""
    frame: Any = sys._getframe(1).f_back  # None in autograd's own threads
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        if place := place_of(frame):
            return place
        if frame.f_code.co_filename.startswith(LIBRARIES):
            return None
        frame = frame.f_back
    return ""

"""Tells what a submission does to this process so that the watch for operators would not see what runs.

The guard is set up before the submission is loaded. It compares the worker's own functions, and those that it needs to write
a reply, with what they were then, and puts them back; it hears Python's audit events; and it names whoever calls the
functions of PyTorch that take a watch away. The judge forbids a call whose reply has such a finding among its operators.
This is no proof: code in this process can do everything that the worker can.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
import torch.utils._python_dispatch as modes

from grader.protocol import MAX_OPERATORS, RanOperator, Reply
from grader.worker.operators import caller

STANDARD = (sysconfig.get_paths()["stdlib"] + os.sep, "<frozen ")
IMPORTING = "<frozen importlib"
OWN = str(Path(__file__).parents[1])
PACKAGES = {str(Path(torch.__file__).parents[1]), *(one for one in sys.path if one.endswith("-packages"))}
LIBRARIES = tuple(f"{folder}{os.sep}" for folder in (*sorted(PACKAGES), OWN))
# A changed clock changes the claim alone, and the judge has its own.
CLOCK = "grader.worker.timing"
# Modules that the worker needs for a reply, beside its own.
KEPT_MODULES = ("json", "json.encoder", "json.decoder", "torch.utils._python_dispatch")
EVENTS = {
    **dict.fromkeys(("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"), "starts a process"),
    **dict.fromkeys(("subprocess.Popen", "os.spawn"), "starts a process"),
    **dict.fromkeys(("ctypes.dlopen", "ctypes.dlsym", "ctypes.string_at"), "calls what Python does not see"),
    **dict.fromkeys(("gc.get_objects", "gc.get_referrers"), "looks for the objects of others"),
    "marshal.loads": "runs code without a file",
}
NAMES_CODE = {"compile", "code.__new__"}  # their second argument is the file that code claims to be of
# Functions that take modes off, or have PyTorch pass them by, and where they stand.
BLINDING = (
    *((torch._C, name) for name in ("_DisableTorchDispatch", "_ExcludeDispatchKeyGuard", "_ForceDispatchKeyGuard")),
    *((torch._C, name) for name in ("_pop_torch_dispatch_stack", "_set_dispatch_mode", "_unset_dispatch_mode")),
    *((torch._C, name) for name in ("_dispatch_tls_set_dispatch_key_excluded", "_SetExcludeDispatchKeyGuard")),
    *((modes, name) for name in ("_disable_current_modes", "_pop_mode", "_pop_mode_temporarily")),
    *((modes, name) for name in ("_pop_torch_dispatch_stack", "_unset_infra_mode", "_disable_infra_mode")),
)
# With this variable torch.compile leaves functions as they are, and the watch sees what runs in them.
NO_COMPILER = "TORCHDYNAMO_DISABLE"


class Guard:
    """Watches this process from now on. One for each process, before a submission is loaded."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        os.environ[NO_COMPILER] = "1"
        for module, name in BLINDING:
            if (function := getattr(module, name, None)) is not None:
                setattr(module, name, self._named(function, f"{module.__name__}.{name}"))
        self._kept = [
            (holder, vars(holder), name, value, _plain(value), _insides(value)) for holder, name, value in _functions()
        ]
        sys.addaudithook(self._hear)

    def told(self, reply: Reply) -> Reply:
        """The reply with the findings so far. Functions, constants and the variable that the submission has changed are put back."""
        for holder, names, name, value, plain, insides in self._kept:
            if names.get(name) is value and (
                plain is None or (plain.__code__, plain.__defaults__, plain.__kwdefaults__) == insides
            ):
                continue
            owner = f"{holder.__module__}.{holder.__name__}" if isinstance(holder, type) else holder.__name__
            self._find(f"changes {owner}.{name}")
            if insides is not None:
                plain.__code__, plain.__defaults__, plain.__kwdefaults__ = insides
            setattr(holder, name, value)
        if os.environ.get(NO_COMPILER) != "1":
            self._find(f"changes {NO_COMPILER}")
            os.environ[NO_COMPILER] = "1"
        if not self._found:
            return reply
        found = [RanOperator(words[:100], place) for words, place in self._found.items()]
        return replace(reply, operators=(*found, *reply.operators)[:MAX_OPERATORS])

    def _find(self, words: str, place: str | None = "") -> None:
        if len(self._found) < MAX_OPERATORS:
            self._found.setdefault(words, place or "")

    def _named(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def named(*arguments: Any, **options: Any) -> Any:
            if not sys._getframe(1).f_code.co_filename.startswith((*LIBRARIES, *STANDARD)):
                self._find(f"hides what runs ({name})", caller())
            return function(*arguments, **options)

        return named

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in NAMES_CODE:
            is_claim = str(arguments[1]).startswith(LIBRARIES)
            words = "passes code off as a library's" if is_claim else None
        else:
            words = EVENTS.get(event)
        if words is None:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith((*LIBRARIES, IMPORTING)):  # the last: a module that is being imported
                return
            if not file.startswith(STANDARD):
                self._find(f"{words} ({event})", caller())
                return
            frame = frame.f_back


def _functions() -> Iterator[tuple[ModuleType | type, str, Any]]:
    """The functions, classes and constants of the worker's modules, and what these classes define, with where they stand."""
    for key, module in list(sys.modules.items()):
        if key == CLOCK or (key not in KEPT_MODULES and key.partition(".")[0] != "grader"):
            continue
        for name, value in list(vars(module).items()):
            if name.startswith("__") or not (callable(value) or name.isupper()):
                continue
            yield module, name, value
            if isinstance(value, type) and value.__module__ == key:
                inner = vars(value).items()
                yield from ((value, one, part) for one, part in list(inner) if _plain(part) is not None)


def _plain(value: Any) -> Any:
    """The Python function in a method; None if there is none."""
    for _ in range(2):
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    return value if isinstance(value, FunctionType | MethodType) else None


def _insides(value: Any) -> tuple[Any, ...] | None:
    plain = _plain(value)
    return None if plain is None else (plain.__code__, plain.__defaults__, plain.__kwdefaults__)

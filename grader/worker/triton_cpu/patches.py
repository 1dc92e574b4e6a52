"""How the modules of this room change Triton's interpreter: a function of theirs is called in place of one of the interpreter's.

Read in triton 3.6.0 and 3.7.1. A Triton without one of the names is refused with that name, because kernels would run
unchecked or compute nonsense.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class Patches:
    """What one module changes. Nothing is changed before `provide`."""

    def __init__(self) -> None:
        self._all: list[tuple[Any, str, Callable[..., Any], bool]] = []

    def replace(self, owner: Any, *names: str) -> Callable[[Function], Function]:
        """Have a function called in place of each of these names of `owner`, a module, class or object.

        The function's first argument is what stood there before.
        """
        return self._register(owner, names, is_there=True)

    def add(self, owner: Any, *names: str) -> Callable[[Function], Function]:
        """Have a function called by each of these names of `owner`, which Triton lacks or may lack."""
        return self._register(owner, names, is_there=False)

    def _register(self, owner: Any, names: tuple[str, ...], is_there: bool) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            self._all += [(owner, name, function, is_there) for name in names]
            return function

        return register

    def provide(self) -> None:
        """Change the interpreter of this process, for good. Raises RuntimeError if this Triton lacks a name."""
        for owner, name, function, is_there in self._all:
            setattr(owner, name, _after(function, found(owner, name)) if is_there else function)


def found(owner: Any, name: str) -> Any:
    """The value of a name in Triton's interpreter. Raises RuntimeError if this Triton lacks it."""
    if not hasattr(owner, name):
        where = getattr(owner, "__name__", type(owner).__name__)
        raise RuntimeError(f"the interpreter of triton {version('triton')} has no {where}.{name}")
    return getattr(owner, name)


def _after(function: Callable[..., Any], before: Any) -> Callable[..., Any]:
    @functools.wraps(before)
    def call(*arguments: Any, **named: Any) -> Any:
        return function(before, *arguments, **named)

    return call

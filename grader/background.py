"""Runs functions in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def later(function: Callable[[], T]) -> Future[T]:
    """A future of the function's result, computed by a daemon thread: the process may end before the function does."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future

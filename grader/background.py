"""What is done in the background, while nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def later(function: Callable[[], T]) -> Future[T]:
    """What a function returns or raises, from a thread that nobody waits for at the end."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future

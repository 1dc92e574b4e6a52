"""`grader doctor`: finds missing and broken parts of this machine, and says how to mend them.

The looks (`software`, `gpus`, `walls`, `containers`, `space`) make findings. All looks run at the same time, and none can delay or end
another. A small grading, which shows whether the parts work together, is one of them (`selftest`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from grader.background import later
from grader.doctor import containers, gpus, selftest, software, space, walls
from grader.doctor.finding import AGAIN, OURS, Finding, Unneeded
from grader.messages import DEFAULT_IMAGE
from grader.pool.jail import NO_JAIL, strongest_jail
from grader.report.model import Isolation

T = TypeVar("T")
Look = Callable[[], Iterable[Finding]]
LIMIT_S = 120.0  # for all looks together, which take a few seconds


def examine(
    course: Path,
    image: str = DEFAULT_IMAGE,
    *,
    self_test: bool = True,
    on_finding: Callable[[Finding], None] = lambda _finding: None,
) -> list[Finding]:
    """The findings of all looks, in the order below.

    Args:
        course: the course that this machine is to grade.
        image: the name of the grading image.
        self_test: whether to try a small grading too.
        on_finding: takes each finding as soon as its look, and all looks before it, have ended.
    """
    deadline = time.monotonic() + LIMIT_S
    there, jail = gpus.presence(), NO_JAIL
    on_gpu = there == "driver"
    device = "cuda" if on_gpu else "cpu"
    with contextlib.suppress(OSError):  # a full disk, which another look finds
        jail = strongest_jail(device=device)
    driver = later(gpus.look)

    def after_driver(function: Callable[[], T]) -> T:
        wait([driver])  # its look at the GPU's users must not find the processes that are started here
        return function()

    def graded() -> Iterator[Finding]:
        torch.result()  # of a small grading there is nothing to learn without PyTorch
        return selftest.findings(jail)

    torch = later(lambda: after_driver(software.look))
    is_isolated = Isolation(jail=jail.name).isolated
    looks: list[tuple[tuple[str, ...], Look]] = [
        (("Python",), lambda: [software.python(on_gpu)]),
        (
            ("PyTorch", "Triton", "C++ compiler", "nvcc"),
            lambda: software.findings(torch, on_gpu, driver.result().cuda[0]),
        ),
        (("NVIDIA driver", "GPU", "other GPU users"), lambda: gpus.findings(there, driver.result(), torch)),
        (("shared memory",), lambda: [after_driver(lambda: gpus.shared_memory(there))]),
        (("bubblewrap", "user namespaces"), lambda: walls.findings(jail, device)),
        (("Docker", "grading image", "GPU in Docker"), lambda: containers.findings(image, course, there, is_isolated)),
        (("free disk", "leftovers"), space.findings),
    ]
    if self_test:
        looks.append((("right kernel", "wrong kernel", "escape"), graded))
    started = [(names, later(partial(_looked, names, look))) for names, look in looks]
    found: list[Finding] = []
    for names, answer in started:
        try:
            ones = answer.result(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            ones = [Finding("caution", f"gave no answer within {LIMIT_S:g} s", AGAIN, name) for name in names]
        for one in ones:
            on_finding(one)
        found += ones
    return found


def _looked(names: Sequence[str], look: Look) -> list[Finding]:
    """The findings of a look, which get these names in order; whatever ends it early is told of the names that are left."""
    found, rest = list[Finding](), Finding("fault", "was forgotten", OURS)
    try:
        for one, name in zip(look(), names, strict=False):
            found.append(replace(one, name=name))
    except Unneeded as why:
        rest = Finding("unneeded", str(why))
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        words = f"{type(error).__name__}: {' ... '.join(dict.fromkeys([lines[0], lines[-1]]))}"
        rest = Finding("fault", f"could not be looked at: {words}", OURS)
    return found + [replace(rest, name=name) for name in names[len(found) :]]


def has_fault(findings: Sequence[Finding]) -> bool:
    """Whether a part that grading needs is missing or broken."""
    return any(one.state == "fault" for one in findings)


def faults(course: Path, image: str = DEFAULT_IMAGE) -> list[str]:
    """A line for each fault of this machine, with its mend. Runs no grading."""
    found = [one for one in examine(course, image, self_test=False) if one.state == "fault"]
    return [f"grader doctor: {one.name}: {one.words}{f'; {one.mend}' if one.mend else ''}" for one in found]


def verdict(findings: Sequence[Finding]) -> str:
    """Sentences about what this machine can grade."""
    state = {one.name: one.state for one in findings}
    faults = [one.name for one in findings if one.state == "fault"]
    if faults:
        return f"This machine is not ready: mend {', '.join(faults)}, and ask `grader doctor` again."
    if slow := [one.name for one in findings if one.mend == AGAIN]:
        return f"Nothing is broken, but this machine was too slow to say all about {', '.join(slow)}: ask `grader doctor` again."
    on_gpu = state["GPU"] == "fine"
    what = "correctness and speed, on the GPU" if on_gpu else "correctness, on the CPU; not speed, for want of a GPU"
    if state["grading image"] == "fine" and state["GPU in Docker"] in ("fine", "unneeded"):
        strangers = "yes, in a container"
    elif state["bubblewrap"] == state.get("escape", "fine") == "fine":
        strangers = "yes, in bubblewrap"
    else:
        strangers = "no, nothing here confines it enough"
    return f"This machine can grade {what}. Strangers' code: {strangers}."

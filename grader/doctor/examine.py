"""Runs all looks at this machine, and sums up their findings."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import TypeVar

from grader.background import later
from grader.doctor import containers, gpus, selftest, software, space, walls
from grader.doctor.finding import AGAIN, NAMES, OURS, Finding
from grader.messages import DEFAULT_IMAGE
from grader.pool.jail import NO_JAIL, Jail, strongest_jail
from grader.report.model import Isolation
from grader.sandbox.base import InfraError

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
    """The findings of all looks, in the order of NAMES.

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

    seen = later(lambda: after_driver(software.look))
    looks: list[tuple[Sequence[str], Look]] = [
        (NAMES[:1], lambda: [software.python(on_gpu)]),
        (NAMES[1:5], lambda: software.findings(seen.result(), on_gpu, driver.result().cuda[0])),
        (NAMES[5:8], lambda: gpus.findings(there, driver.result(), seen.result())),
        (NAMES[8:9], lambda: [after_driver(lambda: gpus.shared_memory(there))]),
        (NAMES[9:11], lambda: walls.findings(jail, device)),
        (NAMES[11:14], lambda: containers.findings(image, course, there, Isolation(jail=jail.name).isolated)),
        (NAMES[14:16], space.findings),
    ]
    found: list[Finding] = []
    if self_test:
        looks.append((NAMES[16:], lambda: _self_test(jail, seen)))
    started = [(names, later(partial(_looked, names, look))) for names, look in looks]
    for names, answer in started:
        try:
            ones = answer.result(max(deadline - time.monotonic(), 0))
        except TimeoutError:
            ones = [Finding(name, "caution", f"gave no answer within {LIMIT_S:g} s", AGAIN) for name in names]
        for one in ones:
            on_finding(one)
        found += ones
    return found


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


def _looked(names: Sequence[str], look: Look) -> list[Finding]:
    """The findings of a look; an exception of the look becomes a finding of each missing name."""
    found, words = list[Finding](), "was forgotten"
    try:
        for one in look():
            found.append(one)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        words = f"could not be looked at: {type(error).__name__}: {' ... '.join(dict.fromkeys([lines[0], lines[-1]]))}"
    told = {one.name for one in found}
    return found + [Finding(name, "fault", words, OURS) for name in names if name not in told]


def _self_test(jail: Jail, seen: Future[software.SeenSoftware | str]) -> list[Finding]:
    """The findings of a small grading, if PyTorch works."""
    if isinstance(seen.result(), str):
        return [Finding(name, "unneeded", "not tried: PyTorch comes first") for name in NAMES[16:]]
    try:
        return selftest.grade(jail)
    except (InfraError, OSError) as error:
        fault = Finding(NAMES[16], "fault", f"no judge could be started: {error}", OURS)
        return [fault, *(Finding(name, "unneeded", "not tried") for name in NAMES[17:])]

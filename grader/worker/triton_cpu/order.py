"""Decides which accesses of a launch are ordered: accesses of one program, and of two programs that meet by atomics.

The interpreter runs one program after another; a GPU may run any of them first. An access of an earlier program is
ordered before an access of the running program only if the running program has touched, by an atomic, an element that
the earlier program touched by an atomic after its access, or if other programs connect the two in this way.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


Program = tuple[int, ...]  # a program's index in the grid


class Access(NamedTuple):
    """An access, with its line (0: unknown) and the shape of its block."""

    program: Program
    line: int
    shape: tuple[int, ...]


class AccessOrder:
    """Numbers the accesses from 1 on over all launches. Numbers of earlier launches may remain in arrays and do not
    count.

    Attributes:
        launch, program: the first number of the running launch, and of its running program.
        met: the first number after the running program's threads last waited for each other.
    """

    def __init__(self) -> None:
        self.now = 0
        self.launch = self.program = self.met = 1
        self._running: Program = ()
        self._made: list[Access] = []  # of the launch
        # By program: the programs that its atomics have met, and the last atomic of each.
        self._met: dict[Program, dict[Program, int]] = {}
        self._reached: dict[Program, int] | None = None

    def begin_launch(self) -> None:
        self.launch = self.program = self.now + 1
        self._made, self._met, self._reached = [], {}, None

    def begin_program(self, program: Program) -> None:
        self.program = self.met = self.now + 1
        self._running, self._reached = program, None

    def threads_meet(self) -> None:
        self.met = self.now + 1

    def note(self, line: int, shape: tuple[int, ...]) -> int:
        """The number of a new access of the running program."""
        self._made.append(Access(self._running, line, shape))
        self.now += 1
        return self.now

    def access(self, number: int) -> Access:
        """The access of this launch with this number."""
        return self._made[number - self.launch]

    def meet(self, atomics: Ids) -> None:
        """The running program touches elements that these atomics have touched before: it is now ordered after their
        programs' past.
        """
        others = atomics[(atomics >= self.launch) & (atomics < self.program)]
        if not others.size:
            return
        met = self._met.setdefault(self._running, {})
        for number in np.unique(others).tolist():
            owner = self.access(number).program
            met[owner] = max(met.get(owner, 0), number)
        self._reached = None

    def unordered(self, numbers: Ids) -> NDArray[np.bool_] | None:
        """A mask of the accesses by other programs of this launch that no atomics order; None if there is none."""
        others = (numbers >= self.launch) & (numbers < self.program)
        if not others.any():
            return None
        if self._met.get(self._running):
            reached = self._reach()
            for number in np.unique(numbers[others]).tolist():
                if reached.get(self.access(number).program, 0) >= number:
                    others &= numbers != number
            if not others.any():
                return None
        return others

    def _reach(self) -> dict[Program, int]:
        """The programs ordered before the running one, each with the last access of its ordered past."""
        if self._reached is None:
            self._reached, waiting = {}, [self._running]
            while waiting:
                for owner, number in self._met.get(waiting.pop(), {}).items():
                    if number > self._reached.get(owner, 0):
                        self._reached[owner] = number
                        waiting.append(owner)
        return self._reached

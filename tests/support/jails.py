"""The jails that tests try, each where this machine has it."""

from __future__ import annotations

import os
import shutil

import pytest

from grader.pool.jail import NO_JAIL, Jail

BWRAP, SETPRIV = shutil.which("bwrap"), shutil.which("setpriv")
ROOT_HERE = os.geteuid() == 0
JAILS = {
    "bubblewrap": Jail("bubblewrap", tuple(filter(None, (BWRAP, SETPRIV)))),
    "uid": Jail("uid", (SETPRIV or "",)),
    "none": NO_JAIL,
}


# Where a promise is tried in one place, and in all by `make everything`.
ONE_OF_JAILS = ["bubblewrap", *(pytest.param(one, marks=pytest.mark.everything) for one in ("uid", "none"))]


def jail_or_skip(name: str) -> Jail:
    if name == "bubblewrap" and BWRAP is None:
        pytest.skip("bubblewrap is not installed")
    if name == "uid" and not (ROOT_HERE and SETPRIV):
        pytest.skip("only root can give a worker another user")
    return JAILS[name]

"""Looks at the walls around a submission on this host: bubblewrap, and the user namespaces that bubblewrap needs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from grader.doctor.finding import Finding, ask, broken
from grader.pool.jail import TRIAL_LIMIT_S, Jail, candidates, fault

INSTEAD = {
    "uid": "workers are another user, who reads what everybody may and has the network",
    "none": "nothing confines a submission",
}
SYSCTL = "`echo {0} | sudo tee /etc/sysctl.d/60-userns.conf && sudo sysctl --system`"
PROFILE = "abi <abi/4.0>,\\nprofile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }\\n"
APPARMOR = f"`printf '{PROFILE}' | sudo tee /etc/apparmor.d/bwrap && sudo systemctl reload apparmor`"
# Settings below /proc/sys that forbid user namespaces: the forbidding value, and the command that allows them for good.
SWITCHES = {
    "kernel/unprivileged_userns_clone": (0, SYSCTL.format("kernel.unprivileged_userns_clone=1")),
    "user/max_user_namespaces": (0, SYSCTL.format("user.max_user_namespaces=10000")),
    "kernel/apparmor_restrict_unprivileged_userns": (1, APPARMOR),
}


def findings(jail: Jail, device: str = "cpu", settings: Path = Path("/proc/sys")) -> Iterator[Finding]:
    """Bubblewrap and user namespaces. `jail`: the strongest jail of this machine for workers on `device`."""
    program, root = shutil.which("bwrap"), os.geteuid() == 0
    if jail.name == "bubblewrap" and program:
        _, version, _ = ask([program, "--version"], TRIAL_LIMIT_S)
        yield Finding("fine", f"{(version.split() or [program])[-1]}, confines submissions")
        yield Finding("fine", "root needs none" if root else "allowed")
        return
    if program is None:
        words = f"is not installed: {INSTEAD[jail.name]}"
        yield Finding("caution", words, "`sudo apt install bubblewrap`")
    elif root and shutil.which("setpriv") is None:
        words = f"lacks setpriv, which root needs beside it: {INSTEAD[jail.name]}"
        yield Finding("caution", words, "`sudo apt install util-linux`")
    else:
        words = f"is installed and does not work ({fault(candidates()[0], device=device)}): {INSTEAD[jail.name]}"
        yield broken(words, "allow user namespaces: see the next line", "caution")
    if ask(["unshare", "--user", "--map-root-user", "true"], TRIAL_LIMIT_S)[0]:
        yield Finding("fine", "allowed")
        return
    for switch, (forbidding, mend) in SWITCHES.items():
        with contextlib.suppress(OSError):
            if int((settings / switch).read_text()) == forbidding:
                yield Finding("caution", f"forbidden: {switch.replace('/', '.')} is {forbidding}", mend)
                return
    if shutil.which("unshare") is None:
        yield Finding("caution", "could not be tried: there is no unshare", "`sudo apt install util-linux`")
    else:
        mend = "grade on the machine itself, or with --sandbox docker"
        yield Finding("caution", "forbidden, as they are in most containers", mend)

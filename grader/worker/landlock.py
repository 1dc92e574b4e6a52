"""Confines a process and its children with Landlock (landlock(7)): they change files below given folders alone, and
signal and trace no process outside.

All workers of a submission are one user, and their fork server is too: without Landlock one could stop the server, or
write into another's folder. What is open already stays open. It can never be taken back.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

# Equal on every machine.
CREATE_RULESET_CALL, ADD_RULE_CALL, RESTRICT_SELF_CALL = 444, 445, 446
ASK_VERSION, PATH_BENEATH = 1, 1
# LANDLOCK_ACCESS_FS_*: WRITE_FILE; REMOVE_DIR to MAKE_SYM; REFER, TRUNCATE
CHANGES = 1 << 1 | sum(1 << bit for bit in range(4, 13)) | 1 << 13 | 1 << 14
SCOPE_SIGNAL = 1 << 1
KNOWS_TRUNCATE, KNOWS_SIGNALS = 3, 6  # versions; an older one would also refuse to move files between folders
# Devices, shared memory and what a process may set of itself.
SYSTEM = ("/dev", "/proc")


def version() -> int:
    """The version of the kernel's Landlock; below 1 if it has none."""
    return int(ctypes.CDLL(None).syscall(CREATE_RULESET_CALL, None, 0, ASK_VERSION))


def confine(writable: Iterable[str]) -> None:
    """Confine this process, which must have one thread, to changes below `writable` folders; nothing on a kernel that
    cannot. Needs no_new_privs. Raises OSError.
    """
    known = version()
    if known < KNOWS_TRUNCATE:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("QQQ", CHANGES, 0, SCOPE_SIGNAL)[: 24 if known >= KNOWS_SIGNALS else 8]
    rules = _checked(libc.syscall(CREATE_RULESET_CALL, attributes, len(attributes), 0))
    try:
        for path in (*writable, *SYSTEM):
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", CHANGES, folder)
                _checked(libc.syscall(ADD_RULE_CALL, rules, PATH_BENEATH, rule, 0))
            finally:
                os.close(folder)
        _checked(libc.syscall(RESTRICT_SELF_CALL, rules, 0))
    finally:
        os.close(rules)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result

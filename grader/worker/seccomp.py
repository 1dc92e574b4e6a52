"""The worker's system call filter, installed before the worker loads any file. It blocks calls that namespaces do not
confine.

Refused with EPERM:
- the kernel's keyrings, which outlive a user's processes;
- sockets of all families but those that a network namespace confines (AF_VSOCK, say, connects a virtual machine with
  its host);
- io_uring, whose operations, such as socket(), are no system calls and so pass every filter;
- memory that belongs to no process and so is counted nowhere: System V's shared memory and semaphores, secret
  memory, and new namespaces and mounts, in which a user becomes root and mounts file systems in memory;
- System V's and POSIX's queues of messages, likewise;
- leases on files and notices of changes, which make other processes of the same user (the judge's) wait for the worker;
- to be a "child subreaper" no more: then processes that a worker's children leave behind would leave its tree.

Refused with ENOSYS: clone3, whose flags lie in memory, where a filter cannot read them. Callers then use clone, as on
an old kernel.

All other calls are allowed. A filter can never be removed. The program is classic BPF over `struct seccomp_data`
(seccomp(2)): the number of the call at offset 0, the architecture at 4, the first argument at 16, the second at 24.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from typing import NamedTuple

LOAD, RETURN = 0x20, 0x06  # BPF_LD|W|ABS, BPF_RET|K
IF_EQUAL, IF_AT_LEAST, IF_ANY_OF = 0x15, 0x35, 0x45  # BPF_JMP|K with JEQ, JGE, JSET
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24
ALLOW, REFUSE, UNKNOWN = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
X32 = 0x40000000  # numbers from here on belong to x86-64's second interface
# Refused with any arguments, and equal on every machine: io_uring_setup, _enter, _register; open_tree, move_mount, fsopen,
# fsmount; memfd_secret.
EVERYWHERE = (425, 426, 427, 428, 429, 430, 432, 447)
CLONE3_CALL = 435
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
FILE_COMMANDS = (1024, 1026)  # Commands of fcntl: F_SETLEASE, F_NOTIFY.
NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET.


class Machine(NamedTuple):
    """AUDIT_ARCH_*, and the numbers of system calls on one architecture. `refused`: with any arguments."""

    architecture: int
    socket: int
    clone: int
    unshare: int
    fcntl: int
    prctl: int
    refused: tuple[int, ...]


# Refused are add_key, request_key, keyctl; shmget, shmat, semget, msgget; setns, mount, mq_open.
_OF_X86 = (248, 249, 250, 29, 30, 64, 68, 308, 165, 240)
_OF_ARM = (217, 218, 219, 194, 196, 190, 186, 268, 40, 180)
MACHINES = {
    "x86_64": Machine(0xC000003E, 41, 56, 272, 72, 157, (*_OF_X86, *EVERYWHERE)),
    "aarch64": Machine(0xC00000B7, 198, 220, 97, 25, 167, (*_OF_ARM, *EVERYWHERE)),
}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
PR_SET_CHILD_SUBREAPER = 36


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install() -> None:
    """Install the filter for this process and its children, if this kernel can. Nobody gains privileges from here
    on.
    """
    steps = program()
    if steps is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = _Program(len(steps) // struct.calcsize("HBBI"), steps)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        print(f"no system call filter: {os.strerror(ctypes.get_errno())}", file=sys.stderr)


def program(machine: str = platform.machine()) -> bytes | None:
    """The filter for a machine's system calls; None if the machine is unknown here."""
    if machine not in MACHINES:
        return None
    calls = MACHINES[machine]
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 1, 0, calls.architecture),  # other architectures' calls have other numbers: none is allowed
        (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, NUMBER),
        (IF_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, REFUSE),
    ]
    for number in calls.refused:
        steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    steps += [(IF_EQUAL, 0, 1, CLONE3_CALL), (RETURN, 0, 0, UNKNOWN)]
    for number in (calls.clone, calls.unshare):
        steps += [(IF_EQUAL, 0, 4, number), (LOAD, 0, 0, FIRST_ARGUMENT)]
        steps += [(IF_ANY_OF, 0, 1, NEW_NAMESPACES), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    refusals = [step for one in FILE_COMMANDS for step in ((IF_EQUAL, 0, 1, one), (RETURN, 0, 0, REFUSE))]
    steps += [(IF_EQUAL, 0, len(refusals) + 2, calls.fcntl), (LOAD, 0, 0, SECOND_ARGUMENT)]
    steps += [*refusals, (RETURN, 0, 0, ALLOW)]
    steps += [(IF_EQUAL, 0, 6, calls.prctl), (LOAD, 0, 0, FIRST_ARGUMENT)]
    steps += [(IF_EQUAL, 0, 3, PR_SET_CHILD_SUBREAPER), (LOAD, 0, 0, SECOND_ARGUMENT)]
    steps += [(IF_EQUAL, 0, 1, 0), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
    steps += [(IF_EQUAL, 1, 0, calls.socket), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST_ARGUMENT)]
    for family in FAMILIES:
        steps += [(IF_EQUAL, 0, 1, int(family)), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, REFUSE))
    return b"".join(struct.pack("HBBI", *step) for step in steps)

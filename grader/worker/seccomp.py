"""A system call filter that a worker puts on before it loads anything: closes the channels that no namespace closes.

Refused with EPERM: the kernel's keyrings, where a user's keys outlive its processes; sockets of all families but those that a network
namespace closes, as AF_VSOCK is not, which joins a virtual machine to its host; and io_uring, whose operations, socket() among them, are no
calls and pass every filter. Everything else is left as it is, and it can never be taken off again. The program is classic BPF over
`struct seccomp_data` (seccomp(2)): the number of the call at offset 0, the architecture at 4, the first argument at 16.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

LOAD, IF_EQUAL, IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_JMP|JGE|K, BPF_RET|K
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
X32 = 0x40000000  # numbers from here on are x86-64's second interface
IO_URING_CALLS = (425, 426, 427)  # io_uring_setup, _enter, _register: the same on every machine
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
# Of each machine: AUDIT_ARCH_*, the calls of keyrings (add_key, request_key, keyctl), and socket().
MACHINES = {
    "x86_64": (0xC000003E, (248, 249, 250), 41),
    "aarch64": (0xC00000B7, (217, 218, 219), 198),
}


PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def install() -> None:
    """Filter the calls of this process and of all that it starts, where this kernel can; nobody gains privileges from here on."""
    steps = program()
    if steps is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filter_ = _Program(len(steps) // struct.calcsize("HBBI"), steps)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) != 0:
        print(f"no system call filter: {os.strerror(ctypes.get_errno())}", file=sys.stderr)


def program(machine: str = platform.machine()) -> bytes | None:
    """The filter for a machine's system calls; None where its numbers are not known here."""
    if machine not in MACHINES:
        return None
    architecture, keyring_calls, socket_call = MACHINES[machine]
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (IF_EQUAL, 1, 0, architecture),  # another architecture's calls have other numbers: none is allowed
        (RETURN, 0, 0, REFUSE),
        (LOAD, 0, 0, NUMBER),
        (IF_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, REFUSE),
    ]
    for number in (*keyring_calls, *IO_URING_CALLS):
        steps += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, REFUSE)]
    steps += [(IF_EQUAL, 1, 0, socket_call), (RETURN, 0, 0, ALLOW), (LOAD, 0, 0, FIRST_ARGUMENT)]
    for family in FAMILIES:
        steps += [(IF_EQUAL, 0, 1, int(family)), (RETURN, 0, 0, ALLOW)]
    steps.append((RETURN, 0, 0, REFUSE))
    return b"".join(struct.pack("HBBI", *step) for step in steps)

"""Confines this process, then becomes the decoder: run as a program, ``python -I -S -B decoder_worker.py``.

    decoder_worker.py CPU_SECONDS MEMORY_BYTES PROGRAM ARGUMENTS...
    decoder_worker.py CPU_SECONDS MEMORY_BYTES --report PROGRAM

Decoders of media are the weakest code there is (trust.md S10), so that what runs in one has nothing to take:
no network, no file but the libraries it is linked with, no other process, little memory and time. In this
order:

- it dies with the gateway (``PR_SET_PDEATHSIG``), runs at a lower priority than calls, as nobody where the
  gateway is root, and can gain no rights (``PR_SET_NO_NEW_PRIVS``);
- rlimits: processor seconds, address space, no byte written to any file, 64 descriptors, no core dump: a core
  limit of 1 and not 0, which a kernel that pipes dumps to a program would not heed (core(5));
- Landlock (where the kernel has it): reads and runs nothing but PROGRAM and the folders of the system's
  libraries;
- seccomp (x86-64, arm64): an allow-list of system calls; the rest do not exist (ENOSYS, which libraries
  expect of an older kernel). Nothing opens for writing, makes a socket, forks, signals, or raises a limit;
- a network of its own (``unshare``) where there is no seccomp.

Without seccomp and without a network of its own it does not go on (status 121): a decoder that we cannot keep
off the network is not started. ``--report`` prints the names of what is in force instead.

It imports nothing but the standard library and writes nothing. Sources: seccomp(2), landlock(7), prctl(2),
``linux/audit.h``; the numbers of the calls are those of ``asm/unistd_64.h`` and ``asm-generic/unistd.h``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from pathlib import Path

UNCONFINED = 121
"""Exit status: the system offers no way to keep the decoder off the network."""

NOT_RUN = 127
"""Exit status: the program could not be run."""

NICE = 10
DESCRIPTORS = 64
NOBODY = 65_534

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_NO_NEW_PRIVS = 1, 15, 38
_CLONE_NEWNET, _CLONE_NEWUSER, _CLONE_THREAD = 0x4000_0000, 0x1000_0000, 0x1_0000
_WRITING = (
    os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | 0o20_000_000
)  # the last one is O_TMPFILE without O_DIRECTORY

_FOLDERS = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/nix/store",
    "/gnu/store",
)
_FILES = ("/etc/ld.so.cache",)

_libc = ctypes.CDLL(None, use_errno=True)

# Number of the call by name: x86-64, arm64 (-1: it has none).
_CALLS: dict[str, tuple[int, int]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "stat": (4, -1),
    "fstat": (5, 80),
    "lstat": (6, -1),
    "poll": (7, -1),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, -1),
    "select": (23, -1),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "execve": (59, 221),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "getcwd": (79, 17),
    "readlink": (89, -1),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, -1),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
}
_OPEN, _OPENAT, _CLONE = (2, -1), (257, 56), (56, 220)
_IOCTL, _PRCTL, _PRLIMIT, _SECCOMP = (16, 29), (157, 167), (302, 261), (317, 277)

_ARCHES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7)}

# Classic BPF (linux/filter.h): load a word of struct seccomp_data, compare, test bits, return.
_LOAD, _EQUAL, _BITS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF_0000, 0x8000_0000, 0x0005_0000


def _op(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def _argument(n: int) -> int:
    """Offset of the low word of the call's argument ``n`` (both machines are little-endian)."""
    return 16 + 8 * n


def program(machine: str) -> bytes:
    """The filter for a machine as ``platform.machine()`` names it, 8 bytes an instruction.

    Raises KeyError for one we have no numbers for.
    """
    column, arch = _ARCHES[machine]

    def fails(number: int) -> bytes:
        return _op(_RETURN, _ERROR | number)

    ok = _op(_RETURN, _ALLOW)
    lines = [_op(_LOAD, 4), _op(_EQUAL, arch, 1, 0), _op(_RETURN, _KILL), _op(_LOAD, 0)]
    lines += [_op(_AT_LEAST, 0x4000_0000, 0, 1), fails(errno.ENOSYS)]  # the x32 numbers of x86-64

    def case(call: tuple[int, int], *block: bytes) -> None:
        if call[column] >= 0:
            lines.extend((_op(_EQUAL, call[column], 0, len(block)), *block))

    for call in _CALLS.values():
        case(call, ok)
    for call, flags in ((_OPEN, 1), (_OPENAT, 2)):
        case(call, _op(_LOAD, _argument(flags)), _op(_BITS, _WRITING, 0, 1), fails(errno.EACCES), ok)
    # Threads, which newer versions of ffmpeg cannot do without, but no process. clone3 hides its flags:
    # ENOSYS.
    case(_CLONE, _op(_LOAD, _argument(0)), _op(_BITS, _CLONE_THREAD, 1, 0), fails(errno.EPERM), ok)
    case(_PRCTL, _op(_LOAD, _argument(0)), _op(_EQUAL, _PR_SET_NAME, 1, 0), fails(errno.EPERM), ok)
    # Limits may be read, not set: the new ones' address (two words) must be zero.
    low = _argument(2)
    case(
        _PRLIMIT,
        *(_op(_LOAD, low), _op(_EQUAL, 0, 0, 3), _op(_LOAD, low + 4), _op(_EQUAL, 0, 0, 1), ok),
        fails(errno.EPERM),
    )
    case(_IOCTL, fails(errno.ENOTTY))
    lines.append(fails(errno.ENOSYS))
    return b"".join(lines)


def _seccomp() -> bool:
    try:
        filters = program(platform.machine())
    except KeyError:
        return False
    buffer = ctypes.create_string_buffer(filters, len(filters))
    # struct sock_fprog: a count, and the address after padding.
    prog = struct.pack("=HxxxxxxQ", len(filters) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[_ARCHES[platform.machine()][0]]
    return bool(_libc.syscall(number, 1, 0, ctypes.c_char_p(prog)) == 0)


def _landlock(decoder: str) -> bool:
    """Forbid every file but the decoder and libraries, TCP, and signals and sockets to the outside."""
    create, add, restrict = 444, 445, 446
    abi = _libc.syscall(create, None, 0, 1)
    if abi < 1:
        return False
    rights = (1 << 13) - 1  # of the first version; REFER, TRUNCATE and IOCTL_DEV came later
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        rights |= (abi >= since) << bit
    handled = struct.pack("=QQQ", rights, 3, 3)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = _libc.syscall(create, ctypes.c_char_p(handled), len(handled), 0)
    if ruleset < 0:
        return False
    execute, read_file, read_folder = 1, 4, 8
    home = Path(decoder).parent.parent
    near = () if home in (Path("/"), Path("/usr")) else tuple(str(home / name) for name in ("lib", "lib64"))
    allowed = [(decoder, execute | read_file), *((name, read_file) for name in _FILES)]
    allowed += [(name, execute | read_file | read_folder) for name in (*_FOLDERS, *near)]
    for path, access in allowed:
        try:
            found = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rule = struct.pack("=Qi", access, found)
        _libc.syscall(add, ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(found)
    done = _libc.syscall(restrict, ruleset, 0) == 0
    os.close(ruleset)
    return bool(done)


def _limits(cpu_s: int, memory: int) -> None:
    for what, soft, hard in (
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),  # SIGXCPU, then SIGKILL
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, DESCRIPTORS, DESCRIPTORS),
        (resource.RLIMIT_CORE, 1, 1),
        (resource.RLIMIT_MEMLOCK, 0, 0),
    ):
        top = resource.getrlimit(what)[1]
        most = hard if top == resource.RLIM_INFINITY else min(hard, top)
        resource.setrlimit(what, (min(soft, most), most))


def _nobody(decoder: str) -> bool:
    """Give up root where the decoder can be reached without it."""
    if os.geteuid() != 0:
        return False
    path = Path(decoder)
    try:
        if not all(part.stat().st_mode & 0o001 for part in (path, *path.parents)):
            return False
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError:
        return False
    return True


def confine(cpu_s: int, memory: int, decoder: str) -> list[str]:
    """Confine this process for good; the names of what is in force.

    Raises OSError or ValueError where a limit cannot be set.
    """
    names = ["limits"]
    os.nice(NICE)
    _limits(cpu_s, memory)
    if _nobody(decoder):
        names.append("nobody")
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user forgets an earlier one
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return names
    names.append("no_new_privs")
    if _landlock(decoder):
        names.append("landlock")
    if _seccomp():
        names.append("seccomp")
    elif _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) == 0:
        names.append("network")
    return names


def main() -> int:
    """Confine, then run the decoder in this process; returns only when that fails."""
    cpu_s, memory, report = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "--report"
    command = sys.argv[4 if report else 3 :]
    names = confine(cpu_s, memory, command[0])
    if report:
        print(*names)
        return 0
    if "seccomp" not in names and "network" not in names:
        return UNCONFINED
    try:
        os.execve(command[0], command, {})  # noqa: S606 - an absolute path and arguments of ours
    except OSError:
        return NOT_RUN


if __name__ == "__main__":
    sys.exit(main())

"""What confines the decoder, tried from within: the program that it becomes here is Python."""

from __future__ import annotations

import errno
import json
import platform
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.intake import decoder_worker
from gateway.intake.decoder import WORKER, Limits, sandbox

PYTHON = str(Path(sys.executable).resolve())

TRY = """
import json, os, sys
out = {}
def attempt(name, do):
    try:
        do()
        out[name] = 0
    except OSError as error:
        out[name] = error.errno
    except BaseException as error:
        out[name] = type(error).__name__
"""


def inside(script: str, *arguments: str, limits: Limits | None = None) -> subprocess.CompletedProcess[bytes]:
    limits = limits or Limits()
    return subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            str(WORKER),
            str(limits.cpu_s),
            str(limits.memory),
            PYTHON,
            "-I",
            "-S",
            "-B",
            "-c",
            TRY + script + "\nprint(json.dumps(out))",
            *arguments,
        ],
        capture_output=True,
        timeout=60,
        check=False,
        env={"SECRET": "hush"},
    )


def attempts(script: str, *arguments: str) -> dict[str, Any]:
    done = inside(script, *arguments)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_says_what_is_in_force() -> None:
    names = sandbox(PYTHON)
    assert {"limits", "no_new_privs"} <= set(names)
    assert "seccomp" in names  # a kernel without it is none that we run on
    assert platform.machine() in {"x86_64", "aarch64"}


def test_there_is_no_network() -> None:
    found = attempts(
        """
import socket
attempt("tcp", lambda: socket.socket(socket.AF_INET))
attempt("tcp6", lambda: socket.socket(socket.AF_INET6))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
attempt("unix", lambda: socket.socket(socket.AF_UNIX))
attempt("pair", socket.socketpair)
"""
    )
    assert found == dict.fromkeys(("tcp", "tcp6", "udp", "unix", "pair"), errno.ENOSYS)


def test_no_file_is_written_and_none_but_libraries_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush")
    tmp_path.chmod(0o777)
    (tmp_path / "secret").chmod(0o666)
    found = attempts(
        """
there = sys.argv[1] + "/"
attempt("create", lambda: open(there + "new", "wb"))
attempt("append", lambda: open(there + "secret", "ab"))
attempt("update", lambda: open(there + "secret", "r+b"))
attempt("unnamed", lambda: os.open(there, os.O_TMPFILE | os.O_RDWR))
attempt("mkdir", lambda: os.mkdir(there + "folder"))
attempt("remove", lambda: os.unlink(there + "secret"))
attempt("rename", lambda: os.rename(there + "secret", there + "other"))
attempt("link", lambda: os.symlink("/etc/passwd", there + "link"))
attempt("mode", lambda: os.chmod(there + "secret", 0))
attempt("memory", lambda: os.memfd_create("x"))
attempt("read", lambda: open(there + "secret").read())
attempt("passwd", lambda: open("/etc/passwd").read())
attempt("process", lambda: open("/proc/self/environ").read())
attempt("parent", lambda: open(f"/proc/{os.getppid()}/cmdline").read())
attempt("root", lambda: os.listdir("/"))
attempt("library", lambda: os.listdir("/usr/lib"))
""",
        str(tmp_path),
    )
    writing = ("create", "append", "update", "unnamed")
    assert {found[name] for name in writing} == {errno.EACCES}
    assert {found[name] for name in ("mkdir", "remove", "rename", "link", "mode", "memory")} == {errno.ENOSYS}
    denied = errno.EACCES if "landlock" in sandbox(PYTHON) else 0
    assert [found[name] for name in ("read", "passwd", "root")] == [denied] * 3
    assert found["library"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").read_text() == "hush"


def test_there_is_no_other_process() -> None:
    found = attempts(
        """
import subprocess, threading
attempt("fork", os.fork)
attempt("spawn", lambda: os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {}))
attempt("run", lambda: subprocess.run([sys.executable, "-c", ""]))
attempt("shell", lambda: os.execv("/bin/sh", ["sh", "-c", "echo {}"]))
attempt("kill", lambda: os.kill(os.getppid(), 0))
attempt("self", lambda: os.kill(os.getpid(), 0))
attempt("session", os.setsid)
def thread():
    out["thread"] = 0
made = threading.Thread(target=thread)
made.start()
made.join()
"""
    )
    assert found["fork"] == errno.EPERM
    assert found["spawn"] in {errno.EPERM, errno.ENOSYS}
    assert found["run"] in {errno.EPERM, errno.ENOSYS}
    assert {found[name] for name in ("kill", "self", "session")} == {errno.ENOSYS}
    assert found["thread"] == 0
    if "landlock" in sandbox(PYTHON):
        assert found["shell"] == errno.EACCES


def test_no_right_is_gained_and_no_limit_raised() -> None:
    found = attempts(
        """
import resource
attempt("cpu", lambda: resource.setrlimit(resource.RLIMIT_CPU, (9, 9)))
attempt("user", lambda: os.setuid(0))
attempt("groups", lambda: os.setgroups([]))
out["now"] = [list(resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
              for name in ("CPU", "AS", "FSIZE", "CORE", "NOFILE")]
out["environment"] = {name: value for name, value in os.environ.items() if name != "LC_CTYPE"}
out["uid"] = os.getuid()
"""
    )
    assert found["cpu"] == "ValueError"  # which Python makes of EPERM
    assert found["user"] == found["groups"] == errno.ENOSYS
    assert found["now"] == [[5, 6], [512 << 20, 512 << 20], [0, 0], [1, 1], [64, 64]]
    assert found["environment"] == {}
    assert found["uid"] != 0 or "nobody" not in sandbox(PYTHON)


def test_memory_and_processor_time_end() -> None:
    found = attempts('attempt("memory", lambda: bytearray(600 << 20))')
    assert found["memory"] == "MemoryError"
    assert inside("while True: pass", limits=Limits(cpu_s=1)).returncode == -24  # SIGXCPU


def test_a_program_that_is_not_there() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(WORKER), "5", str(512 << 20), "/usr/lib/no-such-program"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == decoder_worker.NOT_RUN
    assert done.stdout == done.stderr == b""


def test_it_dies_with_the_thread_that_started_it() -> None:
    made: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-B",
                str(WORKER),
                "5",
                str(512 << 20),
                PYTHON,
                "-I",
                "-S",
                "-c",
                "print(1, flush=True)\nimport time\nwhile True: time.sleep(9)",
            ],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        made.append(process)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with made[0] as process:
        assert process.wait(30) == -9


def run(program: bytes, nr: int, *arguments: int, arch: int = 0xC000003E) -> int:
    """What the filter answers to a call: a machine for the instructions that it uses (linux/filter.h)."""
    data = struct.pack("=IIQ6Q", nr, arch, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at = word = 0
    while True:
        code, yes, no, k = lines[at]
        at += 1
        if code == 0x20:
            word = struct.unpack_from("=I", data, k)[0]
        elif code == 0x06:
            return int(k)
        else:
            taken = {0x15: word == k, 0x45: bool(word & k), 0x35: word >= k}[code]
            at += yes if taken else no


ALLOW, KILL = 0x7FFF0000, 0x80000000


def error(number: int) -> int:
    return 0x00050000 | number


@pytest.mark.parametrize(
    ("machine", "arch", "column"), [("x86_64", 0xC000003E, 0), ("aarch64", 0xC00000B7, 1)]
)
def test_the_filter_knows_what_is_allowed_on_each_machine(machine: str, arch: int, column: int) -> None:
    filters = decoder_worker.program(machine)
    assert len(filters) < 8 * 4096
    calls = {name: numbers[column] for name, numbers in decoder_worker._CALLS.items() if numbers[column] >= 0}
    assert len(set(calls.values())) == len(calls)
    special = {
        name: getattr(decoder_worker, "_" + name)[column]
        for name in ("OPEN", "OPENAT", "CLONE", "IOCTL", "PRCTL", "PRLIMIT")
    }
    assert not set(special.values()) & set(calls.values())
    for number in range(700):
        answer = run(filters, number, 0, 0, 0, arch=arch)
        if number in calls.values():
            assert answer == ALLOW
        elif number not in special.values():
            assert answer == error(errno.ENOSYS)
    assert run(filters, 0, arch=0x40000003) == KILL  # the 32-bit calls of the same machine
    assert run(filters, 0x40000000 + calls["write"], arch=arch) == error(errno.ENOSYS)

    openat, clone, prctl = special["OPENAT"], special["CLONE"], special["PRCTL"]
    assert run(filters, openat, 0, 0, 0, arch=arch) == ALLOW
    for flags in (1, 2, 3, 0o100, 0o1000, 0o20200002):
        assert run(filters, openat, 0, 0, flags, arch=arch) == error(errno.EACCES)
    assert run(filters, clone, 0x10000 | 0x100, arch=arch) == ALLOW
    assert run(filters, clone, 17, arch=arch) == error(errno.EPERM)
    assert run(filters, prctl, 15, arch=arch) == ALLOW
    assert run(filters, prctl, 1, arch=arch) == error(errno.EPERM)
    prlimit = special["PRLIMIT"]
    assert run(filters, prlimit, 0, 0, 0, 99, arch=arch) == ALLOW
    assert run(filters, prlimit, 0, 0, 1, arch=arch) == error(errno.EPERM)
    assert run(filters, prlimit, 0, 0, 1 << 32, arch=arch) == error(errno.EPERM)
    assert run(filters, special["IOCTL"], 0, 0x5412, arch=arch) == error(errno.ENOTTY)


def test_a_machine_without_numbers_is_refused() -> None:
    with pytest.raises(KeyError):
        decoder_worker.program("riscv64")

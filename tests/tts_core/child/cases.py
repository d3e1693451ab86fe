"""A small language, the two ends of a socket, work in a thread: for the tests of all that has a worker."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tts_core.child.failure import Failed
from tts_core.child.frames import Language, Reader
from tts_core.child.program import Program
from tts_core.child.serve import Channel

M = TypeVar("M")


class Load(msgspec.Struct, tag="load", frozen=True):
    """First message; ``error`` is the code of an error to fail with."""

    error: str = ""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    pid: int


class Echo(msgspec.Struct, tag="echo", frozen=True):
    """Comes back with its payload; "drop" and other words ask for more, see ``programs``."""

    id: int
    words: str = ""


Message = Load | Ready | Echo | Failed

LANGUAGE: Language[Message] = Language(Message)


@contextmanager
def ends(language: Language[M]) -> Iterator[tuple[Channel[M], socket.socket]]:
    """The owner's end of a socket, blocking but not for ever, and the worker's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        yield Channel(ours, language), theirs


@contextmanager
def spawned(name: str) -> Iterator[tuple[subprocess.Popen[bytes], Channel[Message], Ready]]:
    """A warm worker of ``programs`` without a link; closing its socket is all that is done in the end."""
    ours, theirs = socket.socketpair()
    process = Program("the worker", f"tests.tts_core.child.programs:{name}", 30.0).spawn(theirs)
    assert theirs.fileno() == -1
    with ours:
        ours.settimeout(30)
        channel = Channel(ours, LANGUAGE)
        channel.send(Load())
        message, _ = channel.receive()
        assert isinstance(message, Ready)
        yield process, channel, message


def ended(watch: int) -> bool:
    """Wait until the process of a descriptor (``os.pidfd_open``) has ended, which makes it readable."""
    seen = bool(select.select((watch,), (), (), 30)[0])
    os.close(watch)
    return seen


def in_thread(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """``work`` in a thread; the list gets what it raises."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    return thread, errors


def feed(reader: Reader[M], stream: bytes, sizes: list[int]) -> list[tuple[M, memoryview]]:
    """Let ``stream`` arrive in pieces of at most ``sizes``, over and over; the frames in it."""
    found: list[tuple[M, memoryview]] = []
    at = turn = 0
    while at < len(stream):
        room = reader.buffer()
        assert room
        count = min(sizes[turn % len(sizes)], len(room), len(stream) - at)
        room[:count] = stream[at : at + count]
        at, turn = at + count, turn + 1
        frame = reader.received(count)
        if frame is not None:
            found.append(frame)
    return found


def exists(pid: int | None) -> bool:
    """Whether there is such a process, were it only not cleaned up."""
    return Path(f"/proc/{pid}").exists()

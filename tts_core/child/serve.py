"""The worker's side: loads as it is told, says that it is ready, serves, and ends with its owner."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import EngineError, VoxwireError
from .failure import Failed
from .frames import Bytes, FrameError, Language, M, Reader

log = logging.getLogger(__name__)

F = TypeVar("F")
"""The first message: what to load."""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def serve(fd: int, work: Callable[[socket.socket], None], *, family: bool = False) -> None:
    """Do ``work`` on the socket ``fd``, whose other end is the owner's; never returns.

    The process ends when ``work`` does, and when the owner goes away: ``work`` sees the end of the
    socket, and the kernel ends a process whose parent has died, even in the middle of a computation.

    Args:
        fd: as given to the entry of a ``Program``.
        work: gets the socket, blocking. It ends by returning, or with the EOFError or OSError of a socket
            whose other end is gone; any other exception is a fault and is logged.
        family: the worker starts processes of its own, which must not outlive it. It is then ended together
            with its whole group, by a thread that sees the end of the socket whatever ``work`` does.
    """
    status = 0
    with socket.socket(fileno=fd) as sock:
        sock.setblocking(True)
        if family:
            threading.Thread(target=_end_with_owner, args=(sock.fileno(),), daemon=True).start()
        else:
            _die_with_parent()
        try:
            work(sock)
        except (EOFError, OSError):
            log.debug("the owner is gone")
        except Exception:
            log.exception("the worker failed")
            status = 1
    if family:
        _end_group()
    os._exit(status)


class Channel(Generic[M]):
    """The worker's end of the socket, blocking. One thread may receive while another sends."""

    def __init__(self, sock: socket.socket, language: Language[M]) -> None:
        self.sock = sock
        self._language = language
        self._reader = Reader(language)

    def waiting(self) -> bool:
        """Whether something can be received, if only the end."""
        return bool(select.select((self.sock,), (), (), 0)[0])

    def receive(self) -> tuple[M, memoryview]:
        """Wait for the next message and its payload.

        Reads no byte beyond it: what follows may be read by another reader of the same socket.

        Raises:
            EOFError: the other end is gone.
            OSError: the same, with something unread.
            FrameError: it sent no frame.
        """
        while True:
            count = self.sock.recv_into(self._reader.buffer())
            if not count:
                raise EOFError
            frame = self._reader.received(count)
            if frame is not None:
                return frame

    def send(self, message: M, payload: Bytes = b"") -> None:
        """Send a message and its payload; blocks until the other end's buffers have taken them.

        Raises:
            OSError: the other end is gone.
            FrameError: too large for a frame.
        """
        head, raw = self._language.encode(message, payload)
        self.sock.sendall(head)
        if raw:
            self.sock.sendall(raw)


def handshake(
    channel: Channel[M],
    first: type[F],
    load: Callable[[F], tuple[M, Callable[[], None]]],
    *,
    failure: str,
) -> None:
    """Load as the first message says, tell the owner, and serve.

    Args:
        channel: to the owner.
        first: type of the first message.
        load: gets it, and gives the message that says that the worker is warm, and what serves from then on.
            A VoxwireError of it is told to the owner, with its words.
        failure: words for the owner when ``load`` fails in any other way.

    Raises:
        EOFError: the owner is gone; so may ``serve`` of ``load``.
        OSError: the same.
        FrameError: the first message is another.
    """
    message, _ = channel.receive()
    if not isinstance(message, first):
        raise FrameError(f"the first message must be {first.__name__}")
    try:
        ready, serving = load(message)
    except VoxwireError as error:
        channel.send(Failed.of(0, error))  # type: ignore[arg-type]  # it is of every language
        return
    except Exception:
        log.exception("the worker cannot start")
        channel.send(Failed.of(0, EngineError(failure)))  # type: ignore[arg-type]
        return
    channel.send(ready)
    serving()


def _die_with_parent() -> None:
    if sys.platform != "linux":
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        log.debug("no parent-death signal here; the end of the socket serves")


def _end_with_owner(fd: int) -> None:
    """Wait until the other end is closed, also with something unread, and end the group."""
    poll = select.poll()
    poll.register(fd, 0)  # hang-ups and errors are always told
    poll.poll()
    _end_group()


def _end_group() -> None:
    """End this process and all that it started, if it leads its group as a spawned worker does."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)

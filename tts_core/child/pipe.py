"""An end of the socket on an event loop: the owner's, or that of a worker with a loop of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Generic

from .frames import Bytes, FrameError, Language, M, Reader

log = logging.getLogger(__name__)


class Pipe(asyncio.BufferedProtocol, Generic[M]):
    """Sends messages, and receives frames straight into their final buffers.

    Args:
        language: of both ends.
        on_message: gets every message with its payload. It may raise FrameError for a message that has no
            business here, which drops the connection, as bytes that are no frame do.
        on_lost: called once when the connection is gone, for whatever reason.
        name: of the other end, for the log.
    """

    def __init__(
        self,
        language: Language[M],
        on_message: Callable[[M, memoryview], None],
        on_lost: Callable[[], None],
        *,
        name: str = "the other process",
    ) -> None:
        self._language = language
        self._reader = Reader(language)
        self._on_message = on_message
        self._on_lost = on_lost
        self._name = name
        self._transport: asyncio.Transport | None = None

    @property
    def unsent(self) -> int:
        """Bytes that wait to be taken by the other end: who sends in bulk bounds its work by this."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def send(self, message: M, payload: Bytes = b"") -> None:
        """Send a message at once or as the other end takes it; to one that is gone it is dropped.

        Copies ``payload``: the sender may change it afterwards.

        Raises:
            FrameError: too large for a frame.
        """
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._language.encode(message, payload)))

    def abort(self) -> None:
        """Drop the connection and what is unsent; ``on_lost`` follows. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    # -- called by the event loop ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """Room for the next bytes."""
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Take what came."""
        try:
            frame = self._reader.received(nbytes)
            if frame is not None:
                self._on_message(*frame)
        except FrameError:
            log.exception("a peer broke the protocol", extra={"worker": self._name})
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell it."""
        self._on_lost()


async def open_pipe(
    sock: socket.socket,
    language: Language[M],
    on_message: Callable[[M, memoryview], None],
    on_lost: Callable[[], None],
    *,
    name: str = "the other process",
) -> Pipe[M]:
    """A pipe over a connected socket, which it takes over.

    Raises:
        OSError: the socket is none that an event loop can serve.
    """
    sock.setblocking(False)
    _, pipe = await asyncio.get_running_loop().connect_accepted_socket(
        lambda: Pipe(language, on_message, on_lost, name=name), sock
    )
    return pipe

"""Messages of one session, kept for a while so that a dropped connection loses none.

Every message has a number by its order: the client counts what it receives and, when it comes back, says how
many it has; the rest is sent again. While nobody is attached messages are kept up to a limit in bytes, then
the senders wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tts_core.errors import BadRequest, LegClosed

Send = Callable[[str | bytes], Awaitable[None]]


class ResumeGap(BadRequest):
    """The messages that the client misses are no longer kept, or it claims more than were sent."""

    code = "resume_gap"
    status = 410


class Outbox:
    """An ordered, bounded, re-playable way out.

    Args:
        keep_bytes: how much is kept for a replay (oldest first out while a client is attached).
    """

    def __init__(self, keep_bytes: int = 4 << 20) -> None:
        self._keep = keep_bytes
        self._kept: deque[str | bytes] = deque()
        self._bytes = 0
        self._first = 0  # number of the oldest kept message
        self._send: Send | None = None
        self._attaching: object = None
        self._room = asyncio.Event()
        self._closed = False

    @property
    def count(self) -> int:
        """Messages pushed so far."""
        return self._first + len(self._kept)

    @property
    def attached(self) -> bool:
        """Whether a connection takes messages now."""
        return self._send is not None

    def check(self, received: int) -> None:
        """Raise ResumeGap when what a client misses that has ``received`` messages is no longer kept."""
        if not self._first <= received <= self.count:
            raise ResumeGap("the messages after this point are no longer kept", field="resume.received")

    async def attach(self, send: Send, received: int = 0) -> None:
        """Send what the client misses, then everything new.

        Raises ResumeGap as ``check`` does, and LegClosed when the new connection fails too, when another one
        takes over meanwhile, or when the session is over.
        """
        self.check(received)
        self._send = None
        mine = self._attaching = object()
        while received < self.count and not self._closed:
            # Nothing is dropped while nobody is attached.
            await send(self._kept[received - self._first])
            received += 1
            if self._attaching is not mine:
                raise LegClosed("another connection took over")
        if self._closed:
            raise LegClosed("the session is over")
        # No await since the last look at count: nothing can slip in between.
        self._send = send
        self._room.set()

    def detach(self) -> None:
        """The connection is gone; keep everything from here on."""
        self._send = None

    def close(self) -> None:
        """The session is over: senders get LegClosed."""
        self._closed = True
        self._send = None
        self._kept.clear()
        self._bytes = 0
        self._room.set()

    async def push(self, message: str | bytes) -> None:
        """Send a message, or keep it; waits only when nobody is attached and the limit is reached."""
        while not self._closed and self._send is None and self._bytes >= self._keep:
            self._room.clear()
            await self._room.wait()
        if self._closed:
            raise LegClosed("the session is over")
        self._kept.append(message)
        self._bytes += len(message)
        send = self._send
        if send is None:
            return
        self._trim()
        try:
            await send(message)
        except LegClosed:
            # The message is kept: the client gets it when it comes back.
            if self._send is send:
                self.detach()

    async def push_live(self, message: bytes) -> None:
        """Send now or never: for audio that is worth nothing later. Not counted, not kept."""
        send = self._send
        if send is None:
            return
        try:
            await send(message)
        except LegClosed:
            if self._send is send:
                self.detach()

    def _trim(self) -> None:
        while self._bytes > self._keep and len(self._kept) > 1:
            self._bytes -= len(self._kept.popleft())
            self._first += 1

"""The text WebSocket that a leg needs, and a way to make one of a library whose ``send`` is a coroutine.

The writer of a leg runs inside the timer wheel's callback and a barge-in must be on the wire in the same loop
turn, so sending is a plain call: it writes to the transport's buffer and never waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Protocol

from telephony.wheel import Clock
from tts_core.errors import LegClosed

__all__ = ["EagerSender", "TextSocket"]


class TextSocket(Protocol):
    """A WebSocket as the driver sees it. Pings and pongs are the library's."""

    def send_text(self, text: str) -> None:
        """Write a text message now. Raises LegClosed when the socket is gone or the peer does not read."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close, within a deadline of its own. Safe to repeat."""

    def __aiter__(self) -> AsyncIterator[str]:
        """Yield text messages until the peer closes. Raises PeerViolation for a binary one."""


class EagerSender:
    """Makes a plain call of a ``send`` coroutine such as aiohttp's ``WebSocketResponse.send_str``.

    The coroutine is run until it would wait. Such a ``send`` first writes and then waits, and only while the
    transport is above its high-water mark; the rest of it is then finished in a task. A peer that stays
    there for ``stall_s`` does not read: the next call raises LegClosed. Until then the transport's buffer
    grows by what a leg sends, which its lead bounds: about 15 kB/s.

    Call it inside a running loop; :meth:`close` cancels what still waits.
    """

    def __init__(
        self,
        send: Callable[[str], Coroutine[Any, Any, None]],
        *,
        stall_s: float = 5.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._send = send
        self._stall_s = stall_s
        self._clock = clock
        self._waiting: dict[asyncio.Task[None], float] = {}

    @property
    def waiting(self) -> int:
        """Sends that wait for the peer to read."""
        return len(self._waiting)

    def __call__(self, text: str) -> None:
        """Send ``text`` now. Raises LegClosed."""
        if self._waiting and self._clock() - next(iter(self._waiting.values())) > self._stall_s:
            raise LegClosed("the listener does not read")
        send = self._send(text)
        try:
            blocked = send.send(None)
        except StopIteration:
            return
        except (OSError, RuntimeError):
            raise LegClosed("the listener is gone") from None
        task = asyncio.get_running_loop().create_task(_finish(send, blocked))
        self._waiting[task] = self._clock()
        task.add_done_callback(self._done)

    def close(self) -> None:
        """Give up the sends that wait."""
        for task in self._waiting:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if not task.cancelled():
            task.exception()  # a lost connection shows itself on the next send and in the reader


@coroutine
def _resume(started: Coroutine[Any, Any, None], blocked: Any) -> Generator[Any, Any, None]:
    while True:
        try:
            try:
                value = yield blocked
            except BaseException as error:
                blocked = started.throw(error)
            else:
                blocked = started.send(value)
        except StopIteration:
            return


async def _finish(started: Coroutine[Any, Any, None], blocked: Any) -> None:
    await _resume(started, blocked)

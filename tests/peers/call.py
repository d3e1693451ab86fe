"""A phone call in memory: a media leg and its Twilio on a virtual loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from telephony.media_streams.driver import MediaStreamLeg
from telephony.wheel import TimerWheel
from tests.peers.twilio import TwilioPeerCore
from tts_core.errors import LegClosed, PeerViolation


class MemorySocket:
    """A WebSocket to a Twilio core, in memory: ``latency`` seconds each way, at once if 0."""

    def __init__(self, core: TwilioPeerCore, latency: float = 0.0) -> None:
        self.core = core
        self.latency = latency
        self.sent: list[str] = []
        self.closed: tuple[int, str] | None = None
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[str | bytes | None] = asyncio.Queue()
        self._up: deque[str] = deque()  # under way; timers of the same time come in any order
        self._down: deque[str | bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def send_text(self, text: str) -> None:
        if self.closed:
            raise LegClosed("the socket is closed")
        self.sent.append(text)
        if self.latency:
            self._up.append(text)
            self._loop.call_later(self.latency, lambda: self._arrive(self._up.popleft()))
        else:
            self._arrive(text)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self.closed is None:
            self.closed = (code, reason)
            self.hang_up()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (message := await self._inbox.get()) is not None:
            if isinstance(message, bytes):
                raise PeerViolation("a binary message where text is due")
            yield message

    def feed(self, *messages: str | bytes) -> None:
        """Let the peer send."""
        for message in messages:
            if self.latency:
                self._down.append(message)
                self._loop.call_later(self.latency, lambda: self._inbox.put_nowait(self._down.popleft()))
            else:
                self._inbox.put_nowait(message)

    def hang_up(self) -> None:
        """The connection ends."""
        self._inbox.put_nowait(None)
        if self._timer is not None:
            self._timer.cancel()

    def _arrive(self, text: str) -> None:
        self.feed(*self.core.receive(text))
        self._watch()

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.core.next_mark()
        if due is not None and self.closed is None:
            self._timer = self._loop.call_at(due, self._play)

    def _play(self) -> None:
        self.feed(*self.core.advance())
        self._watch()


class VirtualCall:
    """A leg and its Twilio in virtual time; to be made inside ``tests.virtual.run``."""

    def __init__(self, latency: float = 0.0, params: Mapping[str, str] | None = None, **leg: Any) -> None:
        loop = asyncio.get_running_loop()
        self.clock = loop.time
        self.core = TwilioPeerCore(clock=loop.time, params=params or {}, one_way=leg.pop("one_way", False))
        self.socket = MemorySocket(self.core, latency)
        self.wheel = leg.pop("wheel", None) or TimerWheel(loop.time)
        self.wheel.start()
        self.leg = MediaStreamLeg(self.socket, self.wheel, clock=loop.time, **leg)

    async def __aenter__(self) -> VirtualCall:
        self.socket.feed(self.core.connected(), self.core.start())
        await self.leg.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leg.close()
        self.wheel.close()

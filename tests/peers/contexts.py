"""What clients of a socket with many contexts have in common; their transcripts check what comes."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Generic, Protocol, TypeVar

import aiohttp

Message = dict[str, Any]
DEADLINE_S = 7200.0
"""In virtual time: only a message that never comes takes as long."""


class Turn(Protocol):
    """One context as its client saw it."""

    end: Message | None

    @property
    def seconds(self) -> float:
        """Seconds of audio received."""
        ...


T = TypeVar("T", bound=Turn)


class Transcript(Protocol[T]):
    """Everything that came over one socket, checked as it comes."""

    turns: dict[str, T]
    errors: list[Message]

    def sent(self, message: Message, /) -> None:
        """Note a message of the client's."""
        ...

    def take(self, raw: str | bytes, now: float) -> Message:
        """Check one of the gateway's and keep it."""
        ...


class ContextClient(Generic[T]):
    """One socket."""

    transcript: Transcript[T]

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws

    async def send(self, message: Message) -> None:
        """Send any message."""
        self.transcript.sent(message)
        await self.ws.send_str(json.dumps(message))

    async def next(self) -> Message:
        """The next message, checked; ConnectionError with the close code when there is none."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.ws.receive()
        if message.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            return self.transcript.take(message.data, asyncio.get_running_loop().time())
        raise ConnectionError(self.ws.close_code)

    async def ended(self, *contexts: str) -> list[T]:
        """Read on until these contexts have ended."""
        for context in contexts:
            while self.transcript.turns[context].end is None:
                await self.next()
        return [self.transcript.turns[context] for context in contexts]

    async def audio(self, context: str, seconds: float) -> T:
        """Read on until the context has got this much audio."""
        while self.transcript.turns[context].seconds < seconds:
            await self.next()
        return self.transcript.turns[context]

    async def close_code(self) -> int | None:
        """Read on to the close."""
        try:
            while True:
                await self.next()
        except ConnectionError:
            return self.ws.close_code

    @property
    def open_contexts(self) -> list[str]:
        """Those that have not ended."""
        return [name for name, turn in self.transcript.turns.items() if turn.end is None]

    def reset(self) -> None:
        """Break the connection off."""
        assert self.ws._conn is not None
        assert self.ws._conn.transport is not None
        self.ws._conn.transport.abort()

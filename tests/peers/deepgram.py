"""A client of Deepgram's speech socket that holds the gateway to its order (R3) and whole samples (R17)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import aiohttp

from tests.peers.gateway import Running
from tts_core.errors import EngineCrashed

KEY = {"Authorization": "Token any"}
KINDS = {"Metadata", "Flushed", "Cleared", "Warning", "Error"}
DEADLINE_S = 7200.0
"""In virtual time: only a message that never comes takes as long."""


class DeepgramClient:
    """One socket; ``order`` is what came, audio in a row as one ``("audio", bytes)``."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, width: int = 2) -> None:
        self.ws = ws
        self.width = width
        self.order: list[tuple[str, Any]] = []
        self.close_code: int | None = None

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message of this type."""
        await self.ws.send_str(json.dumps({"type": kind, **fields}))

    async def say(self, *texts: str, flush: bool = True) -> None:
        """Speak texts."""
        for text in texts:
            await self.send("Speak", text=text)
        if flush:
            await self.send("Flush")

    async def next(self) -> str:
        """The type of the next message, "audio" or "close"; it is checked and kept."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.ws.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            assert message.data
            assert len(message.data) % self.width == 0, "a part of a sample"
            if self.order and self.order[-1][0] == "audio":
                self.order[-1] = ("audio", self.order[-1][1] + message.data)
            else:
                self.order.append(("audio", message.data))
            return "audio"
        if message.type is not aiohttp.WSMsgType.TEXT:
            self.close_code = self.ws.close_code
            return "close"
        told = json.loads(message.data)
        kind: str = told["type"]
        self.check(kind, told)
        self.order.append((kind, told))
        return kind

    def check(self, kind: str, told: dict[str, Any]) -> None:
        """Whether this message may come now."""
        assert kind in KINDS
        if kind in {"Flushed", "Cleared"}:
            before = [said["sequence_id"] for name, said in self.order if name in {"Flushed", "Cleared"}]
            assert told["sequence_id"] == len(before), "acknowledgements are counted"
        if kind in {"Warning", "Error"}:
            assert told["description"]
            assert told["code"]

    async def until(self, kind: str) -> Any:
        """Read until a message of this type; its content."""
        while await self.next() != kind:
            pass
        return self.order[-1][1] if kind != "close" else self.close_code

    @property
    def kinds(self) -> list[str]:
        """What came, in order."""
        return [kind for kind, _ in self.order]

    @property
    def audio(self) -> bytes:
        """All audio so far."""
        return b"".join(data for kind, data in self.order if kind == "audio")


C = TypeVar("C", bound=DeepgramClient)


async def fail(gateway: Running, client: DeepgramClient) -> None:
    """A text that the engine fails, and its flush, which a client sends that has not heard of it yet."""
    gateway.engine.fail = EngineCrashed("the voice failed")
    await client.say("One two three. And", flush=False)
    await client.until("Error")
    gateway.engine.fail = None
    await client.send("Flush")


@contextlib.asynccontextmanager
async def connected(
    gateway: Running,
    path: str,
    make: Callable[[aiohttp.ClientWebSocketResponse, int], C],
    *,
    headers: dict[str, str] | None,
    width: int,
    protocols: tuple[str, ...],
) -> AsyncIterator[C]:
    """A client of ``make`` on this address; the greeting has been read."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            gateway.url.replace("http", "ws", 1) + path,
            headers=KEY if headers is None else headers,
            protocols=protocols,
            max_msg_size=0,
        ) as ws,
    ):
        client = make(ws, width)
        assert await client.next() in {"Metadata", "Connected"}
        yield client


def deepgram_client(
    gateway: Running,
    query: str = "?model=tone&encoding=linear16&sample_rate=24000",
    *,
    headers: dict[str, str] | None = None,
    width: int = 2,
    protocols: tuple[str, ...] = (),
) -> contextlib.AbstractAsyncContextManager[DeepgramClient]:
    """Connect; the greeting has been read."""
    path = "/v1/speak" + query
    return connected(gateway, path, DeepgramClient, headers=headers, width=width, protocols=protocols)

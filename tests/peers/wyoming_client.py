"""A client of our own for the Wyoming protocol, that holds the gateway to its order.

The protocol's own client is driven by ``wyoming_real.py``; this one says what that one cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.peers.gateway import Running

DEADLINE_S = 7200.0
"""In virtual time: only an event that never comes takes as long."""


def packed(kind: str, payload: bytes = b"", **data: Any) -> bytes:
    """An event as the protocol's package writes it; half a surrogate pair, which it cannot, is escaped."""
    body = json.dumps(data, ensure_ascii=False).encode(errors="backslashreplace") if data else b""
    head: dict[str, Any] = {"type": kind, "version": "1.10.2"}
    if body:
        head["data_length"] = len(body)
    if payload:
        head["payload_length"] = len(payload)
    return json.dumps(head).encode() + b"\n" + body + payload


class WyomingClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._bytes = 0  # of the audio since it began

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def send(self, kind: str, **data: Any) -> None:
        """Send an event."""
        await self.raw(packed(kind, **data))

    async def next(self) -> tuple[str, dict[str, Any], bytes]:
        """The next event: type, data, payload; type "" at the end."""
        async with asyncio.timeout(DEADLINE_S):
            line = await self.reader.readline()
            if not line:
                return "", {}, b""
            head = json.loads(line)
            data = json.loads(await self.reader.readexactly(head.get("data_length", 0)) or b"{}")
            payload = await self.reader.readexactly(head.get("payload_length", 0))
        if head["type"] == "audio-start":
            self._bytes = 0
        if head["type"] == "audio-chunk":
            assert payload
            assert len(payload) % 2 == 0, "a part of a sample"
            assert data["timestamp"] == self._bytes // 2 * 1000 // data["rate"]
            self._bytes += len(payload)
        return head["type"], data, payload

    async def next_within(self, seconds: float) -> tuple[str, dict[str, Any], bytes] | None:
        """The next event, or None when there is none for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await self.next()
        except TimeoutError:
            return None

    async def heard(self) -> tuple[list[str], bytes, dict[str, Any]]:
        """Events up to what ends a request, audio in a row as one; the audio; the data of the last."""
        kinds: list[str] = []
        audio = b""
        while True:
            kind, data, payload = await self.next()
            if kind == "audio-chunk":
                audio += payload
                if kinds[-1:] == [kind]:
                    continue
            kinds.append(kind)
            if kind in ("audio-stop", "synthesize-stopped", "error", ""):
                return kinds, audio, data

    async def ends(self) -> bytes:
        """What still comes until the gateway closes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()


def port_of(gateway: Running) -> int:
    """Where the gateway speaks Wyoming."""
    assert gateway.services.wyoming is not None
    return int(gateway.services.wyoming.url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def wyoming(gateway: Running) -> AsyncIterator[WyomingClient]:
    """A connection to the gateway."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway))
    try:
        yield WyomingClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

"""A client of the native protocol that holds the gateway to what its page promises.

``Transcript`` is sans-I/O: every message of the gateway goes through it, and it fails at once on a frame that
does not continue the one before, a word that comes after its audio, or anything of a context that has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from gateway.native.frames import Frame, Kind, unpack
from tests.peers.gateway import Running

WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
TERMINAL = {"done", "cancelled"}
DEADLINE_S = 3600.0
"""In virtual time: only a message that never comes takes as long."""

Message = dict[str, Any]


@dataclass
class Turn:
    """One context as its client saw it. ``arrived``: (loop time, samples so far) after each frame."""

    opened: Message
    audio: bytearray = field(default_factory=bytearray)
    frames: list[Frame] = field(default_factory=list)
    arrived: list[tuple[float, int]] = field(default_factory=list)
    words: list[Message] = field(default_factory=list)
    flushed: list[tuple[int, int]] = field(default_factory=list)
    end: Message | None = None

    @property
    def rate(self) -> int:
        """Samples a second."""
        return int(self.opened["format"]["sample_rate"])

    @property
    def samples(self) -> int:
        """Samples received."""
        return len(self.audio) // WIDTHS[self.opened["format"]["encoding"]]

    @property
    def seconds(self) -> float:
        """Seconds of audio received."""
        return self.samples / self.rate

    @property
    def text(self) -> str:
        """The words, joined."""
        return " ".join(word["text"] for word in self.words)


class Transcript:
    """Everything that came over one session, checked as it comes."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.past: list[Turn] = []
        self.by_index: dict[int, Turn] = {}
        self.messages: list[Message] = []
        self.caller: list[Frame] = []
        self.received = 0

    def take(self, raw: str | bytes, now: float) -> Message | Frame:
        """Check one message and keep it."""
        if isinstance(raw, bytes):
            return self._frame(unpack(raw), now)
        message: Message = json.loads(raw)
        self.messages.append(message)
        if message["type"] != "hello":
            self.received += 1
        getattr(self, "_" + message["type"].replace(".", "_"), lambda _: None)(message)
        return message

    def _frame(self, frame: Frame, now: float) -> Frame:
        if frame.kind is Kind.CALLER:
            self.caller.append(frame)
            return frame
        self.received += 1
        turn = self.by_index[frame.index]
        assert turn.end is None, "audio after the end"
        assert frame.seq == len(turn.frames)
        assert frame.start == turn.samples, "a gap, or audio twice"
        width = WIDTHS[turn.opened["format"]["encoding"]]
        assert frame.payload
        assert len(frame.payload) % width == 0, "a part of a sample"
        turn.frames.append(frame)
        turn.audio += frame.payload
        turn.arrived.append((now, turn.samples))
        return frame

    def _opened(self, message: Message) -> None:
        before = self.turns.get(message["context"])
        assert before is None or before.end is not None, "opened twice"
        assert message["index"] not in self.by_index, "an index used twice"
        turn = Turn(message)
        self.turns[message["context"]] = self.by_index[message["index"]] = turn
        self.past.append(turn)

    def _live(self, message: Message) -> Turn:
        turn = self.turns[message["context"]]
        assert turn.end is None, "something after the end"
        return turn

    def _words(self, message: Message) -> None:
        turn = self._live(message)
        for word in message["words"]:
            last = turn.words[-1] if turn.words else None
            assert word["end"] >= word["start"] >= (last["end"] if last else 0.0), "words overlap"
            assert word["text_start"] >= (last["text_end"] if last else 0)
            assert turn.seconds <= word["start"] + 0.003, "a word after its audio"
            turn.words.append(word)

    def _flushed(self, message: Message) -> None:
        turn = self._live(message)
        turn.flushed.append((message["flush_id"], turn.samples))

    def _done(self, message: Message) -> None:
        turn = self._live(message)
        assert message["total_samples"] == turn.samples or not turn.frames
        turn.end = message

    def _cancelled(self, message: Message) -> None:
        turn = self._live(message)
        assert message["last_sample"] == turn.samples or not turn.frames
        turn.end = message

    def _error(self, message: Message) -> None:
        if message.get("terminal") and (turn := self.turns.get(message["context"])) and turn.end is None:
            turn.end = message


class NativeClient:
    """One session over one connection after another."""

    def __init__(self, gateway: Running, http: aiohttp.ClientSession) -> None:
        self.gateway = gateway
        self.transcript = Transcript()
        self.sent: list[Message] = []
        self.hello: Message = {}
        self.ws: aiohttp.ClientWebSocketResponse
        self._http = http

    @property
    def resume(self) -> Message:
        """What to say in a hello to take the session up again."""
        return {
            "session": self.hello["session"],
            "key": self.hello["key"],
            "received": self.transcript.received,
        }

    async def connect(
        self, *, headers: Mapping[str, str] | None = None, query: str = "", **hello: Any
    ) -> Message:
        """Open a connection and say hello; the answer, whatever it is."""
        await self.dial(headers=headers, query=query)
        await self.send("hello", **{"version": 1, **hello})
        answer = await self.next()
        assert isinstance(answer, dict)
        if answer["type"] == "hello":
            self.hello = answer
        return answer

    async def dial(self, *, headers: Mapping[str, str] | None = None, query: str = "") -> None:
        """Open a connection and say nothing."""
        given = {"X-API-Key": "any"} if headers is None and not query else headers
        self.ws = await self._http.ws_connect(self.gateway.url + "/v1/stream" + query, headers=given)

    async def send(self, kind: str, context: str | None = None, **fields: Any) -> None:
        """Send a message."""
        message = {"type": kind, **({"context": context} if context is not None else {}), **fields}
        self.sent.append(message)
        await self.ws.send_str(json.dumps(message))

    async def next(self) -> Message | Frame:
        """The next message, checked; ConnectionError with the close code when there is none."""
        async with asyncio.timeout(DEADLINE_S):
            message = await self.ws.receive()
        if message.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
            return self.transcript.take(message.data, asyncio.get_running_loop().time())
        raise ConnectionError(self.ws.close_code)

    async def until(self, kind: str, context: str | None = None) -> Message:
        """Read on to the next message of this type (and context)."""
        while True:
            message = await self.next()
            if (
                isinstance(message, dict)
                and message["type"] == kind
                and (context is None or message.get("context") == context)
            ):
                return message

    async def ended(self, *contexts: str) -> list[Turn]:
        """Read on until these contexts have ended, or were refused."""
        for context in contexts:
            while not self._over(context):
                await self.next()
        return [self.transcript.turns[c] for c in contexts if c in self.transcript.turns]

    def _over(self, context: str) -> bool:
        turn = self.transcript.turns.get(context)
        if turn is not None:
            return turn.end is not None
        return any(m.get("terminal") and m.get("context") == context for m in self.transcript.messages)

    async def audio(self, context: str, seconds: float) -> Turn:
        """Read on until the context has got this much audio."""
        while context not in self.transcript.turns or self.transcript.turns[context].seconds < seconds:
            await self.next()
        return self.transcript.turns[context]

    async def settled(self) -> list[Message]:
        """Read everything that the gateway has said by now; the errors of it."""
        seen = len(self.transcript.messages)
        await self.send("ping", id="settled")
        await self.until("pong")
        return [m for m in self.transcript.messages[seen:] if m["type"] == "error"]

    async def close_code(self) -> int | None:
        """Read on to the close."""
        try:
            while True:
                await self.next()
        except ConnectionError:
            return self.ws.close_code

    def drop(self) -> None:
        """Break the connection off, as a lost network does."""
        transport = self.ws._conn.transport if self.ws._conn is not None else None
        assert transport is not None
        transport.abort()


@contextlib.asynccontextmanager
async def native_client(gateway: Running, **hello: Any) -> AsyncIterator[NativeClient]:
    """A connected client; its connection is closed at the end."""
    async with aiohttp.ClientSession() as http:
        client = NativeClient(gateway, http)
        answer = await client.connect(**hello)
        assert answer["type"] == "hello", answer
        try:
            yield client
        finally:
            await client.ws.close()

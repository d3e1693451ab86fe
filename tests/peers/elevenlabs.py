"""A client of the ElevenLabs sockets that holds the gateway to what the frameworks rely on.

``Transcript`` is sans-I/O and fails at once on a message without ``contextId``, a part of a sample,
characters out of order or out of their audio, or anything of a context that has ended. It keeps two clocks
for the characters, as clients do: pipecat's adds up the spans, the documentation's counts the audio.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.peers.contexts import ContextClient, Message
from tests.peers.gateway import Running

KEY = {"xi-api-key": "any"}
PCM = "output_format=pcm_24000"
ALIGNED = ("chars", "charStartTimesMs", "charDurationsMs")


@dataclass
class Turn:
    """One context as its client saw it."""

    rate: int = 24000
    width: int = 2
    filled: bool = True  # all audio has characters, were it an empty one
    absolute: bool = False
    audio: bytearray = field(default_factory=bytearray, repr=False)
    chars: str = ""
    starts: list[float] = field(default_factory=list)  # ms, by the audio before
    summed: list[float] = field(default_factory=list)  # ms, by the spans before
    clock: float = 0.0
    arrived: list[float] = field(default_factory=list)
    end: Message | None = None

    @property
    def seconds(self) -> float:
        """Seconds of audio received."""
        return len(self.audio) / self.width / self.rate

    @property
    def words(self) -> list[tuple[str, float]]:
        """Each word and its start in seconds, as pipecat computes them."""
        found: list[tuple[str, float]] = []
        word, start = "", 0.0
        for char, at in zip([*self.chars, " "], [*self.starts, 0.0], strict=True):
            if char.isspace():
                if word:
                    found.append((word, start / 1000))
                word = ""
            else:
                start = start if word else at
                word += char
        return found


class Transcript:
    """Everything that came over one socket, checked as it comes."""

    def __init__(self, *, single: bool = False, **turn: Any) -> None:
        self.single = single
        self.turns: dict[str, Turn] = {}
        self.past: list[Turn] = []
        self.errors: list[Message] = []
        self._turn = turn
        if single:  # the connection is its only context
            self._begin("")

    def _begin(self, context: str) -> None:
        self.turns[context] = Turn(**self._turn)
        self.past.append(self.turns[context])

    def sent(self, message: Message) -> None:
        """Note a message: text for an id that is not open makes a new turn."""
        context = self._id(message)
        known = self.turns.get(context)
        text = message.get("text")
        if text and isinstance(text, str) and (known is None or known.end) and not self.single:
            self._begin(context)

    def _id(self, message: Message) -> str:
        if self.single:
            return ""
        return str(message.get("context_id") or message.get("contextId") or "default")

    def take(self, raw: str | bytes, now: float) -> Message:
        """Check one message and keep it."""
        assert isinstance(raw, str), "the protocol is text"
        message: Message = json.loads(raw)
        if "error" in message:
            self._error(message)
            return message
        assert {"audio", "isFinal", "alignment", "normalizedAlignment"} <= set(message)
        assert ("contextId" in message) is not self.single
        turn = self.turns[self._id(message)]
        assert turn.end is None, "something after the end"
        if message["isFinal"]:
            assert message["audio"] is message["alignment"] is message["normalizedAlignment"] is None
            turn.end = message
            return message
        assert message["isFinal"] is (None if self.single else False)
        self._audio(turn, message, now)
        return message

    def _audio(self, turn: Turn, message: Message, now: float) -> None:
        data = base64.b64decode(message["audio"] or "", validate=True)
        assert message["audio"] is None or data
        assert len(data) % turn.width == 0, "a part of a sample"
        before = len(turn.audio) / turn.width / turn.rate * 1000
        turn.audio += data
        after = turn.seconds * 1000
        if data:
            turn.arrived.append(now)
        found = message["alignment"]
        assert found == message["normalizedAlignment"]
        if found is None:
            assert data
            assert not turn.filled, "audio without characters"
            return
        chars, starts, lengths = (found[name] for name in ALIGNED)
        assert len(chars) == len(starts) == len(lengths) > 0
        assert all(isinstance(value, int) and value >= 0 for value in [*starts, *lengths])
        for (start, length), (follow, _) in itertools.pairwise(zip(starts, lengths, strict=True)):
            assert start + length <= follow, "characters overlap"
        base = 0.0 if turn.absolute else before
        if data:
            assert abs(base + starts[-1] + lengths[-1] - after) <= 1.0, "the last one lasts to the end"
        for char, start in zip(chars, starts, strict=True):
            assert len(char) <= 1
            if char:
                turn.chars += char
                turn.starts.append(base + start)
                turn.summed.append(turn.clock + start)
                assert turn.starts == sorted(turn.starts[-2:]) or turn.starts[-2:] == sorted(turn.starts[-2:])
        turn.clock += starts[-1] + lengths[-1]

    def _error(self, message: Message) -> None:
        assert set(message) <= {"message", "error", "code", "contextId", "isFinal"}
        assert message["message"]
        assert isinstance(message["error"], str)
        assert 1000 < message["code"] < 1016
        self.errors.append(message)
        turn = self.turns.get(self._id(message))
        if turn is not None and (message.get("isFinal") or self.single):
            assert turn.end is None, "two ends"
            turn.end = message


class ElevenClient(ContextClient[Turn]):
    """One socket."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse, transcript: Transcript) -> None:
        super().__init__(ws)
        self.transcript: Transcript = transcript

    async def open(self, context: str = "a", **fields: Any) -> None:
        """Open a context, as pipecat and LiveKit do."""
        await self.send({"text": " ", "context_id": context, **fields})

    async def say(self, context: str, text: str, **fields: Any) -> None:
        """Send text."""
        await self.send({"text": text, "context_id": context, **fields})

    async def flush(self, context: str) -> None:
        """A bare flush."""
        await self.send({"context_id": context, "flush": True})

    async def close(self, context: str) -> None:
        """Close a context."""
        await self.send({"context_id": context, "close_context": True})

    async def finish(self, context: str) -> None:
        """The natural end of a turn."""
        await self.flush(context)
        await self.close(context)

    async def error(self) -> Message:
        """Read on to the next error."""
        seen = len(self.transcript.errors)
        while len(self.transcript.errors) == seen:
            await self.next()
        return self.transcript.errors[-1]

    async def settled(self) -> list[Message]:
        """Read everything that the gateway has said by now; the errors of it."""
        seen = len(self.transcript.errors)
        await self.ws.send_str('{"context_id": "settled", "text": 5}')
        while True:
            message = await self.next()
            if message.get("contextId") == "settled":
                break
        self.transcript.errors.pop()
        return self.transcript.errors[seen:]


@contextlib.asynccontextmanager
async def eleven_client(
    gateway: Running,
    *,
    headers: Mapping[str, str] = KEY,
    query: str = PCM,
    voice: str = "tone",
    path: str = "multi-stream-input",
    prefix: str = "/v1",
    turn: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[ElevenClient]:
    """A connected client; its socket is closed at the end. ``turn``: how its turns differ from the usual."""
    url = f"{gateway.url}{prefix}/text-to-speech/{voice}/{path}?{query}"
    transcript = Transcript(single=path == "stream-input", **(turn or {}))
    async with aiohttp.ClientSession() as http, http.ws_connect(url, headers=headers, **options) as ws:
        yield ElevenClient(ws, transcript)


@contextlib.asynccontextmanager
async def single_client(gateway: Running, *, query: str = PCM, **options: Any) -> AsyncIterator[ElevenClient]:
    """A client of ``stream-input``."""
    async with eleven_client(gateway, query=query, path="stream-input", **options) as client:
        yield client

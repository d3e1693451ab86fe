"""A client of the Cartesia protocol that holds the gateway to what the frameworks rely on.

``Transcript`` is sans-I/O and fails at once on a message without ``context_id``, a type that clients do not
know, a part of a sample, words that overlap or come late, or anything of a context that has ended.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.peers.contexts import ContextClient, Message
from tests.peers.gateway import Running

WIDTHS = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1, "pcm_alaw": 1}
KINDS = {"chunk", "timestamps", "flush_done", "done", "error"}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
VOICE = {"mode": "id", "id": "tone"}
KEY = {"X-API-Key": "any"}


@dataclass
class Turn:
    """One context as its client saw it."""

    output_format: Message
    audio: bytearray = field(default_factory=bytearray)
    arrived: list[tuple[float, int]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    words: list[tuple[str, float, float]] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)
    end: Message | None = None

    @property
    def width(self) -> int:
        """Bytes a sample."""
        return WIDTHS[self.output_format["encoding"]]

    @property
    def seconds(self) -> float:
        """Seconds of audio received."""
        return len(self.audio) / self.width / float(self.output_format["sample_rate"])

    @property
    def text(self) -> str:
        """The timed words, joined."""
        return " ".join(word for word, _, _ in self.words)


class Transcript:
    """Everything that came over one socket, checked as it comes."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.past: list[Turn] = []
        self.errors: list[Message] = []

    def sent(self, request: Message) -> None:
        """Note a request: a text for an id that is not open makes a new turn."""
        context = request.get("context_id")
        text = str(request.get("transcript") or "")
        if not isinstance(context, str) or request.get("cancel") or not text.strip():
            return
        known = self.turns.get(context)
        fmt = request.get("output_format")
        if (known is None or known.end is not None) and isinstance(fmt, dict):
            self.turns[context] = Turn(fmt)
            self.past.append(self.turns[context])

    def take(self, raw: str | bytes, now: float) -> Message:
        """Check one message and keep it."""
        assert isinstance(raw, str), "the protocol is text"
        message: Message = json.loads(raw)
        assert {"type", "context_id", "done", "status_code"} <= set(message)
        assert message["type"] in KINDS
        if message["type"] == "error":
            self._error(message)
            return message
        assert message["status_code"] == (200 if message["type"] == "done" else 206)
        assert message["done"] is (message["type"] == "done")
        turn = self.turns.get(message["context_id"])
        if turn is None:
            assert message["type"] == "done", "something of a context that was never opened"
            return message
        assert turn.end is None, "something after the end"
        turn.kinds.append(message["type"])
        getattr(self, "_" + message["type"])(turn, message, now)
        return message

    def _chunk(self, turn: Turn, message: Message, now: float) -> None:
        data = base64.b64decode(message["data"], validate=True)
        assert data
        assert len(data) % turn.width == 0, "a part of a sample"
        assert message["step_time"] >= 0
        turn.audio += data
        turn.arrived.append((now, len(turn.audio) // turn.width))

    def _timestamps(self, turn: Turn, message: Message, now: float) -> None:
        timed = message["word_timestamps"]
        assert len(timed["words"]) == len(timed["start"]) == len(timed["end"]) > 0
        for word, start, end in zip(timed["words"], timed["start"], timed["end"], strict=True):
            assert end >= start >= (turn.words[-1][2] if turn.words else 0.0), "words overlap"
            assert turn.seconds <= start + 0.004, "a word after its audio"
            turn.words.append((word, start, end))

    def _flush_done(self, turn: Turn, message: Message, now: float) -> None:
        assert message["flush_done"] is True
        turn.flushes.append(message["flush_id"])

    def _done(self, turn: Turn, message: Message, now: float) -> None:
        turn.end = message

    def _error(self, message: Message) -> None:
        # Both shapes at once: readers of either find all that they need.
        assert message["error"] == message["message"]
        assert message["error"]
        assert message["status_code"] >= 400
        assert message["title"]
        assert message["error_code"]
        assert message["request_id"]
        assert "doc_url" in message
        self.errors.append(message)
        turn = self.turns.get(message["context_id"])
        if message["done"] and turn is not None:
            assert turn.end is None, "two ends"
            turn.end = message


class CartesiaClient(ContextClient[Turn]):
    """One socket."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        super().__init__(ws)
        self.transcript: Transcript = Transcript()

    async def say(self, context: str, transcript: str, **fields: Any) -> None:
        """Send a generation request in the usual shape; ``more`` is its ``continue``, True by default."""
        request = {
            "context_id": context,
            "model_id": "gepard-1.0",
            "transcript": transcript,
            "voice": VOICE,
            "output_format": RAW,
            "continue": fields.pop("more", True),
            **fields,
        }
        await self.send(request)

    async def end(self, context: str) -> None:
        """End a context as the SDK does: in the same shape as what came before."""
        turn = self.transcript.turns.get(context)
        fields = {"output_format": turn.output_format, "voice": None} if turn is not None else {}
        await self.say(context, "", more=False, **fields)

    async def cancel(self, context: str) -> None:
        """Cancel a context."""
        await self.send({"context_id": context, "cancel": True})

    async def until(self, kind: str, context: str | None = None) -> Message:
        """Read on to the next message of this type (and context)."""
        while True:
            message = await self.next()
            if message["type"] == kind and (context is None or message["context_id"] == context):
                return message

    async def settled(self) -> list[Message]:
        """Read everything that the gateway has said by now; the errors of it."""
        seen = len(self.transcript.errors)
        await self.ws.send_str('{"context_id": "settled", "transcript": null}')
        await self.until("error", "settled")
        self.transcript.errors.pop()
        return self.transcript.errors[seen:]


@contextlib.asynccontextmanager
async def cartesia_client(
    gateway: Running, *, headers: Mapping[str, str] = KEY, query: str = "", **options: Any
) -> AsyncIterator[CartesiaClient]:
    """A connected client; its socket is closed at the end."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(gateway.url + "/tts/websocket" + query, headers=headers, **options) as ws,
    ):
        yield CartesiaClient(ws)

"""Every door that text comes in by, and one client for all of them.

A ``SocketDoor`` words what a client does in its dialect, and reads what is answered; a ``PostDoor`` does so
for HTTP. ``DoorClient`` keeps all that comes with the loop's time, so that a test in virtual time just waits
and looks. All speak 16-bit samples at 24 kHz with the voice "tone".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from gateway.native.frames import unpack
from tests.peers.gateway import Running, on_gateway
from tests.tone import RATE, ToneEngine

FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}
PATIENCE_S = 900.0
"""In virtual time: only what never comes takes as long."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """What a message of the gateway means. ``kind``: audio, end, error, refusal (the context lives) or other.

    ``words``: of an error, with the field in them.
    """

    kind: str
    context: str = ""
    audio: bytes = b""
    words: str = ""


class SocketDoor:
    """One dialect over a WebSocket. Of those without ids (``ids`` False) a context's name means nothing."""

    name = ""
    path = ""
    headers: Mapping[str, str] = {"X-API-Key": "any"}
    ids = True
    one_turn = False
    """The connection ends with its first turn."""
    ends = True
    """A turn's end is told."""
    text_field = "text"

    def hello(self) -> list[Json]:
        """What a client says first."""
        return []

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        """Speak text; ``first``: of this context."""
        raise AssertionError

    def flush(self, context: str) -> list[Json]:
        """Speak all that is held."""
        raise AssertionError

    def end(self, context: str) -> list[Json]:
        """The natural end of a turn."""
        return self.flush(context)

    def cancel(self, context: str) -> list[Json]:
        """An interruption by the listener."""
        raise AssertionError

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        """Read a message; ``memory`` is the connection's."""
        raise AssertionError


class Native(SocketDoor):
    """Our own protocol."""

    name, path = "native", "/v1/stream"

    def hello(self) -> list[Json]:
        return [{"type": "hello", "version": 1}]

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        return [{"type": "open" if first else "text", "context": context, "text": text}]

    def flush(self, context: str) -> list[Json]:
        return [{"type": "flush", "context": context}]

    def end(self, context: str) -> list[Json]:
        return [{"type": "end", "context": context}]

    def cancel(self, context: str) -> list[Json]:
        return [{"type": "cancel", "context": context}]

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        if isinstance(raw, bytes):
            frame = unpack(raw)
            return Told("audio", memory[frame.index], frame.payload)
        said = json.loads(raw)
        context = said.get("context") or ""
        match said["type"]:
            case "opened":
                memory[said["index"]] = context
            case "done" | "cancelled":
                return Told("end", context)
            case "error":
                words = f"{said.get('field')}: {said['message']}"
                assert said["code"]
                return Told("error" if said.get("terminal") else "refusal", context, words=words)
        return Told("other", context)


class Cartesia(SocketDoor):
    """``/tts/websocket``."""

    name, path = "cartesia", "/tts/websocket"
    text_field = "transcript"

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        voice = {"mode": "id", "id": "tone"}
        return [
            {"context_id": context, "model_id": "gepard-1.0", "transcript": text, "voice": voice}
            | {"output_format": FORMAT, "continue": True}
        ]

    def flush(self, context: str) -> list[Json]:
        return [{"context_id": context, "transcript": "", "continue": True, "flush": True}]

    def end(self, context: str) -> list[Json]:
        return [{"context_id": context, "transcript": "", "continue": False}]

    def cancel(self, context: str) -> list[Json]:
        return [{"context_id": context, "cancel": True}]

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        said = json.loads(raw)
        assert {"type", "context_id", "done", "status_code"} <= set(said)
        assert said["type"] in {"chunk", "timestamps", "flush_done", "done", "error"}, (
            "pipecat knows no other"
        )
        context = said["context_id"] or ""
        if said["type"] == "error":
            assert said["error"] == said["message"]
            assert {"title", "error_code", "doc_url", "request_id"} <= set(said)
            return Told("error" if said["done"] else "refusal", context, words=said["error"])
        if said["type"] == "chunk":
            return Told("audio", context, base64.b64decode(said["data"], validate=True))
        return Told("end" if said["type"] == "done" else "other", context)


class ElevenLabs(SocketDoor):
    """``multi-stream-input``."""

    name = "elevenlabs"
    path = f"/v1/text-to-speech/tone/multi-stream-input?output_format=pcm_{RATE}&inactivity_timeout=180"
    headers: Mapping[str, str] = {"xi-api-key": "any"}

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        return [{"text": text, "context_id": context}]

    def flush(self, context: str) -> list[Json]:
        return [{"context_id": context, "flush": True}]

    def end(self, context: str) -> list[Json]:
        return [*self.flush(context), {"context_id": context, "close_context": True}]

    def cancel(self, context: str) -> list[Json]:
        return [{"context_id": context, "close_context": True}] * 2  # a second one always cuts

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        said = json.loads(raw)
        context = said.get("contextId") or ""
        if "error" in said:
            assert (
                {"message", "error", "code"}
                <= set(said)
                <= {"message", "error", "code", "contextId", "isFinal"}
            )
            final = said.get("isFinal") or self.one_turn
            return Told("error" if final else "refusal", context, words=said["message"])
        assert {"audio", "isFinal", "alignment", "normalizedAlignment"} <= set(said)
        if said["isFinal"]:
            return Told("end", context)
        return Told("audio", context, base64.b64decode(said["audio"] or "", validate=True))


class ElevenLabsSingle(ElevenLabs):
    """``stream-input``: the connection is the context."""

    name = "elevenlabs-single"
    path = f"/v1/text-to-speech/tone/stream-input?output_format=pcm_{RATE}&inactivity_timeout=180"
    ids, one_turn = False, True

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        return [{"text": text}]

    def flush(self, context: str) -> list[Json]:
        return [{"text": " ", "flush": True}]

    def end(self, context: str) -> list[Json]:
        return [{"text": ""}]

    def cancel(self, context: str) -> list[Json]:
        return [{"close_socket": True}]


class Deepgram(SocketDoor):
    """``/v1/speak``."""

    name, path = "deepgram", f"/v1/speak?model=tone&encoding=linear16&sample_rate={RATE}"
    headers: Mapping[str, str] = {"Authorization": "Token any"}
    ids = False

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        return [{"type": "Speak", "text": text}]

    def flush(self, context: str) -> list[Json]:
        return [{"type": "Flush"}]

    def cancel(self, context: str) -> list[Json]:
        return [{"type": "Clear"}]

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        if isinstance(raw, bytes):
            return Told("audio", "", raw)
        said = json.loads(raw)
        match said["type"]:
            case "Flushed" | "Cleared":
                return Told("end")
            case "Warning":
                assert said["description"] == said["warn_msg"]
                assert said["code"] == said["warn_code"]
                return Told("refusal", words=said["description"])
            case "Error":
                assert said["description"] == said["err_msg"]
                return Told("error", words=said["description"])
        assert said["type"] == "Metadata"
        return Told("other")


class DeepgramV2(Deepgram):
    """``/v2/speak``, where a flush is the end of a turn."""

    name, path = "deepgram-v2", f"/v2/speak?model=tone&encoding=linear16&sample_rate={RATE}"

    def flush(self, context: str) -> list[Json]:
        return []

    def end(self, context: str) -> list[Json]:
        return [{"type": "Flush"}]

    def cancel(self, context: str) -> list[Json]:
        return [{"type": "Interrupt"}]

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        if isinstance(raw, bytes):
            return Told("audio", "", raw)
        said = json.loads(raw)
        match said["type"]:
            case "SpeechMetadata" | "SpeechInterrupted":
                return Told("end")
            case "Warning":
                assert said["code"]
                return Told("refusal", words=said["description"])
            case "Error":
                assert said["code"]
                return Told("error", words=said["description"])
        assert said["type"] in {"Connected", "SpeechStarted", "Flushed", "SessionMetadata"}
        return Told("other")


class Jambonz(SocketDoor):
    """The streaming socket, on which an end is not told."""

    name, path = "jambonz", f"/webhooks/jambonz/stream?voice=tone&sampleRate={RATE}"
    headers: Mapping[str, str] = {"Authorization": "Bearer any"}
    ids, ends = False, False

    def say(self, context: str, text: Any, *, first: bool) -> list[Json]:
        return [{"type": "stream", "text": text}]

    def flush(self, context: str) -> list[Json]:
        return [{"type": "flush"}]

    def cancel(self, context: str) -> list[Json]:
        return [{"type": "stop"}]

    def read(self, raw: str | bytes, memory: dict[int, str]) -> Told:
        if isinstance(raw, bytes):
            return Told("audio", "", raw)
        said = json.loads(raw)
        if said["type"] == "error":
            assert said["code"]
            return Told("error", words=said["error"])
        assert said["type"] == "connect"
        return Told("other")


SOCKETS: tuple[SocketDoor, ...] = (
    *(Native(), Cartesia(), ElevenLabs(), ElevenLabsSingle(), Deepgram(), DeepgramV2(), Jambonz()),
)


class DoorClient:
    """One connection; what came is kept. ``told``: with the loop's time; ``texts``: raw, the short ones."""

    def __init__(self, gateway: Running, door: SocketDoor, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.gateway, self.door, self.ws = gateway, door, ws
        self.told: list[tuple[float, Told]] = []
        self.pongs = self.longest = 0
        self.texts: list[str] = []
        self._said: set[str] = set()
        self._memory: dict[int, str] = {}

    async def read(self) -> None:
        """Keep what comes until the connection is closed."""
        async for message in self.ws:
            if message.type is aiohttp.WSMsgType.PONG:
                self.pongs += 1
            if message.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                continue
            self.longest = max(self.longest, len(message.data))
            if message.type is aiohttp.WSMsgType.TEXT and len(message.data) < 2000:
                self.texts.append(message.data)
            told = self.door.read(message.data, self._memory)
            if told.kind == "audio":
                assert len(told.audio) % 2 == 0, "a part of a sample"
            if told.kind in {"end", "error"} and self.door.ids:
                self._said.discard(told.context)
            self.told.append((asyncio.get_running_loop().time(), told))

    async def _send(self, messages: list[Json]) -> None:
        for message in messages:
            await self.ws.send_str(json.dumps(message))

    async def say(self, context: str, *texts: Any) -> None:
        """Speak texts, a message each."""
        for text in texts:
            await self._send(self.door.say(context, text, first=context not in self._said))
            self._said.add(context)

    async def flush(self, context: str) -> None:
        """Speak all that is held."""
        await self._send(self.door.flush(context))

    async def end(self, context: str) -> None:
        """The natural end of a turn."""
        await self._send(self.door.end(context))

    async def cancel(self, context: str) -> None:
        """Interrupt."""
        await self._send(self.door.cancel(context))

    def key(self, context: str) -> str:
        """What the gateway calls the context."""
        return context if self.door.ids else ""

    def of(self, context: str) -> list[Told]:
        """What was told of a context, in order."""
        return [told for _, told in self.told if told.context == self.key(context)]

    def audio(self, context: str) -> bytes:
        """All its audio."""
        return b"".join(told.audio for told in self.of(context))

    def seconds(self, context: str) -> float:
        """Seconds of it."""
        return len(self.audio(context)) / 2 / RATE

    def ends(self, context: str) -> int:
        """How often its end was told."""
        return sum(told.kind in {"end", "error"} for told in self.of(context))

    @property
    def faults(self) -> list[Told]:
        """All errors and refusals."""
        return [told for _, told in self.told if told.kind in {"error", "refusal"}]

    async def heard(self, context: str, seconds: float) -> None:
        """Wait for this much audio of the context."""
        await self._until(lambda: self.seconds(context) >= seconds)

    async def over(self, context: str, times: int = 1) -> None:
        """Wait until the end has been told so often; where none is told, until nothing is spoken."""
        if self.door.ends:
            await self._until(lambda: self.ends(context) >= times)
        else:
            await asyncio.sleep(0.05)
            await self._until(lambda: self.gateway.idle)
            await asyncio.sleep(0.05)

    async def speak(self, context: str, *texts: str) -> bytes:
        """A whole turn; its audio."""
        before, ends = len(self.audio(context)), self.ends(context)
        await self.say(context, *texts)
        await self.end(context)
        await self.over(context, ends + 1)
        return self.audio(context)[before:]

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def door_client(
    gateway: Running, door: SocketDoor, *, headers: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[DoorClient]:
    """A connected client that has said hello; its connection is closed at the end."""
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            gateway.url + door.path,
            headers=door.headers if headers is None else headers,
            max_msg_size=0,
            **options,
        ) as ws,
    ):
        client = DoorClient(gateway, door, ws)
        reader = asyncio.create_task(client.read())
        try:
            await client._send(door.hello())
            await asyncio.sleep(0.01)
            yield client
        finally:
            await ws.close()
            await reader


@dataclass(frozen=True)
class PostDoor:
    """One dialect over HTTP. ``fields``: the rest of a request; ``within``: where in it the text lies."""

    name: str
    path: str
    text_field: str
    fields: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=lambda: {"Authorization": "Bearer any"})
    within: str = ""
    error_keys: frozenset[str] = frozenset()

    def body(self, text: Any, **fields: Any) -> Json:
        """A request."""
        inner = {**self.fields, self.text_field: text, **fields}
        return {self.within: inner} if self.within else inner

    def pcm(self, data: bytes) -> bytes:
        """The samples of an answer."""
        if "sse" in self.name:
            events = [
                json.loads(line.removeprefix("data: "))
                for line in data.decode().splitlines()
                if line.startswith("data: ")
            ]
            return b"".join(base64.b64decode(e.get("audio") or e.get("data") or "") for e in events)
        if "timed" in self.name:
            return b"".join(base64.b64decode(json.loads(line)["audio_base64"]) for line in data.splitlines())
        return data

    def words(self, answer: Json) -> str:
        """What an error says, with the field in it; the shape is checked."""
        assert set(answer) >= self.error_keys, answer
        inner = answer.get("detail") or answer.get("error")
        if isinstance(inner, dict):  # ElevenLabs, OpenAI
            return f"{inner.get('param') or ''}: {inner['message']}"
        return str(answer.get("err_msg") or inner)


_EL = "/v1/text-to-speech/tone"
_SPEECH = {"model": "tts-1", "voice": "tone", "response_format": "pcm"}
_CARTESIA = {"model_id": "gepard-1.0", "voice": {"mode": "id", "id": "tone"}, "output_format": FORMAT}
_BOTH = frozenset({"error", "status_code", "title", "message", "error_code", "request_id"})
_DG = f"/v1/speak?model=tone&encoding=linear16&container=none&sample_rate={RATE}"

POSTS: tuple[PostDoor, ...] = (
    PostDoor("cartesia", "/tts/bytes", "transcript", _CARTESIA, error_keys=_BOTH),
    PostDoor("cartesia-sse", "/tts/sse", "transcript", _CARTESIA, error_keys=_BOTH),
    PostDoor(
        "elevenlabs", f"{_EL}/stream?output_format=pcm_{RATE}", "text", error_keys=frozenset({"detail"})
    ),
    PostDoor(
        "elevenlabs-timed",
        f"{_EL}/stream/with-timestamps?output_format=pcm_{RATE}",
        "text",
        error_keys=frozenset({"detail"}),
    ),
    PostDoor("openai", "/v1/audio/speech", "input", _SPEECH, error_keys=frozenset({"error"})),
    PostDoor(
        "openai-sse",
        "/v1/audio/speech",
        "input",
        {**_SPEECH, "stream_format": "sse"},
        error_keys=frozenset({"error"}),
    ),
    PostDoor("deepgram", _DG, "text", error_keys=frozenset({"err_code", "err_msg", "request_id"})),
    PostDoor("deepgram-v2", _DG.replace("v1", "v2"), "text", error_keys=frozenset({"err_code", "err_msg"})),
    PostDoor(
        "vapi",
        "/webhooks/vapi",
        "text",
        {"type": "voice-request", "sampleRate": RATE},
        within="message",
        error_keys=frozenset({"error", "code", "requestId"}),
    ),
    PostDoor(
        "jambonz",
        f"/webhooks/jambonz?format=l16&sampleRate={RATE}",
        "text",
        {"language": "en-US", "voice": "tone", "type": "text"},
        error_keys=frozenset({"error", "code"}),
    ),
)


async def post(
    gateway: Running, door: PostDoor, body: Any, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body of a request; ``body``: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            gateway.url + door.path, data=data, headers=door.headers if headers is None else headers
        ) as response,
    ):
        return response.status, await response.read()


async def spoken(gateway: Running, door: PostDoor, text: Any, **fields: Any) -> bytes:
    """The samples of a text."""
    status, data = await post(gateway, door, door.body(text, **fields))
    assert status == 200, data
    return door.pcm(data)


D = TypeVar("D", SocketDoor, PostDoor)


def on_doors(
    doors: Sequence[D], make: Callable[[], ToneEngine | None] = lambda: None, **values: Any
) -> Callable[[Callable[[Running, D], Awaitable[None]]], Callable[[Path, D], None]]:
    """A test of each of these doors, each on a gateway of its own in virtual time (see ``on_gateway``)."""

    def decorate(test: Callable[[Running, D], Awaitable[None]]) -> Callable[[Path, D], None]:
        def at_door(tmp_path: Path, door: D) -> None:
            @on_gateway(make, **values)
            async def main(gateway: Running) -> None:
                await test(gateway, door)

            main(tmp_path)

        at_door.__name__, at_door.__doc__ = test.__name__, test.__doc__
        at_door.dialects = {door.name.partition("-")[0] for door in doors}  # type: ignore[attr-defined]
        names = [door.name for door in doors]
        marked: Callable[[Path, D], None] = pytest.mark.parametrize("door", doors, ids=names)(at_door)
        return marked

    return decorate

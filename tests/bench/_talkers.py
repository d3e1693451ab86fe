"""Small clients of every dialect, for the benches: say a text, time its first audio, cut it, lose the socket.

All ask for the same samples (16-bit, 24 kHz), so that what they get can be compared with each other. They are
ours, made to cost little; that unmodified clients are served is what the tests show.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

RATE = 24000
STEP_S = 30.0
QUIET_S = 4.0
"""jambonz's clients get no word that a text was spoken: this long without audio is its end."""
KEY = "bench"
FORMAT = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": RATE}


@dataclass(slots=True)
class Said:
    """One text: its audio, seconds to the first of it (-1 for none), and how it ended.

    ``outcome``: done, cut, or refused (by ``code``).
    """

    audio: bytes = b""
    first_s: float = -1.0
    outcome: str = ""
    code: str = ""


class Refused(Exception):
    """The gateway said no, in the dialect's words."""


class Talker:
    """One client of one dialect; one text at a time."""

    name = ""
    path = ""
    """``{voice}`` in it stands for the voice."""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed

    def __init__(self, url: str, http: aiohttp.ClientSession, voice: str) -> None:
        self.url, self.http, self.voice = url, http, voice
        self.path = self.path.replace("{voice}", voice)
        self._ids = itertools.count(1)

    async def open(self) -> None:
        """Connect, where the dialect keeps a connection."""

    async def reset(self) -> None:
        """Lose the connection without a word."""

    async def close(self) -> None:
        """Leave."""

    async def say(self, text: str, cut_s: float | None = None) -> Said:
        """Speak a text; ``cut_s`` seconds after its first audio interrupt it."""
        said = Said()
        began = time.perf_counter()
        cut_at = float("inf")
        try:
            async with asyncio.timeout(STEP_S):
                chunks = self._chunks(text)
                try:
                    async for chunk in chunks:
                        now = time.perf_counter()
                        if said.first_s < 0:
                            said.first_s = now - began
                            cut_at = now + cut_s if cut_s is not None else cut_at
                        said.audio += chunk
                        if now >= cut_at:
                            said.outcome = "cut"
                            break
                finally:
                    await chunks.aclose()  # type: ignore[attr-defined]
                if said.outcome == "cut":
                    await self._cut()
                else:
                    said.outcome = "done"
        except Refused as error:
            said.outcome, said.code = "refused", str(error)
        return said

    def _chunks(self, text: str) -> AsyncIterator[bytes]:
        raise AssertionError

    async def _cut(self) -> None:
        """Interrupt, and see that no audio follows."""


class Http(Talker):
    """A text is a request; dropping it interrupts."""

    streamed = False

    def body(self, text: str) -> dict[str, Any]:
        """The request's body."""
        raise AssertionError

    async def _chunks(self, text: str) -> AsyncIterator[bytes]:
        async with self.http.post(
            self.url + self.path, json=self.body(text), headers=self.headers
        ) as response:
            if response.status != 200:
                raise Refused(str(response.status))
            if not self.streamed:
                async for chunk in response.content.iter_any():
                    yield chunk
                return
            async for line in response.content:  # of events, or of objects
                if line.startswith((b"data: ", b"{")):
                    event = json.loads(line.removeprefix(b"data: "))
                    if data := event.get("audio") or event.get("data") or event.get("audio_base64"):
                        yield base64.b64decode(data)


class OpenAi(Http):
    """Audio as the body."""

    name, path = "openai", "/v1/audio/speech"
    headers = {"Authorization": f"Bearer {KEY}"}  # noqa: RUF012

    def body(self, text: str) -> dict[str, Any]:
        return {"model": "tts-1", "voice": self.voice, "input": text, "response_format": "pcm"}


class OpenAiEvents(OpenAi):
    """Server-sent events."""

    name, streamed = "openai sse", True

    def body(self, text: str) -> dict[str, Any]:
        return super().body(text) | {"stream_format": "sse"}


class CartesiaBytes(Http):
    """``/tts/bytes``."""

    name, path = "cartesia bytes", "/tts/bytes"
    headers = {"X-API-Key": KEY}  # noqa: RUF012

    def body(self, text: str) -> dict[str, Any]:
        voice = {"mode": "id", "id": self.voice}
        return {"model_id": "m", "transcript": text, "voice": voice, "output_format": FORMAT}


class CartesiaSse(CartesiaBytes):
    """``/tts/sse``."""

    name, path, streamed = "cartesia sse", "/tts/sse", True


class Vapi(Http):
    """Vapi's webhook."""

    name, path = "vapi", "/webhooks/vapi"
    headers = {"x-vapi-secret": KEY}  # noqa: RUF012

    def body(self, text: str) -> dict[str, Any]:
        return {"message": {"type": "voice-request", "text": text, "sampleRate": RATE, "voiceId": self.voice}}


class ElevenHttp(Http):
    """ElevenLabs' ``/stream``."""

    name = "elevenlabs http"
    headers = {"xi-api-key": KEY}  # noqa: RUF012

    path = f"/v1/text-to-speech/{{voice}}/stream?output_format=pcm_{RATE}"

    def body(self, text: str) -> dict[str, Any]:
        return {"text": text, "model_id": "m"}


class ElevenTimed(ElevenHttp):
    """The same with times of characters: lines of JSON."""

    name, streamed = "elevenlabs timed", True

    path = ElevenHttp.path.replace("/stream?", "/stream/with-timestamps?")


class DeepgramHttp(Http):
    """``POST /v1/speak``."""

    name = "deepgram http"
    headers = {"Authorization": f"Token {KEY}"}  # noqa: RUF012

    path = f"/v1/speak?model={{voice}}&encoding=linear16&container=none&sample_rate={RATE}"

    def body(self, text: str) -> dict[str, Any]:
        return {"text": text}


class JambonzHttp(Http):
    """jambonz's webhook for a text."""

    name, path = "jambonz http", f"/webhooks/jambonz?format=l16&sampleRate={RATE}"
    headers = {"Authorization": f"Bearer {KEY}"}  # noqa: RUF012

    def body(self, text: str) -> dict[str, Any]:
        return {"language": "en-US", "voice": self.voice, "type": "text", "text": text}


class Socket(Talker):
    """A text is a turn on a connection that stays.

    With ``pinged`` a ping goes behind each text, so that its answer has to come while there is most to do; a
    text is not over before it has come. ``pong_s``: the slowest answer so far; ``silent``: pings of whole
    texts that got none.
    """

    pinged = False
    ws: aiohttp.ClientWebSocketResponse | None = None
    context = ""
    pong_s = 0.0
    pongs = silent = 0

    def __init__(self, url: str, http: aiohttp.ClientSession, voice: str) -> None:
        super().__init__(url, http, voice)
        self._pings: dict[bytes, float] = {}

    def address(self) -> str:
        """Where to connect."""
        return self.url.replace("http", "ws", 1) + self.path

    async def open(self) -> None:
        self.ws = await self.http.ws_connect(
            self.address(), headers=self.headers, max_msg_size=0, autoping=False
        )

    async def reset(self) -> None:
        assert self.ws is not None
        transport = self.ws.get_extra_info("socket")
        assert transport is not None
        self.ws._response.close()  # no close frame: as a network that fails
        self.ws = None

    async def close(self) -> None:
        if self.ws is not None:
            await self.ws.close()

    async def send(self, message: dict[str, Any]) -> None:
        assert self.ws is not None
        await self.ws.send_str(json.dumps(message))

    async def receive(self) -> tuple[str, Any]:
        """("audio", bytes), ("json", object) or ("closed", None)."""
        assert self.ws is not None
        while (message := await self.ws.receive()).type in {aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG}:
            if message.type is aiohttp.WSMsgType.PING:
                await self.ws.pong(message.data)
            else:
                self._pong(bytes(message.data))
        if message.type is aiohttp.WSMsgType.BINARY:
            return "audio", message.data
        if message.type is aiohttp.WSMsgType.TEXT:
            return "json", json.loads(message.data)
        return "closed", None

    def messages(self, text: str) -> list[dict[str, Any]]:
        """What is sent to have ``text`` spoken under ``self.context``."""
        raise AssertionError

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        """Audio of a message, and whether the text is over. Raises Refused."""
        raise AssertionError

    def cancel(self) -> dict[str, Any]:
        """What is sent to interrupt."""
        raise AssertionError

    async def _chunks(self, text: str) -> AsyncIterator[bytes]:
        if self.ws is None or self.ws.closed:
            await self.open()
        self.context = f"c{next(self._ids)}"
        for message in self.messages(text):
            await self.send(message)
        self._pings.clear()  # those of a text that was cut are not waited for
        if self.pinged:
            mark = str(next(self._ids)).encode()
            self._pings[mark] = time.perf_counter()
            await self.ws.ping(mark)  # type: ignore[union-attr]
        over = False
        while not over:
            kind, data = await self.receive()
            if kind == "closed":
                raise Refused("closed")
            audio, over = self.read(kind, data)
            if audio:
                yield audio
        while self._pings:
            late = await self.ws.receive()  # type: ignore[union-attr]
            if late.type is aiohttp.WSMsgType.PONG:
                self._pong(bytes(late.data))
            elif late.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                self._pings.clear()
                self.silent += 1

    def _pong(self, mark: bytes) -> None:
        if (sent := self._pings.pop(mark, None)) is not None:
            self.pong_s, self.pongs = max(self.pong_s, time.perf_counter() - sent), self.pongs + 1

    async def _cut(self) -> None:
        await self.send(self.cancel())
        over = False
        while not over:
            kind, data = await self.receive()
            assert kind != "closed", "the connection was lost with the interruption"
            _, over = self.read(kind, data)


class Native(Socket):
    """The native protocol: binary frames."""

    name, path = "native", f"/v1/stream?api_key={KEY}"
    binary = True

    async def open(self) -> None:
        await super().open()
        await self.send({"type": "hello", "version": 1})
        await self.receive()

    def messages(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "open", "context": self.context, "voice": self.voice, "text": text, "end": True}]

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if kind == "audio":
            return data[20:], False
        if data["type"] == "error":
            raise Refused(str(data.get("code")))
        return b"", data["type"] in {"done", "cancelled"} and data["context"] == self.context

    def cancel(self) -> dict[str, Any]:
        return {"type": "cancel", "context": self.context}


class Cartesia(Socket):
    """Cartesia's socket."""

    name, path = "cartesia", "/tts/websocket"
    headers = {"X-API-Key": KEY}  # noqa: RUF012

    def messages(self, text: str) -> list[dict[str, Any]]:
        voice = {"mode": "id", "id": self.voice}
        return [
            {
                "context_id": self.context, "model_id": "m", "transcript": text, "voice": voice,
                "output_format": FORMAT, "continue": False, "add_timestamps": True,
            }
        ]  # fmt: skip

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if data["type"] == "error":
            raise Refused(str(data["error_code"]))
        if data["type"] == "chunk":
            return base64.b64decode(data["data"]), False
        return b"", data["type"] == "done" and data["context_id"] == self.context

    def cancel(self) -> dict[str, Any]:
        return {"context_id": self.context, "cancel": True}


class ElevenMulti(Socket):
    """ElevenLabs' socket with contexts."""

    name = "elevenlabs multi"
    headers = {"xi-api-key": KEY}  # noqa: RUF012

    path = f"/v1/text-to-speech/{{voice}}/multi-stream-input?output_format=pcm_{RATE}&auto_mode=true"

    def messages(self, text: str) -> list[dict[str, Any]]:
        ident = {"context_id": self.context}
        return [
            {"text": " ", **ident},
            {"text": text, **ident},
            {"flush": True, **ident},
            {"close_context": True, **ident},
        ]

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if data.get("error"):
            raise Refused(str(data["error"]))
        audio = data.get("audio")
        return base64.b64decode(audio) if audio else b"", bool(data.get("isFinal"))

    def cancel(self) -> dict[str, Any]:
        return {"context_id": self.context, "close_context": True}


class ElevenSingle(Socket):
    """ElevenLabs' socket of one text: it ends with it."""

    name = "elevenlabs single"
    headers = {"xi-api-key": KEY}  # noqa: RUF012

    path = f"/v1/text-to-speech/{{voice}}/stream-input?output_format=pcm_{RATE}"

    async def open(self) -> None:
        """Nothing before there is a text: a connection that waits is closed."""

    def messages(self, text: str) -> list[dict[str, Any]]:
        return [{"text": " "}, {"text": text}, {"text": ""}]

    async def _chunks(self, text: str) -> AsyncIterator[bytes]:
        await Socket.open(self)
        async for chunk in super()._chunks(text):
            yield chunk

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if data.get("error"):
            raise Refused(str(data["error"]))
        audio = data.get("audio")
        return base64.b64decode(audio) if audio else b"", bool(data.get("isFinal"))

    async def reset(self) -> None:
        if self.ws is not None:
            await super().reset()

    async def _cut(self) -> None:
        assert self.ws is not None
        await self.ws.close()


class Deepgram(Socket):
    """Deepgram's socket: binary audio without ids."""

    name = "deepgram"
    headers = {"Authorization": f"Token {KEY}"}  # noqa: RUF012

    path = f"/v1/speak?model={{voice}}&encoding=linear16&sample_rate={RATE}"

    async def open(self) -> None:
        await super().open()
        await self.receive()

    def messages(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "Speak", "text": text}, {"type": "Flush"}]

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if kind == "audio":
            return data, False
        if data["type"] in {"Error", "Warning"}:
            raise Refused(str(data["code"]))
        return b"", data["type"] in {"Flushed", "Cleared"}

    def cancel(self) -> dict[str, Any]:
        return {"type": "Clear"}


class DeepgramV2(Deepgram):
    """The socket of turns, where a flush is the end of one."""

    name = "deepgram v2"

    path = Deepgram.path.replace("v1", "v2")

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if kind == "json" and data["type"] == "Flushed":  # that the text is taken, not that it is spoken
            return b"", False
        if kind == "json" and data["type"] in {"SpeechMetadata", "SpeechInterrupted"}:
            return b"", True
        return super().read(kind, data)

    def cancel(self) -> dict[str, Any]:
        return {"type": "Interrupt"}


class Jambonz(Socket):
    """jambonz's socket: binary audio, and no word at the end."""

    name = "jambonz"
    headers = {"Authorization": f"Bearer {KEY}"}  # noqa: RUF012

    path = f"/webhooks/jambonz/stream?voice={{voice}}&sampleRate={RATE}"

    async def open(self) -> None:
        await super().open()
        await self.receive()

    def messages(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "stream", "text": text}, {"type": "flush"}]

    def read(self, kind: str, data: Any) -> tuple[bytes, bool]:
        if kind == "audio":
            return data, False
        raise Refused(str(data.get("code")))

    async def _chunks(self, text: str) -> AsyncIterator[bytes]:
        spoken = False
        chunks = super()._chunks(text)
        while True:
            try:
                async with asyncio.timeout(QUIET_S if spoken else STEP_S):
                    chunk = await anext(chunks)
            except TimeoutError:
                if not spoken:
                    raise
                return
            spoken = True
            yield chunk

    async def _cut(self) -> None:
        await self.send({"type": "stop"})
        with suppress(TimeoutError):  # what was on its way when we said so
            async with asyncio.timeout(0.2):
                while True:
                    await self.receive()


class Wyoming(Talker):
    """Home Assistant's protocol over TCP: JSON lines with a payload behind; a connection for each text."""

    name = "wyoming"
    address = ("", 0)
    """Set by the bench that has started a gateway with it."""

    async def _chunks(self, text: str) -> AsyncIterator[bytes]:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            asked = {"type": "synthesize", "data": {"text": text, "voice": {"name": self.voice}}}
            writer.write(json.dumps(asked).encode() + b"\n")
            while line := await reader.readline():
                event = json.loads(line)
                data = await reader.readexactly(event.get("data_length") or 0)
                payload = await reader.readexactly(event.get("payload_length") or 0)
                if event["type"] == "error":
                    told = event.get("data") or json.loads(data)
                    raise Refused(str(told.get("code")))
                if event["type"] == "audio-chunk":
                    yield payload
                if event["type"] == "audio-stop":
                    return
            raise Refused("closed")
        finally:
            writer.transport.abort()


TALKERS: tuple[type[Talker], ...] = (
    Native, Deepgram, DeepgramV2, Jambonz, Cartesia, ElevenMulti, ElevenSingle, OpenAi, OpenAiEvents,
    CartesiaBytes, CartesiaSse, ElevenHttp, ElevenTimed, DeepgramHttp, Vapi, JambonzHttp, Wyoming,
)  # fmt: skip
BASE64 = frozenset(
    {"cartesia", "elevenlabs multi", "elevenlabs single", "elevenlabs timed", "openai sse", "cartesia sse"}
)
"""Dialects that put audio into JSON."""

__all__ = ["BASE64", "KEY", "RATE", "TALKERS", "Refused", "Said", "Socket", "Talker"]

"""jambonz's custom speech in virtual time: its HTTP answer and the socket on which we speak first."""

from __future__ import annotations

import asyncio
import io
import json
import random
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import av
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.gateway import Running, Start, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

KEY = {"Authorization": "Bearer any"}
PATH = "/webhooks/jambonz"


async def post(gateway: Running, asked: Any, query: str = "") -> tuple[int, str, bytes]:
    data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + PATH + query, data=data) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.read()


def body(**fields: Any) -> dict[str, Any]:
    return {"language": "en-US", "voice": "tone", "type": "text", "text": "One two three."} | fields


@on_gateway()
async def test_http_names_its_media_type(gateway: Running) -> None:
    _, kind, raw = await post(gateway, body(), "?format=l16")
    assert kind == "audio/l16;rate=8000"
    assert 0.6 <= len(raw) / 16000 <= 0.8
    _, kind, data = await post(gateway, body(), "?format=wav&sampleRate=8000")
    assert kind == "audio/wav"
    assert data.endswith(raw)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == 8000


async def test_an_answer_that_is_left_open_is_mp3(start_gateway: Start) -> None:
    gateway = await start_gateway()
    _, kind, data = await post(gateway, body())
    assert kind == "audio/mpeg"
    with av.open(io.BytesIO(data), "r") as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
    assert 0.6 <= samples / 24000 <= 0.9


@on_gateway()
async def test_ssml_is_read_and_its_tags_are_not_spoken(gateway: Running) -> None:
    await post(
        gateway, body(type="ssml", text="<speak>One &amp; <emphasis>two</emphasis>.</speak>"), "?format=wav"
    )
    spoken = " ".join(request.text for request in gateway.engine.requests)
    assert "emphasis" not in spoken
    assert "speak" not in spoken
    assert "and" in spoken


@pytest.mark.parametrize(
    ("asked", "query", "status", "word"),
    [
        (b"{", "", 400, "JSON"),
        (body(text=""), "", 400, "text"),
        (body(text=None), "", 400, "text"),
        (body(type="html"), "", 400, "type"),
        (body(voice="nobody"), "", 404, "voice"),
        (body(language="de-DE"), "", 400, "language"),
        (body(), "?format=ogg", 400, "format"),
        (body(), "?sampleRate=7", 400, "sampleRate"),
        (body(text="x" * 250_000), "", 413, ""),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, asked: Any, query: str, status: int, word: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        got, kind, data = await post(gateway, asked, query)
        assert (got, kind.partition(";")[0]) == (status, "application/json")
        assert word in json.loads(data)["error"]
        assert gateway.idle

    main(tmp_path)


class Client:
    """One socket: audio, and what else came."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.audio = b""
        self.told: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.ws.send_str(json.dumps({"type": kind, **fields}))

    async def next(self, wait: float = 60.0) -> str:
        """ "audio", the type of a message, "close", or "" for nothing within ``wait`` seconds."""
        try:
            async with asyncio.timeout(wait):
                message = await self.ws.receive()
        except TimeoutError:
            return ""
        if message.type is aiohttp.WSMsgType.BINARY:
            assert len(message.data) % 2 == 0
            self.audio += message.data
            return "audio"
        if message.type is not aiohttp.WSMsgType.TEXT:
            return "close"
        self.told.append(json.loads(message.data))
        return str(self.told[-1]["type"])

    async def quiet(self) -> None:
        """Read until nothing has come for a while."""
        while await self.next(5.0):
            pass


@asynccontextmanager
async def client(
    gateway: Running, query: str = "?voice=tone&language=en&sampleRate=8000"
) -> AsyncIterator[Client]:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.ws_connect(gateway.url + PATH + "/stream" + query, max_msg_size=0) as ws,
    ):
        made = Client(ws)
        assert await made.next() == "connect"
        yield made


@on_gateway()
async def test_we_speak_first_and_audio_is_binary(gateway: Running) -> None:
    async with client(gateway) as it:
        assert it.told == [{"type": "connect", "data": {"sample_rate": 8000, "base64_encoding": False}}]
        await it.send("stream", text="One two ")
        await it.send("stream", text="three.")
        await it.send("flush")
        await it.quiet()
        assert 0.6 <= len(it.audio) / 16000 <= 0.9
        assert len(it.told) == 1
    assert gateway.idle


@on_gateway()
async def test_stop_is_silence_at_once_and_the_next_text_is_spoken_r1(gateway: Running) -> None:
    async with client(gateway) as it:
        await it.send("stream", text="word " * 300)
        await it.send("flush")
        assert await it.next() == "audio"
        await it.send("stop")
        await it.quiet()
        cut = len(it.audio)
        assert cut / 16000 < 5
        await it.send("stream", text="Two.")
        await it.send("flush")
        await it.quiet()
        assert 0.15 <= (len(it.audio) - cut) / 16000 <= 0.5
    assert gateway.idle


@on_gateway()
async def test_doors(gateway: Running) -> None:
    async with aiohttp.ClientSession() as http:
        for headers, query, status in (
            ({}, "", 401),
            (KEY, "?voice=nobody", 404),
            (KEY, "?language=de", 400),
            (KEY, "?sampleRate=1", 400),
        ):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(gateway.url + PATH + "/stream" + query, headers=headers)
            assert refused.value.status == status


@on_gateway()
async def test_errors_are_told_and_the_socket_lives(gateway: Running) -> None:
    async with client(gateway) as it:
        for raw in ("", "{", "[]", '{"type":"x"}', '{"type":"stream"}', "[" * 50_000):
            await it.ws.send_str(raw)
            assert await it.next() == "error"
            assert it.told[-1]["error"]
        await it.ws.send_bytes(b"\0")
        assert await it.next() == "error"
        gateway.engine.fail = EngineCrashed("the voice failed")
        await it.send("stream", text="One.")
        await it.send("flush")
        assert await it.next() == "error"
        assert it.told[-1]["code"] == "engine_crashed"
        gateway.engine.fail = None
        await it.send("stream", text="One.")
        await it.send("flush")
        assert await it.next() == "audio"
        await it.quiet()
    assert gateway.idle


@on_gateway(lambda: ToneEngine(slots=1), max_contexts=1)
async def test_no_room_is_told_at_once(gateway: Running) -> None:
    async with client(gateway) as first, client(gateway) as second:
        await first.send("stream", text="word " * 300)
        assert await first.next() == "audio"
        await second.send("stream", text="One.")
        assert await second.next() == "error"
        assert second.told[-1]["code"] == "busy"


@on_gateway()
async def test_a_drain_closes_with_1012_r28(gateway: Running) -> None:
    async with client(gateway) as it:
        await it.send("stream", text="One two three.")
        await it.send("flush")
        assert await it.next() == "audio"
        gateway.services.draining.set()
        while await it.next() != "close":
            pass
        assert it.ws.close_code == 1012
        assert len(it.audio) / 16000 >= 0.6


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_any_order_of_messages_leaks_nothing(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        draw = random.Random(seed)
        async with client(gateway) as it:
            for _ in range(draw.randint(1, 25)):
                kind = draw.choice(["stream", "stream", "flush", "stop", "bad", "wait"])
                if kind == "stream":
                    await it.send("stream", text=draw.choice(["One two. ", "three", "...", "", " ", "<x>y"]))
                elif kind == "bad":
                    await it.ws.send_str(
                        draw.choice(["{", "[]", '{"type":7}', '{"type":"stream","text":[]}'])
                    )
                elif kind == "wait":
                    await asyncio.sleep(draw.choice([0, 0.05, 2, 40]))
                else:
                    await it.send(kind)
            await it.send("stop")
            await it.quiet()
            before = len(it.audio)
            await it.send("stream", text="One.")
            await it.send("flush")
            await it.quiet()
            assert len(it.audio) > before
        assert gateway.idle

    main(tmp_path_factory.mktemp("jambonz"))

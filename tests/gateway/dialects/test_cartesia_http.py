"""The Cartesia dialect over HTTP: audio as a body, as server-sent events, and the voices."""

from __future__ import annotations

import asyncio
import io
import json
import wave
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
import pytest

from tests import virtual
from tests.peers.cartesia import KEY, RAW, VOICE, Transcript
from tests.peers.gateway import Running, Start, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

WORD_S = 0.2
TEXT = "One two three. Four five."


def body(**fields: Any) -> dict[str, Any]:
    return {"model_id": "gepard-1.0", "transcript": TEXT, "voice": VOICE, "output_format": RAW} | fields


@pytest.mark.parametrize(
    ("encoding", "width"), [("pcm_s16le", 2), ("pcm_f32le", 4), ("pcm_mulaw", 1), ("pcm_alaw", 1)]
)
def test_raw_bytes_are_the_audio_and_nothing_else_r17_r31(tmp_path: Path, encoding: str, width: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        fmt = {"container": "raw", "encoding": encoding, "sample_rate": 8000}
        async with (
            aiohttp.ClientSession(headers=KEY) as http,
            http.post(gateway.url + "/tts/bytes", json=body(output_format=fmt)) as response,
        ):
            assert response.status == 200
            assert response.content_type == "application/octet-stream"
            data = await response.read()
        assert len(data) % width == 0
        assert 5 * WORD_S <= len(data) / width / 8000 <= 5 * WORD_S + 0.5
        assert b"RIFF" not in data
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_line_of_a_long_stream_is_short_enough_for_readers_of_lines(gateway: Running) -> None:
    fmt = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 48000}
    text = "Here are ten words of a long answer to you. " * 12
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + "/tts/sse", json=body(transcript=text, output_format=fmt)) as response,
    ):
        assert response.status == 200
        longest = max(len(line) for line in (await response.read()).splitlines())
    assert 32 * 1024 < longest < 64 * 1024


@on_gateway()
async def test_wav_has_one_header_and_no_chunk_behind_r31(gateway: Running) -> None:
    fmt = {"container": "wav", "encoding": "pcm_s16le", "sample_rate": 22050}
    async with aiohttp.ClientSession(headers=KEY) as http:
        async with http.post(gateway.url + "/tts/bytes", json=body(output_format=fmt)) as response:
            assert response.content_type == "audio/wav"
            data = await response.read()
        raw_format = {**fmt, "container": "raw"}
        async with http.post(gateway.url + "/tts/bytes", json=body(output_format=raw_format)) as response:
            raw = await response.read()
    assert data.count(b"RIFF") == 1
    assert data.endswith(raw)
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (22050, 2, 1)
        samples = np.frombuffer(file.readframes(len(raw) // 2), np.int16)
    assert samples.tobytes() == raw
    # The encoding may be left out of a wav.
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(
            gateway.url + "/tts/bytes",
            json=body(output_format={"container": "wav", "sample_rate": 22050}),
        ) as response,
    ):
        assert await response.read() == data


@on_gateway()
async def test_a_download_comes_as_fast_as_it_is_read(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        began = virtual.clock()
        async with http.post(gateway.url + "/tts/bytes", json=body(transcript="Word. " * 200)) as response:
            data = await response.read()
        assert len(data) / 48000 > 40
        assert virtual.clock() - began < 5


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"transcript": None}, 400, "transcript"),
        ({"transcript": ""}, 400, "transcript"),
        ({"voice": None}, 400, "voice"),
        ({"voice": "nobody"}, 404, "voice"),
        ({"output_format": None}, 400, "output_format"),
        ({"output_format": RAW | {"sample_rate": 44000}}, 400, "output_format.sample_rate"),
        ({"output_format": RAW | {"container": "ogg"}}, 400, "output_format.container"),
        ({"transcript": "x" * 99_999}, 413, "transcript"),
    ],
)
@pytest.mark.parametrize("path", ["/tts/bytes", "/tts/sse"])
def test_errors_come_before_the_first_byte_in_both_shapes(
    tmp_path: Path, path: str, fields: dict[str, Any], status: int, field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with (
            aiohttp.ClientSession(headers=KEY) as http,
            http.post(gateway.url + path, json=body(**fields)) as response,
        ):
            assert response.status == status
            error = await response.json()
        assert error["error"] == error["message"]
        assert field in error["error"]
        assert error["status_code"] == status
        assert error["title"]
        assert error["request_id"]
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_body_that_is_no_json_is_400(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        for data in (b"", b"{", b"\xff\xfe", b"[" * 100_000):
            async with http.post(gateway.url + "/tts/bytes", data=data) as response:
                assert response.status == 400
                assert (await response.json())["error_code"] == "bad_request"


@on_gateway()
async def test_unspeakable_text_is_a_short_silence_r16(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + "/tts/bytes", json=body(transcript="...")) as response,
    ):
        data = await response.read()
    assert 0.02 <= len(data) / 48000 <= 0.06
    assert set(data) == {0}


@on_gateway()
async def test_server_sent_events_are_those_of_the_socket_r29(gateway: Running) -> None:
    asked = body(context_id="mine", add_timestamps=True)
    transcript = Transcript()
    transcript.sent({**asked, "continue": False})
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + "/tts/sse", json=asked) as response,
    ):
        assert response.content_type == "text/event-stream"
        text = (await response.read()).decode()
    for block in text.removesuffix("\n\n").split("\n\n"):
        first, second = block.split("\n")
        message = transcript.take(second.removeprefix("data: "), 0.0)
        assert first == f"event: {message['type']}"
        assert message["context_id"] == "mine"
    turn = transcript.turns["mine"]
    assert turn.end is not None
    assert turn.text == TEXT


@on_gateway()
async def test_an_engine_that_fails_midway_is_not_taken_for_the_end(gateway: Running) -> None:
    gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
    async with aiohttp.ClientSession(headers=KEY) as http:
        with pytest.raises(aiohttp.ClientError):
            async with http.post(gateway.url + "/tts/bytes", json=body()) as response:
                await response.read()
        async with http.post(gateway.url + "/tts/sse", json=body()) as response:
            events = (await response.read()).decode()
        last = events.removesuffix("\n\n").split("\n\n")[-1]
        assert last.startswith("event: error\n")
        error = json.loads(last.split("data: ")[1])
        assert (error["status_code"], error["error_code"]) == (502, "engine_crashed")
    assert gateway.idle


def failing() -> ToneEngine:
    engine = ToneEngine()
    engine.fail = EngineCrashed("the voice failed")
    return engine


@on_gateway(failing)
async def test_an_engine_that_fails_at_once_is_502(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        for path in ("/tts/bytes", "/tts/sse"):
            async with http.post(gateway.url + path, json=body()) as response:
                assert response.status == 502
                assert (await response.json())["error_code"] == "engine_crashed"


@on_gateway()
async def test_dropping_a_download_frees_everything(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        for path in ("/tts/bytes", "/tts/sse"):
            async with http.post(gateway.url + path, json=body(transcript="Word. " * 4000)) as response:
                await response.content.readexactly(10_000)
                response.close()
    await asyncio.sleep(1)
    assert gateway.idle


@on_gateway()
async def test_a_download_that_nobody_reads_is_cut(gateway: Running) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port, limit=1)
    data = json.dumps(body(transcript="Word. " * 8000, output_format=RAW | {"sample_rate": 48000})).encode()
    head = f"POST /tts/bytes HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: any\r\nContent-Length: {len(data)}"
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(f"{head}\r\n\r\n".encode() + data)
    await asyncio.sleep(5)
    assert gateway.services.in_flight.count == 1
    await asyncio.sleep(60)
    assert gateway.idle
    writer.transport.abort()


async def test_an_mp3_over_http(start_gateway: Start) -> None:
    gateway = await start_gateway()
    fmt = {"container": "mp3", "sample_rate": 44100, "bit_rate": 64000}
    async with aiohttp.ClientSession(headers=KEY) as http:
        async with http.post(gateway.url + "/tts/bytes", json=body(output_format=fmt)) as response:
            assert response.content_type == "audio/mpeg"
            data = await response.read()
        async with http.post(gateway.url + "/tts/sse", json=body(output_format=fmt)) as response:
            assert response.status == 400  # events are raw at the vendor, too
    with av.open(io.BytesIO(data), "r") as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
        assert file.streams.audio[0].codec_context.sample_rate == 44100
    assert 5 * WORD_S <= samples / 44100 <= 5 * WORD_S + 0.6

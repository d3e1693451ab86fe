"""The OpenAI dialect over HTTP: bodies, server-sent events, voices and errors."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import wave
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_wire import VOICES
from tests import virtual
from tests.peers.gateway import Running, Start, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

KEY = {"Authorization": "Bearer any"}
TEXT = "One two three. Four five."
LEAST_S, MOST_S = 1.0, 1.5
"""Five words of 0.2 s, and the gap between the sentences."""


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "tts-1", "input": TEXT, "voice": "tone", "response_format": "pcm"} | fields


async def post(
    gateway: Running, asked: dict[str, Any] | bytes, headers: dict[str, str] | None = None
) -> tuple[int, str, bytes]:
    data = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
    async with (
        aiohttp.ClientSession(headers=KEY if headers is None else headers) as http,
        http.post(gateway.url + "/v1/audio/speech", data=data) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.read()


def events(data: bytes) -> list[dict[str, Any]]:
    blocks = data.decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


@on_gateway()
async def test_pcm_is_24_khz_without_a_header(gateway: Running) -> None:
    status, kind, data = await post(gateway, body())
    assert (status, kind) == (200, "audio/pcm")
    assert len(data) % 2 == 0
    assert LEAST_S <= len(data) / 48000 <= MOST_S
    assert gateway.idle


@on_gateway()
async def test_wav_has_one_header_r31(gateway: Running) -> None:
    _, _, raw = await post(gateway, body())
    _, kind, data = await post(gateway, body(response_format="wav"))
    assert kind == "audio/wav"
    assert data.count(b"RIFF") == 1
    assert data.endswith(raw)
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
        (None, "audio/mpeg"),
    ],
)
async def test_compressed_formats_hold_the_same_speech(
    start_gateway: Start, asked: str | None, kind: str
) -> None:
    gateway = await start_gateway()
    fields = body(response_format=asked)
    if asked is None:
        del fields["response_format"]
    status, got, data = await post(gateway, fields)
    assert (status, got) == (200, kind)
    with av.open(io.BytesIO(data), "r") as file:
        frames = [frame.to_ndarray().ravel() for frame in file.decode(audio=0)]
        rate = file.streams.audio[0].codec_context.sample_rate
    sound = np.concatenate(frames)
    assert LEAST_S <= len(sound) / rate <= MOST_S + 0.1
    assert np.abs(sound[: len(sound) // 2]).max() > 0
    # The same, as events.
    status, got, streamed = await post(gateway, fields | {"stream_format": "sse"})
    assert got == "text/event-stream"
    told = events(streamed)
    assert b"".join(base64.b64decode(e["audio"]) for e in told[:-1])[:400] == data[:400] or asked == "opus"
    assert told[-1]["type"] == "speech.audio.done"


@on_gateway()
async def test_sse_is_honoured_with_its_content_type_r29(gateway: Running) -> None:
    _, _, raw = await post(gateway, body())
    status, kind, data = await post(gateway, body(stream_format="sse"))
    assert (status, kind) == (200, "text/event-stream")
    told = events(data)
    assert [e["type"] for e in told] == ["speech.audio.delta"] * (len(told) - 1) + ["speech.audio.done"]
    pieces = [base64.b64decode(e["audio"]) for e in told[:-1]]
    assert b"".join(pieces) == raw
    assert all(len(piece) % 2 == 0 for piece in pieces)  # R17
    usage = told[-1]["usage"]
    assert usage["input_tokens"] == len(TEXT)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


@on_gateway()
async def test_speed_and_instructions_are_taken(gateway: Running) -> None:
    await post(gateway, body(speed=1.5, instructions="Speak like a pirate."))
    assert [request.speed for request in gateway.engine.requests][:1] == [1.5]
    assert not any("pirate" in request.text for request in gateway.engine.requests)


@on_gateway()
async def test_every_voice_of_the_vendor_speaks_with_one_of_ours(gateway: Running) -> None:
    kinds = {v.id: v.gender for v in gateway.engine.info.voices}
    for name, gender in VOICES.items():
        status, _, _ = await post(gateway, body(voice=name))
        assert status == 200
        assert kinds[gateway.engine.requests[-1].voice] == gender
    status, _, _ = await post(gateway, body(voice={"id": "other"}))
    assert (status, gateway.engine.requests[-1].voice) == (200, "other")


@on_gateway(voice_aliases={"alloy": "other"})
async def test_the_operators_aliases_come_first(gateway: Running) -> None:
    await post(gateway, body(voice="alloy"))
    assert gateway.engine.requests[-1].voice == "other"


@on_gateway()
async def test_voices_are_listed_with_the_vendors_names(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.get(gateway.url + "/v1/audio/voices") as response,
    ):
        listed = (await response.json())["voices"]
    assert [v["id"] for v in listed] == ["tone", "other", *VOICES]
    assert all(v["name"] for v in listed)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": None}, 400, "input"),
        ({"input": ""}, 400, "input"),
        ({"input": 7}, 400, "input"),
        ({"voice": "nobody"}, 404, "voice"),
        ({"voice": 7}, 400, "voice"),
        ({"speed": 9}, 400, "speed"),
        ({"response_format": "ogg"}, 400, "response_format"),
        ({"stream_format": "ws"}, 400, "stream_format"),
        ({"input": "x" * 250_000}, 413, None),
        ({"input": "x" * 50_001}, 413, "input"),
    ],
)
@pytest.mark.parametrize("stream", [None, "sse"])
def test_errors_come_before_the_first_byte_in_the_vendors_shape(
    tmp_path: Path, fields: dict[str, Any], status: int, param: str | None, stream: str | None
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        got, kind, data = await post(gateway, body(stream_format=stream) | fields)
        error = json.loads(data)["error"]
        assert (got, kind.partition(";")[0]) == (status, "application/json")
        assert set(error) == {"message", "type", "param", "code"}
        assert param is None or error["param"] == param
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_wrong_key_is_401_before_the_body_is_read_r12(gateway: Running) -> None:
    status, _, data = await post(gateway, b"{", {})
    error = json.loads(data)["error"]
    assert (status, error["code"]) == (401, "invalid_api_key")


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(["input", "voice", "speed", "response_format", "stream_format", "model", "x"]),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=20) | st.lists(st.integers(), max_size=2)
        | st.dictionaries(st.sampled_from(["id", "x"]), st.text(max_size=5), max_size=2)
        | st.sampled_from(["pcm", "wav", "sse", "audio", "tone", "alloy"]),
        max_size=6,
    )
)  # fmt: skip
def test_any_body_gets_an_answer_of_the_dialect(
    tmp_path_factory: pytest.TempPathFactory, fields: Any
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, _, data = await post(gateway, body() | fields)
        if status == 200:
            assert data
        else:
            assert 400 <= status < 500
            assert set(json.loads(data)["error"]) == {"message", "type", "param", "code"}
        assert b"Traceback" not in data
        assert gateway.idle

    # Compressed audio is made in a thread, which virtual time does not wait for.
    if fields.get("response_format", "pcm") is None:
        fields["response_format"] = "wav"
    main(tmp_path_factory.mktemp("openai"))


@on_gateway()
async def test_unspeakable_text_is_a_short_silence_r16(gateway: Running) -> None:
    status, _, data = await post(gateway, body(input="..."))
    assert status == 200
    assert 0.02 <= len(data) / 48000 <= 0.06


@on_gateway()
async def test_an_engine_that_fails_midway_is_not_taken_for_the_end(gateway: Running) -> None:
    gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
    with pytest.raises(aiohttp.ClientError):
        await post(gateway, body())
    _, _, data = await post(gateway, body(stream_format="sse"))
    last = events(data)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "server_error")
    assert gateway.idle


def failing() -> ToneEngine:
    engine = ToneEngine()
    engine.fail = EngineCrashed("the voice failed")
    return engine


@on_gateway(failing)
async def test_an_engine_that_fails_at_once_is_502(gateway: Running) -> None:
    for stream in (None, "sse"):
        status, _, data = await post(gateway, body(stream_format=stream))
        assert (status, json.loads(data)["error"]["type"]) == (502, "server_error")


@on_gateway()
async def test_generation_ends_with_the_request(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        for stream in ("audio", "sse"):
            asked = body(input="Word. " * 4000, stream_format=stream)
            async with http.post(gateway.url + "/v1/audio/speech", json=asked) as response:
                await response.content.readexactly(10_000)
                assert gateway.services.in_flight.count == 1
                response.close()
            await asyncio.sleep(1)
            assert gateway.idle
    spoken = len(gateway.engine.requests)
    await asyncio.sleep(5)
    assert len(gateway.engine.requests) == spoken


@pytest.mark.parametrize("failure", [None, EngineCrashed("the voice failed")])
def test_a_download_broken_off_counts_as_what_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: EngineCrashed | None
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        gateway.engine.fail, gateway.engine.fail_after_chunks = failure, 2
        with caplog.at_level(logging.INFO, "gateway.access"):
            async with (
                aiohttp.ClientSession(headers=KEY) as http,
                http.post(gateway.url + "/v1/audio/speech", json=body(input="word " * 4000)) as response,
            ):
                await response.content.readexactly(1000)
                if failure is None:
                    response.close()  # the listener hangs up
                else:
                    with pytest.raises(aiohttp.ClientError):
                        await response.read()
            await asyncio.sleep(1)
        (line,) = (record.__dict__ for record in caplog.records if record.message == "request")
        assert (line["status"], line["code"]) == (200, failure.code if failure else "leg_closed")
        assert line["bytes"] is None  # not known; it was not 0
        counted = gateway.services.metrics.text().decode()
        assert 'route="/v1/audio/speech",status="200"} 1.0' in counted
        assert 'status="5' not in counted
        assert ('_refusals_total{reason="engine_crashed"}' in counted) is (failure is not None)
        assert '{reason="leg_closed"}' not in counted

    main(tmp_path)


@on_gateway()
async def test_a_download_comes_as_fast_as_it_is_read(gateway: Running) -> None:
    began = virtual.clock()
    _, _, data = await post(gateway, body(input="Word. " * 200))
    assert len(data) / 48000 > 40
    assert virtual.clock() - began < 5

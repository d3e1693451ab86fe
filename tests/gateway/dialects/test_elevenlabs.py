"""The ElevenLabs dialect over HTTP: audio as a body, with times as JSON, errors in its shape."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import av
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dialects.elevenlabs import MAX_TIMED
from tests import virtual
from tests.peers.elevenlabs import KEY
from tests.peers.gateway import Running, on_gateway
from tts_core.errors import EngineCrashed

WORD_S = 0.2
TEXT = "One two three. Four five."
SPEECH = "/v1/text-to-speech/tone"


async def post(
    gateway: Running, path: str, body: Any = None, *, headers: Mapping[str, str] = KEY, **asked: str
) -> tuple[int, str, bytes]:
    """Status, content type and body of a request."""
    query = {"output_format": "pcm_24000"} | asked
    data = body if isinstance(body, bytes) else json.dumps({"text": TEXT} | (body or {})).encode()
    async with (
        aiohttp.ClientSession(headers={"Content-Type": "application/json", **headers}) as http,
        http.post(gateway.url + path, data=data, params=query) as response,
    ):
        return response.status, response.headers["Content-Type"], await response.read()


@pytest.mark.parametrize("path", ["", "/stream"])
@pytest.mark.parametrize(
    ("name", "rate", "width", "kind"),
    [
        ("pcm_22050", 22050, 2, "audio/pcm"),
        ("pcm_32000", 32000, 2, "audio/pcm"),
        ("ulaw_8000", 8000, 1, "audio/basic"),
        ("alaw_8000", 8000, 1, "audio/"),
    ],
)
def test_raw_bytes_are_the_audio_and_nothing_else_r17_r31(
    tmp_path: Path, path: str, name: str, rate: int, width: int, kind: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, given, data = await post(gateway, SPEECH + path, output_format=name)
        assert status == 200
        assert given.startswith(kind)
        assert len(data) % width == 0
        assert 5 * WORD_S - 0.01 <= len(data) / width / rate <= 5 * WORD_S + 0.5
        assert gateway.idle

    main(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind", "codec", "rate"),
    [
        ("mp3_44100_128", "audio/mpeg", "mp3", 44100),
        ("mp3_22050_32", "audio/mpeg", "mp3", 22050),
        ("opus_48000_64", "audio/ogg", "opus", 48000),
    ],
)
def test_compressed_audio_is_a_whole_file(
    tmp_path: Path, name: str, kind: str, codec: str, rate: int
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, given, data = await post(gateway, SPEECH, output_format=name)
        assert (status, given.partition(";")[0]) == (200, kind)
        with av.open(io.BytesIO(data), "r") as file:
            stream = file.streams.audio[0]
            assert stream.codec_context.name.startswith(codec)
            assert stream.rate == rate
            samples = sum(frame.samples for frame in file.decode(stream))
        assert 5 * WORD_S - 0.05 < samples / rate < 5 * WORD_S + 0.6
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_format_in_the_body_counts_where_the_query_has_none(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + SPEECH, json={"text": TEXT, "output_format": "ulaw_8000"}) as response,
    ):
        assert response.content_type == "audio/basic"


@on_gateway()
async def test_all_times_at_once_are_absolute_and_join_to_the_text_r25(gateway: Running) -> None:
    text = 'One **two** 😀. <break time="1s"/> Three.'
    status, kind, data = await post(gateway, SPEECH + "/with-timestamps", {"text": text})
    assert (status, kind) == (200, "application/json")
    answer = json.loads(data)
    seconds = len(base64.b64decode(answer["audio_base64"])) / 2 / 24000
    found = answer["alignment"]
    assert answer["normalized_alignment"] == found
    chars, starts, ends = found.values()
    assert "".join(chars) == text
    assert starts == sorted(starts)
    assert all(end <= start + 0.001 for end, start in zip(ends, starts[1:], strict=False))
    assert starts[chars.index("T")] == pytest.approx(seconds - WORD_S, abs=0.1)
    assert ends[-1] == pytest.approx(seconds, abs=0.01)


@pytest.mark.parametrize("path", ["/with-timestamps", "/stream/with-timestamps"])
def test_a_client_that_does_not_read_is_cut(tmp_path: Path, path: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        text = json.dumps({"text": "word " * (MAX_TIMED // 5)}).encode()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(
            f"POST {SPEECH}{path}?output_format=pcm_48000 HTTP/1.1\r\nHost: localhost\r\n"
            f"xi-api-key: any\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            + text
        )
        client.setblocking(False)
        await asyncio.sleep(60)
        assert gateway.idle
        got = b""
        with contextlib.suppress(ConnectionResetError):
            while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert len(body) < (int(length[1]) if length else MAX_TIMED // 5 * 0.2 * 48000 * 2)
        client.close()

    main(tmp_path)


@on_gateway()
async def test_a_line_of_a_long_stream_is_short_enough_for_readers_of_lines(gateway: Running) -> None:
    text = "Here are ten words of a long answer to you. " * 12
    for rate in (24000, 48000):
        status, _, data = await post(
            gateway, SPEECH + "/stream/with-timestamps", {"text": text}, output_format=f"pcm_{rate}"
        )
        assert status == 200
        longest = max(len(line) for line in data.splitlines())
        assert 32 * 1024 < longest < 64 * 1024


@on_gateway()
async def test_a_stream_of_times_is_a_line_each_and_absolute(gateway: Running) -> None:
    status, _, data = await post(gateway, SPEECH + "/stream/with-timestamps")
    assert status == 200
    lines = [json.loads(line) for line in data.decode().splitlines()]
    assert len(lines) > 5
    chars, starts, at = "", [], 0.0
    for line in lines:
        assert set(line) == {"audio_base64", "alignment", "normalized_alignment"}
        end = at + len(base64.b64decode(line["audio_base64"])) / 2 / 24000
        if found := line["alignment"]:
            chars += "".join(found["characters"])
            starts += found["character_start_times_seconds"]
            assert at - 0.002 <= found["character_start_times_seconds"][0]
            assert found["character_end_times_seconds"][-1] == pytest.approx(end, abs=0.002)
        at = end
    assert chars == TEXT
    assert starts == sorted(starts)


@on_gateway()
async def test_settings_of_a_request_are_acted_on(gateway: Running) -> None:
    body = {
        "voice_settings": {"speed": 2.0, "stability": 0.3},
        "seed": 7,
        "language_code": "en",
        "model_id": "eleven_flash_v2_5",
        "previous_text": "before",
        "apply_text_normalization": "auto",
        "pronunciation_dictionary_locators": [],
    }
    status, _, data = await post(gateway, SPEECH, body, optimize_streaming_latency="3", enable_logging="true")
    assert status == 200
    assert len(data) / 2 / 24000 == pytest.approx(5 * WORD_S / 2, abs=0.4)
    assert {(request.speed, request.seed) for request in gateway.engine.requests} == {(2.0, 7)}


@pytest.mark.parametrize("path", ["", "/stream", "/with-timestamps", "/stream/with-timestamps"])
@pytest.mark.parametrize(
    ("body", "query", "status", "field"),
    [
        (b"{", {}, 400, ""),
        (b"\xff\xfe", {}, 400, ""),
        (b"[]", {}, 400, ""),
        ({"text": 5}, {}, 400, "text"),
        ({"text": ""}, {}, 400, "text"),
        ({"text": None}, {}, 400, "text"),
        (b'{"model_id": "x"}', {}, 400, "text"),
        ({"seed": -1}, {}, 400, "seed"),
        ({"seed": "x"}, {}, 400, "seed"),
        ({"voice_settings": {"speed": 9}}, {}, 400, "voice_settings.speed"),
        ({"voice_settings": 5}, {}, 400, "voice_settings"),
        ({"language_code": "de"}, {}, 400, "language_code"),
        ({"apply_text_normalization": "x"}, {}, 400, "apply_text_normalization"),
        ({}, {"output_format": "pcm_11025"}, 400, "output_format"),
        ({}, {"output_format": "wav"}, 400, "output_format"),
        ({"text": "x" * 200_000}, {}, 413, "text"),
    ],
)
def test_bad_input_is_refused_in_the_vendors_shape(
    tmp_path: Path, path: str, body: Any, query: dict[str, str], status: int, field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        got, kind, data = await post(gateway, SPEECH + path, body, headers=KEY, **query)
        assert (got, kind.partition(";")[0]) == (status, "application/json")
        detail = json.loads(data)["detail"]
        assert set(detail) == {"status", "message"}
        assert field in detail["message"]
        assert gateway.idle
        assert gateway.engine.requests == []

    main(tmp_path)


@on_gateway()
async def test_one_json_object_holds_a_text_of_bounded_length(gateway: Running) -> None:
    status, _, data = await post(gateway, SPEECH + "/with-timestamps", {"text": "x " * MAX_TIMED})
    assert (status, json.loads(data)["detail"]["status"]) == (413, "text_too_long")


@on_gateway(api_keys="acme:configured-key-of-test")
async def test_the_key_is_asked_before_the_body_is_read_r12(gateway: Running) -> None:
    for headers in ({}, {"xi-api-key": "wrong"}, {"Authorization": "Bearer wrong"}):
        status, _, data = await post(gateway, SPEECH, b"{", headers=headers)
        assert (status, json.loads(data)["detail"]["status"]) == (401, "invalid_api_key")
    status, _, _ = await post(gateway, SPEECH, headers={"xi-api-key": "configured-key-of-test"})
    assert status == 200


@on_gateway()
async def test_an_unknown_voice_and_an_unknown_path_are_404(gateway: Running) -> None:
    status, _, data = await post(gateway, "/v1/text-to-speech/nobody")
    assert (status, json.loads(data)["detail"]["status"]) == (404, "unknown_voice")
    status, _, data = await post(gateway, SPEECH + "/never")
    assert (status, json.loads(data)["detail"]["status"]) == (404, "not_found")


@on_gateway()
async def test_the_endpoint_of_other_models_is_refused_in_words(gateway: Running) -> None:
    for path in ("/v1/text-to-dialogue", "/v1/text-to-dialogue/stream", "/v1/text-to-dialogue/stream-input"):
        status, _, data = await post(gateway, path)
        assert status == 400
        assert "eleven_v3" in json.loads(data)["detail"]["message"]


@pytest.mark.parametrize("text", ["...", "😀", "!"])
def test_unspeakable_text_is_a_short_silence_r16(tmp_path: Path, text: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        status, _, data = await post(gateway, SPEECH, {"text": text})
        assert status == 200
        assert 0.02 <= len(data) / 2 / 24000 <= 0.06

    main(tmp_path)


@on_gateway()
async def test_a_failure_before_the_first_byte_is_an_error_and_after_it_a_break(gateway: Running) -> None:
    gateway.engine.fail = EngineCrashed("the voice failed")
    for path in ("", "/stream", "/with-timestamps", "/stream/with-timestamps"):
        status, _, data = await post(gateway, SPEECH + path)
        assert (status, json.loads(data)["detail"]["status"]) == (502, "engine_crashed")
    gateway.engine.fail_after_chunks = 3
    for path in ("", "/stream", "/stream/with-timestamps"):
        with pytest.raises(aiohttp.ClientError):
            await post(gateway, SPEECH + path)
    status, _, _ = await post(gateway, SPEECH + "/with-timestamps")
    assert status == 502
    assert gateway.idle


@on_gateway()
async def test_generation_ends_with_the_request(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        response = await http.post(
            gateway.url + SPEECH + "/stream?output_format=pcm_24000", json={"text": TEXT * 300}
        )
        await response.content.readany()
        response.close()
    began = virtual.clock()
    while not gateway.idle:
        await asyncio.sleep(0.05)
    assert virtual.clock() - began < 30


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["text", "voice_settings", "seed", "language_code", "output_format", "apply_text_normalization"]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FIELDS), json_values) | st.binary(max_size=40))
def test_any_body_is_answered_and_never_with_500(tmp_path_factory: pytest.TempPathFactory, body: Any) -> None:
    folder = tmp_path_factory.mktemp("fuzz")

    @on_gateway()
    async def main(gateway: Running) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answer = await post(gateway, SPEECH, data)
        assert status in {200, 400, 413}, answer

    main(folder)

"""The Deepgram dialect: order on a wire without ids, turns, closing, and speech over HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import random
import re
import sys
import wave
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dialects.deepgram import voice_of
from gateway.speaking import CannotClone
from sessions.principal import Principal
from tests import virtual
from tests.peers.deepgram import KEY, DeepgramClient, deepgram_client, fail
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed, Forbidden, UnknownVoice

SPEAK = "/v1/speak"
LONG = "word " * 200


def words(gateway: Running) -> str:
    return " ".join(request.text for request in gateway.engine.requests)


@on_gateway()
async def test_a_turn_is_audio_and_then_flushed(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say("One two ", "three. ", "Four five.")
        assert (await client.until("Flushed"))["sequence_id"] == 0
        assert client.kinds == ["Metadata", "audio", "Flushed"]
        assert 5 * 0.2 <= len(client.audio) / 48000 <= 5 * 0.2 + 0.5
    assert gateway.idle


@on_gateway()
async def test_a_refused_voice_is_named_as_the_address_names_it(gateway: Running) -> None:
    bound = Principal("default", "key", voice="tone")
    for name, kind in (("other", Forbidden), ("vc_" + 32 * "0", CannotClone), ("nobody", UnknownVoice)):
        somebody = bound if kind is Forbidden else Principal("default", "key")
        with pytest.raises(kind) as refused:
            await voice_of(gateway.services, somebody, name)
        assert refused.value.field == "model"


@on_gateway()
async def test_text_is_joined_as_it_came_r19_r23(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say("Your num", "ber is ", "fif", "teen. ", "Let us go.")
        await client.until("Flushed")
    assert "number is fifteen." in words(gateway)


@on_gateway()
async def test_a_turn_of_livekit_word_by_word(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say(*re.findall(r"\S+ ", "Hello there, this is one turn. And one more. "))
        await client.until("Flushed")
        await client.send("Flush")  # it flushes once more before it closes
        await client.until("Flushed")
        await client.send("Close")
        assert await client.until("close") == 1000
    assert client.kinds == ["Metadata", "audio", "Flushed", "Flushed"]


@on_gateway()
async def test_clear_is_old_audio_cleared_new_audio_r1_r3(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say(LONG)
        await client.until("audio")
        await client.send("Clear")
        await client.until("Cleared")
        before = len(client.audio)
        await client.say("Second answer.")
        await client.until("Flushed")
    assert client.kinds == ["Metadata", "audio", "Cleared", "audio", "Flushed"]
    assert len(client.audio) - before < 48000
    # The flush that was cleared is never answered; the counter goes on.
    assert [told["sequence_id"] for kind, told in client.order if kind in {"Cleared", "Flushed"}] == [0, 1]
    assert gateway.idle


@on_gateway()
async def test_fifty_quick_interruptions_r7(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        for _ in range(50):
            await client.say(LONG)
            await client.send("Clear")
        for _ in range(50):
            await client.until("Cleared")
        await client.say("At last.")
        await client.until("Flushed")
    assert "Flushed" not in client.kinds[:-1]
    assert gateway.idle


@on_gateway()
async def test_a_flush_behind_a_text_that_failed_is_no_second_end(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        for _ in range(2):
            await fail(gateway, client)
            await client.say("Four.")
            assert await client.next() == "audio"
            await client.until("Flushed")
            await client.send("Flush")  # this one is answered: nothing was refused since
            await client.until("Flushed")
    assert client.kinds == ["Metadata", *(["Error", "audio", "Flushed", "Flushed"] * 2)]
    assert gateway.idle


@on_gateway()
async def test_text_that_follows_a_flush_at_once_is_the_same_turn(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say("One two.")
        await client.say("Three four.")
        await client.until("Flushed")
        await client.until("Flushed")
        assert 4 * 0.2 <= len(client.audio) / 48000 <= 4 * 0.2 + 0.6
    assert client.kinds == ["Metadata", "audio", "Flushed", "audio", "Flushed"]


@on_gateway()
async def test_an_idle_connection_holds_no_place_r10_r14(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say("One.")
        await client.until("Flushed")
        await asyncio.sleep(0)
        assert gateway.idle
        await asyncio.sleep(3500)  # nearly an hour, without a ping
        await client.say("Two.")
        await client.until("Flushed")


@on_gateway()
async def test_close_speaks_what_was_said_and_then_closes_r6(gateway: Running) -> None:
    for flush in (True, False):
        async with deepgram_client(gateway) as client:
            await client.say("One two three.", flush=flush)
            await client.send("Close")
            await client.send("Speak", text="never")
            assert await client.until("close") == 1000
            assert len(client.audio) >= 3 * 0.2 * 48000 - 2
    assert "never" not in words(gateway)
    async with deepgram_client(gateway) as client:
        await client.send("Close")
        assert await client.until("close") == 1000


async def leave(client: DeepgramClient) -> None:
    """As LiveKit leaves a connection that it stopped reading when its user interrupted."""
    await client.say("A long first answer. ", "And a second sentence. " * 30, "Third one ", flush=False)
    await asyncio.sleep(1.0)
    await client.send("Flush")
    await client.send("Close")
    assert await client.until("close") == 1000


@on_gateway()
async def test_a_client_that_leaves_in_mid_audio_is_not_spoken_to(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await leave(client)
    assert "Flushed" not in client.kinds
    assert len(client.audio) / 48000 < 1.0 + 3.0 + 0.5  # what the run-ahead allows
    assert gateway.idle


@on_gateway(close_context_policy="drain")
async def test_unless_the_setting_says_to_drain(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await leave(client)
    assert client.kinds[-1] == "Flushed"
    assert len(client.audio) / 48000 > 120 * 0.2


@on_gateway()
async def test_nothing_to_say_opens_nothing_and_unspeakable_text_is_a_short_silence_r8_r16(
    gateway: Running,
) -> None:
    async with deepgram_client(gateway) as client:
        await client.say("", " ", "\n")
        await client.until("Flushed")
        assert client.audio == b""
        await client.say("...")
        await client.until("Flushed")
        assert len(client.audio) % 2 == 0
        await client.send("KeepAlive")
        await client.say("One.")
        await client.until("Flushed")
        assert len(client.audio) > 9000


@pytest.mark.parametrize(
    ("query", "width", "rate"),
    [
        ("", 2, 24000),
        ("?encoding=mulaw", 1, 8000),
        ("?encoding=alaw&sample_rate=8000", 1, 8000),
        ("?encoding=linear16&sample_rate=16000", 2, 16000),
        ("?encoding=linear16&sample_rate=48000&speed=1.2&mip_opt_out=true&tag=x", 2, 48000),
    ],
)
def test_formats_r17_r30(tmp_path: Path, query: str, width: int, rate: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with deepgram_client(gateway, query, width=width) as client:
            await client.say("One two three.")
            await client.until("Flushed")
        assert 0.6 / 1.25 <= len(client.audio) / width / rate <= 1.0

    main(tmp_path)


@pytest.mark.parametrize(
    ("query", "status", "word"),
    [
        ("?encoding=mp3", 400, "encoding"),
        ("?sample_rate=44000", 400, "sample_rate"),
        ("?container=wav", 400, "container"),
        ("?speed=9", 400, "speed"),
        ("?model=nobody", 404, "model"),
        ("?model=aura-2-thalia-ja", 404, "model"),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_upgrade(
    tmp_path: Path, query: str, status: int, word: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with aiohttp.ClientSession(headers=KEY) as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(gateway.url + SPEAK + query)
            assert refused.value.status == status
            async with http.get(gateway.url + SPEAK + query) as response:
                told = await response.json()
        assert word in told["err_msg"]
        assert told["request_id"]
        assert told["err_code"].isupper()

    main(tmp_path)


@on_gateway()
async def test_keys_come_by_header_or_subprotocol_r12(gateway: Running) -> None:
    for headers in ({"Authorization": "Token any"}, {"Authorization": "Bearer any"}, {"X-API-Key": "any"}):
        async with deepgram_client(gateway, "", headers=headers) as client:
            await client.send("Close")
            await client.until("close")
    async with deepgram_client(gateway, "", headers={}, protocols=("token", "any")) as client:
        assert client.ws.protocol == "token"
        await client.say("One.")
        await client.until("Flushed")
    async with aiohttp.ClientSession() as http:
        for protocols in ((), ("token",), ("other", "any")):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(gateway.url + SPEAK, protocols=protocols)
            assert refused.value.status == 401


BAD = [
    "",
    "{",
    "[]",
    "null",
    '{"type":"Speak"}',
    '{"type":"Speak","text":7}',
    '{"type":"Shout"}',
    '{"type":null}',
    '{"text":"x"}',
    "[" * 60_000,
    '{"type":"Speak","text":"\\u0000"}',
    '{"type":"Speak","text":"\\ud800"}',
]


@on_gateway()
async def test_bad_messages_get_a_warning_and_harm_nothing(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.send("Speak", text="One ")
        for raw in BAD:
            await client.ws.send_str(raw)
        await client.ws.send_bytes(b"\0\1")
        await client.say("two three.")
        await client.until("Flushed")
        assert client.kinds.count("Warning") == len(BAD) - 2 + 1
        for kind, told in client.order:
            if kind == "Warning":
                assert told["code"] == "bad_request"
                assert "Traceback" not in told["description"]
        assert len(client.audio) >= 28_800
    assert gateway.idle


@on_gateway()
async def test_too_much_text_is_a_warning_and_what_was_said_is_spoken(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.send("Speak", text="One two. ")
        await client.send("Speak", text="word " * 12_000)
        await client.until("Warning")
        assert client.order[-1][1]["code"] == "text_too_long"
        await client.send("Flush")
        await client.until("Flushed")


@on_gateway(lambda: ToneEngine(slots=1), max_contexts=1)
async def test_no_room_is_an_error_at_once_and_the_socket_lives(gateway: Running) -> None:
    async with deepgram_client(gateway) as first, deepgram_client(gateway) as second:
        await first.say(LONG)
        await first.until("audio")
        await second.say("One.")
        told = await second.until("Error")
        assert told["code"] == "busy"
        await first.send("Clear")
        await first.until("Cleared")
        await second.send("Clear")
        await second.until("Cleared")
        await second.say("One.")
        await second.until("Flushed")


@on_gateway()
async def test_an_engine_that_fails_is_told_once_and_the_next_turn_speaks_r13(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
        await client.say("One two three four five.")
        told = await client.until("Error")
        assert told["code"] == "engine_crashed"
        gateway.engine.fail = None
        await client.say("One.")
        await client.until("Flushed")
    assert client.kinds.count("Error") == 1
    assert gateway.idle


@on_gateway()
async def test_a_client_that_goes_frees_everything(gateway: Running) -> None:
    async with deepgram_client(gateway) as client:
        await client.say(LONG)
        await client.until("audio")
    await asyncio.sleep(1)
    assert gateway.idle
    assert not gateway.services.sockets


@on_gateway()
async def test_a_drain_lets_the_turn_finish_and_closes_with_1012_r28(gateway: Running) -> None:
    async with deepgram_client(gateway) as client, deepgram_client(gateway) as idle:
        await client.say("One two three.")
        await client.until("audio")
        gateway.services.draining.set()
        assert await idle.until("close") == 1012
        await client.until("Flushed")
        assert await client.until("close") == 1012


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_any_order_of_messages_keeps_the_wire_in_order(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        draw = random.Random(seed)
        due: list[str] = []
        async with deepgram_client(gateway) as client:
            said = False
            for _ in range(draw.randint(1, 25)):
                kind = draw.choice(["Speak", "Speak", "Flush", "Clear", "bad", "wait"])
                if kind == "Speak":
                    text = draw.choice(["One two. ", "three ", "...", "", " ", "4.", "<b>five</b> "])
                    await client.send("Speak", text=text)
                    said = said or bool(text.strip())
                elif kind == "Flush":
                    await client.send("Flush")
                    due.append("Flushed")
                elif kind == "Clear":
                    await client.send("Clear")
                    due.append("Cleared")
                elif kind == "bad":
                    await client.ws.send_str(draw.choice(BAD[:9]))
                else:
                    await asyncio.sleep(draw.choice([0, 0.05, 2, 40]))
            await client.send("Clear")
            while client.kinds.count("Cleared") < due.count("Cleared") + 1:
                await client.next()
            # Every clear is answered, and no flush more often than it was asked for.
            assert client.kinds.count("Flushed") <= due.count("Flushed")
            assert "Error" not in client.kinds
            assert client.kinds[-1] == "Cleared"
            await client.say("One.")
            await client.until("Flushed")
            await client.send("Close")
            assert await client.until("close") == 1000
        assert gateway.idle

    main(tmp_path_factory.mktemp("deepgram"))


async def post(gateway: Running, query: str, data: bytes) -> tuple[int, str, bytes]:
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(gateway.url + SPEAK + query, data=data) as response,
    ):
        return response.status, response.headers.get("dg-request-id", ""), await response.read()


@on_gateway()
async def test_http_gives_samples_or_a_wav(gateway: Running) -> None:
    text = json.dumps({"text": "One two three."}).encode()
    status, ident, raw = await post(gateway, "?encoding=linear16&container=none", text)
    assert status == 200
    assert ident
    assert 0.6 <= len(raw) / 48000 <= 0.9
    _, _, data = await post(gateway, "?encoding=linear16&sample_rate=24000", text)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == 24000
    assert data.endswith(raw)
    began = virtual.clock()
    _, _, data = await post(
        gateway, "?encoding=mulaw&container=none", json.dumps({"text": "Word. " * 200}).encode()
    )
    assert len(data) / 8000 > 40
    assert virtual.clock() - began < 5


def test_what_needs_the_extra_is_refused_under_the_vendors_name_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "gateway.encoding.compressed", raising=False)
    monkeypatch.setitem(sys.modules, "av", None)

    @on_gateway()
    async def main(gateway: Running) -> None:
        got, _, data = await post(gateway, "", b'{"text":"a"}')
        assert got == 400
        assert json.loads(data)["err_msg"].startswith("encoding: mp3 needs the extra 'compressed'")

    main(tmp_path)


@pytest.mark.parametrize(
    ("query", "body", "status", "word"),
    [
        ("?encoding=linear16", b"{", 400, "JSON"),
        ("?encoding=linear16", b'{"text":""}', 400, "text"),
        ("?encoding=linear16", b'{"text":4}', 400, "text"),
        ("?encoding=linear16", b'{"url":"x"}', 400, "text"),
        ("?encoding=speex", b'{"text":"a"}', 400, "encoding"),
        ("?encoding=linear16&container=ogg", b'{"text":"a"}', 400, "container"),
        ("?encoding=linear16&model=nobody", b'{"text":"a"}', 404, "model"),
        ("?encoding=linear16&bit_rate=x", b'{"text":"a"}', 400, "bit_rate"),
    ],
)
def test_http_refuses_in_the_vendors_shape(
    tmp_path: Path, query: str, body: bytes, status: int, word: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        got, _, data = await post(gateway, query, body)
        told: dict[str, Any] = json.loads(data)
        assert got == status
        assert word in told["err_msg"]
        assert gateway.idle

    main(tmp_path)

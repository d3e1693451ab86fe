"""The two ElevenLabs sockets: who may come in, how many contexts, idle limits, the end; trap by trap."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import drain
from gateway.dialects.elevenlabs_sockets import FIRST_MESSAGE_BYTES, FIRST_MESSAGE_S, LIVE_CONTEXTS
from tests import virtual
from tests.peers.elevenlabs import KEY, PCM, eleven_client, single_client
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine

SECRET = "configured-key-of-test"
AUTO = PCM + "&auto_mode=true"
LONG = "One two three four five. " * 20


# Who may come in


@pytest.mark.parametrize("path", ["multi-stream-input", "stream-input"])
@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({"xi-api-key": SECRET}, "", 101),
        ({"Authorization": f"Bearer {SECRET}"}, "", 101),
        ({}, f"&authorization=Bearer%20{SECRET}", 101),
        ({}, f"&authorization={SECRET}", 101),
        ({"xi-api-key": "wrong"}, "", 401),
        ({}, "&authorization=wrong", 401),
        ({}, "&single_use_token=eyJ.x.y", 401),
    ],
)
def test_a_key_is_checked_before_the_upgrade_r12(
    tmp_path: Path, path: str, headers: dict[str, str], query: str, status: int
) -> None:
    @on_gateway(api_keys=f"acme:{SECRET}")
    async def main(gateway: Running) -> None:
        connect = eleven_client(gateway, headers=headers, query=PCM + query, path=path)
        if status == 101:
            async with connect as client:
                await client.send({"text": "One."})
                await client.send({"text": "", "flush": True})
                await client.send({"text": "", "close_context": True})
                while not client.transcript.past[0].end:
                    await client.next()
        else:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                async with connect:
                    pass
            assert refused.value.status == status

    main(tmp_path)


@on_gateway(api_keys=f"acme:{SECRET}")
async def test_a_single_use_token_opens_one_socket(gateway: Running) -> None:
    async with (
        aiohttp.ClientSession(headers={"xi-api-key": SECRET}) as http,
        http.post(gateway.url + "/v1/single-use-token/tts_websocket") as made,
    ):
        token = (await made.json())["token"]
    query = f"{PCM}&single_use_token={token}"
    async with eleven_client(gateway, headers={}, query=query) as client:
        await client.say("a", "One.")
        await client.finish("a")
        await client.ended("a")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with eleven_client(gateway, headers={}, query=query):
            pass
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "field",
    [{"xi-api-key": SECRET}, {"xi_api_key": SECRET}, {"authorization": f"Bearer {SECRET}"}],
)
def test_a_first_message_may_carry_the_key_s1(tmp_path: Path, field: dict[str, str]) -> None:
    @on_gateway(api_keys=f"acme:{SECRET}")
    async def main(gateway: Running) -> None:
        async with single_client(gateway, headers={}) as client:
            await client.send({"text": " ", **field})
            await client.send({"text": "One two. "})
            await client.send({"text": ""})
            assert await client.close_code() == 1000
            assert client.transcript.past[0].chars == "One two. "
        async with eleven_client(gateway, headers={}) as client:
            await client.send({"text": "One two. ", "context_id": "a", **field})
            await client.finish("a")
            (turn,) = await client.ended("a")
            assert turn.chars == "One two. "
            (socket,) = gateway.services.sockets
            assert socket.principal.tenant == "acme"  # a revoked key closes it

    main(tmp_path)


@pytest.mark.parametrize(
    "first",
    [
        '{"text": " "}',
        '{"text": " ", "xi-api-key": "wrong"}',
        '{"text": " ", "xi-api-key": ""}',
        '{"text": " ", "xi-api-key": {"k": 1}}',
        "nonsense",
        json.dumps({"text": "x" * FIRST_MESSAGE_BYTES, "xi-api-key": SECRET}),
    ],
)
def test_a_first_message_without_the_key_is_the_last_s1(tmp_path: Path, first: str) -> None:
    @on_gateway(api_keys=f"acme:{SECRET}")
    async def main(gateway: Running) -> None:
        async with single_client(gateway, headers={}) as client:
            await client.ws.send_str(first)
            await client.ws.send_str(json.dumps({"text": "One. ", "xi-api-key": SECRET}))
            assert await client.close_code() == 1008
            assert len(client.transcript.errors) == 1
        assert gateway.engine.requests == []
        await asyncio.sleep(0.1)
        assert not gateway.services.sockets

    main(tmp_path)


@on_gateway(api_keys=f"acme:{SECRET}")
async def test_whoever_says_nothing_is_out_after_three_seconds_s1(gateway: Running) -> None:
    async with eleven_client(gateway, headers={}) as client:
        began = virtual.clock()
        assert await client.close_code() == 1008
        assert virtual.clock() - began == pytest.approx(FIRST_MESSAGE_S, abs=0.1)
        assert client.transcript.errors[0]["error"] == "invalid_api_key"
    async with eleven_client(gateway, headers={}) as client:
        await client.ws.close()
    await asyncio.sleep(0.1)
    assert not gateway.services.sockets


@on_gateway(api_keys=f"acme:{SECRET}")
async def test_a_page_of_another_site_may_not_even_introduce_itself(gateway: Running) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with eleven_client(gateway, headers=headers):
                pass
        assert refused.value.status == 403


@pytest.mark.parametrize(
    ("query", "voice", "status"),
    [
        ("output_format=pcm_11025", "tone", 400),
        ("output_format=mp4", "tone", 400),
        (PCM + "&inactivity_timeout=500", "tone", 400),
        (PCM + "&language_code=de", "tone", 400),
        (PCM, "nobody", 404),
    ],
)
def test_what_no_context_could_be_is_refused_before_the_upgrade_r12_r30(
    tmp_path: Path, query: str, voice: str, status: int
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        for path in ("multi-stream-input", "stream-input"):
            async with (
                aiohttp.ClientSession(headers=KEY) as http,
                http.get(f"{gateway.url}/v1/text-to-speech/{voice}/{path}?{query}") as response,
            ):
                assert response.status == status
                detail = (await response.json())["detail"]
                assert set(detail) == {"status", "message"}

    main(tmp_path)


@on_gateway(max_sockets=1)
async def test_a_full_house_is_429_before_the_upgrade_r12(gateway: Running) -> None:
    async with eleven_client(gateway):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with eleven_client(gateway):
                pass
        assert refused.value.status == 429


# Where


@pytest.mark.parametrize("prefix", ["", "/v1", "/eleven/v1"])
def test_the_routes_are_below_the_prefix_that_is_set(tmp_path: Path, prefix: str) -> None:
    @on_gateway(elevenlabs_prefix=prefix)
    async def main(gateway: Running) -> None:
        async with eleven_client(gateway, prefix=prefix) as client:
            await client.say("a", "One.")
            await client.finish("a")
            await client.ended("a")
        async with aiohttp.ClientSession(headers=KEY) as http:
            for what in ("voices", "voices/tone", "models", "user", "user/subscription"):
                async with http.get(f"{gateway.url}{prefix}/{what}") as response:
                    assert response.status == 200, what
            async with http.get(f"{gateway.url}{prefix}/voices/nobody") as response:
                assert (response.status, set(await response.json())) == (404, {"detail"})

    main(tmp_path)


# Contexts


@on_gateway()
async def test_contexts_run_side_by_side(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        for name in "abc":
            await client.say(name, f"This is {name} speaking now.")
            await client.finish(name)
        turns = await client.ended(*"abc")
    assert [turn.chars for turn in turns] == [f"This is {name} speaking now." for name in "abc"]


@on_gateway()
async def test_a_context_without_a_name_is_the_default_one(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.send({"text": "One two."})
        await client.send({"flush": True})
        await client.send({"close_context": True})
        (turn,) = await client.ended("default")
        assert turn.chars == "One two."


@on_gateway()
async def test_the_sixth_context_is_refused_alone_r7(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        for i in range(LIVE_CONTEXTS):
            await client.open(f"c{i}")
        await client.open("c5")
        error = await client.error()
        assert (error["error"], error["code"], error["contextId"], error["isFinal"]) == (
            "max_active_conversations",
            1008,
            "c5",
            True,
        )
        await client.close("c0")  # frees the slot at once
        await client.say("c5", "One two.")
        await client.finish("c5")
        await client.say("c6", "Three four.")  # the closing one does not count
        await client.finish("c6")
        await client.ended("c0", "c5", "c6")
        for i in range(1, LIVE_CONTEXTS):
            await client.say(f"c{i}", "Still here.")
            await client.finish(f"c{i}")
        await client.ended(*(f"c{i}" for i in range(1, LIVE_CONTEXTS)))


@on_gateway()
async def test_fifty_rapid_interrupts_r7_r14(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        for i in range(50):
            await client.open(f"c{i}")
            await client.say(f"c{i}", LONG, flush=True)
            await client.close(f"c{i}")
        turns = await client.ended(*(f"c{i}" for i in range(50)))
        assert client.transcript.errors == []
        assert all(turn.seconds < 1 for turn in turns)
        assert gateway.idle
        await client.say("last", "Second answer.")
        await client.finish("last")
        (turn,) = await client.ended("last")
        assert turn.chars == "Second answer. "


@on_gateway(max_contexts_per_socket=8)
async def test_what_drains_is_bounded_too(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        for i in range(12):
            await client.say(f"c{i}", LONG)
            await client.finish(f"c{i}")
        errors = [await client.error() for _ in range(4)]
        assert {error["error"] for error in errors} == {"limit_exceeded"}
        for i in range(8):
            await client.close(f"c{i}")
        await client.ended(*(f"c{i}" for i in range(8)))


@on_gateway()
async def test_empty_text_never_opens_a_context_r8(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        for _ in range(20):
            await client.ws.send_json({"text": ""})
            await client.ws.send_json({"text": "", "context_id": "a"})
            await client.ws.send_json({"context_id": "a", "flush": True})
            await client.ws.send_json({"context_id": "a", "close_context": True})
        assert await client.settled() == []
        await client.open("a", voice_settings={"stability": 0.5, "similarity_boost": 0.8})
        await client.say("a", "One.")
        await client.finish("a")
        await client.ended("a")
        assert client.transcript.errors == []


@on_gateway()
async def test_close_socket_ends_everything_with_1000(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.say("a", LONG, flush=True)
        await client.open("b")
        await client.audio("a", 0.5)
        await client.send({"close_socket": True})
        assert await client.close_code() == 1000
        assert all(turn.end is not None for turn in client.transcript.past)
    assert gateway.idle


@pytest.mark.parametrize(
    "raw",
    ["{", "null", "[]", '"text"', '{"text": 5, "context_id": "z"}', '{"context_id": 7}', "\\ud800", "\x00"],
)
def test_bad_messages_are_told_and_the_socket_lives(tmp_path: Path, raw: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with eleven_client(gateway) as client:
            await client.say("a", "One two three. ")
            await client.ws.send_str(raw)
            error = await client.error()
            assert error["error"] == "bad_request"
            await client.ws.send_bytes(b'{"text": "x"}')
            await client.error()
            await client.finish("a")
            (turn,) = await client.ended("a")
            assert turn.chars == "One two three. "

    main(tmp_path)


@on_gateway(max_context_chars=100)
async def test_long_ids_and_long_texts_are_refused_alone(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.say("x" * 300, "One.")
        error = await client.error()
        assert "context_id" in error["message"] or "context id" in error["message"]
        assert "contextId" not in error
        await client.say("a", "y" * 101)
        error = await client.error()
        assert (error["error"], error["contextId"]) == ("text_too_long", "a")
        await client.say("b", "One.")
        await client.finish("b")
        await client.ended("b")


@on_gateway()
async def test_two_clients_may_use_one_id(gateway: Running) -> None:
    async with eleven_client(gateway) as one, eleven_client(gateway) as two:
        for client, text in ((one, "One one one."), (two, "Two two.")):
            await client.say("a", text)
            await client.finish("a")
        (first,), (second,) = await one.ended("a"), await two.ended("a")
        assert (first.chars, second.chars) == ("One one one.", "Two two.")


# Time


@on_gateway()
async def test_an_idle_context_ends_after_twenty_seconds_and_the_socket_lives_r11(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        began = virtual.clock()
        await client.open("a")
        error = await client.error()
        assert virtual.clock() - began == pytest.approx(20, abs=0.1)
        assert (error["error"], error["code"], error["isFinal"]) == ("input_timeout_exceeded", 1008, True)
        await client.say("b", "One.")
        await client.finish("b")
        await client.ended("b")


@on_gateway()
async def test_keep_alives_and_a_longer_limit_carry_over_a_tool_call_r11(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.say("a", "One moment please. ", flush=True)
        for _ in range(30):
            await asyncio.sleep(10)
            await client.send({"text": "", "context_id": "a"})
        await client.say("a", "Here it is.")
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert client.transcript.errors == []
        assert turn.chars == "One moment please. Here it is."
    async with eleven_client(gateway, query=PCM + "&inactivity_timeout=180") as client:
        await client.open("a")
        await asyncio.sleep(179)
        await client.say("a", "Here it is.")
        await client.finish("a")
        await client.ended("a")
        assert client.transcript.errors == []


@on_gateway()
async def test_a_socket_is_reused_after_minutes_of_silence_r10(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO, autoping=False) as client:
        for name in "abc":
            await client.open(name)
            await client.say(name, "Hello there.", flush=True)
            await client.finish(name)
            await client.ended(name)
            await asyncio.sleep(6 * 60)  # an idle pool reads nothing and answers no ping
        await asyncio.sleep(3000)
        await client.say("d", "Hello there.")
        await client.finish("d")
        await client.ended("d")


@on_gateway()
async def test_an_unread_socket_gets_no_more_than_the_run_ahead_r5(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.say("a", LONG, flush=True)
        await asyncio.sleep(1.0)
        await client.close("a")
        (turn,) = await client.ended("a")
        assert turn.seconds < 1.0 + gateway.services.settings.run_ahead_s + 0.3


@on_gateway()
async def test_a_client_that_goes_frees_everything_r14(gateway: Running) -> None:
    for path in ("multi-stream-input", "stream-input"):
        async with eleven_client(gateway, path=path) as client:
            await client.send({"text": LONG, "context_id": "a", "flush": True})
            await client.next()
            client.reset()
            await asyncio.sleep(0.1)
            assert gateway.idle


@on_gateway(lambda: ToneEngine(xrt=0.5, second="other"))
async def test_no_room_is_said_at_once_and_by_context_r27(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        await client.open("a")
        await client.say("a", LONG)
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert (turn.end["error"], turn.end["isFinal"]) == ("busy", True)
    assert gateway.idle


@on_gateway()
async def test_a_drain_lets_contexts_finish_then_1012_r28(gateway: Running) -> None:
    async with eleven_client(gateway) as client, single_client(gateway) as single:
        await client.say("a", "One two three. ", flush=True)
        await client.open("silent")
        await single.send({"text": "One two three. ", "flush": True})
        await client.audio("a", 0.1)
        draining = asyncio.ensure_future(drain(gateway.services))
        await client.ended("silent")
        await client.say("late", "No.")
        assert (await client.error())["error"] == "draining"
        await client.finish("a")
        await single.send({"text": ""})
        codes = await asyncio.gather(client.close_code(), single.close_code())
        assert tuple(codes) == (1012, 1000)
        assert client.transcript.turns["a"].chars == "One two three. "
        assert await draining


# One text a socket


@on_gateway()
async def test_a_single_text_ends_with_a_final_message_and_1000(gateway: Running) -> None:
    async with single_client(gateway) as client:
        await client.send(
            {"text": " ", "voice_settings": None, "generation_config": {"chunk_length_schedule": [50]}}
        )
        for piece in ("Hello there, this is the first delta. ", "Your order ", "ships. "):
            await client.send({"text": piece, "try_trigger_generation": True})
        await client.send({"text": ""})
        await client.ws.send_json({"text": "after the end"})
        assert await client.close_code() == 1000
        (turn,) = client.transcript.past
        assert turn.chars == "Hello there, this is the first delta. Your order ships. "
        assert turn.end == {"audio": None, "isFinal": True, "alignment": None, "normalizedAlignment": None}
    await asyncio.sleep(0.1)
    assert gateway.idle
    assert not gateway.services.sockets


@on_gateway()
async def test_an_end_without_text_is_an_end(gateway: Running) -> None:
    async with single_client(gateway) as client:
        await client.ws.send_json({"text": ""})
        assert json.loads((await client.ws.receive()).data)["isFinal"] is True
        assert (await client.ws.receive()).type is aiohttp.WSMsgType.CLOSE
        assert client.ws.close_code == 1000


@on_gateway()
async def test_a_single_text_times_out_with_a_reason_r11(gateway: Running) -> None:
    async with single_client(gateway) as client:
        began = virtual.clock()
        await client.send({"text": " "})
        await asyncio.sleep(15)
        await client.send({"text": " "})  # white space keeps it open
        assert await client.close_code() == 1008
        assert virtual.clock() - began == pytest.approx(35, abs=0.2)
        assert client.transcript.errors[0]["error"] == "input_timeout_exceeded"
    assert gateway.idle


@pytest.mark.parametrize(
    "bad", ["{", '{"text": 5}', '{"voice_settings": {"speed": 99}}', "{}", '{"text": "x", "flush": 3}']
)
def test_a_bad_message_ends_a_single_text_with_its_code(tmp_path: Path, bad: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with single_client(gateway) as client:
            await client.send({"text": " "})
            await client.ws.send_str(bad)
            assert await client.close_code() == 1008
            (error,) = client.transcript.errors
            assert error["error"] == "bad_request"
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_single_text_may_be_cut(gateway: Running) -> None:
    async with single_client(gateway) as client:
        await client.send({"text": LONG, "flush": True})
        await client.audio("", 0.5)
        await client.send({"close_socket": True})
        assert await client.close_code() == 1000
        assert client.transcript.past[0].seconds < 5
    assert gateway.idle


@pytest.mark.parametrize("extra", [{}, {"context_id": "ignored"}])
def test_a_context_id_means_nothing_there(tmp_path: Path, extra: dict[str, Any]) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with single_client(gateway) as client:
            await client.send({"text": "One. ", "flush": True, **extra})
            await client.send({"text": ""})
            assert await client.close_code() == 1000

    main(tmp_path)

"""Deepgram's turn-based dialect in virtual time: turns, configuration, the address, closing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from gateway.app import drain
from tests.peers.deepgram import KEY, fail
from tests.peers.deepgram_flux import LONG, RATE, WORD_MS, flux_client, refusal
from tests.peers.gateway import Running, on_gateway

SPEAK = "/v2/speak"


@on_gateway()
async def test_a_turn_is_started_audio_flushed_metadata(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two ", "three. ", "Four five.")
        told = await client.until("SpeechMetadata")
        kinds = [kind for kind in client.kinds if kind != "audio"]
        assert kinds == ["Connected", "SpeechStarted", "Flushed", "SpeechMetadata"]
        assert told["input_character_count"] == len("One two three. Four five.")
        assert 5 * WORD_MS <= told["audio_duration_ms"] <= 5 * WORD_MS + 500
    assert gateway.idle


@on_gateway()
async def test_text_is_joined_as_it_came_r19_r23(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("Your num", "ber is ", "fif", "teen. ", "Let us go.")
        await client.until("SpeechMetadata")
    assert "number is fifteen." in " ".join(gateway.engine.spoken)


@on_gateway()
async def test_a_turn_is_heard_before_its_flush(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three. ", "Four", flush=False)
        await client.hear(3 * WORD_MS)
        await client.say(" five.")
        told = await client.until("SpeechMetadata")
        assert told["input_character_count"] == len("One two three. Four five.")
    assert len(client.speeches) == 1


@on_gateway()
async def test_text_after_a_flush_is_the_next_turn_and_waits(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two.")
        await client.say("Three ", "four.")
        await client.say("Five.", flush=False)
        for count in (8, 11):
            assert (await client.until("SpeechMetadata"))["input_character_count"] == count
        await client.until("SpeechStarted")
        await client.send("Flush")
        assert (await client.until("SpeechMetadata"))["input_character_count"] == 5
    assert len(client.speeches) == 3
    assert gateway.idle


@on_gateway()
async def test_a_flush_of_nothing_is_a_warning(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.send("Speak", text="")
        await client.send("Flush")
        assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await client.say("One.")
        await client.send("Flush")
        assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await client.until("SpeechMetadata")
    assert gateway.idle


@on_gateway()
async def test_a_flush_behind_a_turn_that_failed_is_no_second_end(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        for _ in range(2):
            await fail(gateway, client)
            await client.say("Four.")
            await client.until("SpeechMetadata")
            await client.send("Flush")  # of nothing, and nothing failed since
            assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
    kinds = [kind for kind in client.kinds if kind != "audio"]
    turns = ["SpeechStarted", "Error", "SpeechStarted", "Flushed", "SpeechMetadata", "Warning"]
    assert kinds == ["Connected", *(turns * 2)]
    assert gateway.idle


@on_gateway()
async def test_white_space_belongs_to_its_turn_and_opens_none_r8(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(" ", "\n", flush=False)
        await asyncio.sleep(1000)
        assert gateway.idle
        await client.say("One two.")
        told = await client.until("SpeechMetadata")
        assert told["input_character_count"] == len(" \nOne two.")
        await client.say(" ")
        assert (await client.until("Warning"))["code"] == "NO_SYNTHESIZABLE_TEXT"
        told = await client.until("SpeechMetadata")
        assert (told["audio_duration_ms"], told["input_character_count"]) == (0, 1)
    assert gateway.idle


@on_gateway()
async def test_unspeakable_text_is_a_short_silence_and_a_warning_r16(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("...")
        assert (await client.until("Warning"))["code"] == "NO_SYNTHESIZABLE_TEXT"
        assert 20 <= (await client.until("SpeechMetadata"))["audio_duration_ms"] <= 60
        assert client.kinds == ["Connected", "SpeechStarted", "audio", "Flushed", "Warning", "SpeechMetadata"]
        await client.say("One.")
        await client.until("SpeechMetadata")
    assert client.kinds.count("Warning") == 1


# -- configuration ----------------------------------------------------------------------------------------


@on_gateway()
async def test_a_speed_holds_from_the_next_segment_on(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.send("Configure")
        assert (await client.until("ConfigureSuccess"))["applied"] == {}
        await client.say("One two. ", "Three", flush=False)
        await client.hear(2 * WORD_MS)
        await client.send("Configure", speed=1.25)
        assert (await client.until("ConfigureSuccess"))["applied"] == {"speed": 1.25}
        await client.say(" four.")
        await client.until("SpeechMetadata")
        for value, code in ((0.45, "SPEED_OUT_OF_RANGE"), (1.07, "SPEED_INCREMENT_INVALID")):
            await client.send("Configure", speed=value)
            told = await client.until("ConfigureFailure")
            assert (told["code"], told["field"], told["value"]) == (code, "speed", value)
        await client.say("Five.")
        await client.until("SpeechMetadata")
    assert [request.speed for request in gateway.engine.requests] == [1.0, 1.25, 1.25]


@on_gateway()
async def test_a_speed_of_the_address_is_told_as_applied(gateway: Running) -> None:
    async with flux_client(gateway, "?model=tone&speed=0.5") as client:
        await client.send("Configure", speed=None)
        assert (await client.until("ConfigureSuccess"))["applied"] == {"speed": 0.5}
        await client.say("One.")
        await client.until("SpeechMetadata")
    assert gateway.engine.requests[0].speed == 0.5


# -- the address ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "width", "rate"),
    [
        ("?model=flux-alexis-en", 2, 24000),
        ("?encoding=mulaw", 1, 8000),
        ("?encoding=alaw&sample_rate=16000", 1, 16000),
        ("?encoding=linear16&sample_rate=44100&speed=1.2&mip_opt_out=true&tag=x&tag=y", 2, 44100),
    ],
)
def test_formats_r17_r30(tmp_path: Path, query: str, width: int, rate: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with flux_client(gateway, query, width=1) as client:
            await client.say("One two three.")
            told = await client.until("SpeechMetadata")
        seconds = len(client.audio) / width / rate
        assert len(client.audio) % width == 0
        assert abs(told["audio_duration_ms"] - seconds * 1000) <= 1
        assert 0.6 / 1.25 <= seconds <= 1.0

    main(tmp_path)


@pytest.mark.parametrize(
    ("query", "status", "code", "word"),
    [
        ("?encoding=mp3", 400, "UNSUPPORTED_FORMAT", "encoding"),
        ("?sample_rate=44000", 400, "UNSUPPORTED_FORMAT", "sample_rate"),
        ("?speed=9", 400, "SPEED_OUT_OF_RANGE", "speed"),
        ("?expressivity=1.5", 400, "EXPRESSIVITY_INCREMENT_INVALID", "expressivity"),
        ("?model=nobody", 404, "UNKNOWN_VOICE", "model"),
        ("?model=flux-alexis-ja", 404, "UNKNOWN_VOICE", "model"),
        ("?model=vc_" + 32 * "0", 409, "CANNOT_CLONE", "model:"),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_upgrade(
    tmp_path: Path, query: str, status: int, code: str, word: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with aiohttp.ClientSession(headers=KEY) as http:
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await http.ws_connect(gateway.url + SPEAK + query)
            assert refused.value.status == status
            async with http.get(gateway.url + SPEAK + query) as response:
                told = refusal(await response.text())
                assert response.headers["dg-error"] == f"{told['err_code']}: {told['err_msg']}"
        assert told["err_code"] == code
        assert word in told["err_msg"]

    main(tmp_path)


@on_gateway()
async def test_an_expressivity_that_voices_have_not_is_a_warning(gateway: Running) -> None:
    async with flux_client(gateway, "?expressivity=2") as client:
        assert (await client.until("Warning"))["code"] == "EXPRESSIVITY_NOT_SUPPORTED"
        await client.say("One.")
        await client.until("SpeechMetadata")


@on_gateway()
async def test_keys_come_by_header_or_subprotocol_r12(gateway: Running) -> None:
    for headers in ({"Authorization": "Token any"}, {"Authorization": "Bearer any"}):
        async with flux_client(gateway, "", headers=headers) as client:
            await client.send("Close")
            await client.until("close")
    async with flux_client(gateway, "", headers={}, protocols=("token", "any")) as client:
        assert client.ws.protocol == "token"
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(gateway.url + SPEAK)
        assert refused.value.status == 401


@on_gateway()
async def test_a_whole_text_over_http(gateway: Running) -> None:
    async with aiohttp.ClientSession(headers=KEY) as http:
        query = "?model=tone&encoding=linear16&container=none&speed=0.5"
        async with http.post(gateway.url + SPEAK + query, json={"text": "One two three."}) as response:
            assert response.status == 200
            assert 1.2 <= len(await response.read()) / 48000 <= 1.6
        async with http.post(gateway.url + SPEAK + "?speed=0.4", json={"text": "One."}) as response:
            assert refusal(await response.text())["err_code"] == "SPEED_OUT_OF_RANGE"


# -- the end ----------------------------------------------------------------------------------------------


@on_gateway()
async def test_close_speaks_all_and_tells_the_totals_r6(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        await client.say("Four.", flush=False)
        await client.send("Close")
        await client.send("Speak", text="never")
        totals = await client.until("SessionMetadata")
        assert await client.until("close") == 1000
        assert len(client.speeches) == 2
        assert client.kinds.count("Flushed") == 1
        assert client.kinds.count("SpeechMetadata") == 2
        assert totals["total_input_character_count"] == len("One two three.Four.")
        assert abs(totals["total_audio_duration_ms"] - client.samples * 1000 / RATE) <= 1
    assert "never" not in " ".join(gateway.engine.spoken)
    async with flux_client(gateway) as client:
        await client.send("Speak", text=" ")
        await client.send("Close")
        assert await client.until("close") == 1000
        assert client.kinds == ["Connected", "SessionMetadata"]


@on_gateway()
async def test_a_client_that_leaves_in_mid_audio_is_not_spoken_to(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("A long first answer. ", "And a second sentence. " * 30, flush=False)
        await asyncio.sleep(1.0)
        await client.send("Flush")
        await client.send("Close")  # as LiveKit does with a connection whose user interrupted
        assert await client.until("close") == 1000
    assert "Flushed" not in client.kinds
    assert client.samples / RATE < 1.0 + 3.0 + 0.5
    assert gateway.idle


@on_gateway()
async def test_a_client_that_goes_frees_everything(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(LONG)
        await client.say(LONG)
        await client.until("audio")
    await asyncio.sleep(1)
    assert gateway.idle
    assert not gateway.services.sockets


@on_gateway()
async def test_a_drain_lets_the_turn_finish_and_closes_with_1012_r28(gateway: Running) -> None:
    async with flux_client(gateway) as client, flux_client(gateway) as idle:
        await client.say("One two three.")
        await client.until("audio")
        gateway.services.draining.set()
        assert await idle.until("close") == 1012
        await client.until("SpeechMetadata")
        assert await client.until("close") == 1012
        assert client.kinds[-1] == "SessionMetadata"


@on_gateway()
async def test_turns_flushed_before_a_drain_are_spoken_and_new_ones_refused(gateway: Running) -> None:
    async with flux_client(gateway) as client, flux_client(gateway) as leaving:
        await client.say("One two three.")
        await client.say("Four five.")
        await client.say("Six.")
        await client.say("Not flushed", flush=False)
        await leaving.say("One two three.")
        await leaving.say("Four.", flush=False)
        await leaving.send("Close")
        left = asyncio.ensure_future(leaving.until("close"))
        await client.until("audio")
        drained = asyncio.ensure_future(drain(gateway.services))
        await asyncio.sleep(0)
        await client.send("Flush")
        await client.say("New.")
        for text in ("One two three.", "Four five.", "Six."):
            assert (await client.until("SpeechMetadata"))["input_character_count"] == len(text)
        for _ in range(2):
            assert (await client.until("Error"))["reason"] == "draining"
        assert await client.until("close") == 1012
        assert await left == 1000
        assert client.kinds[-1] == leaving.kinds[-1] == "SessionMetadata"
        assert leaving.kinds.count("SpeechMetadata") == 2
        assert await drained
    spoken = " ".join(gateway.engine.spoken)
    assert "Six." in spoken
    assert "New" not in spoken
    assert "Not" not in spoken
    assert gateway.idle


@on_gateway(drain_s=5.0)
async def test_turns_that_wait_are_told_when_a_drain_is_over(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(LONG)
        await client.say("One.")
        await client.until("audio")
        drained = asyncio.ensure_future(drain(gateway.services))
        for _ in range(2):
            assert (await client.until("Error"))["reason"] == "draining"
        assert await client.until("close") == 1012
        assert not await drained
    assert len(client.speeches) == 2
    assert client.kinds.count("SpeechMetadata") == 0
    assert gateway.idle


@on_gateway()
async def test_a_drain_does_not_wait_for_turns_that_were_dropped(gateway: Running) -> None:
    async with flux_client(gateway) as gone, flux_client(gateway) as client:
        for each in (gone, client):
            await each.say(LONG)
            await each.say(LONG)
            await each.until("audio")
        drained = asyncio.ensure_future(drain(gateway.services))
        await gone.ws.close()
        await client.interrupt()
        await client.until("SpeechInterrupted")
        assert await client.until("close") == 1012
        assert await drained
    assert gateway.idle


@on_gateway()
async def test_idle_sockets_hold_no_place_and_idle_turns_are_told_r10_r14(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two.", flush=False)
        await client.until("SpeechMetadata")  # of a turn that got no text for minutes
        assert gateway.idle
        await asyncio.sleep(3000)
        await client.say("Three.")
        await client.until("SpeechMetadata")

"""Deepgram's turn-based dialect: turns, what a barge-in tells, configuration, closing, bad input."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.deepgram import KEY
from tests.peers.deepgram_flux import RATE, FluxClient, flux_client, refusal
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

SPEAK = "/v2/speak"
WORD_MS = 200
"""Of audio, with the engine of these tests."""
LONG = "word " * 200


def words(gateway: Running) -> str:
    return " ".join(request.text for request in gateway.engine.requests)


def whole(told: dict[str, Any]) -> str:
    text: str = told["text_spoken"] + told["text_remaining"]
    return text


async def hear(client: FluxClient, ms: int) -> None:
    """Read until so much audio of the session has come."""
    while client.samples * 1000 < ms * RATE:
        await client.next()


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
    assert "number is fifteen." in words(gateway)


@on_gateway()
async def test_a_turn_is_heard_before_its_flush(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three. ", "Four", flush=False)
        await hear(client, 3 * WORD_MS)
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
        await client.say("One.")
        await client.until("SpeechMetadata")
    assert client.kinds.count("Warning") == 1


# -- interrupts -------------------------------------------------------------------------------------------


@on_gateway()
async def test_an_interrupt_tells_what_was_heard(gateway: Running) -> None:
    text = "One two three four five six seven eight nine ten eleven twelve."
    async with flux_client(gateway) as client:
        await client.say(text)
        await hear(client, 2000)
        await client.interrupt(3 * WORD_MS + 150)
        told = await client.until("SpeechInterrupted")
        assert told["audio_played_ms"] == 3 * WORD_MS + 150
        assert told["text_spoken"] == "One two three four"
        assert whole(told) == text
        await asyncio.sleep(30)
        await client.send("Flush")
        await client.until("Warning")
        # No audio, no Flushed, no SpeechMetadata came after it (R1, R3).
        assert client.kinds[-2:] == ["SpeechInterrupted", "Warning"]
        assert gateway.idle


@on_gateway()
async def test_offsets_count_over_the_session_and_must_advance(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        first = (await client.until("SpeechMetadata"))["audio_duration_ms"]
        await asyncio.sleep(first / 1000)
        await client.say("Four five six seven eight nine.")
        await hear(client, first + 1000)
        await client.interrupt(first + WORD_MS + 10)
        told = await client.until("SpeechInterrupted")
        assert told["text_spoken"] == "Four"
        # The client stopped there, and counts the next turn from there.
        base = first + WORD_MS + 10
        await client.say("Ten eleven twelve thirteen.")
        await client.until("audio")
        await client.interrupt(base)
        assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
        await client.until("Flushed")
        await client.interrupt(base + 2 * WORD_MS)
        told = await client.until("SpeechInterrupted")
        assert told["text_spoken"] == "Ten eleven"
        assert told["text_remaining"] == " twelve thirteen."
        await client.send("Close")
        totals = await client.until("SessionMetadata")
        assert totals["total_audio_duration_ms"] == base + 2 * WORD_MS
        sent = "One two three.Four five six seven eight nine.Ten eleven twelve thirteen."
        assert totals["total_input_character_count"] == len(sent)
        assert await client.until("close") == 1000


@on_gateway()
async def test_without_an_offset_it_tells_what_was_sent_and_no_text(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(LONG)
        await hear(client, 1000)
        await client.interrupt()
        told = await client.until("SpeechInterrupted")
        assert set(told) == {"type", "audio_played_ms", "metadata"}
        assert told["audio_played_ms"] == round(client.samples * 1000 / RATE)
        base = told["audio_played_ms"]
        await client.say("One two three.")
        await client.until("SpeechStarted")
        await client.interrupt(base)
        assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
        await hear(client, base + 3 * WORD_MS)
        await client.interrupt(base + WORD_MS)
        assert (await client.until("SpeechInterrupted"))["text_spoken"] == "One"


@on_gateway()
async def test_the_end_of_a_turn_that_was_sent_and_not_yet_heard(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        done = await client.until("SpeechMetadata")
        await client.interrupt()
        assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await client.interrupt(2 * WORD_MS)
        told = await client.until("SpeechInterrupted")
        assert told["metadata"]["speech_id"] == done["speech_id"]
        assert (told["text_spoken"], told["text_remaining"]) == ("One two", " three.")
        await client.interrupt(2 * WORD_MS + 1)
        assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await client.say("Four five.")
        done = await client.until("SpeechMetadata")
        await client.interrupt(2 * WORD_MS + done["audio_duration_ms"])
        assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"  # all of it was heard


@on_gateway(lambda: ToneEngine(work_s=1.0))
async def test_one_before_the_first_audio_cuts_the_turn(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.interrupt(0)
        assert (await client.until("Warning"))["code"] == "NO_AUDIO_GENERATED"
        await client.say("One two three.")
        await client.until("SpeechStarted")
        await client.interrupt(0)
        told = await client.until("SpeechInterrupted")
        assert (told["audio_played_ms"], told["text_spoken"]) == (0, "")
        assert told["text_remaining"] == "One two three."
        await client.say("Four.")
        await client.until("SpeechMetadata")
        assert client.samples * 1000 <= (WORD_MS + 200) * RATE
    assert gateway.idle


@on_gateway()
async def test_it_drops_the_turns_that_wait_too(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(LONG)
        await client.say("Never one.")
        await client.say("Never two", flush=False)
        await hear(client, 1000)
        await client.interrupt(500)
        assert whole(await client.until("SpeechInterrupted")) == LONG
        await client.say("Second answer.")
        await client.until("SpeechMetadata")
    assert len(client.speeches) == 2
    assert "Never" not in words(gateway)


@on_gateway()
async def test_an_offset_within_the_turn_before_has_heard_nothing_of_this_one(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        await client.say("Four five.")
        await client.until("SpeechMetadata")
        await client.until("audio")
        await client.interrupt(WORD_MS)
        told = await client.until("SpeechInterrupted")
        assert (told["text_spoken"], told["text_remaining"]) == ("", "Four five.")


@on_gateway()
async def test_an_offset_beyond_what_was_sent_has_heard_it_all(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three. ", flush=False)
        await hear(client, 3 * WORD_MS)
        await asyncio.sleep(2)
        await client.interrupt(10_000)
        told = await client.until("SpeechInterrupted")
        assert told["audio_played_ms"] == 10_000
        assert (told["text_spoken"], told["text_remaining"]) == ("One two three.", " ")
        await client.say("Four five.")
        await client.until("SpeechMetadata")
        await client.interrupt(10_000 + WORD_MS)
        assert (await client.until("SpeechInterrupted"))["text_spoken"] == "Four"
        await client.send("Close")
        totals = await client.until("SessionMetadata")
        assert totals["total_audio_duration_ms"] < 2000


@on_gateway()
async def test_fifty_quick_interruptions_r7(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        for _ in range(50):
            await client.say(LONG)
            await client.interrupt()
        for _ in range(50):
            assert (await client.until("SpeechInterrupted"))["metadata"]["input_character_count"] == len(LONG)
        await client.say("At last.")
        await client.until("SpeechMetadata")
    assert client.kinds.count("Flushed") == 1
    assert gateway.idle


# -- configuration ----------------------------------------------------------------------------------------


@on_gateway()
async def test_a_speed_holds_from_the_next_segment_on(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.send("Configure")
        assert (await client.until("ConfigureSuccess"))["applied"] == {}
        await client.say("One two. ", "Three", flush=False)
        await hear(client, 2 * WORD_MS)
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
    assert "never" not in words(gateway)
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
async def test_idle_sockets_hold_no_place_and_idle_turns_are_told_r10_r14(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two.", flush=False)
        await client.until("SpeechMetadata")  # of a turn that got no text for minutes
        assert gateway.idle
        await asyncio.sleep(3000)
        await client.say("Three.")
        await client.until("SpeechMetadata")


# -- trouble ----------------------------------------------------------------------------------------------

BAD = [
    ("", "MESSAGE-0000"),
    ("{", "MESSAGE-0000"),
    ("[]", "MESSAGE-0000"),
    ("null", "MESSAGE-0000"),
    ('{"type":"Speak"}', "MESSAGE-0000"),
    ('{"type":"Speak","text":7}', "MESSAGE-0000"),
    ('{"type":"Clear"}', "DATA-0000"),
    ('{"type":null}', "MESSAGE-0000"),
    ('{"text":"x"}', "MESSAGE-0000"),
    ('{"type":"Configure","speed":"fast"}', "MESSAGE-0000"),
    ('{"type":"Interrupt","playback_offset":{"type":"time_ms"}}', "MESSAGE-0000"),
    ('{"type":"Interrupt","playback_offset":{"type":"bytes","value":1}}', "DATA-0000"),
    ("[" * 60_000, "MESSAGE-0000"),
]


@on_gateway()
async def test_bad_messages_are_errors_and_harm_nothing(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.send("Speak", text="One ")
        for raw, code in BAD:
            await client.ws.send_str(raw)
            told = await client.until("Error")
            assert told["code"] == code, raw[:60]
            assert "Traceback" not in told["description"]
        await client.ws.send_bytes(b"\0\1")
        assert (await client.until("Error"))["code"] == "MESSAGE-0000"
        await client.send("Speak", text="\ud800 two\0 ")
        await client.say("three.")
        assert (await client.until("SpeechMetadata"))["audio_duration_ms"] >= 3 * WORD_MS
    assert len(client.speeches) == 1
    assert gateway.idle


@on_gateway()
async def test_too_much_text_is_an_error_and_what_was_said_is_spoken(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.send("Speak", text="One two. ")
        await client.send("Speak", text="word " * 12_000)
        assert (await client.until("Error"))["code"] == "BIG-0000"
        await client.send("Flush")
        await client.send("Speak", text="word " * 12_000)
        assert (await client.until("Error"))["code"] == "BIG-0000"
        assert (await client.until("SpeechMetadata"))["input_character_count"] == 9
        await client.say(LONG)
        for _ in range(600):
            await client.say("a")
        assert (await client.until("Error"))["code"] == "BIG-0000"
        await client.interrupt()
        await client.until("SpeechInterrupted")
    assert gateway.idle


@on_gateway(lambda: ToneEngine(slots=1), max_contexts=1)
async def test_no_room_is_an_error_at_once_and_the_socket_lives(gateway: Running) -> None:
    async with flux_client(gateway) as first, flux_client(gateway) as second:
        await first.say(LONG)
        await first.until("audio")
        await second.say("One.")
        told = await second.until("Error")
        assert (told["code"], told["reason"]) == ("NET-0000", "busy")
        assert (await second.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
        await first.interrupt()
        await first.until("SpeechInterrupted")
        await second.say("One.")
        await second.until("SpeechMetadata")


@on_gateway()
async def test_an_engine_that_fails_is_told_once_and_the_next_turn_speaks_r13(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
        await client.say("One two three four five.")
        await client.say("Next.")
        told = await client.until("Error")
        assert (told["code"], told["reason"]) == ("NET-0000", "engine_crashed")
        gateway.engine.fail = None
        assert (await client.until("SpeechMetadata"))["input_character_count"] == len("Next.")
    assert client.kinds.count("Error") == 1
    assert client.kinds.count("SpeechMetadata") == 1
    assert gateway.idle


TEXTS = ["One two. ", "three ", "...", "", " ", "4.", "<b>five</b> ", "six seven eight nine ten. "]
STEPS = st.one_of(
    st.tuples(st.just("Speak"), st.sampled_from(TEXTS)),
    st.tuples(st.just("Flush"), st.none()),
    st.tuples(st.just("Interrupt"), st.sampled_from([None, -1000.0, 0.0, 0.5, 1.0, 1.001, 9.0])),
    st.tuples(st.just("Configure"), st.sampled_from([None, 1, 0.5, 1.07, 9])),
    st.tuples(st.just("bad"), st.sampled_from([raw for raw, _ in BAD])),
    st.tuples(st.just("wait"), st.sampled_from([0, 0.05, 2, 40])),
)
"""An interrupt's offset is a share of what has come."""


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, max_size=25))
def test_any_order_of_messages_keeps_turns_whole(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with flux_client(gateway) as client:
            reading = asyncio.ensure_future(client.until("close"))
            for kind, value in steps:
                if kind == "bad":
                    await client.ws.send_str(value)
                elif kind == "wait":
                    await asyncio.sleep(value)
                elif kind == "Interrupt":
                    come = client.samples * 1000 / RATE
                    await client.interrupt(None if value is None else value * come)
                elif kind == "Configure":
                    await client.send(kind, speed=value)
                else:
                    await client.send(kind, text=value)
            await client.say("At last.")
            await client.send("Close")
            assert await reading == 1000
        kinds, sent = client.kinds, [kind for kind, _ in steps]
        cut = [told for kind, told in client.order if kind == "SpeechInterrupted"]
        # Each turn ended; those twice whose end was not heard any more.
        assert client.speaking is None
        assert 0 <= len(cut) + kinds.count("SpeechMetadata") - kinds.count("SpeechStarted") <= len(cut)
        assert kinds.count("ConfigureSuccess") + kinds.count("ConfigureFailure") == sent.count("Configure")
        assert kinds.count("Error") == sent.count("bad")
        assert len(cut) <= sent.count("Interrupt")
        assert kinds.count("Flushed") <= sent.count("Flush") + 1
        for told in cut:
            if "text_spoken" in told:
                assert len(whole(told)) == told["metadata"]["input_character_count"]
        positions = [told["audio_played_ms"] for told in cut]
        assert positions == sorted(positions)
        assert kinds[-1] == "SessionMetadata"
        totals = client.order[-1][1]
        typed = sum(len(value) for kind, value in steps if kind == "Speak")
        assert totals["total_input_character_count"] == typed + len("At last.")
        assert totals["total_audio_duration_ms"] <= client.samples * 1000 / RATE + 1
        assert gateway.idle

    main(tmp_path_factory.mktemp("flux"))

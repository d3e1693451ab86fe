"""Bad input, trouble, and any order of messages on Deepgram's turn-based dialect, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.peers.deepgram_flux import LONG, RATE, WORD_MS, flux_client, whole
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

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


@on_gateway()
async def test_the_flush_of_a_text_that_is_too_long_is_no_second_end(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        for _ in range(2):
            await client.say("a" * 60_000)
            assert (await client.until("Error"))["code"] == "BIG-0000"
            await client.say("One.")
            await client.until("SpeechMetadata")
        assert "Warning" not in client.kinds
        # The excuse is of the flush behind the error alone.
        for more in ("Interrupt", "Speak"):
            await client.say("a" * 60_000, flush=False)
            await client.until("Error")
            if more == "Interrupt":
                await client.interrupt()
                await client.until("Warning")
            else:
                await client.say(" ")
                await client.until("SpeechMetadata")
            await client.send("Flush")
            assert (await client.until("Warning"))["code"] == "NO_ACTIVE_SPEECH"
    assert gateway.idle


@on_gateway(lambda: ToneEngine(slots=1), max_contexts=1)
async def test_no_room_is_an_error_at_once_and_the_socket_lives(gateway: Running) -> None:
    async with flux_client(gateway) as first, flux_client(gateway) as second:
        await first.say(LONG)
        await first.until("audio")
        for _ in range(2):
            await second.say("One.")  # its flush, on the heels of the text, is no second end
            told = await second.until("Error")
            assert (told["code"], told["reason"]) == ("NET-0000", "busy")
        assert "Warning" not in second.kinds
        await second.send("Flush")
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
        assert client.speaking is None
        assert len(cut) + kinds.count("SpeechMetadata") == kinds.count("SpeechStarted")  # each ended once
        assert kinds.count("ConfigureSuccess") + kinds.count("ConfigureFailure") == sent.count("Configure")
        assert kinds.count("Error") == sent.count("bad")
        assert len(cut) <= sent.count("Interrupt")
        assert kinds.count("Flushed") <= sent.count("Flush") + 1
        for told in cut:
            if "text_spoken" in told:
                assert len(whole(told)) == told["metadata"]["input_character_count"]
        told_of = {"SpeechInterrupted", "Warning"}
        stops = [told for kind, told in client.order if kind in told_of and "audio_played_ms" in told]
        positions = [told["audio_played_ms"] for told in stops]
        assert positions == sorted(positions)
        assert kinds[-1] == "SessionMetadata"
        totals = client.order[-1][1]
        typed = sum(len(value) for kind, value in steps if kind == "Speak")
        assert totals["total_input_character_count"] == typed + len("At last.")
        assert totals["total_audio_duration_ms"] <= client.samples * 1000 / RATE + 1
        assert gateway.idle

    main(tmp_path_factory.mktemp("flux"))

"""A context of the ElevenLabs protocol: text, schedule, flush, close and character times, rule by rule."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from gateway.dialects.elevenlabs_schedule import PAUSE_S
from tests import virtual
from tests.peers.elevenlabs import PCM, eleven_client
from tests.peers.gateway import Running, on_gateway
from tts_core.errors import EngineCrashed

AUTO = PCM + "&auto_mode=true"
DRAIN = PCM + "&close_context_policy=drain"
SYNC = PCM + "&sync_alignment=true"
LONG = "One two three four five. " * 20
DELTAS = ("Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships.")
WORD_S = 0.2


# Text


@on_gateway()
async def test_deltas_join_verbatim_r23(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        for piece in DELTAS:
            await client.say("a", piece)
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.chars == "".join(DELTAS)
    assert "first delta" in " ".join(gateway.engine.spoken)
    assert [word for word, _ in turn.words] == "".join(DELTAS).split()
    assert gateway.idle


@on_gateway()
async def test_a_blank_between_two_deltas_is_text(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        for piece in ("One", " ", "two", " ", "three."):
            await client.say("a", piece)
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.chars == "One two three."
    assert gateway.engine.spoken == ["One two three."]


@on_gateway()
async def test_phrases_of_auto_mode_get_one_separator_r19(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        await client.open("a")
        await client.say("a", "Order 12345.")
        await client.say("a", "Let me see. ")
        await client.say("a", "Fine")
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.chars == "Order 12345. Let me see. Fine "
    assert len(gateway.engine.spoken) == 3


@on_gateway()
async def test_auto_mode_speaks_a_phrase_without_waiting(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        began = virtual.clock()
        await client.open("a")
        await client.say("a", "Well")
        await client.audio("a", 0.01)
        assert virtual.clock() - began < 0.1
        await client.close("a")
        await client.ended("a")


@pytest.mark.parametrize("text", ["...", "😀", "---", "!?"])
def test_unspeakable_text_is_a_short_silence_r16(tmp_path: Path, text: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with eleven_client(gateway) as client:
            await client.open("a")
            await client.say("a", text)
            await client.finish("a")
            (turn,) = await client.ended("a")
            assert 0.02 <= turn.seconds <= 0.06
            assert turn.chars == text
            assert client.transcript.errors == []

    main(tmp_path)


@on_gateway()
async def test_a_tag_split_over_messages_is_never_spoken_r20(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        for piece in ("One <br", 'eak time="1', 's"/> two.'):
            await client.say("a", piece)
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert "break" not in " ".join(gateway.engine.spoken)
        assert turn.seconds > 2 * WORD_S + 0.9
        assert turn.chars == 'One <break time="1s"/> two.'
    async with eleven_client(gateway, query=PCM + "&enable_ssml_parsing=false") as client:
        await client.say("a", 'One <break time="1s"/> two.')
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert turn.seconds < 2 * WORD_S + 0.5
    assert "break" not in " ".join(gateway.engine.spoken)


@on_gateway()
async def test_markdown_and_emoji_are_told_but_not_spoken_r24_r25(gateway: Running) -> None:
    text = "**Bold** words 😀 and `code`. "
    async with eleven_client(gateway) as client:
        await client.say("a", text)
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.chars == text
    assert not set("*`😀") & set(" ".join(gateway.engine.spoken))


# Schedule


@on_gateway()
async def test_text_waits_for_the_schedule_and_no_longer(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", "One two three four five. " * 4)  # 100 characters
        await asyncio.sleep(PAUSE_S / 2)
        assert gateway.engine.spoken == []
        await client.say("a", "Six seven eight nine ten. ")
        await client.audio("a", 0.01)
        await client.close("a")
        await client.ended("a")


@on_gateway()
async def test_a_pause_lets_go_of_what_the_schedule_holds(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        began = virtual.clock()
        await client.open("a")
        await client.say("a", "One moment please. ")
        await client.audio("a", 0.01)
        assert PAUSE_S <= virtual.clock() - began < 2.0  # pipecat gives up after three seconds of silence
        await client.finish("a")
        await client.ended("a")


@on_gateway()
async def test_the_clients_own_schedule_and_its_triggers(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a", generation_config={"chunk_length_schedule": [10, 290]})
        await client.say("a", "One. Two. Three. ")
        await client.audio("a", 0.01)
        await client.say("a", "Four five six seven. ", try_trigger_generation=True)
        await asyncio.sleep(PAUSE_S / 2)
        spoken = len(gateway.engine.spoken)
        await client.say("a", "Eight nine ten eleven twelve thirteen. ", try_trigger_generation=True)
        await asyncio.sleep(0.1)
        assert len(gateway.engine.spoken) > spoken
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.chars.startswith("One. Two. Three. Four five six seven. Eight")


@on_gateway()
async def test_a_flush_lets_go_of_everything(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", "One tw", flush=True)
        turn = await client.audio("a", 2 * WORD_S - 0.01)
        assert turn.chars == "One tw"
        await client.finish("a")
        await client.ended("a")


# Closing


@on_gateway()
async def test_a_bare_flush_then_close_drains_r6(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", LONG)
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.seconds > 99 * WORD_S
    assert turn.chars == LONG


@pytest.mark.parametrize("flush", [{"flush": True}, {"text": "", "flush": True}])
def test_both_forms_of_a_bare_flush_drain(tmp_path: Path, flush: dict[str, Any]) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with eleven_client(gateway) as client:
            await client.say("a", "One two three.")
            await client.send({"context_id": "a", **flush})
            await client.send({"context_id": "a", "text": ""})  # a keep-alive is nothing that was said
            await client.close("a")
            (turn,) = await client.ended("a")
            assert turn.seconds > 2.9 * WORD_S

    main(tmp_path)


@on_gateway()
async def test_close_without_a_bare_flush_cuts_at_once_r1(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        await client.open("a")
        await client.say("a", LONG, flush=True)  # LiveKit flushes each sentence with its text
        turn = await client.audio("a", 1.0)
        began = virtual.clock()
        await client.close("a")
        await client.ended("a")
        assert virtual.clock() - began < 0.02
        seconds = turn.seconds
        assert gateway.idle
        await asyncio.sleep(30)
        assert await client.settled() == []  # the transcript fails on anything of "a"
        assert turn.seconds == seconds < 5
        await client.say("b", "Second answer.")
        await client.finish("b")
        await client.ended("b")


@on_gateway()
async def test_a_second_close_cuts_what_drains_r1(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", LONG)
        await client.finish("a")
        turn = await client.audio("a", 1.0)
        await client.close("a")
        await client.ended("a")
        assert turn.seconds < 5
        await client.close("a")  # and a third one means nothing
        assert await client.settled() == []
    assert gateway.idle


@on_gateway()
async def test_under_the_vendors_rule_what_was_flushed_is_spoken(gateway: Running) -> None:
    async with eleven_client(gateway, query=DRAIN) as client:
        await client.say("a", "One two three. ", flush=True)
        await client.say("a", "Never heard. ")
        await client.close("a")
        (turn,) = await client.ended("a")
    assert turn.chars == "One two three. "
    assert gateway.engine.spoken == ["One two three."]


@on_gateway(close_context_policy="drain")
async def test_the_policy_is_a_setting_that_a_connection_may_override(gateway: Running) -> None:
    async with eleven_client(gateway, query=AUTO) as client:
        await client.say("a", "One two three. ", flush=True)
        await client.close("a")
        (turn,) = await client.ended("a")
        assert turn.seconds > 2.9 * WORD_S
    async with eleven_client(gateway, query=AUTO + "&close_context_policy=smart") as client:
        await client.say("a", "One two three. ", flush=True)
        await client.close("a")
        (turn,) = await client.ended("a")
        assert turn.seconds < 2.9 * WORD_S


@on_gateway()
async def test_a_turn_without_text_just_ends_r8(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.finish("a")
        await client.open("b")
        await client.close("b")
        for turn in await client.ended("a", "b"):
            assert turn.audio == b""
        assert client.transcript.errors == []
    assert gateway.engine.requests == []


@on_gateway()
async def test_text_for_a_closing_context_is_refused_and_the_rest_is_spoken(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.say("a", LONG)
        await client.finish("a")
        await client.send({"context_id": "a", "text": ""})
        await client.send({"context_id": "a", "text": " "})
        await client.flush("a")
        await client.say("a", "More.")
        error = await client.error()
        assert (error["error"], error["contextId"]) == ("bad_request", "a")
        assert "isFinal" not in error
        (turn,) = await client.ended("a")
        assert turn.seconds > 99 * WORD_S
        await client.say("a", "Again.")  # the id is free now
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert turn.chars == "Again."


# Settings


@on_gateway()
async def test_settings_may_repeat_be_late_or_null_r8(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a", voice_settings=None)
        await client.say("a", "One two three. ", flush=True, voice_settings={"speed": 2.0, "stability": 0.5})
        turn = await client.audio("a", 3 * WORD_S / 2 - 0.01)
        await client.say("a", "One two three. ", flush=True, voice_settings={"speed": 1.0})
        await client.say("a", " ", voice_settings={})
        await client.finish("a")
        await client.ended("a")
        assert turn.seconds == pytest.approx(4.5 * WORD_S, abs=0.3)
        assert client.transcript.errors == []
    assert [request.speed for request in gateway.engine.requests] == [2.0, 1.0]


@on_gateway()
async def test_a_bad_setting_is_refused_and_the_context_goes_on(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", "One.", voice_settings={"speed": 99})
        error = await client.error()
        assert "voice_settings.speed" in error["message"]
        assert "isFinal" not in error
        await client.say("a", "Two.")
        await client.finish("a")
        await client.ended("a")
    assert gateway.engine.spoken == ["Two."]


# Character times


@on_gateway()
async def test_both_clocks_of_clients_agree_over_pauses_r25(gateway: Running) -> None:
    async with eleven_client(gateway) as client:
        await client.open("a")
        await client.say("a", 'One two. <break time="2s"/> Three four. ', flush=True)
        await asyncio.sleep(1)
        await client.say("a", "Five six seven.")
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert turn.starts == pytest.approx(turn.summed, abs=1)
    assert turn.clock == pytest.approx(turn.seconds * 1000, abs=1)
    starts = dict(turn.words)
    assert starts["two."] == pytest.approx(WORD_S, abs=0.01)
    assert starts["Three"] >= 2 * WORD_S + 2.0


@on_gateway()
async def test_livekit_counts_array_elements_so_none_is_empty(gateway: Running) -> None:
    async with eleven_client(gateway, query=SYNC, turn={"filled": False}) as client:
        await client.say("a", 'One. <break time="1s"/> Two.')
        await client.finish("a")
        (turn,) = await client.ended("a")
    assert dict(turn.words)["Two."] > 1.0


@on_gateway(elevenlabs_absolute_alignment=True)
async def test_absolute_times_where_both_sides_ask_for_them(gateway: Running) -> None:
    async with eleven_client(gateway, query=SYNC, turn={"filled": False, "absolute": True}) as client:
        await client.say("a", "One two. Three four.")
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert dict(turn.words)["four."] == pytest.approx(turn.seconds - WORD_S, abs=0.05)
    async with eleven_client(gateway) as client:
        await client.say("a", "One two. Three four.")
        await client.finish("a")
        (turn,) = await client.ended("a")
        assert turn.clock == pytest.approx(turn.seconds * 1000, abs=1)


# Sound


@pytest.mark.parametrize(
    ("name", "rate", "width"),
    [(f"pcm_{rate}", rate, 2) for rate in (8000, 16000, 22050, 24000, 32000, 44100, 48000)]
    + [("ulaw_8000", 8000, 1), ("alaw_8000", 8000, 1)],
)
def test_every_format_has_exactly_its_bytes_r30(tmp_path: Path, name: str, rate: int, width: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        turn = {"rate": rate, "width": width}
        async with eleven_client(gateway, query=f"output_format={name}", turn=turn) as client:
            await client.say("a", "One two three.")
            await client.finish("a")
            (got,) = await client.ended("a")
            assert len(got.audio) / width == pytest.approx(3 * WORD_S * rate, abs=2)

    main(tmp_path)


@pytest.mark.parametrize(
    ("name", "magic"), [("mp3_22050_32", b"\xff"), ("mp3_44100_128", b"\xff"), ("opus_48000_64", b"OggS")]
)
def test_compressed_sound_begins_as_its_format_does(tmp_path: Path, name: str, magic: bytes) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with eleven_client(gateway, query=f"output_format={name}") as client:
            await client.ws.send_json({"context_id": "a", "text": "One two three.", "flush": True})
            await client.ws.send_json({"context_id": "a", "flush": True})
            await client.ws.send_json({"context_id": "a", "close_context": True})
            data, chars, span = b"", "", 0
            while not (message := await client.ws.receive_json())["isFinal"]:
                data += base64.b64decode(message["audio"] or "")
                if found := message["alignment"]:
                    chars += "".join(found["chars"])
                    span += found["charStartTimesMs"][-1] + found["charDurationsMs"][-1]
            assert data.startswith(magic) or data.startswith(b"ID3")
            assert chars == "One two three."
            assert span == pytest.approx(3 * WORD_S * 1000, abs=2)
        assert gateway.idle

    main(tmp_path)


# Failures


@on_gateway()
async def test_a_failed_context_ends_with_its_error_r13(gateway: Running) -> None:
    gateway.engine.fail, gateway.engine.fail_after_chunks = EngineCrashed("the voice failed"), 2
    async with eleven_client(gateway) as client:
        await client.say("a", LONG, flush=True)
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert (turn.end["error"], turn.end["code"], turn.end["isFinal"]) == ("engine_crashed", 1011, True)
        gateway.engine.fail = None
        await client.say("b", "Second answer.")
        await client.finish("b")
        await client.ended("b")
    assert gateway.idle

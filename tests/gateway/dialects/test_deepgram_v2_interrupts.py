"""What Deepgram's turn-based dialect tells of what was heard, in virtual time."""

from __future__ import annotations

import asyncio

from tests.peers.deepgram_flux import LONG, RATE, WORD_MS, flux_client, whole
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine


@on_gateway(run_ahead_s=0.3)
async def test_an_interrupt_tells_what_was_heard(gateway: Running) -> None:
    text = "One two three four five six seven eight nine ten eleven twelve."
    async with flux_client(gateway) as client:
        await client.say(text)
        await client.hear(2000)
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


@on_gateway(run_ahead_s=0.3)
async def test_offsets_count_over_the_session_and_must_advance(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        first = (await client.until("SpeechMetadata"))["audio_duration_ms"]
        await asyncio.sleep(first / 1000)
        await client.say("Four five six seven eight nine.")
        await client.hear(first + 600)
        await client.interrupt(first + WORD_MS + 10)
        told = await client.until("SpeechInterrupted")
        assert told["text_spoken"] == "Four"
        # The client stopped there, and counts the next turn from there.
        base = first + WORD_MS + 10
        await client.say("Ten eleven twelve thirteen.")
        await client.begin(2 * WORD_MS)
        await client.interrupt(base)
        assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
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


@on_gateway(run_ahead_s=0.3)
async def test_without_an_offset_it_tells_what_was_sent_and_no_text(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say(LONG)
        await client.hear(1000)
        await client.interrupt()
        told = await client.until("SpeechInterrupted")
        assert set(told) == {"type", "audio_played_ms", "metadata"}
        assert told["audio_played_ms"] == round(client.samples * 1000 / RATE)
        base = told["audio_played_ms"]
        await client.say("One two three four five.")
        await client.begin(WORD_MS)
        await client.interrupt(base)
        assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
        await client.interrupt(base + WORD_MS)
        assert (await client.until("SpeechInterrupted"))["text_spoken"] == "One"


@on_gateway()
async def test_one_that_comes_after_the_end_of_its_turn_is_no_second_end_r2_r13(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        done = await client.until("SpeechMetadata")
        await client.interrupt()
        assert "text_spoken" not in await client.late()
        await client.interrupt(2 * WORD_MS)  # the end was sent and not yet heard
        told = await client.late()
        assert (told["speech_id"], told["audio_played_ms"]) == (done["speech_id"], 2 * WORD_MS)
        assert (told["text_spoken"], told["text_remaining"]) == ("One two", " three.")
        await client.interrupt(2 * WORD_MS + 1)
        assert "text_spoken" not in await client.late()
        await client.say("Four five.")
        done = await client.until("SpeechMetadata")
        await client.interrupt(2 * WORD_MS + done["audio_duration_ms"])
        assert "text_spoken" not in await client.late()  # all of it was heard
    assert client.kinds.count("SpeechMetadata") == 2
    assert "SpeechInterrupted" not in client.kinds


@on_gateway()
async def test_the_next_turn_counts_from_where_a_late_one_stopped(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three four five six.")
        await client.until("SpeechMetadata")
        stopped = 2 * WORD_MS + 50  # the client throws the rest away
        await client.interrupt(stopped)
        await client.late()
        await client.say(LONG)
        await client.until("audio")
        await client.interrupt(stopped)
        assert (await client.until("Warning"))["code"] == "INVALID_INTERRUPT_OFFSET"
        await client.interrupt(stopped + 3 * WORD_MS)
        assert (await client.until("SpeechInterrupted"))["text_spoken"] == "word word word"


@on_gateway()
async def test_one_behind_a_turn_of_white_space_tells_of_the_turn_that_is_heard(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        done = await client.until("SpeechMetadata")
        await client.say(" ")
        await client.until("SpeechMetadata")
        await client.interrupt(WORD_MS)
        told = await client.late()
        assert (told["speech_id"], told["text_spoken"]) == (done["speech_id"], "One")


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
        await client.hear(1000)
        await client.interrupt(500)
        assert whole(await client.until("SpeechInterrupted")) == LONG
        await client.say("Second answer.")
        await client.until("SpeechMetadata")
    assert len(client.speeches) == 2
    assert "Never" not in " ".join(gateway.engine.spoken)


@on_gateway(run_ahead_s=0.3)
async def test_an_offset_within_the_turn_before_has_heard_nothing_of_this_one(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three.")
        await client.say("Four five six.")
        await client.until("SpeechMetadata")
        await client.until("audio")
        await client.interrupt(WORD_MS)
        told = await client.until("SpeechInterrupted")
        assert (told["text_spoken"], told["text_remaining"]) == ("", "Four five six.")


@on_gateway(run_ahead_s=0.3)
async def test_an_offset_beyond_what_was_sent_has_heard_it_all(gateway: Running) -> None:
    async with flux_client(gateway) as client:
        await client.say("One two three. ", flush=False)
        await client.hear(3 * WORD_MS)
        await asyncio.sleep(2)
        await client.interrupt(10_000)
        told = await client.until("SpeechInterrupted")
        assert told["audio_played_ms"] == 10_000
        assert (told["text_spoken"], told["text_remaining"]) == ("One two three.", " ")
        await client.say("Four five six seven.")
        await client.begin(WORD_MS)
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

"""The rules of ``test_rules`` about text and samples, tried at every door in virtual time."""

from __future__ import annotations

import asyncio
import json
import re

from tests.peers.cartesia import cartesia_client
from tests.peers.doors import POSTS, SOCKETS, PostDoor, SocketDoor, door_client, on_doors, post, spoken
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import native_client
from tests.tone import RATE, ToneEngine
from tts_core.errors import EngineCrashed

SECRET = "configured-key-of-test"
WORD = round(0.2 * RATE) * 2
"""Bytes of a word."""
TRAPS = "It costs 3.50 on 12.05.2024, ask Dr. Li at a@b.co or www.x.com. It was 1999. Good."
MARKDOWN = "# Title\n\nThis is **bold** \U0001f600 and `code`.\n\n```\nx = 1\n```\nDone."
CODE = "Look.\n```\nrun this\n```\nDone."


def said(gateway: Running) -> str:
    return " ".join(gateway.engine.spoken)


# Text


@on_doors(SOCKETS)
async def test_deltas_join_verbatim_r19_trap_spacing(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.speak("a", "Your num", "ber is fif", "teen, 3", ".5", " in all.", " Let us go.")
    assert re.sub(r"\s+", " ", said(gateway)) == "Your number is fifteen, three point five in all. Let us go."


@on_doors([door for door in SOCKETS if door.name in {"native", "cartesia", "elevenlabs"}])
async def test_whole_sentences_get_one_separator_r19_trap_spacing(gateway: Running, door: SocketDoor) -> None:
    """As pipecat sends them in its sentence mode: stripped, with the dialect's sign that they are whole."""

    class Whole(type(door)):  # type: ignore[misc]
        path = door.path + ("&auto_mode=true" if door.name == "elevenlabs" else "")

        def say(self, context, text, *, first):  # type: ignore[no-untyped-def]
            mode = {"native": {"text_mode": "segment"}, "cartesia": {"max_buffer_delay_ms": 0}}
            return [m | mode.get(self.name, {}) for m in super().say(context, text, first=first)]

    async with door_client(gateway, Whole()) as client:
        await client.speak("a", "The code is 12345.", "Let us go.")
    assert gateway.engine.spoken == ["The code is one two, three four five.", "Let us go."]


@on_doors(SOCKETS)
async def test_markup_split_over_messages_is_never_spoken_r20(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.speak(
            "a", "One <", "bre", 'ak time="0.', '5s"', "/> two <emo", 'tion value="x"/> three.'
        )
    assert re.findall(r"\w+", said(gateway)) == ["One", "two", "three"]


@on_doors(SOCKETS)
async def test_any_split_gives_the_same_speech_r22_r23_trap_text_feed(
    gateway: Running, door: SocketDoor
) -> None:
    heard = []
    for texts in ([TRAPS], list(TRAPS), re.findall(r"\S+ ?", TRAPS), [TRAPS[:11], TRAPS[11:25], TRAPS[25:]]):
        gateway.engine.requests.clear()
        async with door_client(gateway, door) as client:
            audio = await client.speak("a", *texts)
            heard.append((gateway.engine.spoken, audio))
            assert client.faults == []
    for spoken_, audio in heard[1:]:
        assert spoken_ == heard[0][0]
        assert audio == heard[0][1]
    assert not any(part.endswith(("3.", "12.", "05.", "Dr.", "www.", "b.")) for part in heard[0][0])


@on_doors(SOCKETS)
async def test_a_year_at_the_end_is_spoken_without_more_text_r22(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.say("a", "It was in 1999.")
        await asyncio.sleep(4)
        assert "1999" in said(gateway) or "nineteen" in said(gateway)
        await client.cancel("a")


@on_doors(SOCKETS)
async def test_markdown_and_emoji_are_not_read_aloud_r24_trap_cleaning(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        await client.speak("a", *MARKDOWN.splitlines(keepends=True))
    assert not set(said(gateway)) & set("#*`\U0001f600=")
    assert "bold" in said(gateway)


@on_doors([door for door in SOCKETS if door.name != "native"], clean_text=False)
async def test_cleaning_can_be_turned_off_r24(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.speak("a", CODE)
    assert "run this" in said(gateway)


@on_gateway()
async def test_cleaning_is_turned_off_by_context_native_r24(gateway: Running) -> None:
    async with native_client(gateway) as client:
        for clean in (True, False):
            gateway.engine.requests.clear()
            await client.send("open", f"c{clean}", text=CODE, clean=clean, end=True)
            await client.ended(f"c{clean}")
            assert ("run this" in said(gateway)) is not clean


@on_doors(POSTS)
async def test_markdown_and_emoji_are_not_read_aloud_over_http_r24(gateway: Running, door: PostDoor) -> None:
    await spoken(gateway, door, MARKDOWN)
    assert not set(said(gateway)) & set("#*`\U0001f600=")
    assert "bold" in said(gateway)


@on_gateway()
async def test_words_join_to_the_text_in_order_native_r25(gateway: Running) -> None:
    """The client of this test fails on words that overlap, or come after their audio."""
    async with native_client(gateway) as client:
        for i in range(2):
            await client.send("open", f"c{i}")
            for piece in re.findall(r".{1,7}", TRAPS):
                await client.send("text", f"c{i}", text=piece)
            await client.send("end", f"c{i}")
            (turn,) = await client.ended(f"c{i}")
            assert turn.text == TRAPS
            assert [TRAPS[w["text_start"] : w["text_end"]] for w in turn.words] == TRAPS.split()
            assert turn.words[0]["start"] == 0.0


@on_gateway()
async def test_words_join_to_the_text_in_order_cartesia_r25_trap_word_timestamps(gateway: Running) -> None:
    """Seconds are those of the context: the second turn begins at nought again."""
    async with cartesia_client(gateway) as client:
        for i in range(2):
            for piece in re.findall(r".{1,7}", TRAPS):
                await client.say(f"c{i}", piece, add_timestamps=True)
            await client.end(f"c{i}")
            (turn,) = await client.ended(f"c{i}")
            assert turn.text == TRAPS
            assert turn.words[0][1] == 0.0
            assert turn.words[-1][2] <= turn.seconds + 0.001


@on_doors(SOCKETS)
async def test_a_segment_goes_on_from_the_one_before_r33(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        await client.speak("a", "Is it you? ", "Ok. ", "Fine then.")
    assert gateway.engine.requests[0].continues == ""
    for before, request in zip(gateway.engine.requests, gateway.engine.requests[1:], strict=False):
        assert request.continues.endswith(before.text[-20:])
    assert len({request.voice for request in gateway.engine.requests}) == 1


@on_doors(POSTS)
async def test_a_segment_goes_on_from_the_one_before_over_http_r33(gateway: Running, door: PostDoor) -> None:
    await spoken(gateway, door, "Is it you? " * 30 + "Ok. " + "Fine then. " * 30)
    assert len(gateway.engine.requests) > 1
    for before, request in zip(gateway.engine.requests, gateway.engine.requests[1:], strict=False):
        assert request.continues.endswith(before.text[-20:])


# Samples


@on_doors(SOCKETS)
async def test_unspeakable_text_is_a_short_silence_r16_fact_8(gateway: Running, door: SocketDoor) -> None:
    for text in ("...", "?!", "\U0001f600", "<break/>", "<bre"):
        async with door_client(gateway, door) as client:
            audio = await client.speak("a", text)
            await asyncio.sleep(5)
            assert client.audio("a") == audio
            assert not door.ends or client.of("a")[-1].kind == "end"  # not before the audio (R6)
            assert audio == bytes(len(audio))
            assert 0.02 <= len(audio) / 2 / RATE <= 0.06 or (text == "<break/>" and audio)
            # Version 2 of Deepgram has a warning for it, which is no error.
            assert [told.kind for told in client.faults] == ["refusal"] * (door.name == "deepgram-v2")
    assert gateway.engine.requests == []


@on_doors(POSTS)
async def test_unspeakable_text_is_a_short_silence_over_http_r16_fact_8(
    gateway: Running, door: PostDoor
) -> None:
    for text in ("...", "?!", "\U0001f600"):
        audio = await spoken(gateway, door, text)
        assert audio == bytes(len(audio))
        assert 0.02 <= len(audio) / 2 / RATE <= 0.06


@on_doors(SOCKETS)
async def test_bytes_are_exactly_those_of_the_time_r17_r30_r31(gateway: Running, door: SocketDoor) -> None:
    async with door_client(gateway, door) as client:
        audio = await client.speak("a", "One two three four five six seven.")
    assert len(audio) == 7 * WORD
    assert not audio.startswith(b"RIFF")


@on_doors(POSTS)
async def test_bytes_are_exactly_those_of_the_time_over_http_r17_r30_r31(
    gateway: Running, door: PostDoor
) -> None:
    audio = await spoken(gateway, door, "One two three four five six seven.")
    assert len(audio) == 7 * WORD
    assert not audio.startswith(b"RIFF")


@on_doors([door for door in SOCKETS if door.name != "native"], lead_in_ms=120)
async def test_a_lead_in_can_be_set_for_clients_that_miss_the_first_syllable_r34(
    gateway: Running, door: SocketDoor
) -> None:
    async with door_client(gateway, door) as client:
        audio = await client.speak("a", "Yes.")
    lead = round(0.12 * RATE) * 2
    assert len(audio) == lead + WORD
    assert audio[:lead] == bytes(lead)


@on_gateway()
async def test_a_lead_in_is_asked_for_by_context_native_r34(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="Yes.", lead_in_ms=120, end=True)
        (turn,) = await client.ended("a")
    lead = round(0.12 * RATE) * 2
    assert len(turn.audio) == lead + WORD
    assert turn.audio[:lead] == bytes(lead)


@on_doors(POSTS, lead_in_ms=120)
async def test_a_lead_in_can_be_set_over_http_r34(gateway: Running, door: PostDoor) -> None:
    assert len(await spoken(gateway, door, "Yes.")) == round(0.12 * RATE) * 2 + WORD


# HTTP


@on_doors(POSTS, api_keys=f"acme:{SECRET}")
async def test_a_wrong_key_is_401_before_the_body_is_read_r12(gateway: Running, door: PostDoor) -> None:
    for body in (b"{", door.body("One.")):
        status, data = await post(gateway, door, body, {"Authorization": "Bearer wrong"})
        assert status == 401
        assert door.words(json.loads(data))
    assert gateway.engine.requests == []
    status, _ = await post(gateway, door, door.body("One."), {"Authorization": f"Bearer {SECRET}"})
    assert status == 200


@on_doors(POSTS, lambda: ToneEngine(xrt=0.5, second="other"))
async def test_no_room_is_429_at_once_r27_fact_6(gateway: Running, door: PostDoor) -> None:
    began = asyncio.get_running_loop().time()
    status, data = await post(gateway, door, door.body("One two three."))
    assert asyncio.get_running_loop().time() - began < 0.05
    assert status == 429
    assert door.words(json.loads(data))
    assert gateway.idle


@on_doors(POSTS)
async def test_an_engine_that_fails_is_an_answer_in_the_dialects_shape_r13_r15(
    gateway: Running, door: PostDoor
) -> None:
    gateway.engine.fail = EngineCrashed("the voice failed")
    status, data = await post(gateway, door, door.body("One two three."))
    assert status == 502
    assert "the voice failed" in door.words(json.loads(data))
    gateway.engine.fail, gateway.engine.work_s = None, 30.0
    status, data = await post(gateway, door, door.body("One two three."))
    assert status == 504
    assert door.words(json.loads(data))
    assert gateway.idle


@on_doors(POSTS)
async def test_generation_ends_with_the_request_r1_r14(gateway: Running, door: PostDoor) -> None:
    gateway.engine.work_s = 0.01
    asking = asyncio.create_task(post(gateway, door, door.body("One two three four five. " * 400)))
    while gateway.engine.running == 0:
        await asyncio.sleep(0.001)
    asking.cancel()
    await asyncio.wait([asking])
    await asyncio.sleep(0.2)
    assert gateway.idle
    assert len(gateway.engine.requests) < 5

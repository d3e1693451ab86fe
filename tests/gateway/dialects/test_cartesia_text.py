"""The Cartesia dialect: its fields, its three ways of joining text, and text that is no speech."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import virtual
from tests.peers.cartesia import RAW, VOICE, cartesia_client
from tests.peers.gateway import Running, on_gateway

WORD_S = 0.2


# Fields


@on_gateway()
async def test_unknown_and_null_fields_are_taken(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say(
            "a",
            "One two three.",
            more=False,
            language=None,
            flush=None,
            cancel=None,
            max_buffer_delay_ms=None,
            add_timestamps=None,
            add_phoneme_timestamps=None,
            use_normalized_timestamps=None,
            generation_config=None,
            speed=None,
            pronunciation_dict_id=None,
            locale="en_US",
            normalization={"mode": "auto"},
            field_of_tomorrow=[1, {"a": None}],
        )
        (turn,) = await client.ended("a")
        await client.say("b", "One.", more=None)  # "continue": null is its default, false
        await client.ended("b")
    assert turn.seconds == pytest.approx(0.6, abs=0.001)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"transcript": 5}, "transcript"),
        ({"transcript": None}, "transcript"),
        ({"voice": None}, "voice"),
        ({"voice": {"mode": "embedding", "embedding": [0.1]}}, "voice.embedding"),
        ({"voice": {"mode": "id", "id": "nobody"}}, "voice"),
        ({"max_buffer_delay_ms": 5001}, "max_buffer_delay_ms"),
        ({"max_buffer_delay_ms": "0"}, "max_buffer_delay_ms"),
        ({"generation_config": {"speed": 2.0}}, "generation_config.speed"),
        ({"generation_config": {"volume": 3}}, "generation_config.volume"),
        ({"language": "de"}, "language"),
        ({"speed": "warp"}, "speed"),
        ({"add_timestamps": "yes"}, "add_timestamps"),
        ({"context_id": ""}, "context_id"),
        ({"context_id": "x" * 300}, "context_id"),
    ],
)
def test_the_field_at_fault_is_named_and_others_go_on(
    tmp_path: Path, fields: dict[str, Any], field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            await client.say("good", "One two three. ")
            request = {
                "context_id": "bad",
                "transcript": "One.",
                "voice": VOICE,
                "output_format": RAW,
                "continue": True,
            }
            await client.ws.send_json(request | fields)
            error = await client.until("error")
            assert field in error["error"]
            if "context_id" not in fields:
                assert error["context_id"] == "bad"
            await client.end("good")
            (turn,) = await client.ended("good")
            assert (turn.end or {})["type"] == "done"
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_errors_carry_a_context_id_whatever_came(gateway: Running) -> None:
    """Fact 9: pipecat indexes the key; one error without it kills its receive loop."""
    async with cartesia_client(gateway) as client:
        for raw, context in (
            ("{", None),
            ("[]", None),
            ('"text"', None),
            ('{"transcript": "x"}', None),
            ('{"context_id": 5, "transcript": "x"}', None),
            ('{"context_id": "a", "transcript": {}}', "a"),
            ('{"context_id": "b"}', "b"),
            ("[" * 50_000, None),
        ):
            await client.ws.send_str(raw)
            error = await client.until("error")
            assert error["context_id"] == context
            assert error["status_code"] == 400
        await client.ws.send_bytes(b"binary")
        assert (await client.until("error"))["context_id"] is None
        await client.say("c", "One.", more=False)
        await client.ended("c")


@on_gateway()
async def test_a_context_keeps_its_format_and_voice_and_survives_the_attempt(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One two ", add_timestamps=True)
        for change in (
            {"output_format": RAW | {"sample_rate": 8000}},
            {"voice": "other"},
            {"voice": {"mode": "id", "id": "nobody"}},
        ):
            await client.say("a", "never said ", **change)
            error = await client.until("error")
            assert error["context_id"] == "a"
            assert error["done"] is False  # it lives on: its own end is still to come
            assert next(iter(change)) in error["error"]
        for leave_out in ("voice", "output_format"):  # repeating and leaving out are both fine
            await client.say("a", "", **{leave_out: None})
        await client.say("a", "three.", more=False)
        (turn,) = await client.ended("a")
    assert turn.text == "One two three."
    assert (turn.end or {})["type"] == "done"


@on_gateway(voice_aliases={"*": "other"})
async def test_a_bare_id_and_an_alias_name_a_voice(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One.", more=False, voice="tone")
        await client.say(
            "b", "One.", more=False, voice={"mode": "id", "id": "f9836c6e-a0bd-460e-9d3c-f7299fa60f94"}
        )
        await client.ended("a", "b")
    assert {r.voice for r in gateway.engine.requests} == {"tone", "other"}


@on_gateway()
async def test_speed_reaches_the_engine_old_style_and_new(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for name, fields in (
            ("a", {"generation_config": {"speed": 1.5, "emotion": "calm"}}),
            ("b", {"speed": "slow"}),
            ("c", {"speed": 0}),
            ("d", {"speed": -1.0}),
        ):
            await client.say(name, "One.", more=False, **fields)
            await client.ended(name)
    assert [r.speed for r in gateway.engine.requests] == [1.5, 0.8, 1.0, 0.6]


# Joining, flushing, buffering


@on_gateway()
async def test_immediate_mode_separates_messages_r19(gateway: Running) -> None:
    """pipecat strips its sentences: "dot.Let" must not be read as one word."""
    async with cartesia_client(gateway) as client:
        for sentence in ("Here is a dot.", "Let me see.", "ok"):
            await client.say("a", sentence, max_buffer_delay_ms=0, add_timestamps=True)
        await client.say("a", " ", more=False)
        (turn,) = await client.ended("a")
    assert gateway.engine.spoken == ["Here is a dot.", "Let me see.", "ok"]
    assert turn.text == "Here is a dot. Let me see. ok"


@on_gateway()
async def test_buffered_mode_joins_verbatim(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for piece in ("Your order 42", "15 is rea", "dy. Th", "anks."):
            await client.say("a", piece, add_timestamps=True)
        await client.end("a")
        (turn,) = await client.ended("a")
    assert turn.text == "Your order 4215 is ready. Thanks."


@on_gateway()
async def test_any_split_gives_the_same_speech_r22_r23(gateway: Running) -> None:
    text = "It costs $3.50, Dr. Smith, see https://example.com/a.b or call 555-0123. It was 1999. Thanks."
    spoken, audio = [], []
    async with cartesia_client(gateway) as client:
        for size in (1, 3, 10, 200):
            name, before = f"by{size}", len(gateway.engine.spoken)
            for at in range(0, len(text), size):
                await client.say(name, text[at : at + size])
            await client.end(name)
            (turn,) = await client.ended(name)
            spoken.append(gateway.engine.spoken[before:])
            audio.append(bytes(turn.audio))
    assert spoken[0] == spoken[1] == spoken[2] == spoken[3]
    assert len(set(audio)) == 1
    assert any("three dollars and fifty cents" in piece for piece in spoken[0])


@on_gateway()
async def test_each_flush_is_answered_after_its_audio(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for i, piece in enumerate(("One two. ", "Three four ", "five."), 1):
            await client.say("a", piece, flush=True, max_buffer_delay_ms=0)
            done = await client.until("flush_done", "a")
            assert done["flush_id"] == i
            assert client.transcript.turns["a"].seconds >= (2, 4, 5)[i - 1] * WORD_S - 0.01
        await client.end("a")
        (turn,) = await client.ended("a")
    assert turn.flushes == [1, 2, 3]


@on_gateway()
async def test_a_flush_alone_speaks_what_is_held(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One two")
        await client.say("a", "", flush=True)
        await client.until("flush_done", "a")
        assert client.transcript.turns["a"].seconds >= 0.39
        await client.end("a")
        await client.ended("a")


@on_gateway()
async def test_the_end_right_after_a_flush_loses_no_text_r6(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One two three", flush=True, add_timestamps=True)
        await client.end("a")
        (turn,) = await client.ended("a")
    assert turn.text == "One two three"
    assert turn.kinds[-1] == "done"  # the last message of the context, after its audio


@pytest.mark.parametrize(("delay", "expected"), [(None, 3.0), (1000, 1.0), (5000, 5.0)])
def test_held_text_is_spoken_after_the_buffer_delay(
    tmp_path: Path, delay: int | None, expected: float
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            began = virtual.clock()
            await client.say("a", "Let me look that up", max_buffer_delay_ms=delay)
            turn = await client.audio("a", 0.1)
            assert turn.arrived[0][0] - began == pytest.approx(expected, abs=0.05)

    main(tmp_path)


# Text that is not speech


@pytest.mark.parametrize("text", ["...", "?!", "😀", " - ", "**", "…"])
def test_unspeakable_text_is_a_short_silence_and_done_fact_8_r16(tmp_path: Path, text: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            await client.say("a", text, more=False)
            (turn,) = await client.ended("a")
        assert (turn.end or {})["type"] == "done"
        assert 0.02 <= turn.seconds <= 0.06
        assert set(turn.audio) == {0}

    main(tmp_path)


@on_gateway()
async def test_empty_text_never_opens_a_context_r8(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "")
        await client.say("a", " ", more=True)
        assert await client.settled() == []
        assert gateway.idle
        await client.say("a", "", more=False)  # a turn without any text is over
        assert (await client.next())["type"] == "done"
        await client.say("a", "Now.", more=False)
        await client.ended("a")


@on_gateway()
async def test_markup_split_over_messages_is_never_spoken_r20(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for piece in ("One <bre", "ak ti", 'me="500ms"/', "> two ", '<emotion value="x', '"/>three.'):
            await client.say("a", piece, add_timestamps=True)
        await client.end("a")
        (turn,) = await client.ended("a")
    assert turn.text == "One two three."
    assert turn.seconds >= 3 * WORD_S + 0.5
    assert not any("<" in spoken for spoken in gateway.engine.spoken)


@on_gateway()
async def test_markdown_and_emoji_are_not_read_aloud_r24(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "**Hello** 😀 there.\n```\ncode()\n```\n# Bye now.", more=False)
        await client.ended("a")
    spoken = " ".join(gateway.engine.spoken)
    assert "Hello" in spoken
    assert "Bye now" in spoken
    assert not set("*#`😀") & set(spoken)
    assert "code" not in spoken


@on_gateway(clean_text=False)
async def test_cleaning_can_be_turned_off_r24(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "Say #hello now.", more=False, add_timestamps=True)
        (turn,) = await client.ended("a")
    assert "#hello" in turn.text

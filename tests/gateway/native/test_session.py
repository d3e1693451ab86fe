"""The rules of the protocol's page about contexts, each over a real socket in virtual time."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import pytest

from gateway.native.frames import Flags
from tests import virtual
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import NativeClient, native_client
from tests.tone import ToneEngine

WORD_S = 0.2
SENTENCE = "One two three four five. "
LONG = SENTENCE * 20  # 100 words: 20 s and the pauses


@on_gateway()
async def test_a_context_speaks_with_exact_frames_and_words_before_audio(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a")
        for piece in ("Your order ", "00123 sh", "ips on Thurs", "day. And that ", "is all."):
            await client.send("text", "a", text=piece)
        await client.send("end", "a")
        (turn,) = await client.ended("a")
    source = "Your order 00123 ships on Thursday. And that is all."
    assert turn.end is not None
    assert turn.end["type"] == "done"
    assert turn.end["total_samples"] == turn.samples
    assert turn.opened["format"] == {"encoding": "pcm_s16le", "sample_rate": 24000}
    assert turn.opened["voice"] == "tone"
    assert turn.text == source
    assert all(source[w["text_start"] : w["text_end"]] == w["text"] for w in turn.words)
    assert turn.words[-1]["end"] <= turn.seconds + 0.003
    assert [len(f.payload) // 48 for f in turn.frames[:4]] == [20, 40, 80, 100]  # milliseconds
    assert max(len(f.payload) // 48 for f in turn.frames) == 900  # for who has more than that in hand
    starts = [i for i, f in enumerate(turn.frames) if f.flags & Flags.SEGMENT]
    assert starts[0] == 0
    assert len(starts) == turn.end["stats"]["segments"] == 2


@on_gateway()
async def test_several_contexts_speak_at_once_each_in_its_own_format(gateway: Running) -> None:
    formats = [("pcm_s16le", 24000, 2), ("mulaw", 8000, 1), ("alaw", 8000, 1), ("pcm_f32le", 48000, 4)]
    text = "One two three. Four five six."
    async with native_client(gateway) as client:
        for encoding, rate, _ in formats:
            fmt = {"encoding": encoding, "sample_rate": rate}
            await client.send("open", encoding, format=fmt, text=text, end=True)
        turns = await client.ended(*(encoding for encoding, _, _ in formats))
        order = [f.index for f in _speech(client)]
    assert len({turn.opened["index"] for turn in turns}) == 4
    for turn, (_, rate, width) in zip(turns, formats, strict=True):
        assert len(turn.audio) == turn.samples * width
        assert turn.seconds == pytest.approx(turns[0].seconds, abs=1.5 / rate)
    assert order != sorted(order)  # side by side, not one after the other


def _speech(client: NativeClient) -> list[Any]:
    frames = [(at, f) for t in client.transcript.past for (at, _), f in zip(t.arrived, t.frames, strict=True)]
    return [f for _, f in sorted(frames, key=lambda pair: pair[0])]


@on_gateway()
async def test_any_split_of_deltas_gives_the_same_speech(gateway: Running) -> None:
    text = "It is 3.50 dollars, Dr. Smith. Thank you."
    async with native_client(gateway) as client:
        for size in (1, 7, 100):
            await client.send("open", f"by{size}")
            for at in range(0, len(text), size):
                await client.send("text", f"by{size}", text=text[at : at + size])
            await client.send("end", f"by{size}")
        one, seven, whole = await client.ended("by1", "by7", "by100")
    assert bytes(one.audio) == bytes(seven.audio) == bytes(whole.audio)
    assert one.words == seven.words == whole.words


@on_gateway()
async def test_segment_mode_speaks_each_message_as_it_stands(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text_mode="segment")
        await client.send("text", "a", text="Yes")
        turn = await client.audio("a", 0.1)  # at once: nothing is waited for
        await client.send("text", "a", text="no")
        await client.send("end", "a")
        await client.ended("a")
    assert gateway.engine.spoken == ["Yes", "no"]
    assert [w["text"] for w in turn.words] == ["Yes", "no"]


@on_gateway()
async def test_final_mode_takes_one_message(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text_mode="final", text="All of it.")
        await client.send("text", "a", text="More.")
        error = await client.until("error")
        assert (error["context"], error["field"]) == ("a", "text")
        assert "terminal" not in error
        await client.send("end", "a")
        (turn,) = await client.ended("a")
    assert turn.text == "All of it."


@on_gateway()
async def test_a_repeated_seq_is_ignored_and_a_gap_is_named(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One ")  # is seq 1
        await client.send("text", "a", text="one ", seq=1)
        await client.send("text", "a", text="two ", seq=2)
        await client.send("text", "a", text="two ", seq=2)
        await client.send("text", "a", text="four ", seq=4)
        error = await client.until("error")
        assert error["field"] == "seq"
        assert "3" in error["message"]
        await client.send("text", "a", text="three.", seq=3, end=True)
        (turn,) = await client.ended("a")
    assert turn.text == "One two three."


@on_gateway()
async def test_flushed_comes_after_all_audio_of_its_flush(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two")
        await client.send("flush", "a", flush_id=70)
        first = await client.until("flushed")
        await client.send("text", "a", text=" three four", flush=True)
        second = await client.until("flushed")
        await client.send("text", "a", text=" five", end=True)
        (turn,) = await client.ended("a")
    assert (first["flush_id"], second["flush_id"]) == (70, 2)  # its own number, then the count
    (_, at), (_, later) = turn.flushed
    assert at / 24000 == pytest.approx(2 * WORD_S, abs=0.01)
    assert later / 24000 >= 4 * WORD_S


@on_gateway()
async def test_cancel_is_acknowledged_with_the_last_sample_and_what_was_heard(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        turn = await client.audio("a", 1.0)
        began = turn.arrived[0][0]
        await asyncio.sleep(1.05 - (virtual.clock() - began))
        await client.send("cancel", "a")
        cancelled = await client.until("cancelled")
        samples = turn.samples
        await asyncio.sleep(30)
        assert await client.settled() == []
    assert turn.samples == samples == cancelled["last_sample"]
    heard = cancelled["heard"]
    # 5.25 words have been played; the middle of the sixth has not.
    assert heard["text"] == "One two three four five."
    assert heard["text"] + heard["unheard"] == LONG
    assert heard["ms"] == pytest.approx(1050, abs=25)
    assert heard["sample"] == pytest.approx(1.05 * 24000, abs=600)
    assert cancelled["stats"]["segments"] >= 1
    assert gateway.services.limits.active == 0
    assert gateway.services.scheduler.idle


@on_gateway()
async def test_a_cancel_after_the_end_tells_what_was_heard(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three four.", end=True)
        (turn,) = await client.ended("a")
        await asyncio.sleep(0.45 - (virtual.clock() - turn.arrived[0][0]))
        await client.send("cancel", "a")
        heard = (await client.until("heard"))["heard"]
        assert heard["text"] == "One two"
        assert heard["unheard"] == " three four."
        await asyncio.sleep(5)
        await client.send("cancel", "a")
        assert (await client.until("heard"))["heard"]["unheard"] == ""


@on_gateway()
async def test_without_reports_audio_runs_ahead_by_the_limit_only(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG, end=True, run_ahead_ms=1000)
        (turn,) = await client.ended("a")
    began = turn.arrived[0][0]
    leads = [samples / turn.rate - (at - began) for at, samples in turn.arrived]
    assert 0.9 <= max(leads) <= 1.1 + 0.001
    assert min(leads[20:-1]) >= 0.75  # and it never falls far behind


@on_gateway()
async def test_the_clients_wish_does_not_lift_the_gateways_limit(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG, run_ahead_ms=60_000)
        turn = await client.audio("a", 6.0)
        leads = [samples / turn.rate - (at - turn.arrived[0][0]) for at, samples in turn.arrived]
        assert max(leads) <= 3.1 + 0.001


@on_gateway()
async def test_played_reports_move_the_clock(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "fast", text=LONG, end=True)
        began = virtual.clock()
        turn = await client.audio("fast", 0.02)
        while turn.end is None:
            await client.send("played", "fast", sample=turn.samples)
            await client.next()
        assert turn.seconds > 20
        assert virtual.clock() - began < 4.0  # as fast as its listener takes it
        await client.send("open", "slow", text=LONG)
        slow = await client.audio("slow", 3.0)
        for _ in range(20):
            await client.send("played", "slow", sample=0)  # a listener that has not begun
            await asyncio.sleep(0.2)
        await client.settled()
        assert slow.seconds <= 3.0 + 0.5
        await client.send("cancel", "slow")
        assert (await client.until("cancelled", "slow"))["heard"]["ms"] < 300


@on_gateway()
async def test_interrupt_and_start_in_one_message(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        await client.send("open", "b", text=LONG)
        await client.audio("b", 0.5)
        await client.send("open", "c", text="Sure.", end=True, interrupt="a")
        kinds = [(await client.until("cancelled"))["context"], (await client.until("opened"))["context"]]
        assert kinds == ["a", "c"]
        assert client.transcript.turns["b"].end is None
        await client.send("open", "d", text="Right.", end=True, interrupt=True)
        await client.ended("b", "d")
        assert client.transcript.turns["b"].end["type"] == "cancelled"  # type: ignore[index]
        assert client.transcript.turns["d"].end["type"] == "done"  # type: ignore[index]


@on_gateway()
async def test_an_interrupt_of_what_has_ended_tells_what_was_heard(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three.", end=True)
        await client.ended("a")
        await client.send("open", "b", text="Sure.", end=True, interrupt="a")
        assert (await client.until("heard"))["context"] == "a"
        await client.send("open", "c", text="Sure.", end=True, interrupt="never was")
        await client.ended("b", "c")
        assert await client.settled() == []


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"speed": 9}, "bad_request", "speed"),
        ({"speed": "fast"}, "bad_request", "speed"),
        ({"format": {"encoding": "mp3"}}, "bad_request", "format.encoding"),
        ({"format": {"sample_rate": 11025}}, "unsupported_format", "format.sample_rate"),
        ({"voice": "nobody"}, "unknown_voice", "voice"),
        ({"lead_in_ms": 201}, "bad_request", "lead_in_ms"),
        ({"text": 5}, "bad_request", "text"),
        ({"call": "c_none"}, "bad_request", "call"),
        ({"text_mode": "words"}, "bad_request", "text_mode"),
    ],
)
def test_a_refused_open_is_terminal_and_names_the_field(
    tmp_path: Any, fields: dict[str, Any], code: str, field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with native_client(gateway) as client:
            await client.send("open", "a", **fields)
            error = await client.until("error")
            assert error["terminal"] is True
            assert (error["context"], error["code"], error["field"]) == ("a", code, field)
            assert "a" not in client.transcript.turns
            await client.send("open", "a", text="Fine.", end=True)  # the id is free
            await client.ended("a")

    main(tmp_path)


@on_gateway()
async def test_an_id_in_use_is_refused_without_harm_to_the_one_that_has_it(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two ")
        for fields in ({}, {"speed": 9}):
            await client.send("open", "a", **fields)
            error = await client.until("error")
            assert error["context"] == "a"
            assert "terminal" not in error
        await client.send("text", "a", text="three.", end=True)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three."
        await client.send("open", "a", text="Again.", end=True)  # after the end it may be used again
        await client.until("done", "a")
        assert [t.text for t in client.transcript.past] == ["One two three.", "Again."]


@pytest.mark.parametrize("kind", ["text", "flush", "end", "cancel"])
def test_an_unknown_context_is_refused_by_name(tmp_path: Any, kind: str) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with native_client(gateway) as client:
            await client.send(kind, "ghost", **({"text": "Boo."} if kind == "text" else {}))
            error = await client.until("error")
            assert (error["code"], error["context"], error["field"]) == (
                "unknown_context",
                "ghost",
                "context",
            )
            assert "terminal" not in error
            await client.send("played", "ghost", sample=5)  # a late report is nothing
            assert await client.settled() == []

    main(tmp_path)


@on_gateway()
async def test_bad_messages_are_refused_and_the_session_lives_on(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three. ")
        for raw, field in (
            ("{", None),
            ("[]", None),
            ('{"type":"dance"}', "type"),
            ('{"type":"text","context":"a"}', "text"),
            ('{"type":"text","text":"x"}', "context"),
            ('{"type":"hello","version":1}', "type"),
            ('{"type":"call.hangup","call":"c_none"}', "call"),
            ("[" * 30_000, None),
        ):
            await client.ws.send_str(raw)
            error = await client.until("error")
            assert (error["code"], error.get("field")) == ("bad_request", field)
            assert "terminal" not in error
        await client.ws.send_bytes(b"\x01\x02")
        assert (await client.until("error"))["code"] == "bad_request"
        await client.send("text", "a", text="Four.", end=True, a_field_of_tomorrow=1)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three. Four."


@on_gateway(max_contexts_per_socket=3)
async def test_one_context_too_many_is_refused_alone(gateway: Running) -> None:
    async with native_client(gateway) as client:
        assert client.hello["limits"]["max_contexts"] == 3
        for name in "abcd":
            await client.send("open", name, text="One two three.")
        error = await client.until("error")
        assert (error["code"], error["context"], error["terminal"]) == ("limit_exceeded", "d", True)
        assert error["retry_after"] > 0
        for name in "abc":
            await client.send("end", name)
        await client.ended("a", "b", "c")
        await client.send("open", "d", text="Now.", end=True)
        await client.ended("d")


@on_gateway(max_context_chars=100)
async def test_too_much_text_is_refused_and_the_context_goes_on(gateway: Running) -> None:
    async with native_client(gateway) as client:
        assert client.hello["limits"]["max_context_characters"] == 100
        await client.send("open", "a", text="One two three. ")
        await client.send("text", "a", text="x" * 90)
        error = await client.until("error")
        assert (error["code"], error["field"], error["context"]) == ("text_too_long", "text", "a")
        await client.send("text", "a", text="Four.", end=True)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three. Four."
        await client.send("open", "b", text="y" * 101)
        assert (await client.until("error"))["terminal"] is True
        assert "b" not in client.transcript.turns


@on_gateway(lambda: ToneEngine(xrt=0.5))
async def test_a_full_gateway_says_busy_at_once_with_a_hint(gateway: Running) -> None:
    took = []
    async with native_client(gateway) as client:
        for i in range(20):
            began, real = virtual.clock(), time.perf_counter()
            await client.send("open", f"c{i}", text="Hello there, my friend. ")
            error = await client.until("error")
            took.append(time.perf_counter() - real)
            assert (error["code"], error["terminal"]) == ("busy", True)
            assert 0 < error["retry_after"] <= 5
            assert virtual.clock() - began < 0.05  # nothing was waited for
            assert f"c{i}" not in client.transcript.turns  # it was never opened
    assert statistics.median(took) < 0.05
    assert gateway.services.in_flight.count == 0


@on_gateway(lambda: ToneEngine(xrt=0.5))
async def test_to_ask_a_full_gateway_again_and_again_is_no_fault(gateway: Running) -> None:
    """Fifty faults in a row close a connection; it may carry the calls of many who were let in."""
    async with native_client(gateway) as client:
        for i in range(60):
            await client.send("open", f"c{i}", text="Hello there, my friend. ")
            assert (await client.until("error"))["code"] == "busy"
        await client.settled()
        assert not client.ws.closed


@on_gateway()
async def test_the_stats_are_those_of_the_context(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three four. ", lead_in_ms=100)
        await client.send("text", "a", text="Five six.", end=True)
        (turn,) = await client.ended("a")
    assert turn.end is not None
    stats = turn.end["stats"]
    assert stats["segments"] == 2
    assert stats["characters"] == 29
    assert stats["audio_s"] == pytest.approx(6 * WORD_S)
    assert 0 <= stats["first_audio"] < 0.1
    assert stats["leading_silence"] == pytest.approx(0.1, abs=0.01)
    assert stats["underruns"] == 0
    assert stats["queue_wait"] >= 0


@on_gateway()
async def test_speed_seed_voice_and_volume_reach_the_engine(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two.", end=True, speed=2.0, seed=7, voice="other")
        await client.send("open", "b", text="One two.", end=True, volume=0.0)
        loud, still = await client.ended("a", "b")
    request = next(r for r in gateway.engine.requests if r.seed == 7)
    assert (request.speed, request.voice) == (2.0, "other")
    assert loud.seconds == pytest.approx(WORD_S, abs=0.01)
    assert set(still.audio) == {0}


@on_gateway()
async def test_text_after_the_end_is_refused(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG, end=True)
        await client.send("text", "a", text="More.")
        error = await client.until("error")
        assert (error["field"], error["context"]) == ("context", "a")
        assert "terminal" not in error
        await client.send("end", "a")  # a second end is nothing
        await client.send("cancel", "a")
        await client.ended("a")


@on_gateway()
async def test_held_text_is_spoken_when_the_client_pauses(gateway: Running) -> None:
    async with native_client(gateway) as client:
        began = virtual.clock()
        await client.send("open", "a", text="Let me look that up", max_buffer_delay_ms=1000)
        turn = await client.audio("a", 0.1)
        assert turn.arrived[0][0] - began == pytest.approx(1.0, abs=0.05)


@on_gateway()
async def test_an_unfinished_tag_is_held_without_work(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three <br")
        await client.audio("a", 0.6)
        loop = asyncio.get_running_loop()
        turns, once = 0, loop._run_once  # type: ignore[attr-defined]

        def counted() -> None:
            nonlocal turns
            turns += 1
            once()

        loop._run_once = counted  # type: ignore[attr-defined]
        await asyncio.sleep(60)
        loop._run_once = once  # type: ignore[attr-defined]
        assert turns < 3000  # the gateway's own timers, ten a second; not one a millisecond
        await client.send("text", "a", text="eak/> four.", end=True)
        (turn,) = await client.ended("a")
        assert turn.text == "One two three four."


@on_gateway(context_idle_s=60)
async def test_an_idle_context_ends_with_an_error(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One two three. ")
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert (turn.end["code"], turn.end["terminal"]) == ("context_idle", True)


@on_gateway(lambda: ToneEngine(xrt=0.5))
async def test_overload_is_refused_before_a_context_is_opened(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One.", end=True)
        error = await client.until("error", "a")
        assert (error["code"], error["terminal"]) == ("busy", True)
        assert error["retry_after"] > 0
        await client.send("open", "b")  # has nothing to say yet, so there may be room when it has
        await client.until("opened", "b")
        await client.send("text", "b", text="Two.", flush=True)
        assert (await client.until("error", "b"))["code"] == "busy"
    assert gateway.idle


@on_gateway(voice_aliases={"ada": "other"})
async def test_an_alias_names_a_voice(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text="One.", end=True, voice="ada")
        (turn,) = await client.ended("a")
    assert turn.opened["voice"] == "other"


@on_gateway()
async def test_fifty_rapid_interruptions_leave_nothing_behind(gateway: Running) -> None:
    async with native_client(gateway) as client:
        tasks = gateway.services.tasks
        await client.send("open", "turn0", text=LONG)
        for i in range(1, 51):
            await client.audio(f"turn{i - 1}", 0.02)
            await client.send("open", f"turn{i}", text=LONG, interrupt=True)
        await client.send("cancel", "turn50")
        await client.ended(*(f"turn{i}" for i in range(51)))
        services = gateway.services
        assert services.limits.active == services.in_flight.count == 0
        assert services.scheduler.idle
        assert services.tasks == tasks
        assert gateway.engine.running == 0


@on_gateway()
async def test_bye_keeps_nothing(gateway: Running) -> None:
    async with native_client(gateway) as client:
        await client.send("open", "a", text=LONG)
        await client.audio("a", 0.5)
        await client.send("bye")
        await client.close_code()
    services = gateway.services
    assert not services.native_sessions
    assert services.limits.active == services.in_flight.count == 0

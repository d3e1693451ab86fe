"""The Cartesia dialect over real sockets in virtual time: what clients rely on, trap by trap.

The names follow the reference: the facts that shape the design, the protocol's own rules, and the
requirements (R1, R2, ...) that bug reports against other services gave.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.app import drain
from gateway.dialects.cartesia import HEARTBEAT_S
from tests import virtual
from tests.peers.cartesia import KEY, RAW, VOICE, cartesia_client
from tests.peers.gateway import Running, on_gateway
from tests.tone import ToneEngine
from tts_core.errors import EngineCrashed

LONG = "One two three four five. " * 20
WORD_S = 0.2
SECRET = "configured-key-of-test"
ENCODINGS = {"pcm_s16le": 2, "pcm_f32le": 4, "pcm_mulaw": 1, "pcm_alaw": 1}
RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
LIVEKIT = {**KEY, "User-Agent": "LiveKit Agents Cartesia Plugin/1.8.9"}


# The turn


@on_gateway()
async def test_a_turn_of_deltas(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for piece in (
            "Hello there, this is the fir",
            "st delta. Your order number is 42",
            "15 and it ships.",
        ):
            await client.say("a", piece, add_timestamps=True)
        await client.end("a")
        (turn,) = await client.ended("a")
    assert turn.text == "Hello there, this is the first delta. Your order number is 4215 and it ships."
    assert turn.kinds.count("done") == 1
    assert turn.kinds[-1] == "done"
    assert turn.words[-1][2] <= turn.seconds + 0.004
    assert gateway.idle


@on_gateway()
async def test_one_message_is_a_whole_turn(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One two three.", more=False)
        (turn,) = await client.ended("a")
    assert turn.seconds == pytest.approx(3 * WORD_S, abs=0.001)
    assert set(turn.kinds) == {"chunk", "done"}  # timestamps come only when asked for


@on_gateway()
async def test_contexts_run_side_by_side(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for name in "abc":
            await client.say(name, f"This is {name} speaking now.", more=False, add_timestamps=True)
        turns = await client.ended(*"abc")
    assert [turn.text for turn in turns] == [f"This is {name} speaking now." for name in "abc"]


@pytest.mark.parametrize("rate", RATES)
def test_every_encoding_at_every_rate_has_exactly_its_bytes_r30(tmp_path: Path, rate: int) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            for encoding in ENCODINGS:
                fmt = {"container": "raw", "encoding": encoding, "sample_rate": rate}
                await client.say(encoding, "One two three.", more=False, output_format=fmt)
            for turn in await client.ended(*ENCODINGS):
                samples = len(turn.audio) / turn.width
                assert samples == pytest.approx(3 * WORD_S * rate, abs=1)

    main(tmp_path)


@pytest.mark.parametrize(
    ("fmt", "field"),
    [
        ({"sample_rate": 11025}, "output_format.sample_rate"),
        ({"sample_rate": None}, "output_format.sample_rate"),
        ({"sample_rate": "8000"}, "output_format.sample_rate"),
        ({"encoding": "opus"}, "output_format.encoding"),
        ({"encoding": None}, "output_format.encoding"),
        ({"container": "mp3"}, "output_format.container"),
        ({"container": "wav"}, "output_format.container"),
        (None, "output_format"),
    ],
)
def test_an_unsupported_format_is_refused_never_substituted_r30(
    tmp_path: Path, fmt: dict[str, Any] | None, field: str
) -> None:
    @on_gateway()
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            await client.say("a", "One.", output_format=None if fmt is None else RAW | fmt)
            error = await client.until("error")
            assert error["context_id"] == "a"
            assert error["done"] is True
            assert error["status_code"] == 400
            assert field in error["error"]
        assert gateway.engine.requests == []

    main(tmp_path)


# Cancelling


@on_gateway()
async def test_nothing_follows_a_cancel_r1_r2(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", LONG)
        await client.say("a", LONG)  # queued work goes too
        turn = await client.audio("a", 1.0)
        began = virtual.clock()
        await client.cancel("a")
        await client.ended("a")
        assert virtual.clock() - began < 0.02
        assert turn.kinds[-1] == "done"
        assert gateway.idle
        await asyncio.sleep(30)
        assert await client.settled() == []  # the transcript fails on anything of "a"
        await client.cancel("a")
        await client.cancel("never was")
        await client.send({"cancel": True})
        assert await client.settled() == []
        await client.say("b", "Second answer.", more=False)
        await client.ended("b")


@on_gateway()
async def test_a_late_end_of_a_cancelled_context_is_ignored(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", LONG)
        await client.audio("a", 0.5)
        await client.cancel("a")
        await client.end("a")
        await client.say("a", " ", more=False)
        await client.ended("a")
        assert await client.settled() == []


@on_gateway()
async def test_cancel_before_any_audio_ends_the_context_too_r13(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One tw")
        await client.cancel("a")
        (turn,) = await client.ended("a")
        assert turn.audio == b""


@on_gateway(max_contexts_per_socket=5)
async def test_fifty_rapid_interruptions_and_one_too_many_r7(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for i in range(50):
            await client.say(f"t{i}", LONG)
            await client.audio(f"t{i}", 0.02)
            await client.cancel(f"t{i}")
        await client.ended(*(f"t{i}" for i in range(50)))
        assert gateway.idle
        for i in range(6):
            await client.say(f"u{i}", "One two three. ")
        error = await client.until("error")
        assert (error["context_id"], error["status_code"]) == ("u5", 429)  # alone; the socket survives
        assert error["retry_after"] > 0
        for i in range(5):
            await client.end(f"u{i}")
        await client.ended(*(f"u{i}" for i in range(5)))


@on_gateway()
async def test_an_id_may_be_used_again_after_its_end(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        for text in ("One.", "Two."):
            await client.say("a", text, more=False, add_timestamps=True)
            await client.ended("a")
        assert [turn.text for turn in client.transcript.past] == ["One.", "Two."]


# Time


@on_gateway()
async def test_run_ahead_is_bounded_for_one_who_does_not_read_fact_5(gateway: Running) -> None:
    """LiveKit interrupts by not reading any more; a socket alone would swallow minutes."""
    async with cartesia_client(gateway) as client:
        await client.say("a", LONG, more=False)
        await asyncio.sleep(8)
        (playing,) = gateway.services.playing.values()
        assert playing[1].sent_samples / 24000 <= 8 + 3.0 + 0.1
        await client.ws.close()
    await asyncio.sleep(0.1)
    assert gateway.idle


@on_gateway(lambda: ToneEngine(xrt=0.5))
async def test_overload_is_refused_at_once_fact_6(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        began = virtual.clock()
        await client.say("a", "One two three.", more=False)
        (turn,) = await client.ended("a")
        assert virtual.clock() - began < 0.05
        assert turn.end is not None
        assert (turn.end["error_code"], turn.end["status_code"]) == ("busy", 429)
        assert turn.end["retry_after"] > 0
    async with (
        aiohttp.ClientSession(headers=KEY) as http,
        http.post(
            gateway.url + "/tts/bytes", json={"transcript": "One.", "voice": VOICE, "output_format": RAW}
        ) as response,
    ):
        assert response.status == 429
        assert int(response.headers["Retry-After"]) >= 1
        assert (await response.json())["error_code"] == "busy"


@on_gateway()
async def test_livekit_gets_a_heartbeat_while_its_turn_waits_fact_7(gateway: Running) -> None:
    async with cartesia_client(gateway, headers=LIVEKIT) as client:
        await client.say("a", "Let me look that up. ", max_buffer_delay_ms=0)
        turn = client.transcript.turns["a"]
        at = []
        last = virtual.clock()
        while len(turn.flushes) < 10:
            message = await client.next()
            assert virtual.clock() - last < 2 * HEARTBEAT_S  # never ten seconds without a message
            last = virtual.clock()
            if message["type"] == "flush_done":
                at.append(last)
        assert at[-1] - at[0] == pytest.approx(9 * HEARTBEAT_S, rel=0.3)
        await client.say("a", "Here it is.", max_buffer_delay_ms=0, more=False)
        await client.ended("a")
        beats = len(turn.flushes)
        await asyncio.sleep(20)
        assert await client.settled() == []
        assert len(turn.flushes) == beats  # none for a turn that is over


@on_gateway()
async def test_others_get_no_heartbeat(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "Let me look that up. ", flush=True)
        await client.until("flush_done")
        await asyncio.sleep(60)
        assert await client.settled() == []
        assert client.transcript.turns["a"].flushes == [1]
        await client.end("a")
        await client.ended("a")


@on_gateway()
async def test_an_open_context_waits_through_a_long_tool_call_r11(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One moment. ", add_timestamps=True)
        await asyncio.sleep(200)
        await client.say("a", "Here it is.", more=False)
        (turn,) = await client.ended("a")
    assert turn.text == "One moment. Here it is."


@on_gateway()
async def test_an_idle_context_ends_with_an_error_and_the_socket_stays_r11(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "One moment. ")
        (turn,) = await client.ended("a")
        assert (turn.end or {})["error_code"] == "context_idle"
        await client.say("b", "Still here.", more=False)
        await client.ended("b")


@on_gateway()
async def test_an_idle_socket_stays_open_for_an_hour_and_needs_no_pong_fact_4_r10(gateway: Running) -> None:
    async with cartesia_client(gateway, autoping=False) as client:
        for _ in range(4):
            virtual.skip(900)
            await asyncio.sleep(1)  # nobody reads meanwhile: a ping would stay unanswered
        await client.say("a", "Still here.", more=False)
        await client.ended("a")


@on_gateway()
async def test_pings_are_answered_while_speech_flows_and_deflate_is_declined_r28(gateway: Running) -> None:
    async with cartesia_client(gateway, autoping=False, compress=15) as client:
        assert client.ws.compress == 0
        await client.say("a", LONG, more=False)
        await client.audio("a", 0.5)
        await client.ws.ping(b"there?")
        while (message := await client.ws.receive()).type is not aiohttp.WSMsgType.PONG:
            assert message.type is aiohttp.WSMsgType.TEXT
        assert message.data == b"there?"


@on_gateway()
async def test_a_drain_lets_contexts_finish_and_then_closes_with_1012_r28(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", LONG, more=False, add_timestamps=True)
        await client.audio("a", 0.5)
        draining = asyncio.ensure_future(drain(gateway.services))
        await asyncio.sleep(0)
        await client.say("b", "Late.", more=False)
        error = await client.until("error")
        assert (error["context_id"], error["error_code"], error["status_code"]) == ("b", "draining", 503)
        (turn,) = await client.ended("a")
        assert turn.text == LONG.strip()
        assert await client.close_code() == 1012
        assert await draining is True


# One end for each


@pytest.mark.parametrize("after", [0, 3])
def test_an_engine_that_fails_is_told_r13_r15(tmp_path: Path, after: int) -> None:
    def failing() -> ToneEngine:
        engine = ToneEngine()
        engine.fail, engine.fail_after_chunks = EngineCrashed("the voice failed"), after
        return engine

    @on_gateway(failing)
    async def main(gateway: Running) -> None:
        async with cartesia_client(gateway) as client:
            await client.say("a", "One two three four five.", more=False)
            (turn,) = await client.ended("a")
            assert (turn.end or {})["error_code"] == "engine_crashed"
            assert (turn.end or {})["status_code"] == 502
            gateway.engine.fail = None
            await client.say("b", "One.", more=False)
            await client.ended("b")
        assert gateway.idle

    main(tmp_path)


@on_gateway()
async def test_a_silent_engine_is_told_r15(gateway: Running) -> None:
    gateway.engine.work_s = 30.0
    async with cartesia_client(gateway) as client:
        began = virtual.clock()
        await client.say("a", "One.", more=False)
        (turn,) = await client.ended("a")
        assert (turn.end or {})["error_code"] == "engine_timeout"
        assert virtual.clock() - began < 10
    assert gateway.idle


@on_gateway(max_context_chars=100)
async def test_text_that_is_too_long_opens_nothing_and_ends_nothing(gateway: Running) -> None:
    async with cartesia_client(gateway) as client:
        await client.say("a", "x" * 101, more=False)
        error = await client.until("error")
        assert (error["context_id"], error["status_code"], error["done"]) == ("a", 413, True)
        assert error["message"].startswith("transcript: ")
        await client.say("b", "One two three. ", add_timestamps=True)
        await client.say("b", "y" * 90)
        error = await client.until("error")
        assert (error["context_id"], error["done"]) == ("b", False)
        await client.say("b", "Four.", more=False)
        (turn,) = await client.ended("b")
        assert turn.text == "One two three. Four."
    assert gateway.idle


@on_gateway(api_keys=f"acme:{SECRET}")
async def test_sockets_cost_no_slot_and_a_closed_one_frees_its_contexts_r14(gateway: Running) -> None:
    headers = {"X-API-Key": SECRET}
    async with cartesia_client(gateway, headers=headers), cartesia_client(gateway, headers=headers) as client:
        assert gateway.services.limits.active == 0
        await client.say("a", LONG)
        await client.audio("a", 0.5)
        assert gateway.services.limits.generating(tenant="acme") == 1
        await client.ws.close()
        await asyncio.sleep(0.5)
        assert gateway.idle


@on_gateway()
async def test_a_message_over_the_limit_closes_its_own_socket_only(gateway: Running) -> None:
    async with cartesia_client(gateway) as good, cartesia_client(gateway) as bad:
        await good.say("a", LONG, more=False, add_timestamps=True)
        await good.audio("a", 0.5)
        await bad.say("b", "x" * 70_000)
        assert await bad.close_code() == 1009
        (turn,) = await good.ended("a")
        assert turn.text == LONG.strip()

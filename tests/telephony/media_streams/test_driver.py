"""The leg against a faithful Twilio, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
import random
import weakref

import pytest

from telephony.marks import MarkEvent, Outcome
from telephony.media_streams.driver import LegEvent, MediaStreamLeg
from telephony.media_streams.protocol import Dtmf, Media
from telephony.profile import EXOTEL, TWILIO
from telephony.wheel import TimerWheel
from tests.peers.call import MemorySocket, VirtualCall
from tests.peers.twilio import TwilioPeerCore, Violation
from tests.virtual import Clock, VirtualLoop, run
from tts_core.errors import LegClosed, LegError, PeerViolation

SPEECH = bytes(range(1, 251)) * 640  # 20 s without a silent byte


async def collect(leg: MediaStreamLeg, into: list[LegEvent]) -> None:
    async for event in leg.events():
        into.append(event)


def test_a_call_speaks_and_hangs_up_when_all_was_heard() -> None:
    async def main() -> None:
        async with VirtualCall(latency=0.05, params={"agent": "x"}) as call:
            assert call.leg.started.custom_parameters == {"agent": "x"}
            begun = call.clock()
            await call.leg.play(SPEECH[:24_100])
            await call.leg.hangup()
            took = call.clock() - begun
        core = call.core
        core.advance()
        assert bytes(core.heard) == SPEECH[:24_100] + b"\xff" * 60
        assert took == pytest.approx(24_160 / 8000 + 0.1, abs=0.03)
        assert not core.violations
        assert not core.starved()
        assert call.socket.closed == (1000, "")
        assert call.leg.closed

    run(main)


def test_the_leg_sits_on_the_wheel_only_while_it_speaks() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            await asyncio.sleep(0.1)
            assert len(call.wheel) == 0
            await call.leg.play(SPEECH[:16000])
            assert len(call.wheel) == 1
            await call.leg.drained()
            await asyncio.sleep(0.1)
            assert len(call.wheel) == 0
            call.leg.playout.play(SPEECH[:8000])  # also past the driver
            assert len(call.wheel) == 1

    run(main)


def test_events_come_in_order_and_end_with_the_call() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            events: list[LegEvent] = []
            reader = asyncio.create_task(collect(call.leg, events))
            call.socket.feed(
                call.core.media(b"\x01" * 160), call.core.dtmf("5"), call.core.media(b"\x02" * 160)
            )
            await call.leg.play(SPEECH[:1600])
            call.leg.end_utterance()
            call.leg.mark("greeting")
            await asyncio.sleep(1)
            call.socket.feed(call.core.stop())
            await reader
            assert [type(event) for event in events] == [Media, Dtmf, Media, MarkEvent]
            assert events[1] == Dtmf("5")
            assert events[3] == MarkEvent("greeting", 1600, Outcome.PLAYED)
            assert isinstance(call.leg.error, LegClosed)
            with pytest.raises(LegClosed):
                await call.leg.play(SPEECH[:160])
            with pytest.raises(LegClosed):
                await call.leg.drained()
            with pytest.raises(LegClosed):
                call.leg.mark("late")
            assert call.leg.clear() == call.leg.heard() == 1600

    run(main)


def test_clear_is_on_the_wire_when_the_call_returns_and_nothing_of_the_cut_follows() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            await call.leg.play(SPEECH[:32_000])
            await asyncio.sleep(1.003)
            before = len(call.socket.sent)
            heard = call.leg.clear()
            assert [json.loads(text)["event"] for text in call.socket.sent[before:]] == ["clear"]
            call.core.advance()
            assert abs(heard - len(call.core.heard)) <= 1
            assert bytes(call.core.heard) == SPEECH[: len(call.core.heard)]
            await asyncio.sleep(1)
            assert call.core.media_since_clear() == b""
            await call.leg.play(b"\xd5" * 800)
            await call.leg.drained()
            assert call.core.media_since_clear() == b"\xd5" * 800
            assert not call.core.violations

    run(main)


def test_audio_that_waits_for_room_when_it_is_cut_is_never_played() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            speaking = asyncio.create_task(call.leg.play(SPEECH * 2))  # 40 s: far more than the queue holds
            await asyncio.sleep(2)
            assert not speaking.done()
            call.leg.clear()
            await call.leg.play(b"\xd5" * 1600)
            await speaking
            await call.leg.drained()
            assert call.core.media_since_clear() == b"\xd5" * 1600

    run(main)


@pytest.mark.parametrize("latency", [0.0, 0.02, 0.08])
def test_heard_is_exact_against_the_peer_at_any_moment(latency: float) -> None:
    async def main() -> None:
        rng = random.Random(3)
        async with VirtualCall(latency=latency) as call:
            for _ in range(40):
                await call.leg.play(SPEECH[: rng.randrange(160, 16_000)])
                if rng.random() < 0.5:
                    call.leg.end_utterance()
                call.leg.mark("here")
                start = call.leg.playout.marks.generation
                until = call.clock() + rng.random() * 2
                while call.clock() < until:
                    await asyncio.sleep(rng.random() * 0.2)
                    call.core.advance()
                    # The peer is at most a trip ahead or behind of what can be known here.
                    truth = len(call.core.heard) + call.core.dropped
                    heard = call.leg.heard()
                    assert heard <= call.leg.playout.sent_samples
                    if not call.core.clears or call.clock() - call.core.clears[-1] > 2 * latency + 0.01:
                        assert abs(heard - truth) <= 8000 * latency + 1 or not call.core.buffered
                if rng.random() < 0.6:
                    call.leg.clear()
                    if latency:
                        await asyncio.sleep(2 * latency)
                assert call.leg.playout.marks.generation >= start
            assert call.leg.playout.marks.early == 0
            assert not call.core.violations

    run(main)


def test_fifty_rapid_interruptions_leave_nothing_behind() -> None:
    async def main() -> None:
        async with VirtualCall(latency=0.03) as call:
            rng = random.Random(5)
            events: list[LegEvent] = []
            reader = asyncio.create_task(collect(call.leg, events))
            speakers = []
            for index in range(50):
                speakers.append(asyncio.create_task(call.leg.play(SPEECH)))
                await asyncio.sleep(0)
                waiter = asyncio.create_task(call.leg.drained()) if index % 5 == 0 else None
                call.leg.mark(f"m{index}")
                await asyncio.sleep(rng.random() * 0.15)
                at = call.clock()
                sent = len(call.socket.sent)
                call.leg.clear()
                assert [json.loads(text)["event"] for text in call.socket.sent[sent:]] in (["clear"], [])
                assert call.leg.playout.queued_s() == 0.0
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert all(speaker.done() for speaker in speakers)
                assert waiter is None or waiter.done()
                assert call.clock() == at
            await asyncio.sleep(0.2)
            assert len(call.wheel) == 0
            playout = call.leg.playout
            assert not playout.busy
            assert len(playout.marks) == 0
            assert playout.queued_s() == playout.lead_s() == 0.0
            ended = [event for event in events if isinstance(event, MarkEvent)]
            assert [event.name for event in ended] == [f"m{index}" for index in range(50)]
            assert {event.outcome for event in ended} == {Outcome.CLEARED}
            await call.leg.play(b"\xd5" * 1600)
            await call.leg.drained()
            assert call.core.media_since_clear() == b"\xd5" * 1600
            assert not call.core.violations
        await reader
        gone = weakref.ref(call.leg)
        del call, playout, speakers, waiter
        gc.collect()
        assert gone() is None

    run(main)


def test_a_stall_of_the_loop_shorter_than_the_lead_is_not_heard() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        async with VirtualCall(latency=0.02) as call:
            speaking = asyncio.create_task(call.leg.play(SPEECH[:80_000]))
            for stall in (0.01, 0.025, 0.15, 0.25):
                await asyncio.sleep(1.0)
                loop.now += stall
            await speaking
            await call.leg.drained()
            assert not call.core.starved()
            assert bytes(call.core.heard) == SPEECH[:80_000]

    run(main)


def test_hangup_does_not_wait_for_a_mark_that_never_comes() -> None:
    async def main() -> None:
        async with VirtualCall(probe=False) as call:
            call.core.mark = lambda name: call.core.media()  # type: ignore[method-assign]
            begun = call.clock()
            await call.leg.play(SPEECH[:8000])
            await call.leg.hangup()
            assert 3.0 <= call.clock() - begun <= 3.1
            assert call.leg.closed

    run(main)


def test_drained_ends_when_the_listener_hangs_up() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            await call.leg.play(SPEECH[:32_000])
            waiting = asyncio.create_task(call.leg.drained())
            blocked = asyncio.create_task(call.leg.play(SPEECH))
            await asyncio.sleep(0.5)
            call.socket.hang_up()
            for task in (waiting, blocked):
                with pytest.raises(LegClosed):
                    await task
            assert len(call.wheel) == 0
            await call.leg.hangup()  # nothing left to do

    run(main)


def test_a_slow_reader_loses_the_oldest_audio_and_no_key() -> None:
    async def main() -> None:
        async with VirtualCall(inbound_s=1.0) as call:
            call.socket.feed(call.core.dtmf("1"))
            for index in range(200):
                call.socket.feed(call.core.media(bytes([index]) * 160))
            call.socket.feed(call.core.dtmf("2"))
            await asyncio.sleep(0.1)
            assert call.leg.inbound_dropped == 150
            call.socket.feed(call.core.stop())
            events = [event async for event in call.leg.events()]
            assert events[0] == Dtmf("1")
            assert events[-1] == Dtmf("2")
            audio = [event.payload[0] for event in events if isinstance(event, Media)]
            assert audio == list(range(150, 200))

    run(main)


def test_keys_without_end_are_refused() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            for _ in range(600):
                call.socket.feed(call.core.dtmf("1"))
            await asyncio.sleep(0.1)
            assert isinstance(call.leg.error, PeerViolation)

    run(main)


# One-way streams


def test_a_one_way_stream_is_refused_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """Its start message looks the same; it answers no mark although the caller talks."""

    async def main() -> None:
        async with VirtualCall(one_way=True) as call:
            for _ in range(150):
                call.socket.feed(call.core.media())
                await asyncio.sleep(0.02)
            assert isinstance(call.leg.error, PeerViolation)
            assert "<Connect><Stream>" in call.leg.error.message
            assert call.socket.closed == (1002, "protocol violation")
            with pytest.raises(PeerViolation):
                async for _ in call.leg.events():
                    pass

    with caplog.at_level(logging.ERROR, "telephony"):
        run(main)
    (record,) = caplog.records
    assert "one-way" in record.__dict__["reason"]


def test_a_silent_peer_is_not_taken_for_a_one_way_stream() -> None:
    async def main() -> None:
        async with VirtualCall(one_way=True) as call:
            await asyncio.sleep(10)
            assert not call.leg.closed

    run(main)


def test_a_two_way_stream_that_loses_the_probe_to_a_clear_goes_on() -> None:
    async def main() -> None:
        async with VirtualCall(latency=0.1) as call:
            await call.leg.play(SPEECH[:1600])
            call.leg.clear()
            for _ in range(200):
                call.socket.feed(call.core.media())
                await asyncio.sleep(0.02)
            assert not call.leg.closed

    run(main)


def test_marks_never_answered_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with VirtualCall(one_way=True, probe=False) as call:
            for _ in range(3):
                await call.leg.play(SPEECH[:160])
                call.leg.mark("m")
                await asyncio.sleep(3)

    with caplog.at_level(logging.ERROR, "telephony"):
        run(main)
    assert len(caplog.records) == 1
    assert "<Start><Stream>" in caplog.text


# Opening and breaking


@pytest.mark.parametrize(
    "messages",
    [
        ["nonsense"],
        [b"\x00\x01"],
        ['{"event":"start"}'],
        [TwilioPeerCore(clock=Clock()).start(tracks=["inbound", "outbound"])],
    ],
)
def test_a_peer_that_breaks_the_protocol_at_the_start_is_refused(messages: list[str | bytes]) -> None:
    async def main() -> None:
        call = VirtualCall()
        call.socket.feed(*messages)
        with pytest.raises(PeerViolation):
            await call.leg.open()
        assert call.socket.closed == (1002, "protocol violation")
        call.wheel.close()

    run(main)


def test_a_peer_that_says_nothing_is_given_up() -> None:
    async def main() -> None:
        call = VirtualCall(start_timeout_s=10.0)
        call.socket.feed(call.core.connected())
        begun = call.clock()
        with pytest.raises(LegClosed, match="start"):
            await call.leg.open()
        assert call.clock() - begun == pytest.approx(10.0)
        assert call.socket.closed is not None

    run(main)


def test_a_peer_that_leaves_before_start_is_no_error_of_ours() -> None:
    async def main() -> None:
        call = VirtualCall()
        call.socket.feed(call.core.connected())
        call.socket.hang_up()
        with pytest.raises(LegClosed):
            await call.leg.open()

    run(main)


def test_opening_can_be_cancelled() -> None:
    async def main() -> None:
        call = VirtualCall()
        opening = asyncio.create_task(call.leg.open())
        await asyncio.sleep(1)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert call.socket.closed is not None

    run(main)


def test_a_violation_in_the_call_ends_it_and_leaves_other_calls_alone() -> None:
    async def main() -> None:
        async with VirtualCall() as good, VirtualCall(wheel=good.wheel) as bad:
            await good.leg.play(SPEECH[:16_000])
            await bad.leg.play(SPEECH[:16_000])
            assert len(good.wheel) == 2
            await asyncio.sleep(0.5)
            bad.socket.feed('{"event":"media","streamSid":"MZother","media":{"payload":"AA=="}}')
            await asyncio.sleep(0.02)
            assert isinstance(bad.leg.error, PeerViolation)
            assert len(good.wheel) == 1
            with pytest.raises(LegClosed, match="refused"):
                await bad.leg.play(SPEECH[:160])
            await good.leg.drained()
            assert bytes(good.core.heard) == SPEECH[:16_000]

    run(main)


def test_a_socket_that_fails_under_a_tick_ends_the_leg() -> None:
    class Failing(MemorySocket):
        def send_text(self, text: str) -> None:
            if len(self.sent) > 5:
                raise LegClosed("the listener does not read")
            super().send_text(text)

    async def main() -> None:
        call = VirtualCall()
        socket = Failing(call.core)
        leg = MediaStreamLeg(socket, call.wheel, clock=call.clock)
        socket.feed(call.core.connected(), call.core.start())
        async with leg:
            await leg.play(SPEECH[:16_000])
            await asyncio.sleep(1)
            assert leg.error is not None
            assert leg.error.message == "the listener does not read"
            assert len(call.wheel) == 0
            assert leg.clear() == leg.heard()

    run(main)


def test_only_twilios_format_is_taken() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        socket = MemorySocket(TwilioPeerCore(clock=loop.time))
        for profile in (EXOTEL, dataclasses.replace(TWILIO, encoding="alaw")):
            with pytest.raises(LegError):
                MediaStreamLeg(socket, TimerWheel(loop.time), profile=profile)

    run(main)


def test_a_file_is_never_played() -> None:
    async def main() -> None:
        async with VirtualCall() as call:
            with pytest.raises(LegError, match="header"):
                await call.leg.play(b"RIFF\x24\x00\x00\x00WAVEfmt " + SPEECH[:160])
            assert call.core.violations == list[Violation]()
            assert not call.core.buffered

    run(main)

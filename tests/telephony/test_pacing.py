"""Sixty seconds of playout in virtual time, with stalls of the event loop."""

from __future__ import annotations

import base64
import random

import pytest

from telephony.media_streams.protocol import Protocol
from telephony.playout import Playout
from telephony.profile import TWILIO
from telephony.wheel import TimerWheel
from tests.peers.twilio import TwilioPeerCore
from tests.virtual import Clock

SECONDS = 60.0
CHUNK = b"\x55" * 8000


class Listener:
    """Plays what comes, as a phone does; far cheaper than a whole Twilio, for many streams."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = 0.0
        self.samples = 0
        self.first: float | None = None
        self.starved_s = 0.0
        self.biggest = 0

    def media(self, payload: bytes) -> None:
        now = self._clock.now
        if self.first is None:
            self.first = self._end = now
        self.starved_s += max(0.0, now - self._end)
        self._end = max(self._end, now) + len(payload) / 8000
        self.samples += len(payload)
        self.biggest = max(self.biggest, len(payload))

    def mark(self, name: str) -> None:
        """Never answered here."""

    def clear(self) -> None:
        raise AssertionError("nobody interrupts")

    def played_s(self, now: float) -> float:
        return self.samples / 8000 - max(0.0, self._end - now)


@pytest.mark.parametrize("streams", [1, 100, pytest.param(500, marks=pytest.mark.slow)])
def test_sixty_seconds_with_stalls(streams: int) -> None:
    clock = Clock()
    late: list[float] = []
    wheel = TimerWheel(clock, on_lateness=lambda seconds, ticks: late.append(seconds))
    listeners = [Listener(clock) for _ in range(streams)]
    playouts = [Playout(TWILIO, clock, listener) for listener in listeners]
    for playout in playouts:
        wheel.add(playout.tick)
    random.seed(7)
    start = clock.now
    # One stall each 1.2 s, so that the lead has its second to come back.
    stalls = [(start + 1.0 + index * 1.2, (0.010, 0.025, 0.150)[index % 3]) for index in range(48)]
    checks = [(at + length + 1.0, at) for at, length in stalls]
    refill = start
    while clock.now < start + SECONDS:
        if clock.now >= refill:
            for playout in playouts:
                while playout.room_bytes() >= len(CHUNK):
                    playout.play(CHUNK)
            refill += 2.0
        due = wheel.advance(clock.now)
        if stalls and due >= stalls[0][0]:
            due += stalls.pop(0)[1]
        if checks and due >= checks[0][0]:
            checks.pop(0)
            for playout in playouts:
                assert 0.22 <= playout.lead_s() <= 0.34, "the lead is not back within a second"
        clock.now = max(clock.now, due)
    assert not stalls
    assert not checks
    wall = clock.now - start
    for listener, playout in zip(listeners, playouts, strict=True):
        assert listener.first is not None
        assert abs(listener.played_s(clock.now) / wall - 1) <= 0.001
        assert listener.starved_s == 0.0
        assert playout.stats.stalls == playout.stats.underruns == 0
        assert playout.heard_samples() == pytest.approx(listener.played_s(clock.now) * 8000, abs=1)
    assert max(late) == pytest.approx(0.150, abs=0.002)


def test_sixty_seconds_to_a_whole_twilio() -> None:
    clock = Clock()
    core = TwilioPeerCore(clock=clock)
    protocol = Protocol()
    protocol.receive_text(core.connected())
    protocol.receive_text(core.start())
    answers: list[str] = []

    class Sink:
        def media(self, payload: bytes) -> None:
            answers.extend(core.receive(protocol.media(payload)))

        def mark(self, name: str) -> None:
            answers.extend(core.receive(protocol.mark(name)))

        def clear(self) -> None:
            answers.extend(core.receive(protocol.clear()))

    wheel = TimerWheel(clock)
    playout = Playout(TWILIO, clock, Sink())
    wheel.add(playout.tick)
    start = clock.now
    sent = bytearray()
    source = random.Random(11)
    turns = 0
    while clock.now < start + SECONDS:
        while playout.room_bytes() >= 4000:
            chunk = source.randbytes(source.randrange(1, 4000))
            playout.play(chunk)
            playout.mark(f"m{len(sent)}")
            sent += chunk
        due = wheel.advance(clock.now)
        turns += 1
        if turns % 61 == 0:
            due += (0.010, 0.025, 0.150)[turns % 3]
        clock.now = max(clock.now, due)
        answers += core.advance()
        for answer in answers:
            playout.mark_played(answer.split('"name": "')[1].split('"')[0])
        answers.clear()
        assert abs(playout.heard_samples() - len(core.heard)) <= 1
    assert not core.violations
    assert not core.starved()
    assert abs(len(core.heard) / 8000 / (clock.now - start) - 1) <= 0.001
    assert sent.startswith(core.heard)
    assert playout.marks.timed_out == playout.marks.early == playout.marks.stale == 0
    assert 0 < len(core.marks_played) / SECONDS <= 5
    assert base64.b64encode(b"RIFF") not in core.heard

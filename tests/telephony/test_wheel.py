from __future__ import annotations

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.wheel import Handle, TimerWheel
from tests.virtual import Clock, VirtualLoop, run


class Stream:
    def __init__(self, wheel: TimerWheel) -> None:
        self.calls: list[tuple[float, float, int]] = []
        self.handle = wheel.add(lambda due, now, missed: self.calls.append((due, now, missed)))


def turn(wheel: TimerWheel, clock: Clock, until: float) -> None:
    """Serve every deadline at its time."""
    while True:
        due = wheel.advance(clock.now)
        if due > until:
            clock.now = until
            return
        clock.now = max(clock.now, due)


def test_each_stream_is_called_once_per_period_at_absolute_deadlines() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    start = clock.now
    streams = [Stream(wheel) for _ in range(50)]
    turn(wheel, clock, start + 10.0)
    for stream in streams:
        dues = [due for due, _, _ in stream.calls]
        assert len(dues) in (500, 501)
        assert all(missed == 0 for _, _, missed in stream.calls)
        for index, due in enumerate(dues):
            assert due == pytest.approx(dues[0] + index * 0.020, abs=1e-9)


def test_streams_are_spread_evenly() -> None:
    wheel = TimerWheel(Clock())
    streams = [Stream(wheel) for _ in range(500)]
    assert set(wheel.occupancy) == {25}
    for stream in streams[::2]:
        stream.handle.cancel()
        stream.handle.cancel()
    assert len(wheel) == 250
    for _ in range(250):
        Stream(wheel)
    assert set(wheel.occupancy) == {25}


def test_a_stall_is_one_call_that_tells_the_missed_periods() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    streams = [Stream(wheel) for _ in range(20)]
    turn(wheel, clock, clock.now + 0.1)
    before = [len(stream.calls) for stream in streams]
    clock.now += 0.150
    wheel.advance(clock.now)
    for stream, count in zip(streams, before, strict=True):
        assert len(stream.calls) == count + 1
        due, now, missed = stream.calls[-1]
        assert missed in (6, 7)
        assert now - 0.020 < due <= now
        assert due == pytest.approx(stream.calls[-2][0] + 0.020 * (missed + 1))


def test_a_stream_that_joined_during_a_stall_missed_nothing_from_before() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    Stream(wheel)
    turn(wheel, clock, clock.now + 0.1)
    clock.now += 10
    late = Stream(wheel)
    wheel.advance(clock.now)
    turn(wheel, clock, clock.now + 0.05)
    assert [missed for _, _, missed in late.calls] == [0] * len(late.calls)
    assert len(late.calls) in (2, 3)


@given(
    steps=st.lists(
        st.tuples(st.floats(0.0, 0.3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30
    )
)
def test_calls_and_missed_periods_account_for_all_time(steps: list[tuple[float, int, int]]) -> None:
    """Whatever the stalls and whoever comes and goes: no period is lost, doubled or early."""
    clock = Clock()
    wheel = TimerWheel(clock)
    alive: list[tuple[Stream, float]] = []
    gone: list[tuple[Stream, int]] = []
    for wait, joins, leaves in steps:
        alive += [(Stream(wheel), clock.now) for _ in range(joins)]
        for _ in range(min(leaves, len(alive))):
            stream, _ = alive.pop(0)
            stream.handle.cancel()
            gone.append((stream, len(stream.calls)))
        clock.now += wait
        next_due = wheel.advance(clock.now)
        assert next_due > clock.now - 1e-6 or not alive
    assert len(wheel) == len(alive)
    for stream, count in gone:
        assert len(stream.calls) == count
    for stream, since in alive:
        periods = sum(1 + missed for _, _, missed in stream.calls)
        assert abs(periods - (clock.now - since) / 0.020) <= 1 + 1e-6
        previous = None
        for due, now, missed in stream.calls:
            assert due <= now + 1e-6
            if previous is not None:
                assert due == pytest.approx(previous + 0.020 * (1 + missed), abs=1e-6)
            previous = due


def test_callbacks_may_cancel_and_add() -> None:
    clock = Clock()
    wheel = TimerWheel(clock, slots=1, slot_s=0.02)
    calls: list[str] = []
    handles: dict[str, Handle] = {}

    def first(due: float, now: float, missed: int) -> None:
        calls.append("first")
        handles["first"].cancel()
        handles["second"].cancel()
        handles["third"] = wheel.add(lambda *_: calls.append("third"))

    handles["first"] = wheel.add(first)
    handles["second"] = wheel.add(lambda *_: calls.append("second"))
    clock.now += 0.02
    wheel.advance(clock.now)
    assert calls == ["first"]
    assert not handles["second"].active
    clock.now += 0.02
    wheel.advance(clock.now)
    assert calls == ["first", "third"]


def test_a_failing_stream_is_taken_off_and_the_others_go_on() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)

    def broken(due: float, now: float, missed: int) -> None:
        raise ValueError("broken")

    bad = wheel.add(broken)
    good = Stream(wheel)
    turn(wheel, clock, clock.now + 0.1)
    assert not bad.active
    assert len(good.calls) >= 4


def test_lateness_counts_missed_ticks_too() -> None:
    clock = Clock()
    seen: list[tuple[float, int]] = []
    wheel = TimerWheel(
        clock, slots=1, slot_s=0.02, on_lateness=lambda late, ticks: seen.append((late, ticks))
    )
    for _ in range(3):
        Stream(wheel)
    clock.now += 0.065
    wheel.advance(clock.now)
    assert [(round(late, 6), ticks) for late, ticks in seen] == [(0.005, 3), (0.025, 3), (0.045, 3)]


def test_it_gives_the_loop_back_when_there_is_much_work() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    served: list[float] = []

    def slow(due: float, now: float, missed: int) -> None:
        clock.now += 0.001
        served.append(due)

    for _ in range(20):
        wheel.add(slow)
    clock.now += 0.05
    rounds = 0
    while len(served) < 20:
        before = len(served)
        wheel.advance(clock.now, work_s=0.004)
        assert len(served) - before <= 5
        rounds += 1
    assert rounds >= 4


def test_next_deadline_skips_empty_slots() -> None:
    clock = Clock()
    wheel = TimerWheel(clock)
    assert wheel.advance(clock.now) == math.inf
    stream = Stream(wheel)
    due = wheel.advance(clock.now)
    clock.now = due
    wheel.advance(clock.now)
    assert stream.calls[0][0] == due
    assert wheel.advance(clock.now) == pytest.approx(due + 0.02)


@pytest.mark.parametrize(("slots", "slot_s"), [(0, 0.001), (21, 0.001), (1, 0.0)])
def test_slots_must_fit(slots: int, slot_s: float) -> None:
    with pytest.raises(ValueError, match="fit"):
        TimerWheel(Clock(), slots=slots, slot_s=slot_s)


def test_on_a_loop_it_keeps_time_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        wheel = TimerWheel(loop.time)
        wheel.start()
        await asyncio.sleep(3.0)
        first = Stream(wheel)
        await asyncio.sleep(1.0)
        second = Stream(wheel)
        loop.now += 0.1  # a stall
        await asyncio.sleep(0.9)
        assert sum(1 + missed for _, _, missed in first.calls) in (99, 100)
        assert sum(1 + missed for _, _, missed in second.calls) in (49, 50)
        assert max(now - due for due, now, missed in first.calls if not missed) < 0.0011
        first.handle.cancel()
        second.handle.cancel()
        await asyncio.sleep(0.1)
        assert not len(wheel)
        wheel.close()
        third = Stream(wheel)
        await asyncio.sleep(0.1)
        assert not third.calls

    run(main)

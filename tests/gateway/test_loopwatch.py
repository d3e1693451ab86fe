from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gateway.loopwatch import LagMeter, LoopWatch


def test_lag_is_what_the_timer_was_late() -> None:
    meter = LagMeter(10.0, 0.1)
    assert meter.woke(10.1) == 0.0
    assert abs(meter.woke(10.23) - 0.03) < 1e-9
    assert abs(meter.worst - 0.03) < 1e-9


def test_one_long_block_is_seen_once_and_in_full() -> None:
    meter = LagMeter(0.0, 0.1)
    assert abs(meter.woke(1.05) - 0.95) < 1e-9
    assert 1.05 < meter.due <= 1.15 + 1e-9
    assert meter.woke(meter.due) == 0.0


@given(st.lists(st.floats(0, 5), min_size=1, max_size=50))
def test_lag_is_never_negative_and_the_next_moment_always_ahead(steps: list[float]) -> None:
    meter, now = LagMeter(0.0, 0.1), 0.0
    for step in steps:
        now += step
        assert meter.woke(now) >= 0.0
        assert meter.due > now - 1e-6


async def test_it_watches_the_running_loop_until_cancelled() -> None:
    seen: list[float] = []
    enough = asyncio.Event()

    def observe(lag: float) -> None:
        seen.append(lag)
        if len(seen) >= 3:
            enough.set()

    watch = LoopWatch(observe, period=0.001)
    task = asyncio.create_task(watch.run())
    await asyncio.wait_for(enough.wait(), 10)
    task.cancel()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
    assert watch.worst == max(seen[: len(seen)])

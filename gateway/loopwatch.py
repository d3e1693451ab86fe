"""How late the event loop wakes: the one number that says whether something blocks it.

A timer is set for a known moment; how much later it fires is the lag that every frame and every pong suffered
meanwhile. Sampled by absolute times, so that one long block is seen once and in full.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

_log = logging.getLogger(__name__)

PERIOD_S = 0.1
WORTH_A_LINE_S = 0.1
"""Longer than a phone's lead would notice at 200 ms: worth a line in the log, at most one every 10 s."""
QUIET_S = 10.0


class LagMeter:
    """Sans-I/O: told when it woke, says how late that was and when to wake next. Seconds, monotonic."""

    def __init__(self, start: float, period: float = PERIOD_S) -> None:
        self._period = period
        self.due = start + period
        self.worst = 0.0

    def woke(self, now: float) -> float:
        """Return the lag, never negative, and move ``due`` to the next moment on the grid after ``now``."""
        lag = max(0.0, now - self.due)
        self.worst = max(self.worst, lag)
        missed = int(lag / self._period)
        self.due += (missed + 1) * self._period
        return lag


class LoopWatch:
    """Feeds each lag to ``observe`` until cancelled."""

    def __init__(self, observe: Callable[[float], None], period: float = PERIOD_S) -> None:
        self._observe, self._period = observe, period
        self.worst = 0.0

    async def run(self) -> None:
        """Watch the running loop; ends by cancellation only."""
        loop = asyncio.get_running_loop()
        meter = LagMeter(loop.time(), self._period)
        told = -QUIET_S
        while True:
            await asyncio.sleep(max(0.0, meter.due - loop.time()))
            now = loop.time()
            lag = meter.woke(now)
            self.worst = meter.worst
            self._observe(lag)
            if lag >= WORTH_A_LINE_S and now - told >= QUIET_S:
                told = now
                _log.warning("event loop was blocked", extra={"lag_ms": round(lag * 1000, 1)})

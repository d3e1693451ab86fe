"""How busy something was lately: the share of the last seconds in which it worked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable


class Duty:
    """Working time in a sliding window.

    Args:
        workers: how many work side by side; all of them busy is a duty of 1.
        window_s: seconds looked back on.
        clock: monotonic seconds.

    """

    def __init__(
        self, workers: int = 1, *, window_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._workers = workers
        self._window = window_s
        self._clock = clock
        self._began = clock()
        # (when, seconds) with at most twenty entries a window, so that it is small however short the steps.
        self._spells: deque[tuple[float, float]] = deque()
        self._busy = 0.0

    def add(self, busy_s: float) -> None:
        """Work of ``busy_s`` seconds has just ended."""
        now = self._clock()
        self._forget(now)
        if self._spells and now - self._spells[-1][0] < self._window / 20:
            when, before = self._spells[-1]
            self._spells[-1] = (when, before + busy_s)
        else:
            self._spells.append((now, busy_s))
        self._busy += busy_s

    def value(self) -> float:
        """Share of the window (or of the time since the start, if that is less) spent working, 0 .. 1."""
        now = self._clock()
        self._forget(now)
        span = min(self._window, now - self._began) * self._workers
        return min(1.0, max(0.0, self._busy) / span) if span > 0 else 0.0

    def _forget(self, now: float) -> None:
        while self._spells and self._spells[0][0] <= now - self._window:
            self._busy -= self._spells.popleft()[1]

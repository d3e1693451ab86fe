"""How fast the engine is, and how fast it would be with every slot taken, from what requests took lately.

A batched model slows down with every stream, but by less than each of them adds: the time of a frame is taken
to be a line over the number of streams at work, fitted to the last requests. Decoding is in it, as a request
is measured by what it delivers. Where only a few streams were seen together the slope is a cautious guess,
and becomes right as load comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .budget import FRAME_S

SLOPE = 0.15
"""Share of a lone stream's time that each other one is thought to add, before it was measured."""

_KEEP = 0.95
"""Weight of what was known, per request: the last twenty count."""

_DOUBT = 0.5
"""Weight of the guessed slope, in squared streams: one request among others outweighs it."""

STALLED = 0.2
"""A request whose reader made it wait for more than this share of its time says nothing of our speed."""


class Speed:
    """The measured speed of one engine.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._running = 0
        self._area = 0.0  # integral of the running streams over time
        self._since = clock()
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def running(self) -> int:
        """Streams at work."""
        return self._running

    def enter(self) -> None:
        """A stream begins."""
        self._area = self.area()
        self._running += 1

    def leave(self) -> None:
        """A stream is over."""
        self._area = self.area()
        self._running -= 1

    def area(self) -> float:
        """Seconds of all streams up to now, side by side ones added."""
        now = self.clock()
        self._area += self._running * (now - self._since)
        self._since = now
        return self._area

    def add(self, together: float, frame_s: float) -> None:
        """One request's frames took ``frame_s`` each while ``together`` streams were at work."""
        self._weight = self._weight * _KEEP + 1
        self._x = self._x * _KEEP + together
        self._y = self._y * _KEEP + frame_s
        self._xx = self._xx * _KEEP + together * together
        self._xy = self._xy * _KEEP + together * frame_s

    def frame_s(self, together: float) -> float:
        """Seconds of a frame of each of ``together`` streams; real time before anything was measured."""
        if not self._weight:
            return FRAME_S
        x, y = self._x / self._weight, self._y / self._weight
        spread = self._xx - self._x * x
        alone = y / (1 + SLOPE * max(0.0, x - 1))
        slope = (self._xy - self._x * y + _DOUBT * SLOPE * alone) / (spread + _DOUBT)
        return max(y + max(0.0, slope) * (together - x), y / 10)

    def xrt(self, slots: int) -> float:
        """Seconds of audio a second with ``slots`` streams at work; 0 before anything was measured."""
        return slots * FRAME_S / self.frame_s(slots) if self._weight else 0.0


class Lap:
    """The time of one request between its first sound and its end, for ``Speed``."""

    def __init__(self, speed: Speed) -> None:
        self._speed = speed
        self._at: float | None = None
        self._area = 0.0
        self._frames = 0
        self._stalled = 0.0

    def chunk(self, frames: int, stalled_s: float = 0.0) -> None:
        """A chunk of ``frames`` is there; before it was asked for, the reader let us wait ``stalled_s``."""
        if self._at is None:
            self._at, self._area = self._speed.clock(), self._speed.area()
            return
        self._frames += frames
        self._stalled += stalled_s
        self._end = self._speed.clock(), self._speed.area()

    def finish(self) -> None:
        """No more chunks: count what there was."""
        if self._at is None or not self._frames:
            return
        took = self._end[0] - self._at
        if took > 0 and self._stalled <= STALLED * took:
            self._speed.add((self._end[1] - self._area) / took, (took - self._stalled) / self._frames)

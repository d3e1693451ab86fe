"""The playout clock: how far the listener has got in what we sent.

Two estimates run side by side.

*Floor*: the peer plays from the moment audio reaches it, at the nominal rate, and waits when it runs dry.
With no latency assumed this is the earliest time at which a sample can be heard. The distance to its end is
exactly what the peer has buffered plus what is on its way, whatever the latency: pacing uses it.

*Estimate*: the floor, set back by how late confirmed marks came. After the confirmation at ``t`` of position
``p`` it reads ``p + min(t' - t, unconfirmed)``, never more than was sent (reference, telephony 4.1). A
confirmation that waited for a stall of our own loop says less than the ones around it, so of the last three
the soonest counts. Heard positions use it.

Positions count samples of audio sent over the whole life of the leg; cut audio counts as sent.
"""

from __future__ import annotations

import math
from collections import deque

__all__ = ["PlayoutClock"]


class PlayoutClock:
    """Tracks one leg at ``rate`` samples per second. Pure arithmetic; times in seconds of one clock.

    ``floor_end``: the earliest time at which everything sent can have been heard; ``-inf`` if nothing was.
    """

    __slots__ = ("_confirmed", "_late", "_run", "_since", "_start", "floor_end", "rate", "sent")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.sent = 0
        self._start = 0
        self._since = -math.inf
        self._run = 0
        self._confirmed = 0
        self.floor_end = -math.inf
        self._late: deque[float] = deque(maxlen=3)

    @property
    def start(self) -> int:
        """Position at which the present generation began (after the last :meth:`cut`)."""
        return self._start

    @property
    def since(self) -> float:
        """Time since which the peer has played without running dry."""
        return self._since

    def add(self, samples: int, now: float) -> float:
        """Count ``samples`` as sent at ``now``; return the seconds for which the peer had been dry."""
        gap = max(0.0, now - self.floor_end) if self.floor_end > -math.inf else 0.0
        if self.floor_end < now:
            self._since = now
            self._run = self.sent
            # What remains of the lateness is latency; an advance was the drift of the run that ended.
            self._late = deque((max(0.0, late) for late in self._late), maxlen=self._late.maxlen)
        self.floor_end = max(self.floor_end, now) + samples / self.rate
        self.sent += samples
        return gap

    def lead(self, now: float) -> float:
        """Seconds of audio sent ahead of playout."""
        return max(0.0, self.floor_end - now)

    def heard(self, now: float) -> int:
        """Position heard by ``now``; between the start of the present generation and :attr:`sent`."""
        ahead = self.floor_end + min(self._late, default=0.0) - now
        if ahead <= 0.0:
            return self.sent
        return max(self._confirmed, self.sent - round(ahead * self.rate))

    def confirm(self, position: int, now: float, *, timed: bool = True) -> None:
        """Take the peer's word, given at ``now``, that it has played everything up to ``position``.

        ``timed``: it was given when that happened, and not because the peer had nothing left anyway.
        """
        if position <= self._start:
            return
        self._confirmed = max(self._confirmed, position)
        if timed and position > self._run:
            floor = self.floor_end - (self.sent - position) / self.rate
            self._late.append(now - floor)

    def cut(self, now: float) -> int:
        """The peer's buffer was emptied at ``now``: return the position heard and start a new generation."""
        heard = self.heard(now)
        self._start = self._run = self._confirmed = self.sent
        self.floor_end = -math.inf
        return heard

"""The playout clock: how far the listener has got in what we sent.

Two estimates run side by side.

*Floor*: the peer plays from the moment audio reaches it, at the nominal rate, and waits when it runs dry.
With no latency assumed this is the earliest time at which a sample can be heard. The distance to its end is
exactly what the peer has buffered plus what is on its way, whatever the latency: pacing uses it.

*Estimate*: the floor, moved by confirmed marks. After an acknowledgement of position ``p`` at time ``t`` it
reads ``p + min(t' - t, unacknowledged)``, never more than was sent (reference, telephony 4.1): heard
positions use it.

Positions count samples of audio sent over the whole life of the leg; cut audio counts as sent.
"""

from __future__ import annotations

import math

__all__ = ["PlayoutClock"]


class PlayoutClock:
    """Tracks one leg at ``rate`` samples per second. Pure arithmetic; times in seconds of one clock."""

    __slots__ = ("_estimate_end", "_floor_end", "_since", "_start", "rate", "sent")

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.sent = 0
        self._start = 0
        self._since = -math.inf
        self._floor_end = -math.inf
        self._estimate_end = -math.inf

    @property
    def floor_end(self) -> float:
        """Earliest time at which everything sent can have been heard; ``-inf`` before the first audio."""
        return self._floor_end

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
        gap = max(0.0, now - self._floor_end) if self._floor_end > -math.inf else 0.0
        seconds = samples / self.rate
        if self._floor_end < now:
            self._since = now
        self._floor_end = max(self._floor_end, now) + seconds
        self._estimate_end = max(self._estimate_end, now) + seconds
        self.sent += samples
        return gap

    def lead(self, now: float) -> float:
        """Seconds of audio sent ahead of playout."""
        return max(0.0, self._floor_end - now)

    def heard(self, now: float) -> int:
        """Position heard by ``now``; between the start of the present generation and :attr:`sent`."""
        ahead = self._estimate_end - now
        if ahead <= 0.0:
            return self.sent
        return max(self._start, self.sent - round(ahead * self.rate))

    def confirm(self, position: int, now: float) -> None:
        """Take the peer's word, given at ``now``, that it has played everything up to ``position``."""
        if position >= self._start:
            self._estimate_end = now + (self.sent - position) / self.rate

    def cut(self, now: float) -> int:
        """The peer's buffer was emptied at ``now``: return the position heard and start a new generation."""
        heard = self.heard(now)
        self._start = self.sent
        self._floor_end = self._estimate_end = -math.inf
        return heard

"""Where the listener is: the playback clock that bounds run-ahead and tells what was heard.

A socket swallows minutes of audio without pushing back, so how far ahead we send is ruled by a clock
(design rule 5). Clients without a media clock are taken to play in real time from the first audio they get;
one that reports what it played corrects the estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Clock = Callable[[], float]


_SLACK_S = 0.25
"""How far a report may lead real time: clocks differ, and messages are delayed unevenly."""


class Playback(Protocol):
    """The listener's position in one context's audio; samples at the output rate."""

    @property
    def sent_samples(self) -> int:
        """Samples handed to the listener's side so far."""
        ...

    def sent(self, samples: int) -> float:
        """Note that ``samples`` were sent; returns seconds of silence the listener had before them."""
        ...

    def heard(self) -> int:
        """Samples played by now; never more than were sent."""
        ...

    def lead(self) -> float:
        """Seconds sent and not yet played."""
        ...

    def reported(self, sample: int) -> None:
        """The client says it has played up to ``sample``."""
        ...

    def cut(self) -> int:
        """The context is cut now: drop what is queued at once; returns the samples heard."""
        ...

    def release(self) -> None:
        """No more audio comes from this context; what is queued plays on. May be called again."""
        ...

    async def drained(self) -> None:
        """Return when the terminal event may be sent (at once, or when a leg has played everything)."""
        ...


class PlaybackClock:
    """An estimate for clients that play what they get in real time.

    Args:
        rate: output sample rate in Hz.
        clock: monotonic seconds.
    """

    def __init__(self, rate: int, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._sent = 0
        self._base = 0  # samples played at the anchor time
        self._anchor = 0.0
        self._reported = 0
        self._first = 0.0  # when the first audio was sent
        self._plays = True  # in real time; not so a client that reports more than it can have played

    @property
    def sent_samples(self) -> int:
        """Samples sent so far."""
        return self._sent

    def sent(self, samples: int) -> float:
        """Note ``samples`` more; returns how long (s) the listener had been dry, 0 for the first audio."""
        now = self._clock()
        dry = 0.0
        if self._sent == 0:
            self._base, self._anchor = 0, now
            self._first = now
        else:
            ended = self._anchor + (self._sent - self._base) / self._rate
            if now > ended:
                dry = now - ended if self._plays else 0.0
                self._base, self._anchor = self._sent, now
        self._sent += samples
        return dry

    def heard(self) -> int:
        """Estimated samples played, between the last report and what was sent."""
        if self._sent == 0:
            return 0
        estimate = self._base + round((self._clock() - self._anchor) * self._rate)
        return max(self._reported, min(self._sent, estimate))

    def lead(self) -> float:
        """Seconds of audio sent ahead of the estimated position."""
        return (self._sent - self.heard()) / self._rate

    def reported(self, sample: int) -> None:
        """Anchor the clock at the client's own count; reports never move back nor pass what was sent."""
        sample = min(sample, self._sent)
        if sample < self._reported:
            return
        self._reported = sample
        if sample > (self._clock() - self._first + _SLACK_S) * self._rate:
            self._plays = False  # it takes a file, and never hears a gap
        self._base, self._anchor = sample, self._clock()

    def cut(self) -> int:
        """Nothing of ours is queued; the client drops its own buffer."""
        return self.heard()

    def release(self) -> None:
        """Nothing is held."""

    async def drained(self) -> None:
        """The client plays on by itself: nothing to wait for."""
        return

"""How many frames to decode at a time: few while the listener waits, more once there is sound in hand.

A frame decoded alone costs the codec twice what it costs among eight, and is heard 325 ms earlier. So the
first chunk is one frame, the next ones two, four and eight, each waited for only while the lead pays for it.
"""

from __future__ import annotations

from math import ceil

from .budget import FRAME_S

SIZES = (8, 4, 2, 1)
"""Frames of a chunk, largest first. Beyond eight a frame gets hardly cheaper (measured, nanocodec)."""

MOST = 16
"""Most frames of a chunk, where so many wait already."""

START = 4
"""Most frames that a slow model begins with: with them the first sound is at 186 ms, which is late enough."""

MARGIN = 2.0
"""A chunk may take so many times as long as lately before the listener runs dry."""

PLENTY_S = 1.0
"""With so much in hand nobody needs a small chunk, not even the first."""

LAST_S = 0.3
"""With less in hand nothing is held back any more, looked at or not."""

_SMOOTH = 0.5


class Ramp:
    """The chunk sizes of one request.

    Args:
        hold: frames of the first chunk at least, which are to be looked at before any is heard; 0 for none.
        pace: seconds from frame to frame, decoding included, as measured before.
    """

    def __init__(self, hold: int = 0, pace: float = FRAME_S) -> None:
        self._hold = hold
        self._pace = pace
        self._chunks = 0

    @property
    def pace(self) -> float:
        """Seconds from frame to frame lately, decoding included."""
        return self._pace

    def took(self, frames: int, seconds: float) -> None:
        """A chunk of ``frames`` came ``seconds`` after the one before."""
        self._pace += _SMOOTH * (max(0.0, seconds) / max(1, frames) - self._pace)

    def wanted(self, lead: float) -> int:
        """Frames to wait for before decoding, with ``lead`` seconds of sound in hand."""
        most = SIZES[0] if lead >= PLENTY_S else 1 << min(self._chunks, 3)
        size = next((size for size in SIZES if size <= most and size * self._pace * MARGIN <= lead), 1)
        if self._chunks:
            return size
        # One frame gives 46 ms to make the next in: a model that needs most of that begins with more.
        start = min(START, ceil(self._pace * MARGIN / FRAME_S - 1e-9))
        return max(size, start, self._hold if lead >= LAST_S else 0)

    def take(self, ready: int, lead: float, *, ended: bool = False) -> int:
        """Frames to decode now of ``ready`` that wait; 0 to wait for more.

        What is there already is not kept waiting, up to ``MOST``; at the end, with ``ended``, nothing is.
        """
        if not ready or (ready < self.wanted(lead) and not ended):
            return 0
        most = MOST if self._chunks else max(MOST, self._hold)
        self._chunks += 1
        return min(ready, most)

"""The silence before the first sound, left out: it counts as delay for who listens.

A first sound is heard where 10 ms have an RMS above 0.01 (the rule of the public benchmark by which such
delay is measured). We cut at a lower level and keep some milliseconds, so that a breath or a soft consonant
stays, and never cut more than a bound: a model that begins with a long silence may mean it.
"""

from __future__ import annotations

import numpy as np

from tts_core.engine import Samples
from tts_core.nanocodec import fsq

WINDOW = fsq.SAMPLE_RATE // 100
"""Samples of 10 ms."""

LEVEL = 0.003
"""RMS below which a window is silent: -50 dB, 10 dB under what the benchmark hears."""

KEEP = 2 * WINDOW
"""Samples kept before the first window with sound."""

MOST = 8 * fsq.SAMPLES_PER_FRAME
"""Most samples left out: 372 ms."""

_EMPTY = np.zeros(0, np.float32)


class LeadingSilence:
    """Takes the silence off the beginning of one request's audio.

    Args:
        most: most samples to leave out; 0 to leave out none.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._held = _EMPTY
        self._seen = 0  # samples of ``held`` that were looked at, whole windows
        self._open = most <= 0
        self.dropped = 0

    @property
    def heard(self) -> bool:
        """Whether a sound has come, or the bound was reached."""
        return self._open

    def push(self, pcm: Samples) -> Samples:
        """Take the next samples, float32 ``[n]`` at 22.05 kHz; what of them is to be heard by now."""
        if self._open:
            return pcm
        self._held = np.concatenate((self._held, pcm))
        windows = (len(self._held) - self._seen) // WINDOW
        looked = self._held[self._seen : self._seen + windows * WINDOW].reshape(windows, WINDOW)
        loud = np.flatnonzero(np.square(looked).mean(axis=1) >= LEVEL * LEVEL)
        if len(loud):
            return self._release(self._seen + int(loud[0]) * WINDOW - KEEP)
        self._seen += windows * WINDOW
        if self.dropped + self._seen - KEEP >= self._most:
            return self._release(self._most - self.dropped)
        spare = max(0, self._seen - KEEP)
        self._held = self._held[spare:]
        self._seen -= spare
        self.dropped += spare
        return _EMPTY

    def finish(self) -> Samples:
        """The end has come: what is still held."""
        return self._release(0) if not self._open else _EMPTY

    def _release(self, start: int) -> Samples:
        start = min(max(0, start), self._most - self.dropped)
        pcm, self._held, self._open = self._held[start:], _EMPTY, True
        self.dropped += start
        return pcm

"""From an engine's float PCM to encoded blocks in the listener's format.

One stage per context: the resampler keeps its state over segments, so the context's audio is one signal and
its samples count exactly. A mark is laid at the listener's rate, as the last thing before encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from telephony.dsp.pcm import encode
from telephony.dsp.resample import Resampler
from tts_core.engine import Samples

from .events import AudioFormat

RAMP_MS = (20, 40, 80, 100)
"""Block lengths: the first ones short so that audio starts soon, later ones long so that it costs little."""

AHEAD_MS = 200
"""Block length for a listener who has audio for a while: half as many messages."""


class Mark(Protocol):
    """What lays a mark in one context's audio (``telephony.dsp.mark.Stream``)."""

    def process(self, x: Samples) -> Samples:
        """Float32 [n] in; out what is marked by now, in order."""
        ...

    def flush(self) -> Samples:
        """What was held back; as many samples came out as went in."""
        ...


Marks = Callable[[int], Mark]
"""A new mark for audio of a rate (Hz)."""


class OutputStage:
    """Resamples, marks and encodes.

    Args:
        native_rate: rate of what goes in, in Hz.
        fmt: encoding and rate of what comes out.
        marks: makes the mark once there is audio; None for none.
    """

    def __init__(self, native_rate: int, fmt: AudioFormat, marks: Marks | None = None) -> None:
        self._fmt = fmt
        self._resampler = Resampler(native_rate, fmt.rate)
        self._marks = marks
        self._mark: Mark | None = None
        self._held: list[Samples] = []
        self._held_n = 0
        self._blocks = 0
        self._ahead = False

    def push(self, pcm: Samples, *, ahead: bool = False) -> list[tuple[bytes, int]]:
        """Add native PCM float32 [n]; returns full blocks as (bytes, samples). Costs what ``n`` costs.

        ``ahead``: the listener has audio for a while, so that a longer block may be waited for.
        """
        self._ahead = ahead
        self._hold(self._resampler.process(pcm))
        return self._cut()

    def flush(self) -> list[tuple[bytes, int]]:
        """The block in the making, however short; resampler and mark keep their tails for what follows."""
        if not self._held_n:
            return []
        block = self._join()
        self._held, self._held_n = [], 0
        return [self._encoded(block)]

    def finish(self) -> list[tuple[bytes, int]]:
        """The context is over: the resampler's tail and the last block."""
        self._hold(self._resampler.flush())
        if self._mark is not None:
            self._keep(self._mark.flush())
        return self._cut() + self.flush()

    def _hold(self, pcm: Samples) -> None:
        if self._marks is not None and len(pcm):
            if self._mark is None:
                self._mark = self._marks(self._fmt.rate)
            pcm = self._mark.process(pcm)
        self._keep(pcm)

    def _keep(self, pcm: Samples) -> None:
        if len(pcm):
            self._held.append(pcm)
            self._held_n += len(pcm)

    def _join(self) -> Samples:
        return self._held[0] if len(self._held) == 1 else np.concatenate(self._held)

    def _cut(self) -> list[tuple[bytes, int]]:
        out: list[tuple[bytes, int]] = []
        if not self._held_n:
            return out
        pcm = self._join()
        at = 0
        while len(pcm) - at >= (size := self._size()):
            out.append(self._encoded(pcm[at : at + size]))
            at += size
        rest = pcm[at:]
        self._held, self._held_n = ([rest] if len(rest) else []), len(rest)
        return out

    def _size(self) -> int:
        if self._blocks < len(RAMP_MS):
            length = RAMP_MS[self._blocks]
        else:
            length = AHEAD_MS if self._ahead else RAMP_MS[-1]
        return self._fmt.rate * length // 1000

    def _encoded(self, pcm: Samples) -> tuple[bytes, int]:
        self._blocks += 1
        return encode(pcm, self._fmt.encoding.value), len(pcm)

"""From an engine's float PCM to encoded blocks in the listener's format.

One stage per context: the resampler keeps its state over segments, so the context's audio is one signal and
its samples count exactly. A mark is laid at the listener's rate, as the last thing before encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from telephony.dsp.pcm import encode
from telephony.dsp.resample import Resampler
from tts_core.engine import Samples

from .events import AudioFormat

RAMP_MS = (20, 40, 80, 100)
"""Block lengths: the first ones short so that audio starts soon, later ones long so that it costs little."""

LONGEST_MS = 1000
LONGEST_BYTES = 45_000
"""Of a block that is longer than the usual one: in base64, with the words of usual text, less than 64 KiB.

Readers of lines take no longer ones: asyncio's limit is 64 KiB, that of aiohttp, with which pipecat reads
ElevenLabs' timed answers, twice that.
"""
AHEAD_SHARE = 0.8
"""A block may be as long as this share of what the listener has, so that there are fewer messages.

A line that carries the audio at all brings such a block before the listener has played what he has. It is of
audio that is there: nothing is held back to fill it.
"""


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
        longest_ms: of a block, however much the listener has; a last one may take a rest of 100 ms along.
    """

    def __init__(
        self,
        native_rate: int,
        fmt: AudioFormat,
        marks: Marks | None = None,
        *,
        longest_ms: float = LONGEST_MS,
    ) -> None:
        self._longest_ms = longest_ms
        self._fmt = fmt
        self._resampler = Resampler(native_rate, fmt.rate)
        self._marks = marks
        self._mark: Mark | None = None
        self._width = fmt.width
        self._held = b""  # encoded
        self._blocks = 0

    def push(self, pcm: Samples, *, lead: float = 0.0, last: bool = False) -> list[tuple[bytes, int]]:
        """Add native PCM float32 [n]; returns full blocks as (bytes, samples). Costs what ``n`` costs.

        ``lead``: seconds of audio that the listener has. ``last``: nothing follows for now, so that what is
        left is no longer held: it is part of the last full block where that may be so long, else one more.
        """
        self._hold(self._resampler.process(pcm))
        return self._cut(lead, last=last)

    def flush(self) -> list[tuple[bytes, int]]:
        """The block in the making, however short; resampler and mark keep their tails for what follows."""
        if not self._held:
            return []
        block, self._held = self._held, b""
        return [self._counted(block)]

    def finish(self) -> list[tuple[bytes, int]]:
        """The context is over: the resampler's tail and the last block."""
        self._hold(self._resampler.flush())
        if self._mark is not None:
            self._keep(self._mark.flush())
        return self._cut(0.0, last=True)

    def _hold(self, pcm: Samples) -> None:
        if self._marks is not None and len(pcm):
            if self._mark is None:
                self._mark = self._marks(self._fmt.rate)
            pcm = self._mark.process(pcm)
        self._keep(pcm)

    def _keep(self, pcm: Samples) -> None:
        if len(pcm):
            encoded = encode(pcm, self._fmt.encoding.value)
            self._held = self._held + encoded if self._held else encoded

    def _cut(self, lead: float, *, last: bool) -> list[tuple[bytes, int]]:
        held, at = self._held, 0
        out: list[tuple[bytes, int]] = []
        second = self._width * self._fmt.rate
        while (size := self._size(lead, there := len(held) - at)) <= there:
            if last and self._blocks >= len(RAMP_MS) and there - size < RAMP_MS[-1] / 1000 * second:
                longest = second * min(lead, (self._longest_ms + RAMP_MS[-1]) / 1000)
                size = there if there <= min(longest, LONGEST_BYTES) else size
            out.append(self._counted(held[at : at + size]))
            at += size
            lead += size / second
        self._held = held[at:]
        return out + self.flush() if last else out

    def _size(self, lead: float, there: int) -> int:
        """Bytes of the next block, of which ``there`` are there."""
        ms = self._width * self._fmt.rate / 1000
        if self._blocks < len(RAMP_MS):
            return RAMP_MS[self._blocks] * self._fmt.rate // 1000 * self._width
        usual = RAMP_MS[-1]
        most = min(self._longest_ms, LONGEST_BYTES / ms, lead * 1000 * AHEAD_SHARE, there / ms)
        return usual * max(1, int(most) // usual) * self._fmt.rate // 1000 * self._width

    def _counted(self, block: bytes) -> tuple[bytes, int]:
        self._blocks += 1
        return block, len(block) // self._width

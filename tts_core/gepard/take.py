"""One try at speaking a segment: frames from the model, decoded by the ramp, given as chunks.

Frames are read while they are decoded: the model works ahead in its own process, and what it made meanwhile
is there at once. Only when nothing was given yet may a try be thrown away, so a request that has time (its
listener has sound in hand) holds its first chunk until the guard has seen enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from tts_core.engine import Samples, SpeechChunk
from tts_core.errors import EngineError
from tts_core.nanocodec import fsq

from .budget import Budget
from .frames import FrameBatch, FrameModel, FrameRequest
from .guard import ONSET, WINDOW, Guard
from .hunger import Hunger
from .marks import Marks
from .ramp import MARGIN, PLENTY_S, Ramp
from .silence import LeadingSilence
from .speed import Lap

HOLD = ONSET + WINDOW
"""Frames held back where there is time: with them the guard has its first whole window."""

FADE = fsq.SAMPLE_RATE // 100
"""Samples over which speech that is cut off dies away: 10 ms, so that it does not click."""


class Stream(Protocol):
    """What is needed of ``nanocodec.service.CodecStream``."""

    def decode(self, codes: fsq.Codes) -> asyncio.Future[Samples]:
        """Samples of the next frames."""
        ...

    def close(self) -> None:
        """Free its state."""
        ...


class Codec(Protocol):
    """What is needed of ``nanocodec.service.CodecService``."""

    @property
    def alive(self) -> bool:
        """Whether it takes streams."""
        ...

    @property
    def duty(self) -> float:
        """Share of the time that it works, 0 to 1."""
        ...

    async def start(self) -> None:
        """Start it."""
        ...

    async def close(self) -> None:
        """End it."""
        ...

    def open(self) -> Stream:
        """Begin a stream."""
        ...

    async def encode(self, pcm: Samples) -> fsq.Codes:
        """Codes of a clip."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a try is to do.

    Args:
        request: for the model; its ``max_frames`` is the budget's cap.
        budget: of the text.
        deadline: monotonic time when the listener would hear silence; None for at once.
        again: whether another try, with another seed, may follow.
        guard: whether flat belief counts.
        trim: most samples of leading silence left out.
        pace: seconds of a frame, as measured.
    """

    request: FrameRequest
    budget: Budget
    deadline: float | None
    again: bool
    guard: bool
    trim: int
    pace: float


class Take:
    """One try. ``chunks`` may be read once; the rest says what became of it.

    Attributes:
        given: whether a chunk was given.
        frames: the frames of it, uint8 ``[32]`` each, that count.
        truncated: it was cut off at a bound.
        derailed: the guard took it for speech that does not say the text.
        silent: there was no sound in it.
        wants_again: nothing was given, and it was not worth giving.
    """

    def __init__(
        self,
        model: FrameModel,
        codec: Codec,
        plan: Plan,
        *,
        marks: Marks,
        lap: Lap,
        clock: Callable[[], float],
        hunger: Hunger,
    ) -> None:
        self._model, self._codec, self._plan, self._hunger = model, codec, plan, hunger
        self._marks, self._lap, self._clock = marks, lap, clock
        can_hold = plan.again and plan.guard and plan.deadline is not None
        if can_hold and self._ahead(plan.deadline) < max(PLENTY_S, HOLD * plan.pace * MARGIN):
            can_hold = False
        self._ramp = Ramp(HOLD if can_hold else 0, plan.pace)
        self._guard = Guard()
        self._silence = LeadingSilence(plan.trim)
        self._cap = plan.budget.cap
        self._decoded = 0
        self._promised = 0
        self._samples = 0  # given
        self._runs_dry: float | None = None  # when, counted from the first chunk
        self._asked = clock()
        self._stalled = 0.0
        self._given_at = 0.0
        self.given = False
        self.frames: list[fsq.Codes] = []
        self.truncated = self.derailed = self.silent = self.wants_again = False

    @property
    def samples(self) -> int:
        """Samples given."""
        return self._samples

    @property
    def trimmed(self) -> int:
        """Samples of leading silence left out."""
        return self._silence.dropped

    async def chunks(self) -> AsyncGenerator[SpeechChunk, None]:
        """The chunks, the last one marked; none at all if ``wants_again``.

        Closing it ends the model's request and the codec's stream.
        """
        stream = self._codec.open()
        try:
            batches = cast("AsyncGenerator[FrameBatch, None]", self._model.generate(self._plan.request))
            async with aclosing(batches):
                async for chunk in self._stream(batches, stream):
                    yield self._give(chunk)
                    self._taken()
            if not self.wants_again:
                # The model is done with it: its slot is free while the rest is decoded.
                async for chunk in self._rest(stream):
                    yield self._give(chunk)
                    self._taken()
        finally:
            stream.close()
            self._lap.finish()

    async def _stream(
        self, batches: AsyncIterator[FrameBatch], stream: Stream
    ) -> AsyncGenerator[SpeechChunk, None]:
        """The chunks up to the end of the frames, or to where the try is given up."""
        while True:
            try:
                with self._hunger.waiting():
                    batch = await anext(batches)
            except StopAsyncIteration:
                raise EngineError("the model stopped before the end") from None
            ended = self._take(batch)
            if self._worthless():
                self.wants_again = True
                return
            if ended:
                return
            count = self._ramp.take(len(self.frames) - self._decoded, self._lead())
            if count:
                pcm = self._silence.push(await self._decode(stream, count))
                if len(pcm):
                    yield self._chunk(pcm)

    async def _rest(self, stream: Stream) -> AsyncGenerator[SpeechChunk, None]:
        """What is left when no more frames come, and the end."""
        while count := self._ramp.take(len(self.frames) - self._decoded, 0.0, ended=True):
            pcm = self._silence.push(await self._decode(stream, count))
            if self._decoded == len(self.frames):
                break
            if len(pcm):
                yield self._chunk(pcm)
        else:
            pcm = np.zeros(0, np.float32)
        if not self._silence.heard:
            self.silent = True
            if self._worthless():
                self.wants_again = True
                return
            pcm = self._silence.finish()
        if self.truncated and len(pcm):
            fade = min(FADE, len(pcm))
            pcm = pcm.copy()
            pcm[-fade:] *= np.linspace(1.0, 0.0, fade, dtype=np.float32)
        yield self._chunk(pcm, last=True)

    def _take(self, batch: FrameBatch) -> bool:
        """Note a batch; whether it was the last that counts."""
        self.frames += list(batch.codes)
        if self._plan.guard and not self.derailed and self._guard.push(batch.entropy):
            self.derailed = True
            self._cap = self._plan.budget.tight
        if batch.finish == "length" or (len(self.frames) >= self._cap and not batch.finish):
            # The bound may have been moved below frames that are decoded, or that words were placed in.
            del self.frames[max(self._cap, self._decoded, self._promised) :]
            self.truncated = True
        return self.truncated or bool(batch.finish)

    def _worthless(self) -> bool:
        bad = self.derailed or self.truncated or self.silent
        return bad and self._plan.again and not self.given

    async def _decode(self, stream: Stream, count: int) -> Samples:
        """Decode the next ``count`` frames."""
        codes = np.stack(self.frames[self._decoded : self._decoded + count])
        began = self._asked
        pcm = await stream.decode(codes)
        now = self._clock()
        if self._decoded:
            self._ramp.took(count, now - began - self._stalled)
        self._lap.chunk(count, self._stalled)
        self._asked, self._stalled = now, 0.0
        self._decoded += count
        return pcm

    def _chunk(self, pcm: Samples, *, last: bool = False) -> SpeechChunk:
        start, end = self._samples, self._samples + len(pcm)
        self._promised = len(self.frames)
        sure = self._promised * fsq.SAMPLES_PER_FRAME - self._silence.dropped
        words = self._marks.finish(start, end) if last else self._marks.upto(end, max(end, sure))
        return SpeechChunk(pcm, start, words, last)

    def _give(self, chunk: SpeechChunk) -> SpeechChunk:
        """Note that a chunk goes out now."""
        now = self._clock()
        if self._runs_dry is None:
            deadline = self._plan.deadline
            self._runs_dry = now if deadline is None else max(now, deadline)
        self._runs_dry = max(now, self._runs_dry) + len(chunk.pcm) / fsq.SAMPLE_RATE
        self._samples += len(chunk.pcm)
        self._given_at, self.given = now, True
        return chunk

    def _taken(self) -> None:
        """The reader is back for more."""
        self._stalled += self._clock() - self._given_at

    def _ahead(self, deadline: float | None) -> float:
        return 0.0 if deadline is None else deadline - self._clock()

    def _lead(self) -> float:
        """Seconds until the listener would run dry."""
        return self._ahead(self._plan.deadline if self._runs_dry is None else self._runs_dry)

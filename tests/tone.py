"""A deterministic engine for tests: every word is a tone of its own, of a fixed length.

It works in the loop's time (virtual or real), keeps count of what runs, and can be told to fail.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import numpy as np

from tts_core.engine import Capacity, EngineInfo, Samples, SpeechChunk, SpeechRequest, VoiceInfo, WordMark
from tts_core.errors import EngineError, VoxwireError

RATE = 24000


class ToneEngine:
    """Speaks ``word_s`` a word, taking ``work_s`` a word for it, in chunks of ``chunk_s``."""

    def __init__(
        self,
        *,
        word_s: float = 0.2,
        work_s: float = 0.001,
        chunk_s: float = 0.1,
        xrt: float = 200.0,
        slots: int = 4,
        second: str = "second",
    ) -> None:
        self.word_s, self.work_s, self.chunk_s, self.xrt, self.slots = word_s, work_s, chunk_s, xrt, slots
        self.running = 0
        self.alive = 1
        self.requests: list[SpeechRequest] = []
        self.fail: VoxwireError | None = None
        self.fail_after_chunks = 0
        self.info = EngineInfo(
            name="tone",
            revision="1",
            native_rate=RATE,
            voices=(
                VoiceInfo("tone", "Tone", gender="female"),
                VoiceInfo(second, second.capitalize(), gender="male"),
            ),
        )

    async def start(self) -> None:
        self.alive = 1

    async def close(self) -> None:
        self.alive = 0

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        raise EngineError("cannot clone")

    def capacity(self) -> Capacity:
        return Capacity(self.xrt, self.slots, max(0, self.slots - self.running), 0, self.alive)

    @property
    def spoken(self) -> list[str]:
        """What it was asked to say."""
        return [request.text for request in self.requests]

    async def synthesize(self, request: SpeechRequest) -> AsyncIterator[SpeechChunk]:
        self.running += 1
        try:
            self.requests.append(request)
            marks: list[WordMark] = []
            length = round(self.word_s / request.speed * RATE)
            for i, match in enumerate(re.finditer(r"\S+", request.text)):
                marks.append(WordMark(match.start(), match.end(), i * length, (i + 1) * length))
            await asyncio.sleep(self.work_s * len(marks))
            pcm = self.tone(len(marks) * length)
            step = round(self.chunk_s * RATE)
            for i, at in enumerate(range(0, max(1, len(pcm)), step)):
                if self.fail is not None and i >= self.fail_after_chunks:
                    raise self.fail
                last = at + step >= len(pcm)
                yield SpeechChunk(pcm[at : at + step], at, tuple(marks) if i == 0 else (), last)
        finally:
            self.running -= 1

    @staticmethod
    def tone(samples: int) -> Samples:
        wave: Samples = (0.3 * np.sin(np.arange(samples) * (2 * np.pi * 440 / RATE))).astype(np.float32)
        return wave

"""A deterministic engine for tests: every word is a tone of its own, of a fixed length.

It works in the loop's time (virtual or real), keeps count of what runs, and can be told to fail. Where it can
clone, it makes of a clip the pitch at which it then speaks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import numpy as np

from tts_core.engine import Capacity, EngineInfo, Samples, SpeechChunk, SpeechRequest, VoiceInfo, WordMark
from tts_core.errors import EngineError, VoxwireError

RATE = 24000
PITCH = 440.0
VOICE_NUMBERS = 8 * 1024
"""Of a cloned voice: float16, as many as GEPARD's prefix has."""


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
        can_clone: bool = False,
        enrol_s: float = 0.0,
    ) -> None:
        self.word_s, self.work_s, self.chunk_s, self.xrt, self.slots = word_s, work_s, chunk_s, xrt, slots
        self.enrol_s = enrol_s
        self.enrolled = 0
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
            can_clone=can_clone,
            voice_bytes=2 * VOICE_NUMBERS if can_clone else 0,
        )

    async def start(self) -> None:
        self.alive = 1

    async def close(self) -> None:
        self.alive = 0

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        """The clip's strongest frequency (Hz), then the shares of its spectrum in 8191 bands."""
        if not self.info.can_clone:
            raise EngineError("cannot clone")
        self.enrolled += 1
        await asyncio.sleep(self.enrol_s)
        power = np.abs(np.fft.rfft(reference)) ** 2
        pitch = np.argmax(power) * rate / len(reference)
        edges = np.linspace(0, len(power), VOICE_NUMBERS).astype(int)[:-1]
        bands = np.add.reduceat(power, np.minimum(edges, len(power) - 1))
        numbers = np.concatenate([[pitch], bands / bands.max()])
        return bytes(numbers.astype("<f2").tobytes())

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
            pcm = self.tone(len(marks) * length, self.pitch(request.conditioning))
            step = round(self.chunk_s * RATE)
            for i, at in enumerate(range(0, max(1, len(pcm)), step)):
                if self.fail is not None and i >= self.fail_after_chunks:
                    raise self.fail
                last = at + step >= len(pcm)
                yield SpeechChunk(pcm[at : at + step], at, tuple(marks) if i == 0 else (), last)
        finally:
            self.running -= 1

    @staticmethod
    def pitch(conditioning: bytes | None) -> float:
        """At what frequency a voice speaks; the built-in ones all alike."""
        if conditioning is None:
            return PITCH
        assert len(conditioning) == 2 * VOICE_NUMBERS
        return float(np.frombuffer(conditioning, "<f2", 1)[0])

    @staticmethod
    def tone(samples: int, pitch: float = PITCH) -> Samples:
        wave: Samples = (0.3 * np.sin(np.arange(samples) * (2 * np.pi * pitch / RATE))).astype(np.float32)
        return wave

"""Recordings for tests: a voice that is one tone, spoken in syllables."""

from __future__ import annotations

import io
import wave

import numpy as np

from tts_core.engine import Samples

RATE = 24_000


def syllables(pitch: float, seconds: float = 5.0, *, rate: int = RATE, noise_db: float = -70.0) -> Samples:
    """A tone that swells four times a second, with a quarter of a second of room before and after it."""
    t = np.arange(round(seconds * rate)) / rate
    voiced = np.sin(np.pi * ((4 * t) % 1.0)) ** 2 * (t > 0.25) * (t < seconds - 0.25)
    noise = np.random.default_rng(7).standard_normal(len(t)) * 10 ** (noise_db / 20)
    return (0.5 * voiced * np.sin(2 * np.pi * pitch * t) + noise).astype(np.float32)


def wav(pcm: Samples, rate: int = RATE) -> bytes:
    """16-bit mono WAV."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(pcm, -1, 1) * 32767).astype("<i2").tobytes())
    return out.getvalue()


def clip(pitch: float = 660.0, seconds: float = 5.0, **how: float) -> bytes:
    """A WAV file of :func:`syllables`."""
    return wav(syllables(pitch, seconds, **how))  # type: ignore[arg-type]

"""What is done to the network's samples: silence left out at the ends, rates made alike."""

from __future__ import annotations

import math

import numpy as np

from ..engine import Samples

SILENT = 0.003
"""Below this, where speech has peaks of 0.4, there is nothing to be heard (-42 dB under them)."""
STEP_S = 0.005


def sounding(pcm: Samples, rate: int) -> tuple[int, int]:
    """Where sound begins and ends ``[start, end)``, to 5 ms; ``(0, 0)`` where there is none."""
    step = max(1, round(rate * STEP_S))
    size = -(-len(pcm) // step)
    padded = np.zeros(size * step, np.float32)
    padded[: len(pcm)] = np.abs(pcm)
    loud = np.flatnonzero(padded.reshape(size, step).max(axis=1) > SILENT) if size else np.empty(0, np.int64)
    if not len(loud):
        return 0, 0
    return int(loud[0]) * step, min(len(pcm), (int(loud[-1]) + 1) * step)


def resampled(pcm: Samples, rate: int, wanted: int) -> Samples:
    """A whole piece brought from one rate (Hz) to another, not lower one.

    ``[n]`` becomes ``[round(n * wanted / rate)]``. Exact below the old half rate (its spectrum is kept and
    prolonged by nothing); both ends are to be silent.
    """
    if rate == wanted or not len(pcm):
        return pcm
    unit = rate // math.gcd(rate, wanted)
    whole = -(-len(pcm) // unit) * unit
    made = whole * wanted // rate
    spectrum = np.fft.rfft(pcm, whole)
    if whole % 2 == 0:
        spectrum[-1] *= 0.5  # the old half rate stood for both of its sides
    out = np.fft.irfft(spectrum, made) * (made / whole)
    wide: Samples = out[: round(len(pcm) * wanted / rate)].astype(np.float32)
    return wide

"""Levels of float32 samples in dBFS, and how long a listener hears nothing at first.

0 dBFS is an amplitude of 1.0 for the peak and an RMS of 1.0 for the RMS, so that a full-scale sine has an
RMS of
-3.01 dBFS.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def _db(amplitude: float) -> float:
    return 20 * math.log10(amplitude) if amplitude > 0 else -math.inf


def rms_dbfs(x: NDArray[np.float32]) -> float:
    """Return the RMS of ``x``, float32 ``[n]``, in dBFS; minus infinity for digital silence or no samples."""
    if not len(x):
        return -math.inf
    return _db(math.sqrt(float(np.mean(np.square(x, dtype=np.float64)))))


def peak_dbfs(x: NDArray[np.float32]) -> float:
    """Return the largest magnitude of ``x``, float32 ``[n]``, in dBFS; minus infinity as above."""
    if not len(x):
        return -math.inf
    return _db(float(np.max(np.abs(x))))


def leading_silence(x: NDArray[np.float32], rate: int, threshold_db: float = -50.0) -> float:
    """Return the seconds of ``x``, float32 ``[n]`` at ``rate`` Hz, before its first sample at the threshold.

    Without such a sample it is the whole length. It counts in the time to first audio: a listener cannot
    tell it from waiting.
    """
    loud = np.abs(x) >= 10 ** (threshold_db / 20)
    first = int(np.argmax(loud)) if loud.any() else len(x)
    return first / rate

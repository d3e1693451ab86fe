"""The front end of the speaker model: 16 kHz samples to 40 mel bands of power, 100 frames a second.

What ``librosa.feature.melspectrogram(y, sr=16000, n_fft=400, hop_length=160, n_mels=40)`` gives, with which
the model was trained (Resemblyzer 0.1.4, ``audio.wav_to_mel_spectrogram``): a periodic Hann window of 25 ms
around every 10 ms with zeros beyond both ends, power, triangles on Slaney's mel scale (Auditory Toolbox,
1998: linear up to 1 kHz, logarithmic above) scaled to equal area. No logarithm is taken.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
WINDOW = 400
HOP = 160
BANDS = 40

Samples = NDArray[np.float32]

_LINEAR_HZ = 200.0 / 3  # a mel, up to 1 kHz
_KNEE_HZ, _KNEE_MEL = 1000.0, 15.0
_LOG_STEP = np.log(6.4) / 27.0


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above: NDArray[np.float64] = _KNEE_HZ * np.exp(_LOG_STEP * (mel - _KNEE_MEL))
    return np.where(mel < _KNEE_MEL, _LINEAR_HZ * mel, above)


@cache
def filters() -> Samples:
    """The triangles, float32 ``[40, 201]``, from 0 to 8 kHz."""
    top = _KNEE_MEL + np.log(RATE / 2 / _KNEE_HZ) / _LOG_STEP
    corners = _hertz(np.linspace(0.0, top, BANDS + 2))
    bins = np.arange(WINDOW // 2 + 1) * (RATE / WINDOW)
    widths = np.diff(corners)
    rising = (bins - corners[:-2, None]) / widths[:-1, None]
    falling = (corners[2:, None] - bins) / widths[1:, None]
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    triangles *= (2.0 / (corners[2:] - corners[:-2]))[:, None]
    return triangles.astype(np.float32)


def mel(pcm: Samples) -> Samples:
    """Power in mel bands of float32 ``[n]`` at 16 kHz: float32 ``[n // 160 + 1, 40]``."""
    padded = np.pad(pcm, WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
    spectrum = np.fft.rfft(frames * window, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32)
    bands: Samples = power @ filters().T
    return bands


__all__ = ["BANDS", "HOP", "RATE", "WINDOW", "Samples", "filters", "mel"]

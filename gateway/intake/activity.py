"""Where a recording speaks, and how clean it is: frames of 10 ms, thresholds from the recording itself.

Pure numpy over at most a minute of sound: some 50 ms of work for a thread, not for the event loop, in steps
of a millisecond, as some of numpy holds all threads up. The estimate of the noise takes, in each band of 43
Hz, the level that a tenth of the time lies under, as in Martin's minimum statistics (IEEE Trans. Speech Audio
Process. 9(5), 2001): speech leaves each band now and then even where it makes no pause.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

RATE = 22_050
"""Sample rate of all clips, Hz."""

FRAME = RATE // 100
"""Samples of a frame: 10 ms, nearly."""

FLOOR_DB = -55.0
"""No frame below this (dB of full scale, mean square) counts as speech, whatever the rest is."""

SILENT_DB = -50.0
"""A recording whose loudest third of a second stays below this holds no speech."""

RANGE_DB = 35.0
"""Speech lies within this of its loudest third of a second."""

FULL_SCALE = 0.985
"""Magnitude that counts as full scale: a clipped peak keeps about its height through a codec and a
resampler."""

BEST_S = 15.0
"""Longest stretch that is encoded: what the speaker model saw in training (3-15 s)."""

_LOUD = 30  # frames
_OVER_NOISE_DB, _UNDER_LOUD_DB = 8.0, 12.0
_BRIDGE, _CLICK, _MARGIN, _SNAP = 15, 4, 10, 30  # frames
_WINDOW, _HOP = 512, 256
_BLOCK, _BANDS = 256, 8  # of frames and bands at a time: what numpy does holds the event loop up meanwhile
_TENTH = 0.1
_BIAS = -math.log(1 - _TENTH)  # of the mean is what a tenth of an exponential distribution lies under
_DIGITAL = 1e-9  # mean square (-90 dB) of a frame that no microphone made
_MOST_SNR_DB = 60.0

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Measures:
    """What was measured on a trimmed clip.

    Attributes:
        peak: largest magnitude before it was limited to 1.
        loud_db: level of the loudest third of a second, dB of full scale.
        speech_s: seconds that speak; short gaps count, clicks do not.
        clipped: share of the speaking samples at full scale, 0..1.
        snr_db: ratio of speech to noise, at most 60.
        best: first and last + 1 sample of the most energetic stretch of at most 15 s.
    """

    peak: float
    loud_db: float
    speech_s: float
    clipped: float
    snr_db: float
    best: tuple[int, int]

    @property
    def silent(self) -> bool:
        """Whether nobody speaks in it."""
        return self.loud_db < SILENT_DB


def survey(pcm: Samples) -> tuple[int, int, Measures]:
    """Find the part between the silences at both ends, and measure it.

    Args:
        pcm: float32 ``[n]`` at 22,050 Hz, finite.

    Returns:
        First and last + 1 sample of that part (100 ms of its surroundings are kept; all of a recording in
        which nobody speaks), and its measures, with ``best`` counted from its first sample.
    """
    power = _power(pcm)
    loud = _loud(power)
    active = _active(power, loud)
    heard = np.flatnonzero(active)
    start, end = 0, len(pcm)
    if len(heard) and _db(loud) >= SILENT_DB:
        start = max(0, int(heard[0]) - _MARGIN) * FRAME
        end = min(len(pcm), (int(heard[-1]) + 1 + _MARGIN) * FRAME)
        power, active = power[start // FRAME :][: (end - start) // FRAME], active[start // FRAME :]
        active = active[: len(power)]
    speech = int(active.sum()) * FRAME
    part = pcm[start:end]
    full = int(np.count_nonzero(part >= FULL_SCALE)) + int(np.count_nonzero(part <= -FULL_SCALE))
    measures = Measures(
        peak=float(max(part.max(), -part.min())) if len(part) else 0.0,
        loud_db=_db(loud),
        speech_s=speech / RATE if _db(loud) >= SILENT_DB else 0.0,
        clipped=min(1.0, full / max(speech, FRAME)),
        snr_db=_snr(part, power, active),
        best=_best(power, loud, len(part)),
    )
    return start, end, measures


def _db(power: float) -> float:
    return 10 * math.log10(max(power, 1e-12))


def _power(pcm: Samples) -> NDArray[np.float64]:
    """Mean square of each whole frame, without its constant part."""
    frames = pcm[: len(pcm) // FRAME * FRAME].reshape(-1, FRAME)
    power = np.empty(len(frames), np.float64)
    for at in range(0, len(frames), _BLOCK):
        np.var(frames[at : at + _BLOCK], axis=1, dtype=np.float64, out=power[at : at + _BLOCK])
    return power


def _loud(power: NDArray[np.float64]) -> float:
    if not len(power):
        return 0.0
    place = min(_LOUD, (len(power) + 3) // 4)
    return float(np.partition(power, -place)[-place])


def _active(power: NDArray[np.float64], loud: float) -> NDArray[np.bool_]:
    if not len(power):
        return np.zeros(0, np.bool_)
    live = power[power > _DIGITAL]
    noise = _db(float(np.quantile(live, _TENTH))) if len(live) else -math.inf
    level = max(FLOOR_DB, _db(loud) - RANGE_DB, min(noise + _OVER_NOISE_DB, _db(loud) - _UNDER_LOUD_DB))
    active = power >= 10 ** (level / 10)
    _fill(active, False, _BRIDGE)
    _fill(active, True, _CLICK)
    return active


def _fill(active: NDArray[np.bool_], value: bool, shortest: int) -> None:
    """Turn every run of ``value`` that is shorter than this, but not at an end of the clip unless a click."""
    turns = np.flatnonzero(np.diff(active)) + 1
    edges = [0, *turns.tolist(), len(active)]
    for begin, end in pairwise(edges):
        inside = begin > 0 and end < len(active)
        if bool(active[begin]) is value and end - begin < shortest and (inside or value):
            active[begin:end] = not value


def _snr(part: Samples, power: NDArray[np.float64], active: NDArray[np.bool_]) -> float:
    """Ratio of the speaking frames' mean power, less the noise, to the noise's."""
    if len(part) < _WINDOW or not active.any():
        return 0.0
    window = np.hanning(_WINDOW).astype(np.float32)
    views = np.lib.stride_tricks.sliding_window_view(part, _WINDOW)[::_HOP]
    spectra = np.empty((len(views), _WINDOW // 2 + 1), np.float32)
    for at in range(0, len(views), _BLOCK):
        spectrum = np.fft.rfft(views[at : at + _BLOCK] * window, axis=1)
        spectra[at : at + _BLOCK] = spectrum.real**2 + spectrum.imag**2
    scale = 2 / (_WINDOW * float(np.sum(window**2)))
    spectra = spectra[:, 4:]  # from 172 Hz: below it is hum, which the codec does not mind
    live = spectra.sum(axis=1) * scale > _DIGITAL
    if not live.any():
        return 0.0
    noise = _lower_tenth(spectra[live]) * scale / _BIAS
    speech = float(power[active].mean())
    if speech <= noise:
        return 0.0
    return min(_MOST_SNR_DB, max(0.0, _db((speech - noise) / max(noise, 1e-12))))


def _lower_tenth(spectra: Samples) -> float:
    """Sum over the bands of what a tenth of the time lies under."""
    place = int(_TENTH * (len(spectra) - 1))
    total = 0.0
    for band in range(0, spectra.shape[1], _BANDS):
        levels = np.ascontiguousarray(spectra[:, band : band + _BANDS].T)
        levels.partition(place, axis=1)
        total += float(levels[:, place].sum())
    return total


def _best(power: NDArray[np.float64], loud: float, samples: int) -> tuple[int, int]:
    """The stretch with most energy, frames counting up to ``loud``; its ends drawn in to quiet frames."""
    want = int(BEST_S * RATE) // FRAME
    if samples <= BEST_S * RATE or len(power) <= want:
        return 0, min(samples, int(BEST_S * RATE))
    sums = np.concatenate([[0.0], np.cumsum(np.minimum(power, loud))])
    first = int(np.argmax(sums[want:] - sums[:-want]))
    last = first + want
    if first:
        first += int(np.argmin(power[first : first + _SNAP]))
    if last < len(power):
        last -= int(np.argmin(power[last - _SNAP : last][::-1]))
    return first * FRAME, last * FRAME


__all__ = ["BEST_S", "RATE", "Measures", "Samples", "survey"]

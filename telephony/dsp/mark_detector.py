"""Finds the mark of :mod:`telephony.dsp.mark` in a recording, behind a telephone network if need be.

The sound is brought to 8 kHz. Each cell of time and frequency is weighed by how much mark it can hold against
how much voice it holds: the valleys between harmonics count most, what lies near the noise floor nothing.
Half seconds are correlated with the period at every lag; a path through them may follow a clock that is off
and jump where a jitter buffer cut or repeated sound. Where the path lies highest, ``z`` is its height in
standard deviations, and ``z_payload`` that of the second sequence behind it. Both are independent where there
is no mark, so the decision looks at their sum.

What a score is worth: 0 of 9,232 unmarked or wrongly keyed recordings reached 7.4; extrapolated, one in
25,000 reaches MARKED and one in 2.5 million SURE. Where more windows and keys are tried both bars rise, by a
half for ten times as many, so that this holds for a recording of any length.

What is not found: speech of another speed (1 % is enough), after a neural codec or denoiser, after the lowest
rates of mobile codecs, and fewer than about three seconds of speech. And a mark can be copied from one
recording to another without the key: it is a reason to look the call up, never a proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from telephony.dsp.mark import BASE, HIGH_HZ, LOW_HZ, PAYLOAD_BITS, STEP, sequence
from telephony.dsp.resample import Resampler

MARKED = 8.0
"""Score from which a recording counts as marked."""
SURE = 9.0
"""Score from which something may be refused for it."""
UNSURE = 7.0
"""Score from which a longer recording is worth asking for."""

WINDOW_S, HOP_S = 12.0, 6.0
"""Longer recordings are looked at in such windows: speech of several sources may have been put together."""

DRIFTS_PPM = (-120, -80, -40, 0, 40, 80, 120)
"""Differences of clock that are tried; two crystals differ by 100 at most."""

_SEGMENT = BASE // 2
_JUMP = 128  # samples: 16 ms, what a jitter buffer cuts or repeats
_JUMP_COST = 5.0  # standard deviations
_FRAME, _STEP = 400, 100  # 50 ms by 12.5 ms

Wave = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Detection:
    """The best that was found.

    Attributes:
        score: marked from MARKED on; minus infinity where there was nothing to look at.
        tries: windows times keys.
        key: index of the key.
        payload: meaningless unless marked.
        at_s: where the window begins, in seconds.
        z, z_payload: the two heights that the score is made of.
        drift_ppm, jumps: what the path followed.
    """

    score: float
    tries: int = 1
    key: int = 0
    payload: int = 0
    at_s: float = 0.0
    z: float = 0.0
    z_payload: float = 0.0
    drift_ppm: int = 0
    jumps: int = 0

    @property
    def bar(self) -> float:
        """MARKED, raised for the tries."""
        return MARKED + math.log10(self.tries) / 2

    @property
    def marked(self) -> bool:
        """Whether the score reaches the bar."""
        return self.score >= self.bar

    @property
    def sure(self) -> bool:
        """Whether something may be refused for it: the score lies SURE - MARKED above the bar."""
        return self.score >= self.bar + (SURE - MARKED)

    @property
    def unsure(self) -> bool:
        """Whether a longer or better recording might tell."""
        return self.bar + (UNSURE - MARKED) <= self.score < self.bar


NOTHING = Detection(-math.inf)


def to_base(x: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """``x``, float32 ``[n]`` at ``rate`` Hz, at 8 kHz. Raises UnsupportedFormat for an unknown rate."""
    resampler = Resampler(rate, BASE)
    pieces = [resampler.process(x[at : at + rate]) for at in range(0, len(x), rate)]
    return np.concatenate([*pieces, resampler.flush()])


def search(
    x: NDArray[np.float32],
    rate: int,
    keys: Sequence[bytes],
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> Detection:
    """Look for marks of ``keys`` in ``x``, float32 ``[n]`` at ``rate`` Hz, window by window; the best.

    About 60 ms of work a window and key on one core, for a thread. It ends before the next window once
    ``stopped``; the sound's copy is overwritten in the end. Raises UnsupportedFormat for an unknown rate.
    """
    sound = to_base(x, rate)
    best = NOTHING
    tries = 0
    for first, last in _windows(len(sound)):
        if stopped():
            break
        tries += len(keys)
        found = detect(sound[first:last], keys, at_s=first / BASE)
        if found.score > best.score:
            best = found
    sound.fill(0)
    return replace(best, tries=max(1, tries))


def detect(x: NDArray[np.float32], keys: Sequence[bytes], *, at_s: float = 0.0) -> Detection:
    """Look for marks of ``keys`` in all of ``x`` at once: 8 kHz, float32 ``[n]``, 3 s of speech or more."""
    if not len(x) or not np.any(x):
        return NOTHING
    y = _weighed(x.astype(np.float64))
    rows = max(1, round(len(y) / _SEGMENT))
    folds = np.zeros((rows, BASE))
    for row in range(rows):
        part = y[row * _SEGMENT : (row + 1) * _SEGMENT]
        at = row * _SEGMENT % BASE
        folds[row, at : at + len(part)] = part
    spectra = np.fft.rfft(folds, axis=1)
    middles = (np.arange(rows) + 0.5) * _SEGMENT
    hertz = np.arange(BASE // 2 + 1)
    turns = 2j * np.pi / BASE * 1e-6 * middles[:, None] * hertz
    paths: list[tuple[float, list[int], int]] = [(-math.inf, [], 0)] * len(keys)
    for drift in DRIFTS_PPM:
        turned = spectra * np.exp(drift * turns)
        for index, key in enumerate(keys):
            z, path = _best_path(turned, key)
            if z > paths[index][0]:
                paths[index] = (z, path, drift)
    best = NOTHING
    for index, (z, path, drift) in enumerate(paths):
        payload, z_payload = _payload(spectra * np.exp(drift * turns), keys[index], path)
        score = (z + z_payload) / math.sqrt(2)
        if score > best.score:
            jumps = int(np.count_nonzero(np.diff(path)))
            best = Detection(score, len(keys), index, payload, at_s, z, z_payload, drift, jumps)
    return best


def _windows(samples: int) -> Iterator[tuple[int, int]]:
    window, hop = int(WINDOW_S * BASE), int(HOP_S * BASE)
    at = 0
    while True:
        # What would be left over is too short to tell anything by itself.
        last = samples - at < window + hop // 2
        yield at, samples if last else at + window
        if last:
            return
        at += hop


def _best_path(turned: NDArray[np.complex128], key: bytes) -> tuple[float, list[int]]:
    """Where sequence A lies in each row, and how far above chance (standard deviations)."""
    heights = np.fft.irfft(turned * np.conj(sequence(key, "A")), BASE, axis=1)
    heights /= math.sqrt(float(np.mean(heights**2))) + 1e-30
    total, path = _track(heights)
    return total / math.sqrt(len(heights)), path


def _payload(turned: NDArray[np.complex128], key: bytes, path: list[int]) -> tuple[int, float]:
    """By how much sequence B is behind A, as a payload, and how far that is above chance."""
    behind = np.zeros(BASE)
    for row, lag in zip(np.fft.irfft(turned * np.conj(sequence(key, "B")), BASE, axis=1), path, strict=True):
        behind += np.roll(row, -lag)
    # A resampler on the way may have moved things by a sample.
    near = np.maximum(behind, np.maximum(np.roll(behind, 1), np.roll(behind, -1)))
    choices = near[: STEP << PAYLOAD_BITS : STEP]
    payload = int(np.argmax(choices))
    return payload, float(choices[payload]) / (math.sqrt(float(np.mean(behind**2))) + 1e-30)


def _track(heights: Wave) -> tuple[float, list[int]]:
    """The highest path through the rows, and its lags: it stays, or jumps at a cost."""
    so_far = heights[0].copy()
    back: list[tuple[Wave, NDArray[np.bool_]]] = []
    for row in heights[1:]:
        jumped = _widest(so_far, _JUMP) - _JUMP_COST
        back.append((so_far, jumped > so_far))
        so_far = np.maximum(so_far, jumped) + row
    lag = int(np.argmax(so_far))
    total, path = float(so_far[lag]), [lag]
    for before, jumped_here in reversed(back):
        if jumped_here[lag]:
            near = np.arange(lag - _JUMP, lag + _JUMP + 1) % len(before)
            lag = int(near[np.argmax(before[near])])
        path.append(lag)
    return total, path[::-1]


def _widest(x: Wave, reach: int) -> Wave:
    """The largest within ``reach`` on either side, around a circle; by doubling."""
    out, have = x.copy(), 1
    while have < 2 * reach + 1:
        more = min(have, 2 * reach + 1 - have)
        out = np.maximum(out, np.roll(out, -more))
        have += more
    return np.roll(out, reach)


@cache
def _triangle(size: int, width: int) -> Wave:
    """A matrix that smooths rows of ``size`` numbers over ``width`` neighbours."""
    half = width // 2 + 1
    at = np.arange(size)
    weights: Wave = np.maximum(0, half - np.abs(at[:, None] - at)) / half**2
    return weights


def _weighed(x: Wave) -> Wave:
    """The sound with each cell weighed as in the module's text, clipped at twice its RMS."""
    pad = np.concatenate([np.zeros(_FRAME), x, np.zeros(_FRAME)])
    window = np.sqrt(np.hanning(_FRAME + 1)[:-1])
    frames = np.lib.stride_tricks.sliding_window_view(pad, _FRAME)[::_STEP]
    cells = np.fft.rfft(frames * window, axis=1)
    power = cells.real**2 + cells.imag**2
    bins = power.shape[1]
    level = power @ _triangle(bins, 9)  # as the mark's own mask: what it holds of the mark
    wide = power @ _triangle(bins, 19)
    floor = 1.5 * np.percentile(wide, 10, axis=0)
    speech = np.sqrt(np.clip((wide - floor) / (wide + 1e-12), 0, 1))
    hertz = np.fft.rfftfreq(_FRAME, 1 / BASE)
    inside = (hertz > LOW_HZ) & (hertz < HIGH_HZ)
    cells *= np.where(inside, np.sqrt(level) / (power + 0.05 * level + 1e-12) * speech, 0)
    pieces = np.fft.irfft(cells, _FRAME, axis=1) * window
    out = np.zeros(len(pad) + _FRAME)
    for phase in range(_FRAME // _STEP):
        part = pieces[phase :: _FRAME // _STEP].reshape(-1)
        out[phase * _STEP : phase * _STEP + len(part)] += part
    y = out[_FRAME : _FRAME + len(x)]
    limit = 2 * math.sqrt(float(np.mean(y**2)) + 1e-12)
    return np.clip(y, -limit, limit)


__all__ = ["MARKED", "NOTHING", "SURE", "UNSURE", "Detection", "detect", "search", "to_base"]

"""Spectra to samples, block by block.

The network predicts, per frame of 300 samples at 24 kHz, a filter for a pulse train, a noise envelope and a
spectrum with free phase; their sum is inverted by overlap-add (1200-point Hann, hop 300). The signal model
and its constants are those of the model package (hibari-tts, Apache-2.0, ``hibari/dsp.py``), which inverts
a whole utterance at once. Here the same sum is computed in blocks with carried state, so that the first 100
ms are ready long before the rest and silence that will be cut away is never computed. Blocks of any size
give the same samples: pulse phase, noise and overlap are all carried over.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import Floats, Spectra

RATE = 24_000
HOP = 300
N_FFT = 1200
BINS = N_FFT // 2 + 1
_OVERLAP = N_FFT // HOP
_VOICED_HZ = 40.0
_TOP_HZ = 11_000.0
_LOG_CEILING = 7.0

_WINDOW = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(N_FFT) / N_FFT)).astype(np.float32)
# A unit cosine then peaks at 1 in the spectrum, so that the harmonic branch is the harmonic's own magnitude.
_PULSE_WINDOW = (_WINDOW / (N_FFT / 4)).astype(np.float32)
# Squared periodic Hann windows a quarter apart sum to 1.5.
_OUT_WINDOW = (_WINDOW / 1.5).astype(np.float32)
_TOWARDS_NEXT = (((np.arange(HOP) + 0.5) / HOP - 0.5) % 1.0).astype(np.float32)
_WINDOW_POWER = float(np.sum(_WINDOW.astype(np.float64) ** 2))


def frame_levels(s: Spectra, start: int, end: int) -> Floats:
    """Estimated RMS of the samples around each frame in ``[start, end)``, full scale = 1.

    By Parseval over the windowed frame: ``rms^2 = 2 sum |S|^2 / (N sum w^2)``. The harmonic branch counts
    only where there are pulses under the window; complex noise has twice the power of its envelope.
    """
    part = slice(start, end)
    power = np.exp(2 * np.minimum(s.noise[:, part], _LOG_CEILING)) * 2
    power += np.exp(2 * np.minimum(s.free[:, part], _LOG_CEILING))
    voiced = np.convolve(s.pitch > _VOICED_HZ, np.ones(_OVERLAP + 1), "same")[part] > 0
    power += np.exp(2 * np.minimum(s.harmonic[:, part], _LOG_CEILING)) * voiced
    level: Floats = np.sqrt(2 * power.sum(axis=0) / (N_FFT * _WINDOW_POWER)).astype(np.float32)
    return level


class Vocoder:
    """Turns frames ``[start, end)`` of one network run into samples, in order.

    ``start`` should lie in silence: the first two frames are only half covered by windows. Output sample 0 is
    sample ``start * 300`` of the whole utterance.
    """

    def __init__(self, spectra: Spectra, start: int, end: int, noise: np.random.Generator) -> None:
        self._s = spectra
        self._at = start
        self._end = end
        self._noise = noise
        self._phase = 0.0
        # Pulse samples from (at - 2) * HOP on; the two frames before the first are taken as silent.
        self._pulses = np.zeros(2 * HOP, np.float32)
        self._pulse_frames = start
        # Overlap sums: rows of HOP samples, the first belongs to frame ``at - 2``.
        self._sums = np.zeros((_OVERLAP - 1, HOP), np.float32)
        self._skip = 2

    def blocks(self, *sizes: int) -> Iterator[Floats]:
        """Yield samples in blocks of ``sizes`` frames, the last size repeated to the end.

        Each block is held back by the two frames that still overlap it; the last one flushes them.
        """
        turn = 0
        while self._at < self._end:
            size = sizes[min(turn, len(sizes) - 1)]
            turn += 1
            # The first block must cover its overlap too, or it would come out short.
            if turn == 1:
                size += 2
            yield self._block(min(self._end, self._at + size))

    def _block(self, end: int) -> Floats:
        start, self._at = self._at, end
        s = self._s
        part = slice(start, end)
        count = end - start
        spec = self._excitation(end, count)
        angle = np.tanh(s.harmonic_phase[:, part].T)
        angle *= np.float32(np.pi)
        spec *= _polar(s.harmonic[:, part].T, angle)
        noise = self._noise.standard_normal((count, 2 * BINS), dtype=np.float32).view(np.complex64)
        noise *= _magnitude(s.noise[:, part].T)
        spec += noise
        spec += _polar(s.free[:, part].T, s.free_phase[:, part].T)
        frames = np.fft.irfft(spec, N_FFT, axis=1).astype(np.float32, copy=False)
        frames *= _OUT_WINDOW
        quarters = frames.reshape(count, _OVERLAP, HOP)
        rows = np.zeros((count + _OVERLAP - 1, HOP), np.float32)
        rows[: _OVERLAP - 1] = self._sums
        for k in range(_OVERLAP):
            rows[k : k + count] += quarters[:, k]
        # Rows before ``count`` get nothing more from later frames.
        done, self._sums = rows[:count], rows[count:].copy()
        if end == self._end:
            done = np.concatenate([done, self._sums[:2]])
        skip, self._skip = min(self._skip, len(done)), max(0, self._skip - len(done))
        out: Floats = done[skip:].reshape(-1)
        return out

    def _excitation(self, end: int, count: int) -> np.typing.NDArray[np.complex64]:
        """Spectra of the pulse train for the next ``count`` frames, ``[count, 601]``."""
        # The last frame's window reaches two frames beyond it.
        target = min(self._s.frames, end + 2)
        fresh = self._pulse_train(self._pulse_frames, target)
        self._pulse_frames = target
        need = (count + _OVERLAP - 1) * HOP
        train = np.concatenate([self._pulses, fresh])
        if len(train) < need:
            train = np.concatenate([train, np.zeros(need - len(train), np.float32)])
        windows = np.lib.stride_tricks.sliding_window_view(train[:need], N_FFT)[::HOP]
        self._pulses = train[count * HOP :]
        return np.fft.rfft(windows * _PULSE_WINDOW, axis=1).astype(np.complex64, copy=False)

    def _pulse_train(self, start: int, end: int) -> Floats:
        """Every harmonic below 11 kHz at unit amplitude: ``sin((H + 1/2) t) / (2 sin(t / 2)) - 1/2``."""
        if end <= start:
            return np.zeros(0, np.float32)
        pitch = self._s.pitch
        around = pitch[np.clip(np.arange(start - 1, end + 1), 0, len(pitch) - 1)].astype(np.float32)
        half = HOP // 2
        hz = np.empty((end - start, HOP), np.float32)
        w = _TOWARDS_NEXT
        hz[:, :half] = around[:-2, None] * (1 - w[:half]) + around[1:-1, None] * w[:half]
        hz[:, half:] = around[1:-1, None] * (1 - w[half:]) + around[2:, None] * w[half:]
        flat = hz.reshape(-1)
        voiced = flat > _VOICED_HZ
        np.maximum(flat, _VOICED_HZ, out=flat)
        turns = np.cumsum(flat, dtype=np.float64)
        turns *= 1.0 / RATE
        turns += self._phase
        turns -= np.floor(turns)
        self._phase = float(turns[-1])
        t = (turns * (2 * np.pi)).astype(np.float32)
        order = np.floor(_TOP_HZ / flat) + np.float32(0.5)
        below = 2 * np.sin(t * np.float32(0.5))
        near = np.abs(below) <= 2e-3  # the limit of the quotient at t -> 0 is the order itself
        train = np.sin(order * t)
        below[near] = 1
        train /= below
        train[near] = order[near]
        train -= np.float32(0.5)
        train[~voiced] = 0
        out: Floats = train.astype(np.float32, copy=False)
        return out


def _magnitude(log: Floats) -> Floats:
    out: Floats = np.exp(np.minimum(log, np.float32(_LOG_CEILING)))
    return out


def _polar(log: Floats, angle: Floats) -> np.typing.NDArray[np.complex64]:
    out = np.empty(log.shape, np.complex64)
    np.cos(angle, out=out.real)
    np.sin(angle, out=out.imag)
    out *= _magnitude(log)
    return out

"""A keyed mark under the voice, laid in a live stream: no listener hears it, who has the key finds it.

The mark is noise of one second, flat from 350 to 3350 Hz (inside every telephone codec) and made of the key.
It is laid in blocks of 10 ms or less: each is filtered with the spectrum of the voice around that moment,
smoothed so far that the ear covers it, and lies LEVEL_DB below it. Where nobody speaks nothing is laid.

Two sequences of equal power lie on each other. A says that the key's holder made this. B is delayed against A
by one of 1024 times, and so carries PAYLOAD_BITS bits. As the noise repeats after a second at *any* rate, a
mark laid at 24 kHz is the same after resampling to 8 kHz as one laid there.

Each block depends on the one before it and on nothing later: whole blocks go out as they come. A 20 ms frame
is a whole number of blocks at every rate, so on frames nothing is held back, and the period is one too,
without which the mark would drift against itself (at 22.05 kHz 147 samples, not 220).

Spread spectrum under a masking curve: Cox et al., "Secure spread spectrum watermarking for multimedia", IEEE
Trans. Image Processing 6(12), 1997; Kirovski and Malvar, "Spread-spectrum watermarking of audio signals",
IEEE Trans. Signal Processing 51(4), 2003.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from telephony.dsp.fir import check_rate

Samples = NDArray[np.float32]
Spectra = NDArray[np.complex64]

BASE = 8000
"""Hz: the rate of detection; the period has so many samples there."""
LOW_HZ, HIGH_HZ = 350, 3350
PAYLOAD_BITS = 10
STEP = 7
"""Samples at BASE between two payloads: 1024 of them fit into the period, and neighbours do not blur."""
LEVEL_DB = -21.0
"""Mark against voice inside the band: 24.7 dB of signal to noise over what a phone carries (PESQ 4.3)."""
SPREAD_HZ = 120.0
"""Half width of the triangle that smooths the voice's power: about a critical band."""


@lru_cache(maxsize=32)
def sequence(key: bytes, label: str) -> NDArray[np.complex128]:
    """One period as its spectrum at BASE (complex128 ``[4001]``, bins of 1 Hz): unit RMS, phases of the key.

    Phases are taken from SHAKE-256 of an HMAC, as a library's random generator may change with its version
    and the mark must be found years later.
    """
    seed = hmac.digest(key, label.encode(), "sha256")
    raw = hashlib.shake_256(seed).digest(2 * (HIGH_HZ - LOW_HZ))
    phases = np.frombuffer(raw, "<u2") * (2 * np.pi / 65536)
    spectrum = np.zeros(BASE // 2 + 1, np.complex128)
    spectrum[LOW_HZ:HIGH_HZ] = np.exp(1j * phases) * BASE / np.sqrt(2 * (HIGH_HZ - LOW_HZ))
    spectrum.flags.writeable = False
    return spectrum


def period(key: bytes, payload: int, rate: int) -> NDArray[np.float64]:
    """One period at ``rate``, float64 ``[rate]``, unit RMS. Raises ValueError for a payload of more bits."""
    if not 0 <= payload < 1 << PAYLOAD_BITS:
        raise ValueError(f"a payload has {PAYLOAD_BITS} bits")
    delay = np.exp(-2j * np.pi * payload * STEP / BASE * np.arange(BASE // 2 + 1))
    both = (sequence(key, "A") + sequence(key, "B") * delay) / np.sqrt(2)
    wave: NDArray[np.float64] = np.fft.irfft(both, rate) * (rate / BASE)  # irfft fills up with zeros
    return wave


class Mask:
    """The arithmetic at one rate, for any number of streams and blocks at once; it keeps nothing of them.

    Args:
        rate: Hz, one of :data:`telephony.dsp.fir.RATES`.

    Attributes:
        hop: samples of a block; a whole part of 20 ms and of a second.
        blocks: blocks of a period.

    Raises:
        UnsupportedFormat: there is no such rate here.
    """

    def __init__(self, rate: int) -> None:
        self.rate = check_rate(rate)
        frame = rate // 50
        self.hop = hop = max(n for n in range(1, rate // 100 + 1) if frame % n == 0)
        self.blocks = rate // hop
        self._window = np.hanning(2 * hop + 1)[:-1].astype(np.float32)
        # The voice's spectrum has bins of `width`, the mark's filter two for each of them.
        width = rate / (2 * hop)
        first = int((LOW_HZ - SPREAD_HZ) // width)
        last = int((HIGH_HZ + SPREAD_HZ) // width) + 1
        triangle = [1 - n * width / SPREAD_HZ for n in range(int(SPREAD_HZ / width) + 1)]
        self._near = slice(first - len(triangle) + 1, last + len(triangle))
        self._band = slice(2 * first, 2 * last + 1)
        # The mark's period has unit RMS over the whole band; the window's power is taken out again.
        gain = 10 ** (LEVEL_DB / 10) * (HIGH_HZ - LOW_HZ) / (rate / 2) / np.sum(self._window**2)
        gain /= triangle[0] + 2 * sum(triangle[1:])
        self._taps = [np.float32(weight * gain) for weight in triangle]
        self._rise = ((np.arange(hop) + 0.5) / hop).astype(np.float32)

    def _smooth(self, power: Samples) -> Samples:
        """Power ``[..., near]`` over a triangle of SPREAD_HZ, at the bins of the filter ``[..., bins]``.

        Sums of slices: a matrix product rounds a row by how many others there are, and then the samples would
        depend on how the stream was cut.
        """
        reach = len(self._taps) - 1
        size = power.shape[-1] - 2 * reach
        at_bins = power[..., reach : reach + size] * self._taps[0]
        for n, weight in enumerate(self._taps[1:], start=1):
            both = power[..., reach - n : reach - n + size] + power[..., reach + n : reach + n + size]
            both *= weight
            at_bins += both
        smooth = np.empty((*power.shape[:-1], 2 * size - 1), np.float32)
        smooth[..., ::2] = at_bins
        between = at_bins[..., 1:] + at_bins[..., :-1]
        between *= np.float32(0.5)
        smooth[..., 1::2] = between
        return smooth

    def spectra(self, key: bytes, payload: int) -> Spectra:
        """The period in blocks, with a block on either side of each: complex64 ``[blocks, bins]``."""
        wave = period(key, payload, self.rate).astype(np.float32)
        hop = self.hop
        around = np.concatenate([wave[-hop:], wave, wave[: 2 * hop]])
        pieces = np.lib.stride_tricks.sliding_window_view(around, 4 * hop)[::hop]
        found: Spectra = np.fft.rfft(pieces, axis=1)[:, self._band].astype(np.complex64)
        return found

    def lay(self, x: Samples, before: Samples, tail: Samples, spectra: Spectra) -> tuple[Samples, Samples]:
        """Mark the next blocks of some streams.

        Args:
            x: float32 ``[streams, blocks, hop]``.
            before: the unmarked block before them, float32 ``[streams, hop]``.
            tail: what the last call returned, float32 ``[streams, hop]``; zeros at first.
            spectra: of the blocks' places in the period, complex64 ``[streams, blocks, bins]``.

        Returns:
            The marked blocks, and the tail for the next call.
        """
        streams, blocks, hop = x.shape
        pairs = np.empty((streams, blocks, 2 * hop), np.float32)
        pairs[:, 0, :hop] = before
        pairs[:, 1:, :hop] = x[:, :-1]
        pairs[:, :, hop:] = x
        pairs *= self._window
        seen = np.fft.rfft(pairs, axis=-1)[..., self._near]
        power = np.square(seen.real, dtype=np.float32) + np.square(seen.imag, dtype=np.float32)
        shaped = np.zeros((streams, blocks, 2 * hop + 1), np.complex64)
        smooth = self._smooth(power)
        np.multiply(np.sqrt(smooth, out=smooth), spectra, out=shaped[..., self._band])
        marks = np.fft.irfft(shaped, 4 * hop, axis=-1)[..., hop : 3 * hop].astype(np.float32, copy=False)
        # Each block's filter fades into the next one's.
        fading = np.empty_like(x)
        fading[:, 0] = tail
        fading[:, 1:] = marks[:, :-1, hop:]
        rising = marks[..., :hop]
        rising -= fading
        rising *= self._rise
        rising += fading
        return x + rising, marks[:, -1, hop:].copy()


@cache
def mask(rate: int) -> Mask:
    """The shared :class:`Mask` of a rate. Raises UnsupportedFormat."""
    return Mask(rate)


class Marker:
    """One key and payload at one rate; many streams share it.

    Making one costs 1 to 5 ms. Raises UnsupportedFormat for the rate, ValueError for the payload.
    """

    def __init__(self, rate: int, key: bytes, payload: int) -> None:
        self.rate, self.payload = rate, payload
        self.mask = mask(rate)
        self.spectra = self.mask.spectra(key, payload)
        self.spectra.flags.writeable = False

    @property
    def hop(self) -> int:
        """Samples of a block."""
        return self.mask.hop

    @property
    def blocks(self) -> int:
        """Blocks of a period."""
        return self.mask.blocks


class Stream:
    """One stream being marked, mono float32, in chunks of any length: the same samples however it is cut.

    As many samples come out as went in. Less than a block is held back; nothing on chunks of 20 ms. Not
    thread-safe.

    Args:
        marker: shared.
        start: block of the period at which the stream begins.
    """

    def __init__(self, marker: Marker, start: int = 0) -> None:
        self._marker = marker
        self._at = start % marker.blocks
        self._before: Samples = np.zeros((1, marker.hop), np.float32)
        self._tail: Samples = np.zeros((1, marker.hop), np.float32)
        self._rest: Samples = np.zeros(0, np.float32)

    def process(self, x: Samples) -> Samples:
        """Take a chunk, float32 ``[n]``, and return the blocks that are whole now, float32 ``[m]``.

        Raises TypeError for another dtype and ValueError for another shape.
        """
        if x.dtype != np.float32:
            raise TypeError(f"samples must be float32, not {x.dtype}")
        if x.ndim != 1:
            raise ValueError(f"samples must have the shape [n], not {x.shape}")
        if len(self._rest):
            x = np.concatenate([self._rest, x])
        hop, period_blocks = self._marker.hop, self._marker.blocks
        whole = len(x) // hop
        out = np.empty(whole * hop, np.float32)
        done = 0
        while done < whole:  # a second at most at a time: longer ones would need the period repeated
            count = min(whole - done, period_blocks - self._at)
            piece = x[done * hop : (done + count) * hop].reshape(1, count, hop)
            spectra = self._marker.spectra[None, self._at : self._at + count]
            marked, self._tail = self._marker.mask.lay(piece, self._before, self._tail, spectra)
            out[done * hop : (done + count) * hop] = marked.reshape(-1)
            self._before = piece[:, -1].copy()
            self._at = (self._at + count) % period_blocks
            done += count
        self._rest = x[whole * hop :].copy()
        return out

    def flush(self) -> Samples:
        """End the stream: what is held back, float32 ``[m]``, less than a block."""
        held = len(self._rest)
        if not held:
            return np.zeros(0, np.float32)
        return self.process(np.zeros(self._marker.hop - held, np.float32))[:held]


__all__ = ["LEVEL_DB", "PAYLOAD_BITS", "Marker", "Mask", "Stream", "mask", "period", "sequence"]

"""Uncompressed WAV without a decoder, for a gateway that has no ffmpeg."""

from __future__ import annotations

import numpy as np

from telephony.dsp.fir import RATES
from telephony.dsp.resample import Resampler

from .activity import RATE, Samples
from .refusal import ReferenceRefused
from .sniff import Wave

_DTYPES = {"pcm_u8": "u1", "pcm_s16le": "<i2", "pcm_s32le": "<i4", "pcm_f32le": "<f4", "pcm_f64le": "<f8"}


def read_wave(data: memoryview, found: Wave, most: int) -> Samples:
    """The sound of a file whose header is ``found``, mixed to mono (the mean of its channels), at 22,050 Hz.

    Args:
        data: the file.
        found: as :func:`gateway.intake.sniff.wave` read it.
        most: most samples of the result.

    Raises:
        ReferenceRefused: ``unsupported`` (companded), ``rate`` (none that our resampler knows), ``too_long``.
    """
    width = 3 if found.codec == "pcm_s24le" else np.dtype(_DTYPES.get(found.codec, "u1")).itemsize
    if found.codec not in _DTYPES and width != 3:
        raise ReferenceRefused(
            "unsupported", "this gateway reads only uncompressed WAV: save it as 16-bit PCM"
        )
    if found.rate not in RATES:
        raise ReferenceRefused("rate", f"the WAV's rate must be one of {', '.join(map(str, RATES))} Hz")
    frames = (found.end - found.start) // (width * found.channels)
    if frames * RATE > most * found.rate:
        raise ReferenceRefused("too_long", "the recording is too long")
    resampler = Resampler(found.rate, RATE)
    out = np.zeros(frames * RATE // found.rate + 1, np.float32)
    at = 0
    for first in range(0, frames, found.rate):  # a second at a time
        step = found.channels * width
        piece = data[found.start + first * step : found.start + min(frames, first + found.rate) * step]
        with np.errstate(over="ignore", invalid="ignore"):  # what is no number is refused later
            mono = _floats(piece, found.codec).reshape(-1, found.channels).mean(axis=1, dtype=np.float64)
            made = resampler.process(mono.astype(np.float32))
        out[at : at + len(made)] = made
        at += len(made)
        mono.fill(0)
        made.fill(0)
    last = resampler.flush()[: len(out) - at]
    out[at : at + len(last)] = last
    return out[: at + len(last)]


def _floats(piece: memoryview, codec: str) -> Samples:
    if codec == "pcm_s24le":
        thirds = np.frombuffer(piece, np.uint8).reshape(-1, 3)
        wide = np.zeros((len(thirds), 4), np.uint8)
        wide[:, 1:] = thirds
        return np.asarray(wide.view("<i4")[:, 0] / 2.0**31, np.float32)
    values = np.frombuffer(piece, _DTYPES[codec])
    if codec == "pcm_u8":
        return np.asarray((values.astype(np.float32) - 128) / 128, np.float32)
    if values.dtype.kind == "i":
        return np.asarray(values / 2.0 ** (8 * values.itemsize - 1), np.float32)
    return values.astype(np.float32)


__all__ = ["read_wave"]

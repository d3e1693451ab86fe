"""G.711 mu-law and A-law by table.

The tables are made from the formula of the ITU-T's own software (G.191, module g711), because "bit-exact"
has no meaning without naming one: the common encoders differ from each other on 127 to 992 of the 65,536
inputs, always by one code at a decision boundary. Decoders agree. A negative sample is taken as its one's
complement there, which is why -1 and 0 have different codes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MULAW_SILENCE = 0xFF
"""The mu-law code of a zero sample."""

ALAW_SILENCE = 0xD5
"""The A-law code of a zero sample."""


def _log2_floor(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``floor(log2(v))`` for positive integers, exactly."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1


def _mulaw_codes() -> NDArray[np.uint8]:
    linear = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)
    # 14 bits, and a bias of 33 that puts the segment boundaries on powers of two.
    magnitude = np.minimum((np.where(linear < 0, ~linear, linear) >> 2) + 33, 0x1FFF)
    segment = _log2_floor(magnitude) - 5
    step = (magnitude >> (segment + 1)) & 0x0F
    codes = ((7 - segment) << 4) | (0x0F - step)
    signed: NDArray[np.int64] = np.where(linear < 0, codes, codes | 0x80)
    return signed.astype(np.uint8)


def _mulaw_samples() -> NDArray[np.int16]:
    code = ~np.arange(256, dtype=np.int64)
    segment = (code >> 4) & 7
    magnitude = ((((code & 0x0F) << 1) + 33) << (segment + 2)) - 4 * 33
    signed: NDArray[np.int64] = np.where(code & 0x80, -magnitude, magnitude)
    return signed.astype(np.int16)


def _alaw_codes() -> NDArray[np.uint8]:
    linear = np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int64)
    magnitude = np.where(linear < 0, ~linear, linear) >> 4
    # The first two segments share a step, so the lowest has no leading bit of its own.
    segment = np.maximum(_log2_floor(np.maximum(magnitude, 1)) - 3, 0)
    step = (magnitude >> np.maximum(segment - 1, 0)) & 0x0F
    codes = (segment << 4) | step
    signed: NDArray[np.int64] = np.where(linear < 0, codes, codes | 0x80)
    return (signed ^ 0x55).astype(np.uint8)


def _alaw_samples() -> NDArray[np.int16]:
    code = np.arange(256, dtype=np.int64) ^ 0x55
    segment = (code >> 4) & 7
    step = ((code & 0x0F) << 4) + 8
    magnitude = np.where(segment == 0, step, (step + 0x100) << np.maximum(segment - 1, 0))
    signed: NDArray[np.int64] = np.where(code & 0x80, magnitude, -magnitude)
    return signed.astype(np.int16)


_MULAW_CODES = _mulaw_codes()
_MULAW_SAMPLES = _mulaw_samples()
_ALAW_CODES = _alaw_codes()
_ALAW_SAMPLES = _alaw_samples()


def _encode(table: NDArray[np.uint8], x: NDArray[np.int16]) -> NDArray[np.uint8]:
    if x.dtype != np.int16:
        raise TypeError(f"samples must be int16, not {x.dtype}")
    # No index can be out of range, and "wrap" is the mode that does not look: half the time of table[x].
    return table.take(x.view(np.uint16), mode="wrap")


def _decode(table: NDArray[np.int16], codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    if codes.dtype != np.uint8:
        raise TypeError(f"codes must be uint8, not {codes.dtype}")
    return table.take(codes, mode="wrap")


def mulaw_encode(x: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Compand int16 samples of any shape to mu-law codes of the same shape; TypeError for another dtype."""
    return _encode(_MULAW_CODES, x)


def mulaw_decode(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Expand mu-law codes, uint8 of any shape, to int16 samples; TypeError for another dtype."""
    return _decode(_MULAW_SAMPLES, codes)


def alaw_encode(x: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Compand int16 samples of any shape to A-law codes of the same shape; TypeError for another dtype."""
    return _encode(_ALAW_CODES, x)


def alaw_decode(codes: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Expand A-law codes, uint8 of any shape, to int16 samples; TypeError for another dtype."""
    return _decode(_ALAW_SAMPLES, codes)

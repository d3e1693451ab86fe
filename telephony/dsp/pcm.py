"""Sample formats: float32 in [-1, 1) inside, and the encodings in which clients and peers want their bytes.

Full scale is 32768 both ways, so int16 -> float32 -> int16 gives back every value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from telephony.dsp import g711
from tts_core.errors import BadRequest, UnsupportedFormat

SAMPLE_BYTES = {"pcm_s16le": 2, "pcm_f32le": 4, "mulaw": 1, "alaw": 1}
"""The encodings, and the bytes of one sample in each."""

_FULL_SCALE = np.float32(32768.0)
_HIGHEST = np.float32(32767.0 / 32768.0)
_LOWEST = np.float32(-1.0)


def float_to_int16(x: NDArray[np.float32]) -> NDArray[np.int16]:
    """Round float32 samples of any shape to int16, ties to even; clipped; not-a-number becomes silence."""
    # Resampled square waves overshoot full scale, and the cast alone would wrap them round. Most audio does
    # not: two passes that only read. Either is NaN if any element is, and then no comparison holds.
    if x.size and not (x.min() >= _LOWEST and x.max() <= _HIGHEST):
        x = np.nan_to_num(np.clip(x, _LOWEST, _HIGHEST), copy=False, nan=0.0)
    y = np.multiply(x, _FULL_SCALE, dtype=np.float32)
    return np.rint(y, out=y).astype(np.int16)


def int16_to_float(x: NDArray[np.int16]) -> NDArray[np.float32]:
    """Return int16 samples of any shape as float32 in [-1, 1); exact. TypeError for another dtype."""
    if x.dtype != np.int16:
        raise TypeError(f"samples must be int16, not {x.dtype}")
    return np.divide(x, _FULL_SCALE, dtype=np.float32)


def sample_bytes(encoding: str) -> int:
    """Return the bytes of one sample.

    Raises:
        UnsupportedFormat: we do not know the encoding.
    """
    try:
        return SAMPLE_BYTES[encoding]
    except KeyError:
        raise UnsupportedFormat(
            f"encoding must be one of {', '.join(SAMPLE_BYTES)}", field="encoding"
        ) from None


_ENCODE: dict[str, Callable[[NDArray[np.float32]], bytes]] = {
    "pcm_s16le": lambda x: float_to_int16(x).astype("<i2", copy=False).tobytes(),
    "pcm_f32le": lambda x: x.astype("<f4", copy=False).tobytes(),
    "mulaw": lambda x: g711.mulaw_encode(float_to_int16(x)).tobytes(),
    "alaw": lambda x: g711.alaw_encode(float_to_int16(x)).tobytes(),
}

_DECODE: dict[str, Callable[[bytes], NDArray[np.float32]]] = {
    "pcm_s16le": lambda b: int16_to_float(np.frombuffer(b, "<i2").astype(np.int16, copy=False)),
    "pcm_f32le": lambda b: np.frombuffer(b, "<f4").astype(np.float32),
    "mulaw": lambda b: int16_to_float(g711.mulaw_decode(np.frombuffer(b, np.uint8))),
    "alaw": lambda b: int16_to_float(g711.alaw_decode(np.frombuffer(b, np.uint8))),
}


def encode(x: NDArray[np.float32], encoding: str) -> bytes:
    """Return float32 samples ``[n]`` as ``pcm_s16le``, ``pcm_f32le`` (not clipped), ``mulaw`` or ``alaw``.

    Raises:
        UnsupportedFormat: another encoding.
    """
    sample_bytes(encoding)
    return _ENCODE[encoding](x)


def decode(data: bytes | bytearray | memoryview, encoding: str) -> NDArray[np.float32]:
    """Return the samples of ``data``, float32 ``[n]``; the inverse of :func:`encode`.

    Raises:
        UnsupportedFormat: another encoding.
        BadRequest: the bytes end within a sample; carry the remainder with a
            :class:`~telephony.dsp.framing.Framer` where a stream is cut anywhere.
    """
    if len(memoryview(data).cast("B")) % sample_bytes(encoding):
        raise BadRequest("the audio ends within a sample", field="audio")
    return _DECODE[encoding](bytes(data))


def silence(encoding: str, samples: int) -> bytes:
    """Return ``samples`` samples of digital silence.

    Raises:
        UnsupportedFormat: another encoding.
    """
    fill = {"mulaw": g711.MULAW_SILENCE, "alaw": g711.ALAW_SILENCE}.get(encoding, 0)
    return bytes([fill]) * (samples * sample_bytes(encoding))

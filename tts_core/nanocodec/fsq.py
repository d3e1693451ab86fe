"""The numbers of NanoCodec: grouped finite scalar quantisation, without a model.

A frame is 32 codes. Channel ``4 * g + i`` is dimension ``i`` of group ``g`` (8 groups of 4 dimensions), its
code is ``0 .. LEVELS[channel] - 1`` and stands for the value ``(code - L // 2) / (L // 2)``. A group folds
into one token, least significant dimension first, which is the form that NeMo's ``AudioCodecModel`` speaks
(``GroupFiniteScalarQuantizer``, NeMo 3.0; Mentzer et al. 2023, "Finite Scalar Quantization", section 3.1).
Numpy alone is needed here: whoever moves codes about need not load a model's stack.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import EngineError

GROUP_LEVELS: tuple[int, ...] = (8, 7, 6, 6)
"""Levels of the four dimensions of every group."""

GROUPS = 8
GROUP_SIZE = 2016
"""Tokens of one group: 8 * 7 * 6 * 6."""

LEVELS: tuple[int, ...] = GROUP_LEVELS * GROUPS
CHANNELS = len(LEVELS)

SAMPLE_RATE = 22_050
SAMPLES_PER_FRAME = 1024
"""A frame is 1024 samples at 22.05 kHz, 46.44 ms; the name's "21.5 frames a second" is a label."""

Codes: TypeAlias = NDArray[np.uint8]
"""uint8 ``[..., 32]``."""

_LEVELS = np.array(LEVELS, np.int64)
_GROUP_LEVELS = np.array(GROUP_LEVELS, np.int64)
_BASES = np.array([1, 8, 56, 336], np.int64)
# The codes of every token, uint8 [2016, 4]: looked up, as a stream's frames come one by one.
_DIGITS = (np.arange(GROUP_SIZE)[:, None] // _BASES % _GROUP_LEVELS).astype(np.uint8)
_HALF = (_LEVELS // 2).astype(np.float32)


def check(codes: ArrayLike) -> Codes:
    """Integers ``[..., 32]`` as contiguous uint8 codes, each below the levels of its channel.

    Raises:
        EngineError: another shape or type, or a code out of range.

    """
    array = np.asarray(codes)
    if array.dtype.kind not in "iu" or array.ndim < 1 or array.shape[-1] != CHANNELS:
        raise EngineError("codec codes must be integers, 32 a frame")
    if array.size and bool(((array < 0) | (array >= _LEVELS)).any()):
        raise EngineError("a codec code is outside its levels")
    return np.ascontiguousarray(array, np.uint8)


def fold(codes: ArrayLike) -> NDArray[np.int32]:
    """Codes ``[..., 32]`` as tokens int32 ``[..., 8]``, each ``0 .. 2015``.

    Raises:
        EngineError: as ``check``.

    """
    digits = check(codes)
    grouped = digits.reshape(*digits.shape[:-1], GROUPS, len(GROUP_LEVELS))
    tokens: NDArray[np.int32] = (grouped * _BASES).sum(axis=-1).astype(np.int32)
    return tokens


def unfold(tokens: ArrayLike) -> Codes:
    """Tokens ``[..., 8]`` as codes uint8 ``[..., 32]``; the inverse of ``fold``.

    Raises:
        EngineError: another shape or type, or a token out of range.

    """
    array = np.asarray(tokens)
    if array.dtype.kind not in "iu" or array.ndim < 1 or array.shape[-1] != GROUPS:
        raise EngineError("codec tokens must be integers, 8 a frame")
    if array.size and (array.min() < 0 or array.max() >= GROUP_SIZE):
        raise EngineError("a codec token is outside its range")
    return _DIGITS[array].reshape(*array.shape[:-1], CHANNELS)


def dequantise(codes: ArrayLike) -> NDArray[np.float32]:
    """The values float32 ``[..., 32]`` that the decoder is given, in -1 .. 1.

    Raises:
        EngineError: as ``check``.

    """
    values: NDArray[np.float32] = (check(codes).astype(np.float32) - _HALF) / _HALF
    return values

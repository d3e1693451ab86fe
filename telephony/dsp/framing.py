"""Whole frames out of chunks of any size, with nothing lost, doubled or moved.

Peers want whole frames only (160 bytes of mu-law are 20 ms), engines give what they have: a NanoCodec frame
is 1024 samples at 22.05 kHz, which is 371.52 at 8 kHz. A frame may itself be such a fraction: its
boundaries then stand at the whole part of each multiple, and so never drift.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Chunk = TypeVar("Chunk", bound="bytes | NDArray[Any]")


class Framer(Generic[Chunk]):
    """Cuts a stream of samples into frames and carries what is left over.

    The samples are the elements of one-dimensional arrays, or single bytes (any bytes-like object in,
    ``bytes`` out); a framer takes the one or the other, as its first chunk decides. Frames are copies.

    Args:
        frame: samples in a frame, or a fraction of at least 1: frame ``k`` then spans the samples from
            ``floor(k * frame)`` to ``floor((k + 1) * frame)``.
        fill: the sample with which :meth:`flush` pads, e.g. 0xFF for mu-law bytes.

    Raises:
        ValueError: ``frame`` is less than one sample.
    """

    def __init__(self, frame: int | Fraction, fill: float = 0) -> None:
        if frame < 1:
            raise ValueError("a frame has at least one sample")
        self._frame = Fraction(frame)
        self._fill = fill
        self._index = 0
        self._rest: NDArray[Any] | None = None
        self._as_bytes = False

    @property
    def held(self) -> int:
        """Samples carried over to the next push."""
        return 0 if self._rest is None else len(self._rest)

    def _size(self, index: int) -> int:
        return math.floor((index + 1) * self._frame) - math.floor(index * self._frame)

    def push(self, x: Chunk | bytearray | memoryview) -> list[Chunk]:
        """Take a chunk and return the frames that are whole now, perhaps none.

        Raises:
            TypeError: the chunk is of another kind than the ones before it.
            ValueError: the chunk is an array of more than one dimension.
        """
        buffer = self._joined(x)
        frames = []
        start = 0
        while start + (size := self._size(self._index)) <= len(buffer):
            frames.append(self._out(buffer[start : start + size]))
            start += size
            self._index += 1
        self._rest = buffer[start:].copy()
        return frames

    def flush(self, pad: bool = True) -> list[Chunk]:
        """End the stream: return the remainder, if any, as one frame, padded to its size if ``pad``.

        The next push starts a new stream.
        """
        rest, size = self._rest, self._size(self._index)
        self.reset()
        if rest is None or not len(rest):
            return []
        if pad:
            rest = np.concatenate([rest, np.full(size - len(rest), self._fill, rest.dtype)])
        return [self._out(rest)]

    def reset(self) -> None:
        """Drop the remainder, as after a barge-in; the next push starts a new stream."""
        self._index = 0
        self._rest = None

    def _joined(self, x: Chunk | bytearray | memoryview) -> NDArray[Any]:
        as_bytes = not isinstance(x, np.ndarray)
        chunk: NDArray[Any] = np.frombuffer(x, np.uint8) if as_bytes else cast("NDArray[Any]", x)
        if chunk.ndim != 1:
            raise ValueError("samples must have one dimension")
        if self._rest is None:
            self._as_bytes = as_bytes
            return chunk
        if as_bytes != self._as_bytes or chunk.dtype != self._rest.dtype:
            raise TypeError("a stream of samples must not change its kind")
        return np.concatenate([self._rest, chunk])

    def _out(self, samples: NDArray[Any]) -> Chunk:
        return cast("Chunk", samples.tobytes() if self._as_bytes else samples.copy())

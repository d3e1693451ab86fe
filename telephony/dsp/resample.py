"""Resampling in two forms of the same filter: one stream in any chunks, and many streams in 20 ms frames.

Both are the polyphase FIR of :mod:`telephony.dsp.fir`. The gather form takes chunks of any length, returns
every sample it can, and gives the same samples bit for bit however the input is cut. The batched form uses
that 20 ms is a whole number of filter periods at all our rates (441 in, 160 out at 22.05 -> 8 kHz): the
phase is back at zero on every frame, so one frame is one fixed matrix, and a frame of many streams one
matrix product.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from telephony.dsp.fir import Bank, check_rate, design

FRAME_MS = 20
"""The frame of the batched form, in milliseconds."""

BAND = 32
"""Output columns of one product. Each column reads only one filter length of the frame, so the whole matrix
is mostly zeros; cut into narrow bands it is not, which halves the time. Narrower ones lose more in calls."""

Samples = NDArray[np.float32]


def _check(x: Samples, fits: bool, shape: str) -> None:
    if x.dtype != np.float32:
        raise TypeError(f"samples must be float32, not {x.dtype}")
    if not fits:
        raise ValueError(f"samples must have the shape {shape}, not {x.shape}")


class Resampler:
    """One mono stream from ``in_rate`` to ``out_rate`` Hz, fed in chunks of any length.

    The output starts at the first input's instant (the filter's delay is taken out), and after
    :meth:`flush` has exactly ``ceil(n_in * out_rate / in_rate)`` samples. Equal rates pass samples through
    unchanged. It holds no clock: pauses between chunks change nothing. Not thread-safe.

    Args:
        in_rate: Hz, one of :data:`telephony.dsp.fir.RATES`.
        out_rate: Hz, likewise.

    Raises:
        UnsupportedFormat: we do not resample from or to such a rate.
    """

    def __init__(self, in_rate: int, out_rate: int) -> None:
        self.in_rate = check_rate(in_rate)
        self.out_rate = check_rate(out_rate)
        self._bank: Bank | None = None if in_rate == out_rate else design(in_rate, out_rate)
        self._buffer: Samples = np.zeros(0, np.float32)  # from the oldest input that the next output reads
        self._taken = 0
        self._given = 0
        self.reset()

    @property
    def delay_s(self) -> float:
        """Seconds of input that an output needs beyond its own instant: the added delay."""
        if self._bank is None:
            return 0.0
        return self._bank.offset / (self._bank.up * self.in_rate)

    def reset(self) -> None:
        """Forget everything, as after a barge-in: drop what is held back; the next chunk starts anew."""
        self._taken = self._given = 0
        if self._bank is not None:
            # Silence before the first input, as long as the half of the filter that reads the past.
            self._buffer = np.zeros(-self._bank.start(0), np.float32)

    def process(self, x: Samples) -> Samples:
        """Take a chunk, float32 ``[n]``, and return the outputs it completes, float32 ``[m]``, ``m >= 0``.

        The result is a new array. Raises TypeError for another dtype and ValueError for another shape.
        """
        _check(x, x.ndim == 1, "[n]")
        if self._bank is None:
            return x.copy()
        bank = self._bank
        self._taken += len(x)
        end = (self._taken * bank.up - 1 - bank.offset) // bank.down + 1
        return self._emit(x, max(end, self._given))

    def flush(self) -> Samples:
        """End the stream: return what is held back, float32 ``[m]``, and start anew."""
        if self._bank is None:
            return np.zeros(0, np.float32)
        total = -(-self._taken * self._bank.up // self._bank.down)
        y = self._emit(np.zeros(self._bank.taps, np.float32), total)
        self.reset()
        return y

    def _emit(self, x: Samples, end: int) -> Samples:
        """Return outputs from the next one up to ``end`` (not included), after appending ``x``."""
        bank = self._bank
        assert bank is not None
        buffer = np.concatenate([self._buffer, x])
        y = np.empty(end - self._given, np.float32)
        # A view of every window in the buffer, without the cost of numpy's own checks for it.
        step = buffer.itemsize
        windows: Samples = np.ndarray(
            (max(len(buffer) - bank.taps + 1, 0), bank.taps), np.float32, buffer.data, 0, (step, step)
        )
        done = oldest = 0
        while done < len(y):
            row = self._given % bank.period
            count = min(len(bank.rows) - row, len(y) - done)
            starts = bank.starts[row : row + count] + (oldest - bank.starts[row])
            np.einsum("ij,ij->i", windows[starts], bank.rows[row : row + count], out=y[done : done + count])
            done += count
            self._given += count
            oldest += bank.start(self._given) - bank.start(self._given - count)
        self._buffer = buffer[oldest:].copy()
        return y


class _Band:
    """Some columns of the frame matrix with the few of its rows that are not zero."""

    __slots__ = ("columns", "matrix", "rows")

    def __init__(self, rows: slice, columns: slice, matrix: Samples) -> None:
        self.rows = rows
        self.columns = columns
        self.matrix = matrix


class _FrameMatrix:
    """The fixed linear map from one frame and its history to one frame of output."""

    def __init__(self, in_rate: int, out_rate: int) -> None:
        bank = design(in_rate, out_rate)
        self.n_in = in_rate * FRAME_MS // 1000
        self.n_out = out_rate * FRAME_MS // 1000
        # The first output of a frame lies this many before the frame's own instant, so that the last one
        # has all the input it reads.
        self.delay = math.ceil(bank.offset / bank.down)
        outputs = range(-self.delay, self.n_out - self.delay)
        self.history = -bank.start(outputs[0])
        self.bands: list[_Band] = []
        for left in range(0, self.n_out, BAND):
            some = outputs[left : left + BAND]
            low = bank.start(some[0]) + self.history
            high = bank.start(some[-1]) + self.history + bank.taps
            matrix = np.zeros((high - low, len(some)), np.float32)
            for column, output in enumerate(some):
                top = bank.start(output) + self.history - low
                phase = (output * bank.down + bank.offset) % bank.up
                matrix[top : top + bank.taps, column] = bank.phases[phase]
            self.bands.append(_Band(slice(low, high), slice(left, left + len(some)), matrix))


@lru_cache(maxsize=64)
def _frame_matrix(in_rate: int, out_rate: int) -> _FrameMatrix:
    return _FrameMatrix(in_rate, out_rate)


class BatchResampler:
    """Many mono streams from ``in_rate`` to ``out_rate`` Hz, one row each, a 20 ms frame at a time.

    Row ``b`` of every result continues row ``b`` of the last. The samples are those of :class:`Resampler`
    shifted by :attr:`delay` outputs: the first frame after a reset starts with that many samples of the
    filter's run-up, and the last ``delay`` samples of a stream come with one more frame of zeros. Against
    the gather form they differ by at most one step of int16, as a matrix product adds in another order. Not
    thread-safe.

    Args:
        in_rate: Hz, one of :data:`telephony.dsp.fir.RATES`.
        out_rate: Hz, likewise.
        batch: number of streams ``B``.

    Raises:
        UnsupportedFormat: we do not resample from or to such a rate.
    """

    def __init__(self, in_rate: int, out_rate: int, batch: int) -> None:
        if batch < 1:
            raise ValueError("batch must be at least 1")
        self.in_rate = check_rate(in_rate)
        self.out_rate = check_rate(out_rate)
        self.batch = batch
        self.n_in = in_rate * FRAME_MS // 1000
        self.n_out = out_rate * FRAME_MS // 1000
        self._frame = None if in_rate == out_rate else _frame_matrix(in_rate, out_rate)
        self._history = self._frame.history if self._frame else 0
        self._buffer: Samples = np.zeros((batch, self._history + self.n_in), np.float32)

    @property
    def delay(self) -> int:
        """Output samples by which the result lags behind its frame."""
        return self._frame.delay if self._frame else 0

    @property
    def delay_s(self) -> float:
        """The same in seconds: 2.25 ms or less for every pair with 8 kHz."""
        return self.delay / self.out_rate

    def reset(self, row: int | None = None) -> None:
        """Forget the past of one row, or of all."""
        self._buffer[slice(None) if row is None else row] = 0.0

    def process(self, frames: Samples) -> Samples:
        """Take one frame a stream, float32 ``[B, n_in]``, and return a new float32 ``[B, n_out]``.

        Raises TypeError for another dtype and ValueError for another shape.
        """
        _check(frames, frames.shape == (self.batch, self.n_in), f"[{self.batch}, {self.n_in}]")
        if self._frame is None:
            return frames.copy()
        buffer = self._buffer
        buffer[:, : self._history] = buffer[:, self.n_in :]
        buffer[:, self._history :] = frames
        y = np.empty((self.batch, self.n_out), np.float32)
        for band in self._frame.bands:
            np.matmul(buffer[:, band.rows], band.matrix, out=y[:, band.columns])
        return y

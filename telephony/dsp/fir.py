"""The polyphase filter bank behind both resamplers, designed once per pair of rates.

Going from ``in_rate`` to ``out_rate`` means, in lowest terms, ``up`` phases read every ``down`` positions.
The filter is a Kaiser-windowed sinc whose transition band is centred on half the lower of the two rates:
for 8 kHz it passes 3.4 kHz (the telephone band of ITU-T G.712) and stops at 4.6 kHz, so the little that
aliases falls above 3.4 kHz, where no telephone listener has it. The wide transition is what keeps the
filter, and with it the delay, at 2.2 ms.

Window: Kaiser, "Nonrecursive digital filter design using the I0-sinh window function", ISCAS 1974: beta =
0.1102 (A - 8.7) for A > 50 dB, length = (A - 7.95) / (2.285 width) + 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tts_core.errors import UnsupportedFormat

RATES = (8000, 16000, 22050, 24000, 32000, 44100, 48000)
"""Sample rates in Hz between which we resample, in any direction."""

ATTENUATION_DB = 83.0
"""Stop-band attenuation: the most that keeps the delay to 8 kHz at 18 samples (2.25 ms) from any rate."""

PASS = 0.425
STOP = 0.575
"""Band edges as fractions of the lower rate: 3.4 and 4.6 kHz at 8 kHz."""

_TABLE_ROWS = 480


@dataclass(frozen=True, slots=True)
class Bank:
    """One filter as ``up`` phases, laid out in the order in which the outputs use them.

    Output ``n`` stands at position ``n * down + offset`` of the stream upsampled by ``up`` (``offset``
    takes out the filter's own delay); its newest input is that position divided by ``up``, its phase the
    remainder.

    Attributes:
        up: phases; ``out_rate / gcd``.
        down: positions between two outputs; ``in_rate / gcd``.
        taps: inputs that make one output.
        offset: the filter's delay in upsampled positions.
        phases: float32 ``[up, taps]``, oldest input first.
        rows: float32 ``[n, taps]``: ``phases`` in output order over whole periods of ``up`` outputs,
        read-only. starts: int64 ``[n]``: the oldest input of each row, counted from the oldest input of row
        0. period: outputs after which phases and starts repeat (``up``).
    """

    up: int
    down: int
    taps: int
    offset: int
    phases: NDArray[np.float32]
    rows: NDArray[np.float32]
    starts: NDArray[np.int64]

    @property
    def period(self) -> int:
        """Outputs after which the pattern of phases repeats."""
        return self.up

    def start(self, output: int) -> int:
        """Return the oldest input that output ``output`` reads; before the stream's begin it is negative."""
        return (output * self.down + self.offset) // self.up - (self.taps - 1)


def check_rate(rate: int) -> int:
    """Return ``rate`` if we resample from and to it.

    Raises:
        UnsupportedFormat: it is none of :data:`RATES`.
    """
    if rate not in RATES:
        raise UnsupportedFormat(
            f"sample rate must be one of {', '.join(map(str, RATES))}", field="sample_rate"
        )
    return rate


@lru_cache(maxsize=len(RATES) ** 2)
def design(in_rate: int, out_rate: int) -> Bank:
    """Return the filter bank from ``in_rate`` to ``out_rate`` (Hz); all streams of a pair share it.

    Raises:
        UnsupportedFormat: either rate is none of :data:`RATES`.
    """
    check_rate(in_rate)
    check_rate(out_rate)
    common = math.gcd(in_rate, out_rate)
    up, down = out_rate // common, in_rate // common
    low = min(in_rate, out_rate)
    upsampled = in_rate * up
    width = (STOP - PASS) * low / (upsampled / 2) * math.pi
    length = (ATTENUATION_DB - 7.95) / (2.285 * width) + 1
    taps = math.ceil(length / up)
    taps += taps % 2
    # One less than a whole number of phases: an odd length has a sample at its centre, and so an exact delay.
    offset = taps * up // 2 - 1
    where = np.arange(-offset, offset + 1, dtype=np.float64)
    cutoff = (STOP + PASS) / 2 * low / upsampled
    impulse = np.sinc(2 * cutoff * where) * np.kaiser(2 * offset + 1, 0.1102 * (ATTENUATION_DB - 8.7))
    impulse *= up / impulse.sum()
    padded = np.concatenate([impulse, np.zeros(1)])
    phases = np.ascontiguousarray(padded.reshape(taps, up).T[:, ::-1], dtype=np.float32)

    outputs = np.arange(up * (_TABLE_ROWS // up + 2), dtype=np.int64)
    positions = outputs * down + offset
    rows = np.ascontiguousarray(phases[positions % up])
    starts = positions // up - offset // up
    for array in (phases, rows, starts):
        array.flags.writeable = False
    return Bank(up, down, taps, offset, phases, rows, starts)

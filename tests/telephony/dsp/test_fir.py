from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import firwin

from telephony.dsp.fir import ATTENUATION_DB, PASS, RATES, STOP, Bank, design
from tts_core.errors import UnsupportedFormat

PAIRS = list(itertools.permutations(RATES, 2))


def impulse(bank: Bank) -> NDArray[np.float64]:
    """The filter as one sequence at the upsampled rate, from its phases."""
    return bank.phases[:, ::-1].T.ravel().astype(np.float64)


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_it_is_the_window_method_of_scipy(in_rate: int, out_rate: int) -> None:
    bank = design(in_rate, out_rate)
    upsampled = in_rate * bank.up
    cutoff = (PASS + STOP) / 2 * min(in_rate, out_rate)
    window = ("kaiser", 0.1102 * (ATTENUATION_DB - 8.7))
    theirs = firwin(2 * bank.offset + 1, cutoff, window=window, fs=upsampled) * bank.up
    np.testing.assert_allclose(impulse(bank)[:-1], theirs, atol=1e-6)


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_pass_band_is_flat_and_stop_band_is_stopped(in_rate: int, out_rate: int) -> None:
    bank = design(in_rate, out_rate)
    low, upsampled = min(in_rate, out_rate), in_rate * bank.up
    bins = 1 << math.ceil(math.log2(max(len(impulse(bank)) * 16, upsampled / 20)))
    response = np.abs(np.fft.rfft(impulse(bank), bins)) / bank.up
    hertz = np.arange(len(response)) * upsampled / bins
    gain = 20 * np.log10(np.maximum(response, 1e-12))
    assert np.abs(gain[hertz <= PASS * low]).max() <= 0.01
    assert gain[hertz >= STOP * low].max() <= -80.0


@pytest.mark.parametrize(("in_rate", "out_rate"), PAIRS)
def test_rows_repeat_the_phases_in_output_order(in_rate: int, out_rate: int) -> None:
    bank = design(in_rate, out_rate)
    assert bank.up * in_rate == bank.down * out_rate
    assert len(bank.rows) >= 480
    for n in range(len(bank.rows)):
        phase = (n * bank.down + bank.offset) % bank.up
        assert np.array_equal(bank.rows[n], bank.phases[phase])
        assert bank.starts[n] == bank.start(n) - bank.start(0)


def test_the_design_is_shared_and_cannot_be_changed() -> None:
    assert design(22050, 8000) is design(22050, 8000)
    with pytest.raises(ValueError, match="read-only"):
        design(22050, 8000).rows[0, 0] = 1.0


@pytest.mark.parametrize(("in_rate", "out_rate"), [(11025, 8000), (8000, 0), (22050, 96000)])
def test_other_rates_are_refused(in_rate: int, out_rate: int) -> None:
    with pytest.raises(UnsupportedFormat):
        design(in_rate, out_rate)

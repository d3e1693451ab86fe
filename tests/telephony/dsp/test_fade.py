from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.dsp.fade import fade_in, fade_out


@given(st.integers(0, 400), st.sampled_from([8000, 16000, 24000]), st.floats(0, 20))
def test_only_the_faded_part_changes(n: int, rate: int, ms: float) -> None:
    x = np.ones(n, np.float32)
    faded = min(n, round(rate * ms / 1000))
    up, down = fade_in(x, rate, ms), fade_out(x, rate, ms)
    assert up.dtype == np.float32
    assert len(up) == n
    assert np.array_equal(up[faded:], x[faded:])
    assert np.array_equal(down, up[::-1])
    assert np.all(np.diff(up) >= 0)
    assert np.all(x == 1.0)
    if faded > 1:
        assert up[0] < 0.5 < up[faded - 1]
        # Half a raised cosine is point-symmetrical about its middle.
        np.testing.assert_allclose(up[:faded] + up[:faded][::-1], 1.0, atol=1e-6)


@pytest.mark.parametrize(("ms", "ceiling"), [(2, -50.0), (5, -65.0), (10, -75.0)])
def test_a_cut_tone_does_not_click(ms: float, ceiling: float) -> None:
    """Cut a 300 Hz tone at its peak: the share of its energy above 1 kHz."""
    rate = 8000
    tone = np.sin(2 * np.pi * 300 * np.arange(1607) / rate).astype(np.float32)
    assert abs(tone[-1]) > 0.9

    def splash(x: np.ndarray) -> float:
        start = np.hanning(1600)[:800]
        whole = np.zeros(8192)
        whole[: len(x)] = x
        whole[:800] *= start
        power = np.abs(np.fft.rfft(whole)) ** 2
        above = np.arange(len(power)) * rate / 8192 > 1000
        return float(10 * np.log10(power[above].sum() / power.sum()))

    assert splash(tone) > -35.0
    assert splash(fade_out(tone, rate, ms)) < ceiling

"""The front end; its numbers are compared with librosa's in test_speaker."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.trust.mel import BANDS, HOP, RATE, filters, mel


def test_triangles_cover_the_band_without_gaps() -> None:
    made = filters()
    assert made.shape == (BANDS, 201)
    assert (made >= 0).all()
    assert (made.max(axis=1) > 0).all()
    peaks = made.argmax(axis=1) * RATE / 400
    assert (np.diff(peaks) >= 0).all()
    assert made[:, 0].max() == 0 and peaks[-1] > 7000
    # Linear below 1 kHz: equal widths, hence equal heights; falling above.
    assert np.ptp(2 / (np.diff(peaks[:8])[:1] * 1.0)) == 0


@pytest.mark.parametrize("hertz", [300, 1000, 2500, 6000])
def test_a_tone_lies_in_its_band(hertz: int) -> None:
    t = np.arange(RATE) / RATE
    bands = mel(np.sin(2 * np.pi * hertz * t).astype(np.float32))
    strongest = bands[50].argmax()
    assert filters()[strongest, round(hertz * 400 / RATE)] > 0
    quiet = mel((0.1 * np.sin(2 * np.pi * hertz * t)).astype(np.float32))
    np.testing.assert_allclose(quiet[50] * 100, bands[50], rtol=1e-3, atol=1e-4 * bands[50].max())


@given(st.integers(0, 5000), st.integers(0, 99))
def test_a_frame_every_ten_milliseconds(samples: int, seed: int) -> None:
    pcm = np.random.default_rng(seed).standard_normal(samples).astype(np.float32)
    bands = mel(pcm)
    assert bands.shape == (samples // HOP + 1, BANDS)
    assert bands.dtype == np.float32
    assert np.isfinite(bands).all() and (bands >= 0).all()

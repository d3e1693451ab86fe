from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tts_core.embedded.gain import CEILING, KNEE, make_up

samples = hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(-50, 50, width=32))


@given(samples)
def test_nothing_reaches_full_scale(pcm: np.ndarray) -> None:
    assert np.all(np.abs(make_up(pcm)) <= CEILING)


@given(samples)
def test_quiet_samples_are_only_scaled_and_order_is_kept(pcm: np.ndarray) -> None:
    out = make_up(pcm, 1.7)
    quiet = np.abs(pcm * np.float32(1.7)) <= KNEE
    np.testing.assert_array_equal(out[quiet], (pcm * np.float32(1.7))[quiet])
    order = np.argsort(pcm, kind="stable")
    assert np.all(np.diff(out[order]) >= 0)


@given(samples, st.integers(0, 50))
def test_chunks_are_limited_as_the_whole(pcm: np.ndarray, cut: int) -> None:
    parts = np.concatenate([make_up(pcm[:cut]), make_up(pcm[cut:])])
    np.testing.assert_array_equal(parts, make_up(pcm))


def test_the_slope_is_continuous_at_the_knee() -> None:
    x = np.linspace(0.6, 0.8, 2001, dtype=np.float32)
    slope = np.diff(make_up(x, 1.0)) / np.diff(x)
    assert np.max(np.abs(np.diff(slope))) < 0.02


def test_broken_samples_become_silence() -> None:
    out = make_up(np.array([np.nan, np.inf, -np.inf, 0.25], np.float32), 1.0)
    np.testing.assert_array_equal(out, np.array([0, 0, 0, 0.25], np.float32))

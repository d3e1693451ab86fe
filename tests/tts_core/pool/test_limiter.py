from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tts_core.pool.limiter import CEILING, KNEE, limit

SAMPLES = hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(-50, 50, width=32))
GAINS = st.floats(0.5, 4.0, width=32)


@given(SAMPLES, GAINS)
def test_quiet_is_scaled_loud_is_bent_and_order_kept(pcm: np.ndarray, gain: float) -> None:
    out = limit(pcm, gain)
    scaled = pcm * np.float32(gain)
    assert np.all(np.abs(out) <= CEILING)
    quiet = np.abs(scaled) <= KNEE
    np.testing.assert_array_equal(out[quiet], scaled[quiet])
    assert np.all(np.diff(out[np.argsort(pcm, kind="stable")]) >= 0)


@given(SAMPLES, st.integers(0, 50))
def test_any_cutting_gives_the_same(pcm: np.ndarray, at: int) -> None:
    parts = np.concatenate([limit(pcm[:at], 1.5), limit(pcm[at:], 1.5)])
    np.testing.assert_array_equal(parts, limit(pcm, 1.5))


def test_what_is_no_number_is_silence() -> None:
    pcm = np.array([np.nan, np.inf, -np.inf, 0.5], np.float32)
    np.testing.assert_array_equal(limit(pcm, 1.0), np.array([0, 0, 0, 0.5], np.float32))

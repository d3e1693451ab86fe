from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telephony.dsp.level import leading_silence, peak_dbfs, rms_dbfs


def test_full_scale() -> None:
    square = np.where(np.arange(800) % 8 < 4, 1, -1).astype(np.float32)
    sine = np.sin(2 * np.pi * np.arange(800) / 8 + 0.0).astype(np.float32)
    assert rms_dbfs(square) == pytest.approx(0.0)
    assert rms_dbfs(sine) == pytest.approx(-3.0103, abs=1e-3)
    assert peak_dbfs(sine) == pytest.approx(0.0, abs=1e-3)
    assert peak_dbfs(-sine * np.float32(0.5)) == pytest.approx(-6.0206, abs=1e-3)


@pytest.mark.parametrize("n", [0, 160])
def test_silence_has_no_level(n: int) -> None:
    assert rms_dbfs(np.zeros(n, np.float32)) == -math.inf
    assert peak_dbfs(np.zeros(n, np.float32)) == -math.inf


@given(st.integers(0, 2000), st.integers(0, 200), st.sampled_from([8000, 24000]))
def test_leading_silence_is_counted_to_the_sample(quiet: int, loud: int, rate: int) -> None:
    x = np.concatenate([np.full(quiet, 0.003, np.float32), np.full(loud, -0.0032, np.float32)])
    assert leading_silence(x, rate) == quiet / rate
    assert leading_silence(x, rate, threshold_db=-60) == 0.0
    assert leading_silence(x, rate, threshold_db=-40) == (quiet + loud) / rate

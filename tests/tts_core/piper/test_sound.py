from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.piper.sound import SILENT, resampled, sounding


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 3000), st.sampled_from([16000, 22050]))
def test_sound_is_found_to_five_milliseconds(before: int, sound: int, after: int, rate: int) -> None:
    pcm = np.concatenate([np.zeros(before), np.full(sound, 0.5), np.full(after, SILENT / 2)]).astype(
        np.float32
    )
    start, end = sounding(pcm, rate)
    if not sound:
        assert (start, end) == (0, 0)
        return
    step = round(rate * 0.005)
    assert before - step < start <= before
    assert before + sound <= end <= min(len(pcm), before + sound + step)


@given(st.integers(0, 4000), st.sampled_from([(16000, 22050), (22050, 24000), (8000, 48000), (16000, 16000)]))
def test_the_length_is_that_of_the_same_time(samples: int, rates: tuple[int, int]) -> None:
    rate, wanted = rates
    out = resampled(np.zeros(samples, np.float32), rate, wanted)
    assert len(out) == round(samples * wanted / rate)
    assert out.dtype == np.float32


@pytest.mark.parametrize(("rate", "wanted"), [(16000, 22050), (22050, 24000)])
def test_a_tone_stays_what_it_was(rate: int, wanted: int) -> None:
    """Error at least 60 dB under the tone, away from the ends, for all that speech has."""
    shape = np.hanning(rate)
    for hertz in (100, 1000, 3000, 0.45 * rate):
        here = (shape * np.sin(2 * np.pi * hertz * np.arange(rate) / rate)).astype(np.float32)
        times = np.arange(wanted) / wanted
        there = np.interp(times, np.arange(rate) / rate, shape) * np.sin(2 * np.pi * hertz * times)
        error = resampled(here, rate, wanted) - there
        assert np.sqrt((error**2).mean() / (there**2).mean()) < 1e-3

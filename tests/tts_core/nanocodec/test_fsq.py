"""Folding and unfolding of codes, and the values they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tts_core.errors import EngineError
from tts_core.nanocodec import fsq

frames = st.lists(st.tuples(*(st.integers(0, n - 1) for n in fsq.LEVELS)), max_size=6)
tokens = st.lists(st.tuples(*[st.integers(0, fsq.GROUP_SIZE - 1)] * fsq.GROUPS), max_size=6)


def array(rows: list[tuple[int, ...]], width: int) -> NDArray[Any]:
    return np.array(rows, np.int64).reshape(-1, width)


def test_the_constants_fit_together() -> None:
    assert len(fsq.LEVELS) == fsq.CHANNELS == 32
    assert np.prod(fsq.GROUP_LEVELS) == fsq.GROUP_SIZE == 2016
    # 1.89 kbps is what the codec is sold as.
    bitrate = fsq.GROUPS * np.log2(fsq.GROUP_SIZE) * fsq.SAMPLE_RATE / fsq.SAMPLES_PER_FRAME
    assert round(bitrate / 1000, 2) == 1.89


@given(frames)
def test_unfold_undoes_fold(rows: list[tuple[int, ...]]) -> None:
    codes = array(rows, 32)
    folded = fsq.fold(codes)
    assert folded.dtype == np.int32
    assert folded.shape == (len(rows), 8)
    assert np.array_equal(fsq.unfold(folded), codes)


@given(tokens)
def test_fold_undoes_unfold(rows: list[tuple[int, ...]]) -> None:
    given_tokens = array(rows, 8)
    codes = fsq.unfold(given_tokens)
    assert codes.dtype == np.uint8
    assert np.array_equal(fsq.fold(codes), given_tokens)


@given(frames)
def test_values_are_spread_around_zero(rows: list[tuple[int, ...]]) -> None:
    codes = array(rows, 32)
    values = fsq.dequantise(codes)
    assert values.dtype == np.float32
    for channel, levels in enumerate(fsq.LEVELS):
        expected = [np.float32(code - levels // 2) / np.float32(levels // 2) for code in codes[:, channel]]
        assert np.array_equal(values[:, channel], np.array(expected, np.float32))


def test_the_first_dimension_changes_fastest() -> None:
    assert fsq.unfold([1, 8, 56, 336, 0, 0, 0, 2015]).tolist() == [
        *(1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1),
        *(0,) * 12,
        *(7, 6, 5, 5),
    ]


def test_extreme_values() -> None:
    low, high = np.zeros(32, np.uint8), np.array(fsq.LEVELS, np.uint8) - 1
    assert (fsq.dequantise(low) == -1).all()
    assert fsq.dequantise(high)[:4] == pytest.approx([3 / 4, 1, 2 / 3, 2 / 3])


def test_leading_axes_are_kept() -> None:
    codes = np.zeros((2, 3, 32), np.uint8)
    assert fsq.fold(codes).shape == (2, 3, 8)
    assert fsq.unfold(fsq.fold(codes)).shape == (2, 3, 32)
    assert fsq.dequantise(codes).shape == (2, 3, 32)


@pytest.mark.parametrize("channel", range(32))
def test_codes_beyond_their_levels_are_refused(channel: int) -> None:
    for code in (fsq.LEVELS[channel], 255, -1):
        codes = np.zeros((2, 32), np.int64)
        codes[1, channel] = code
        for use in (fsq.check, fsq.fold, fsq.dequantise):
            with pytest.raises(EngineError):
                use(codes)


@pytest.mark.parametrize("bad", [np.zeros((1, 31), np.uint8), np.zeros((1, 32), np.float32), np.uint8(0)])
def test_what_is_no_code_is_refused(bad: NDArray[Any]) -> None:
    with pytest.raises(EngineError):
        fsq.fold(bad)


@pytest.mark.parametrize(
    "bad", [np.zeros(7, np.int32), np.full(8, 2016), np.full(8, -1), np.zeros(8, np.float64)]
)
def test_what_is_no_token_is_refused(bad: NDArray[Any]) -> None:
    with pytest.raises(EngineError):
        fsq.unfold(bad)

"""The encoder: digits equal to the plain network's and to NeMo's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tts_core.nanocodec import plain
from tests.tts_core.nanocodec.cases import Codec
from tests.tts_core.nanocodec.oracle import Oracle
from tts_core.errors import BadRequest
from tts_core.nanocodec.archive import read_members
from tts_core.nanocodec.convert import load_checkpoint
from tts_core.nanocodec.encoder import Encoder
from tts_core.nanocodec.fsq import LEVELS, fold, unfold


def test_digits_are_those_of_the_plain_network(encoder: Encoder, codec: Codec, clip: Any) -> None:
    padded = np.pad(clip, (0, -len(clip) % 1024))
    with torch.inference_mode():
        expected = plain.quantise(plain.embed(load_checkpoint(read_members(codec.nemo)[1]), padded))
    codes = encoder.encode(clip)
    assert codes.dtype == np.uint8
    assert np.array_equal(codes, expected)


def test_tokens_are_nemos(encoder: Encoder, oracle: Oracle, clip: Any) -> None:
    codes = encoder.encode(clip)
    assert np.array_equal(fold(codes).T, oracle.tokens_of_clip)
    assert np.array_equal(codes, unfold(oracle.tokens_of_clip.T))


def test_the_tiny_codec_uses_every_level(encoder: Encoder) -> None:
    """Else digits that are equal would say little."""
    noise = (np.random.default_rng(2).standard_normal(200 * 1024) / 5).astype(np.float32)
    codes = encoder.encode(noise)
    assert [len(np.unique(codes[:, channel])) for channel in range(32)] == list(LEVELS)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 5000))
def test_a_clip_is_padded_with_zeros_to_whole_frames(encoder: Encoder, count: int) -> None:
    clip = (np.random.default_rng(count).standard_normal(count) / 5).astype(np.float32)
    codes = encoder.encode(clip)
    assert codes.shape == (-(-count // 1024), 32)
    assert np.array_equal(codes, encoder.encode(np.pad(clip, (0, -count % 1024))))


def test_every_digit_is_reached_and_none_beyond(encoder: Encoder) -> None:
    extremes = torch.stack([torch.full((32,), -50.0), torch.zeros(32), torch.full((32,), 50.0)], dim=1)
    codes = encoder.quantise(extremes)
    assert codes[0].tolist() == [0] * 32
    assert codes[2].tolist() == [levels - 1 for levels in LEVELS]
    assert np.array_equal(codes, plain.quantise(extremes))


@pytest.mark.parametrize("bad", [np.zeros(0, np.float32), np.full(10, np.inf, np.float32)])
def test_what_is_no_clip_is_refused(encoder: Encoder, bad: Any) -> None:
    with pytest.raises(BadRequest):
        encoder.encode(bad)

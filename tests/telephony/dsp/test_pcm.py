from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from telephony.dsp.pcm import (
    SAMPLE_BYTES,
    decode,
    encode,
    float_to_int16,
    int16_to_float,
    sample_bytes,
    silence,
)
from tts_core.errors import BadRequest, UnsupportedFormat

ALL_SAMPLES = np.arange(-32768, 32768).astype(np.int16)


def test_int16_survives_float() -> None:
    x = int16_to_float(ALL_SAMPLES)
    assert x.dtype == np.float32
    assert x.min() == -1.0
    assert x.max() < 1.0
    assert np.array_equal(float_to_int16(x), ALL_SAMPLES)


@given(npst.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
def test_any_float_is_rounded_and_clipped(x: np.ndarray) -> None:
    before = x.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = float_to_int16(x)
    assert np.array_equal(x, before, equal_nan=True)
    for value, got in zip(x.tolist(), y.tolist(), strict=True):
        wanted = 0 if value != value else round(min(max(value * 32768, -32768), 32767))
        assert got == wanted


def test_overshoot_is_clipped_not_wrapped() -> None:
    x = np.array([1.0, 1.22, -1.22, np.inf, -np.inf, np.nan], np.float32)
    assert float_to_int16(x).tolist() == [32767, 32767, -32768, 32767, -32768, 0]


def test_bytes_of_known_samples() -> None:
    x = np.array([0.0, 0.5, -1.0], np.float32)
    assert encode(x, "pcm_s16le") == bytes.fromhex("0000 0040 0080")
    assert encode(x, "pcm_f32le") == bytes.fromhex("00000000 0000003f 000080bf")
    assert encode(x, "mulaw") == bytes.fromhex("ff 8f 00")
    assert encode(x, "alaw") == bytes.fromhex("d5 a5 2a")


@given(st.binary(max_size=200), st.sampled_from(sorted(SAMPLE_BYTES)))
def test_bytes_survive_a_round_trip(data: bytes, encoding: str) -> None:
    size = sample_bytes(encoding)
    data = data[: len(data) // size * size]
    if encoding == "pcm_f32le":
        # A signalling NaN may come back quiet: not a value that audio has.
        data = np.nan_to_num(np.frombuffer(data, "<f4")).astype("<f4").tobytes()
    x = decode(data, encoding)
    assert x.dtype == np.float32
    assert len(x) == len(data) // size
    again = encode(x, encoding)
    assert again == (data.replace(b"\x7f", b"\xff") if encoding == "mulaw" else data)


@pytest.mark.parametrize("encoding", SAMPLE_BYTES)
def test_bytes_like_objects_are_taken(encoding: str) -> None:
    data = encode(np.linspace(-0.9, 0.9, 40, dtype=np.float32), encoding)
    for view in (bytearray(data), memoryview(data)):
        assert np.array_equal(decode(view, encoding), decode(data, encoding))


@pytest.mark.parametrize("encoding", SAMPLE_BYTES)
def test_decoded_samples_can_be_written(encoding: str) -> None:
    """They are the caller's own, not a window on the message."""
    x = decode(encode(np.ones(4, np.float32), encoding), encoding)
    x[0] = 0.0


@pytest.mark.parametrize("encoding", SAMPLE_BYTES)
def test_silence_is_the_code_of_zero(encoding: str) -> None:
    assert silence(encoding, 160) == encode(np.zeros(160, np.float32), encoding)
    assert silence(encoding, 0) == b""


def test_alaw_and_mulaw_are_not_swapped() -> None:
    """A swapped law is intelligible and so escapes an ear; it does not escape the level."""
    x = np.sin(np.arange(800) / 5).astype(np.float32) * np.float32(0.1)
    for law, other in (("mulaw", "alaw"), ("alaw", "mulaw")):
        right = np.mean((decode(encode(x, law), law) - x) ** 2)
        wrong = np.mean((decode(encode(x, law), other) - x) ** 2)
        assert right < 1e-3 * np.mean(x**2)
        assert wrong > 0.1 * np.mean(x**2)


def test_refusals() -> None:
    for refused in ("ulaw", "pcm", ""):
        with pytest.raises(UnsupportedFormat):
            encode(np.zeros(1, np.float32), refused)
        with pytest.raises(UnsupportedFormat):
            decode(b"", refused)
        with pytest.raises(UnsupportedFormat):
            silence(refused, 1)
    with pytest.raises(BadRequest):
        decode(b"abc", "pcm_s16le")
    with pytest.raises(TypeError):
        int16_to_float(np.zeros(1, np.int32))

"""The reference here is the ITU-T's procedure (G.191, module g711) written out, sample by sample."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from telephony.dsp.g711 import (
    ALAW_SILENCE,
    MULAW_SILENCE,
    alaw_decode,
    alaw_encode,
    mulaw_decode,
    mulaw_encode,
)

Decoder = Callable[[NDArray[np.uint8]], NDArray[np.int16]]

ALL_SAMPLES = np.arange(-32768, 32768).astype(np.int16)
ALL_CODES = np.arange(256).astype(np.uint8)


def ulaw_compress(sample: int) -> int:
    absolute = ((~sample if sample < 0 else sample) >> 2) + 33
    absolute = min(absolute, 0x1FFF)
    segment, rest = 1, absolute >> 6
    while rest:
        segment += 1
        rest >>= 1
    high = 8 - segment
    low = 15 - ((absolute >> segment) & 15)
    code = (high << 4) | low
    return code | 0x80 if sample >= 0 else code


def ulaw_expand(code: int) -> int:
    sign = -1 if code < 0x80 else 1
    inverted = ~code
    exponent = (inverted >> 4) & 7
    mantissa = inverted & 15
    step = 4 << (exponent + 1)
    return sign * ((0x80 << exponent) + step * mantissa + step // 2 - 4 * 33)


def alaw_compress(sample: int) -> int:
    value = (~sample if sample < 0 else sample) >> 4
    if value > 15:
        exponent = 1
        while value > 16 + 15:
            value >>= 1
            exponent += 1
        value -= 16
        value += exponent << 4
    if sample >= 0:
        value |= 0x80
    return value ^ 0x55


def alaw_expand(code: int) -> int:
    inverted = code ^ 0x55
    value = inverted & 0x7F
    exponent = value >> 4
    mantissa = value & 15
    if exponent > 0:
        mantissa += 16
    mantissa = (mantissa << 4) + 8
    if exponent > 1:
        mantissa <<= exponent - 1
    return mantissa if inverted > 127 else -mantissa


def test_mulaw_encodes_every_sample_as_the_reference() -> None:
    reference = np.array([ulaw_compress(int(s)) for s in ALL_SAMPLES])
    assert np.count_nonzero(mulaw_encode(ALL_SAMPLES) != reference) == 0


def test_alaw_encodes_every_sample_as_the_reference() -> None:
    reference = np.array([alaw_compress(int(s)) for s in ALL_SAMPLES])
    assert np.count_nonzero(alaw_encode(ALL_SAMPLES) != reference) == 0


def test_every_code_decodes_as_the_reference() -> None:
    assert mulaw_decode(ALL_CODES).tolist() == [ulaw_expand(c) for c in range(256)]
    assert alaw_decode(ALL_CODES).tolist() == [alaw_expand(c) for c in range(256)]


@pytest.mark.parametrize(
    ("sample", "mulaw", "alaw"),
    [(-32768, 0x00, 0x2A), (-1, 0x7F, 0x55), (0, MULAW_SILENCE, ALAW_SILENCE), (32767, 0x80, 0xAA)],
)
def test_edge_codes(sample: int, mulaw: int, alaw: int) -> None:
    """Where encoders differ: published values for the convention we follow."""
    x = np.array([sample], np.int16)
    assert mulaw_encode(x)[0] == mulaw
    assert alaw_encode(x)[0] == alaw


def test_every_code_survives_a_round_trip() -> None:
    """mu-law has two zeros: 0x7F comes back as 0xFF, its equal."""
    again = mulaw_encode(mulaw_decode(ALL_CODES))
    assert np.array_equal(np.delete(again, 0x7F), np.delete(ALL_CODES, 0x7F))
    assert again[0x7F] == 0xFF
    assert np.array_equal(alaw_encode(alaw_decode(ALL_CODES)), ALL_CODES)


@pytest.mark.parametrize(("name", "decode"), [("mulaw", mulaw_decode), ("alaw", alaw_decode)])
def test_ffmpeg_decodes_every_code_to_our_samples(name: str, decode: Decoder) -> None:
    command = ["ffmpeg", "-v", "error", "-f", name, "-ar", "8000", "-ac", "1", "-i", "-", "-f", "s16le", "-"]
    theirs = subprocess.run(command, input=ALL_CODES.tobytes(), capture_output=True, check=True, timeout=30)
    assert np.array_equal(np.frombuffer(theirs.stdout, "<i2"), decode(ALL_CODES))


def test_ffmpeg_hears_our_speech_bytes_as_we_do() -> None:
    """Our encoder's own bytes, not only the list of codes."""
    x = (np.random.default_rng(0).standard_normal(8000) * 4000).astype(np.int16)
    data = mulaw_encode(x)
    command = [
        "ffmpeg",
        "-v",
        "error",
        "-f",
        "mulaw",
        "-ar",
        "8000",
        "-ac",
        "1",
        "-i",
        "-",
        "-f",
        "s16le",
        "-",
    ]
    theirs = subprocess.run(command, input=data.tobytes(), capture_output=True, check=True, timeout=30)
    heard = np.frombuffer(theirs.stdout, "<i2")
    assert np.array_equal(heard, mulaw_decode(data))
    noise = heard.astype(np.float64) - x
    assert 10 * np.log10(np.mean(x.astype(np.float64) ** 2) / np.mean(noise**2)) > 35


def test_shape_is_kept_and_dtype_is_checked() -> None:
    frames = ALL_SAMPLES.reshape(256, 256)
    assert np.array_equal(mulaw_encode(frames).ravel(), mulaw_encode(ALL_SAMPLES))
    assert np.array_equal(mulaw_encode(frames[:, ::2]), mulaw_encode(frames)[:, ::2])
    cases: list[tuple[Callable[[NDArray[Any]], NDArray[Any]], NDArray[Any]]] = [
        (mulaw_encode, ALL_CODES),
        (alaw_encode, ALL_SAMPLES.astype(np.float32)),
        (mulaw_decode, ALL_SAMPLES),
        (alaw_decode, ALL_SAMPLES),
    ]
    for function, wrong in cases:
        with pytest.raises(TypeError):
            function(wrong)

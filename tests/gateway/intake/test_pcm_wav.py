from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.pcm_wav import read_wave
from gateway.intake.refusal import ReferenceRefused
from gateway.intake.sniff import wave
from tests.gateway.intake.media import Samples, ffmpeg, header, voice_like, wav

MOST = 60 * 22_050


def read(data: bytes | bytearray, most: int = MOST) -> Samples:
    view = memoryview(data)
    return read_wave(view, wave(view), most)


@pytest.mark.parametrize(
    ("codec", "steps"),
    [
        ("pcm_u8", 128),
        ("pcm_s16le", 2**15),
        ("pcm_s24le", 2**20),
        ("pcm_s32le", 2**20),
        ("pcm_f32le", 2**20),
        ("pcm_f64le", 2**20),
    ],
)
def test_reads_what_ffmpeg_writes(codec: str, steps: int) -> None:
    pcm = voice_like(1.0)
    found = read(ffmpeg(wav(pcm, 22_050), "-c:a", codec, "-f", "wav"))
    assert len(found) == len(pcm)
    assert np.abs(found - pcm).max() <= 1.5 / steps + 1.5 / 2**15


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 44_100, 48_000])
def test_resamples(rate: int) -> None:
    found = read(wav(voice_like(2.5, rate), rate))
    assert abs(len(found) - int(2.5 * 22_050)) <= 1
    assert np.abs(found[2000:-2000]).max() == pytest.approx(0.4, abs=0.05)


def test_mixes_channels_by_their_mean() -> None:
    pcm = np.zeros((22_050, 2), np.float32)
    pcm[:, 0] = 0.5
    found = read(wav(pcm.reshape(-1), 22_050, 2))
    assert found == pytest.approx(0.25, abs=1e-4)


def test_refuses_what_it_cannot_read() -> None:
    for data, reason in (
        (header(tag=7, bits=8, data=100) + bytes(100), "unsupported"),
        (header(rate=11_025, data=100) + bytes(100), "rate"),
        (header(rate=8000, data=2000) + bytes(2000), "too_long"),
    ):
        with pytest.raises(ReferenceRefused) as caught:
            read(data, most=1000)
        assert caught.value.reason == reason


@given(
    st.sampled_from([(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)]),
    st.integers(1, 8),
    st.sampled_from([8000, 22_050, 48_000]),
    st.binary(min_size=64, max_size=2000),
)
def test_reads_any_bytes_as_samples(form: tuple[int, int], channels: int, rate: int, body: bytes) -> None:
    data = header(tag=form[0], bits=form[1], channels=channels, rate=rate, data=len(body)) + body
    found = read(data)
    frames = len(body) // (channels * form[1] // 8)
    assert found.dtype == np.float32
    assert abs(len(found) - frames * 22_050 / rate) <= 1

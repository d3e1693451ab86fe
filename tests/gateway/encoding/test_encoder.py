"""The containers without a codec: the samples as they are, and WAV with one header."""

from __future__ import annotations

import io
import wave

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.encoding.encoder import RawEncoder, WavEncoder
from gateway.wav import header
from sessions.events import AudioFormat, Encoding

PCM = AudioFormat(Encoding.PCM_S16LE, 22050)


@given(st.lists(st.binary(max_size=64).map(lambda b: b[: len(b) // 2 * 2])))
def test_raw_stays_raw_and_a_wav_has_one_header_r31(pieces: list[bytes]) -> None:
    raw, wav = RawEncoder(PCM), WavEncoder(PCM)
    sound = b"".join(pieces)
    assert b"".join(map(raw.feed, pieces)) + raw.finish() == sound
    assert b"".join(map(wav.feed, pieces)) + wav.finish() == header(PCM) + sound
    assert wav.finish() == b""


def test_a_streamed_wav_can_be_read() -> None:
    encoder = WavEncoder(PCM)
    body = encoder.feed(bytes(200)) + encoder.finish()
    with wave.open(io.BytesIO(body)) as file:
        assert (file.getframerate(), file.getnchannels(), file.readframes(100)) == (22050, 1, bytes(200))


@pytest.mark.parametrize(
    ("encoding", "kind"),
    [
        (Encoding.PCM_S16LE, "audio/pcm;rate=8000"),
        (Encoding.PCM_F32LE, "audio/pcm;rate=8000"),
        (Encoding.MULAW, "audio/basic"),
        (Encoding.ALAW, "audio/x-alaw-basic"),
    ],
)
def test_media_types(encoding: Encoding, kind: str) -> None:
    assert RawEncoder(AudioFormat(encoding, 8000)).content_type == kind
    assert not RawEncoder(AudioFormat(encoding, 8000)).compressed

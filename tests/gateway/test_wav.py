from __future__ import annotations

import io
import json
import struct
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wav import UNKNOWN, WavFile, header
from sessions.events import RATES, AudioFormat, Encoding
from tts_core.errors import BadRequest

TAGS = {Encoding.PCM_S16LE: 1, Encoding.PCM_F32LE: 3, Encoding.ALAW: 6, Encoding.MULAW: 7}
CODECS = {
    Encoding.PCM_S16LE: "pcm_s16le",
    Encoding.PCM_F32LE: "pcm_f32le",
    Encoding.ALAW: "pcm_alaw",
    Encoding.MULAW: "pcm_mulaw",
}
formats = st.builds(AudioFormat, st.sampled_from(Encoding), st.sampled_from(RATES))


def chunks(data: bytes) -> dict[bytes, bytes]:
    """The chunks of a WAV, strictly: sizes must add up and odd chunks be padded."""
    assert data[:4] == b"RIFF"
    assert data[8:12] == b"WAVE"
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8
    found, at = {}, 12
    while at < len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        found[name] = data[at + 8 : at + 8 + size]
        assert len(found[name]) == size
        at += 8 + size + size % 2
    assert at == len(data)
    return found


@given(formats, st.lists(st.integers(0, 700), max_size=5))
def test_a_finished_file_is_right_in_every_field(audio: AudioFormat, pieces: list[int]) -> None:
    file = io.BytesIO()
    wav = WavFile(file, audio)
    for count in pieces:
        wav.write(bytes(count * audio.width))
    assert wav.finish() == sum(pieces)
    parts = chunks(file.getvalue())
    tag, channels, rate, per_second, block, bits = struct.unpack_from("<HHIIHH", parts[b"fmt "])
    assert (tag, channels, rate, block, bits) == (
        TAGS[audio.encoding],
        1,
        audio.rate,
        audio.width,
        8 * audio.width,
    )
    assert per_second == audio.rate * audio.width
    assert len(parts[b"data"]) == sum(pieces) * audio.width
    assert list(parts)[-1] == b"data"
    if tag == 1:
        assert b"fact" not in parts
    else:
        assert struct.unpack("<I", parts[b"fact"])[0] == sum(pieces)
        assert parts[b"fmt "][16:] == b"\0\0"


@given(formats)
def test_a_stream_header_has_the_same_length_and_open_sizes(audio: AudioFormat) -> None:
    stream = header(audio)
    assert len(stream) == len(header(audio, 5))
    assert struct.unpack_from("<I", stream, 4)[0] == UNKNOWN
    assert struct.unpack("<4sI", stream[-8:]) == (b"data", UNKNOWN)


def test_too_long_is_refused() -> None:
    with pytest.raises(BadRequest):
        header(AudioFormat(Encoding.PCM_F32LE, 48000), 1 << 30)


def test_the_standard_library_reads_it_back(tmp_path: Path) -> None:
    samples = np.arange(-500, 500, dtype="<i2")
    place = tmp_path / "a.wav"
    with place.open("wb") as file:
        wav = WavFile(file, AudioFormat(Encoding.PCM_S16LE, 22050))
        wav.write(samples.tobytes())
        wav.finish()
    with wave.open(str(place)) as read:
        assert (read.getframerate(), read.getnchannels(), read.getnframes()) == (22050, 1, 1000)
        assert read.readframes(1000) == samples.tobytes()


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize("finished", [True, False])
def test_ffmpeg_knows_what_it_is(tmp_path: Path, encoding: Encoding, finished: bool) -> None:
    audio = AudioFormat(encoding, 8000)
    place = tmp_path / "a.wav"
    with place.open("wb") as file:
        wav = WavFile(file, audio)
        wav.write(bytes(801 * audio.width))
        if finished:
            wav.finish()
    shown = subprocess.run(
        ["ffprobe", "-v", "error", "-count_packets", "-show_streams", "-of", "json", str(place)],
        check=True, capture_output=True,
    )  # fmt: skip
    assert shown.stderr == b""
    (stream,) = json.loads(shown.stdout)["streams"]
    assert (stream["codec_name"], stream["sample_rate"], stream["channels"]) == (CODECS[encoding], "8000", 1)
    decoded = subprocess.run(
        ["ffmpeg", "-v", "error", "-i", str(place), "-f", "s16le", "-"], check=True, capture_output=True
    ).stdout
    assert len(decoded) == 801 * 2

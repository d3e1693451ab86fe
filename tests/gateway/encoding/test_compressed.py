"""Compressed streams, decoded by FFmpeg's own decoders: right rate, right sound, from the first sample."""

from __future__ import annotations

import gc
import io

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.encoding.compressed import MP3_DELAY, CompressedEncoder
from gateway.encoding.info_frame import VERSIONS, frame_samples, info_frame
from sessions.events import RATES, AudioFormat, Encoding
from tts_core.errors import UnsupportedFormat

OPUS_RATES = (8000, 16000, 24000, 48000)
KINDS = [
    (container, rate)
    for container in ("mp3", "opus", "aac", "flac")
    for rate in sorted(RATES)
    if container != "opus" or rate in OPUS_RATES
]


def sweep(rate: int, seconds: float = 1.0) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    at = np.arange(int(rate * seconds)) / rate
    turn = 2 * np.pi * (120 + 40 * at) * at
    voice = sum(
        np.sin(k * turn) / k for k in range(1, 12)
    )  # a vowel that glides: speech codecs expect a voice
    return (6000 * np.asarray(voice)).astype(np.int16)


def encoded(container: str, rate: int, pieces: list[bytes]) -> bytes:
    encoder = CompressedEncoder(container, AudioFormat(Encoding.PCM_S16LE, rate))
    return b"".join(map(encoder.feed, pieces)) + encoder.finish()


def decoded(body: bytes) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], int]:
    """Samples and rate."""
    sound = []
    with av.open(io.BytesIO(body), "r") as file:
        for frame in file.decode(audio=0):
            samples = frame.to_ndarray().astype(np.float64)
            sound.append(samples[0] * (1.0 if frame.format.name.startswith("s16") else 32768.0))
        rate = int(frame.sample_rate)
    return np.concatenate(sound), rate


def lag(
    made: np.ndarray[tuple[int], np.dtype[np.float64]], sound: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> int:
    """Samples by which ``made`` is late."""
    first, length = len(sound) // 8, len(sound) // 4
    match = np.correlate(made[: first + length + 6000], sound[first : first + length], "valid")
    return int(np.argmax(match)) - first


@pytest.mark.parametrize(("container", "rate"), KINDS)
def test_what_is_decoded_is_what_was_fed(container: str, rate: int) -> None:
    sound = sweep(rate)
    body = encoded(
        container, rate, [sound[at : at + rate // 50].tobytes() for at in range(0, rate, rate // 50)]
    )
    made, got = decoded(body)
    assert got == (48000 if container == "opus" else rate)  # Opus is always decoded at 48 kHz
    want = sound.astype(np.float64)
    if got != rate:
        want = np.interp(np.arange(got) / got, np.arange(rate) / rate, want)
    late = lag(made, want)
    # MP3 and Opus tell their delay, FLAC has none; ADTS has no place for it: 1024 samples.
    assert abs(late - (1024 if container == "aac" else 0)) <= (160 if container == "opus" else 4)
    made = made[max(late, 0) :][: len(want)]
    middle = slice(len(want) // 4, len(want) // 2)
    if container == "opus":  # keeps the sound, not the wave
        peaks = [
            int(np.argmax(np.abs(np.fft.rfft(part[middle] * np.hanning(len(part[middle]))))))
            for part in (made, want)
        ]
        assert abs(peaks[0] - peaks[1]) <= 0.05 * peaks[1]
        loud = [float(np.sqrt(np.mean(part[middle] ** 2))) for part in (made, want)]
        assert 0.8 < loud[0] / loud[1] < 1.25
    else:
        assert np.corrcoef(made[middle], want[middle])[0, 1] > 0.95
    if container == "flac":
        assert np.array_equal(made, want)


@pytest.mark.parametrize(("container", "rate"), [k for k in KINDS if k[0] in {"mp3", "opus"}])
def test_a_stream_starts_within_one_frame_of_the_first_audio(container: str, rate: int) -> None:
    encoder = CompressedEncoder(container, AudioFormat(Encoding.PCM_S16LE, rate))
    frame = frame_samples(rate) if container == "mp3" else rate // 50
    body = encoder.feed(sweep(rate)[:frame].tobytes())
    if container == "mp3":
        assert body == info_frame(rate, MP3_DELAY - 529)
    else:  # two pages of headers, then one of sound with each frame that follows (RFC 7845, 3)
        assert [body.count(word) for word in (b"OggS", b"OpusHead", b"OpusTags")] == [2, 1, 1]
        assert encoder.feed(sweep(rate)[frame : 2 * frame].tobytes()).count(b"OggS") == 1


def test_mp3_sound_follows_its_head_as_soon_as_lame_has_looked_ahead() -> None:
    for rate in sorted(set(VERSIONS) & set(RATES)):
        encoder = CompressedEncoder("mp3", AudioFormat(Encoding.PCM_S16LE, rate))
        head = encoder.feed(b"")
        frame = frame_samples(rate)
        assert encoder.feed(sweep(rate)[: frame + 752 + frame].tobytes()), (rate, len(head))


@settings(max_examples=20, deadline=None)
@given(st.data(), st.sampled_from(["mp3", "opus", "aac", "flac"]))
def test_any_cut_of_the_audio_gives_the_same_bytes(data: st.DataObject, container: str) -> None:
    sound = sweep(24000, 0.3)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sound)), max_size=12)))
    pieces = [part.tobytes() for part in np.split(sound, cuts)]
    assert decoded(encoded(container, 24000, pieces))[0].tobytes() == (
        decoded(encoded(container, 24000, [sound.tobytes()]))[0].tobytes()
    )


@pytest.mark.parametrize("container", ["mp3", "opus", "aac", "flac"])
def test_nothing_fed_is_a_stream_that_ends(container: str) -> None:
    encoder = CompressedEncoder(container, AudioFormat(Encoding.PCM_S16LE, 24000))
    encoder.finish()
    assert encoder.finish() == b""
    with pytest.raises(ValueError, match="ended"):
        encoder.feed(b"\0\0")


@pytest.mark.parametrize(
    ("asked", "most"), [(None, 12_000), (32_000, 5_500), (10, 2_500), (10_000_000, 45_000)]
)
def test_the_bit_rate_is_kept_within_what_the_codec_has(asked: int | None, most: int) -> None:
    sound = sweep(24000)
    encoder = CompressedEncoder("mp3", AudioFormat(Encoding.PCM_S16LE, 24000), bitrate=asked)
    assert 500 < len(encoder.feed(sound.tobytes()) + encoder.finish()) < most


@pytest.mark.parametrize(
    ("container", "fmt", "field"),
    [
        ("opus", AudioFormat(Encoding.PCM_S16LE, 44100), "sample_rate"),
        ("opus", AudioFormat(Encoding.PCM_S16LE, 22050), "sample_rate"),
        ("mp3", AudioFormat(Encoding.MULAW, 8000), "encoding"),
        ("flac", AudioFormat(Encoding.PCM_F32LE, 24000), "encoding"),
    ],
)
def test_what_it_cannot_hold_is_refused_r30(container: str, fmt: AudioFormat, field: str) -> None:
    with pytest.raises(UnsupportedFormat) as refused:
        CompressedEncoder(container, fmt)
    assert refused.value.field == field


def test_one_that_is_dropped_in_the_middle_leaves_nothing() -> None:
    encoder = CompressedEncoder("mp3", AudioFormat(Encoding.PCM_S16LE, 24000))
    encoder.feed(bytes(9600))
    del encoder
    gc.collect()
    assert not [thing for thing in gc.get_objects() if isinstance(thing, CompressedEncoder)]

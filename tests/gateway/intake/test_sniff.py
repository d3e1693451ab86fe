from __future__ import annotations

import gzip
import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.refusal import ReferenceRefused
from gateway.intake.sniff import Media, sniff, wave
from tests.gateway.intake.media import KINDS, header


def look(data: bytes) -> Media:
    return sniff(memoryview(data))


def refused(data: bytes) -> str:
    with pytest.raises(ReferenceRefused) as caught:
        look(data)
    return caught.value.reason


def test_names_the_demuxer_and_codec_of_what_ffmpeg_writes(files: dict[str, bytes]) -> None:
    found = {name: look(data) for name, data in files.items()}
    assert {name: media.kind for name, media in found.items()} == {
        name: KINDS.get(name, name) for name in files
    }
    assert {name: media.codec for name, media in found.items()} == {
        "wav": "pcm_s16le",
        "wav24": "pcm_s24le",  # written as WAVE_FORMAT_EXTENSIBLE
        "wav32f": "pcm_f32le",
        "alaw": "pcm_alaw",
        "mulaw": "pcm_mulaw",
        "flac": "flac",
        "mp3": "mp3float",
        "opus": "opus",
        "vorbis": "vorbis",
        "m4a": "aac",
    }
    assert [name for name, media in found.items() if media.seek] == ["m4a"]


def test_leaves_the_tag_before_mp3_out(files: dict[str, bytes]) -> None:
    data = files["mp3"]
    start = look(data).start
    assert data[:3] == b"ID3" and start >= 10
    assert data[start] == 0xFF
    assert look(data[start:]).start == 0
    assert look(b"\0" * 100 + data[start:]).start == 100
    assert look(data[start + 7 :]).start > 0  # cut within a frame


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.wav", bytes(20_000_000))
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("nothing", b"", "empty"),
        ("one byte", b"R", "unsupported"),
        ("playlist", b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n", "unsupported"),
        ("concat script", b"ffconcat version 1.0\nfile /etc/passwd\n", "unsupported"),
        ("session description", b"v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\n", "unsupported"),
        ("zip bomb", zipped(), "unsupported"),
        ("gzip bomb", gzip.compress(bytes(20_000_000)), "unsupported"),
        ("svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "unsupported"),
        ("web page", b"<html></html>", "unsupported"),
        ("program", b"\x7fELF" + bytes(100), "unsupported"),
        ("matroska", b"\x1aE\xdf\xa3" + bytes(100), "unsupported"),
        ("avi", b"RIFF\0\0\0\0AVI LIST", "unsupported"),
        ("aiff", b"FORM\0\0\0\0AIFF", "unsupported"),
        ("midi", b"MThd\0\0\0\6", "unsupported"),
        ("adts", b"\xff\xf1\x50\x80\x02\x1f\xfc" * 40, "unsupported"),
        ("only a tag", b"ID3\4\0\0\0\0\0\12" + bytes(20), "unsupported"),
        ("tag without a size", b"ID3\4\0\0\xff\xff\xff\xff" + bytes(20), "damaged"),
        ("playlist in a WAV's clothes", b"RIFF\0\0\0\0WAVE#EXTM3U\nfile:///etc/passwd\n", "damaged"),
        ("0 Hz", header(rate=0, data=4) + bytes(4), "rate"),
        ("1 Hz", header(rate=1, data=1000) + bytes(1000), "rate"),
        ("4 GHz", header(rate=2**32 - 1, data=4) + bytes(4), "rate"),
        ("no channel", header(channels=0, data=4) + bytes(4), "channels"),
        ("255 channels", header(channels=255, data=1020) + bytes(1020), "channels"),
        ("65535 channels", header(channels=65535, data=1020) + bytes(1020), "channels"),
        ("adpcm", header(tag=2, bits=4, data=4) + bytes(4), "unsupported"),
        ("mp3 in WAV", header(tag=0x55, bits=16, data=4) + bytes(4), "unsupported"),
        ("12 bits", header(bits=12, data=4) + bytes(4), "unsupported"),
        ("no sample", header(), "empty"),
        ("half a sample", header(data=1) + b"\0", "empty"),
        ("data before its format", b"RIFF\0\0\0\0WAVEdata\4\0\0\0" + bytes(40), "damaged"),
        ("two formats", header()[:36] + header()[12:36] + b"data\4\0\0\0" + bytes(4), "damaged"),
        ("endless chunks", b"RIFF\0\0\0\0WAVE" + b"LIST\0\0\0\0" * 1000, "damaged"),
        ("flac without its block", b"fLaC" + bytes(60), "damaged"),
        ("flac at 0 Hz", b"fLaC\x80\0\0\x22" + bytes(60), "rate"),
        ("ogg theora", b"OggS\0\2" + bytes(20) + b"\x01\x2a" + b"\x80theora" + bytes(60), "unsupported"),
        ("ogg from its middle", b"OggS\0\0" + bytes(20) + b"\x01\x2a" + b"OpusHead" + bytes(60), "damaged"),
        ("opus of 255", b"OggS\0\2" + bytes(20) + b"\x01\x13" + b"OpusHead\1\xff" + bytes(60), "channels"),
        (
            "vorbis at 0 Hz",
            b"OggS\0\2" + bytes(20) + b"\x01\x1e" + b"\x01vorbis\0\0\0\0\1" + bytes(60),
            "rate",
        ),
        ("quicktime", b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "unsupported"),
        ("heic", b"\0\0\0\x14ftypheic\0\0\0\0heic", "unsupported"),
        ("mp4 of no size", b"\0\0\0\0ftypM4A \0\0\0\0M4A ", "damaged"),
        ("mp4 of endless size", b"\xff\xff\xff\xffftypM4A \0\0\0\0M4A ", "damaged"),
    ],
)
def test_refuses_what_is_no_recording(name: str, data: bytes, reason: str) -> None:
    assert refused(data) == reason, name


def test_a_stream_of_unknown_length_ends_with_the_file() -> None:
    for size in (0xFFFFFFFF, 0x7FFFFFFF, 100):
        data = header(data=0)[:-4] + struct.pack("<I", size) + bytes(11)
        assert (wave(memoryview(data)).start, wave(memoryview(data)).end) == (44, 54)


def test_the_bounds_are_inclusive() -> None:
    for rate, channels in ((8000, 1), (192_000, 8)):
        data = header(rate=rate, channels=channels, data=64) + bytes(64)
        found = wave(memoryview(data))
        assert (found.rate, found.channels, found.codec) == (rate, channels, "pcm_s16le")


MAGIC = [
    b"",
    b"RIFF\0\0\0\0WAVE",
    b"fLaC",
    b"OggS\0\2",
    b"\0\0\0\x20ftyp",
    b"ID3\4",
    b"\xff\xfb\x90",
    header(),
]


@given(st.sampled_from(MAGIC), st.binary(max_size=400))
def test_says_something_or_refuses_for_any_bytes(magic: bytes, rest: bytes) -> None:
    try:
        media = look(magic + rest)
    except ReferenceRefused as error:
        assert error.reason in {"empty", "unsupported", "damaged", "rate", "channels"}
    else:
        assert 0 <= media.start < len(magic + rest)
        if media.kind == "wav":
            found = wave(memoryview(magic + rest))
            assert 0 < found.start < found.end <= len(magic + rest)


@given(st.data())
def test_a_changed_byte_of_a_real_file_does_no_harm(files: dict[str, bytes], data: st.DataObject) -> None:
    file = bytearray(files[data.draw(st.sampled_from(sorted(files)))][:3000])
    file[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    try:
        look(bytes(file[: data.draw(st.integers(0, len(file)))]))
    except ReferenceRefused:
        pass

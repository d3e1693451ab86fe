from __future__ import annotations

import os
import stat
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from gateway.intake.activity import RATE
from gateway.intake.decoder import Decoding, Limits, arguments, find_ffmpeg, sandbox
from gateway.intake.refusal import ReferenceRefused
from gateway.intake.sniff import Media, sniff
from tests.gateway.intake.media import FORMATS, Samples, ffmpeg, header, hours_in_a_kilobyte, wav
from tts_core.errors import SettingsError

FFMPEG = find_ffmpeg() or "ffmpeg is missing"


def decode(data: bytes | bytearray, limits: Limits | None = None, media: Media | None = None) -> Samples:
    view = memoryview(data)
    return Decoding(FFMPEG, media or sniff(view), limits or Limits()).run(view)[0]


def refused(data: bytes | bytearray, limits: Limits | None = None, media: Media | None = None) -> str:
    with pytest.raises(ReferenceRefused) as caught:
        decode(data, limits, media)
    assert "ffmpeg" not in caught.value.message
    return caught.value.reason


def children() -> list[int]:
    """Our processes, zombies too."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return found


def program(tmp_path: Path, script: str) -> str:
    """A program instead of ffmpeg, which is a script: its interpreter lies where libraries do."""
    made = tmp_path / "decoder"
    made.write_text("#!/lib/interpreter\n" + script)
    made.chmod(0o755)
    return str(made)


def tone(hertz: float, seconds: float, rate: int, channels: int = 1, level: float = 0.5) -> bytearray:
    one = level * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    return wav(np.repeat(one.astype(np.float32), channels), rate, channels)


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 192_000])
def test_resamples_without_changing_level_or_length(rate: int) -> None:
    pcm = decode(tone(1000, 1.0, rate))
    assert pcm.dtype == np.float32
    assert abs(len(pcm) - RATE) <= 2
    middle = pcm[2000:-2000].astype(np.float64)
    n = np.arange(2000, 2000 + len(middle))
    wave = 2 * np.pi * 1000 * n / RATE
    amplitude = 2 * np.hypot((middle * np.sin(wave)).mean(), (middle * np.cos(wave)).mean())
    assert amplitude == pytest.approx(0.5, abs=0.01)
    level = np.sqrt((middle**2).mean())
    assert level == pytest.approx(0.5 / np.sqrt(2), abs=0.005)  # nothing but the tone


def test_what_does_not_fit_the_rate_does_not_fold_into_it() -> None:
    pcm = decode(tone(13_000, 1.0, 48_000))
    assert 20 * np.log10(np.abs(pcm[2000:-2000]).max() / 0.5) < -60


@pytest.mark.parametrize("channels", [1, 2, 6, 8])
def test_equal_channels_are_mixed_to_what_each_of_them_was(channels: int) -> None:
    pcm = decode(tone(1000, 1.0, 48_000, channels))
    assert np.abs(pcm[2000:-2000]).max() == pytest.approx(0.5, abs=0.01)


def test_a_decoder_is_told_one_format_and_codec() -> None:
    given = arguments(Media("flac", "flac", "flac"))
    pairs = dict(pairwise(given))
    assert (pairs["-f"], given[given.index("-f") + 1]) == ("f32le", "flac")
    assert pairs["-protocol_whitelist"] == "pipe"
    assert (pairs["-format_whitelist"], pairs["-codec_whitelist"]) == ("flac", "flac")


def test_the_length_is_that_of_the_decoded_samples() -> None:
    kilobyte = hours_in_a_kilobyte()
    assert len(kilobyte) < 1200
    assert refused(kilobyte) == "too_long"
    limits = Limits(max_seconds=2.0)
    assert refused(tone(440, 2.3, 22_050), limits) == "too_long"
    assert len(decode(tone(440, 2.2, 22_050), limits)) == int(2.2 * RATE)
    mp3 = ffmpeg(tone(440, 30.0, 22_050), *FORMATS["mp3"])
    assert refused(mp3, limits) == "too_long"


def test_a_minute_is_taken_and_more_is_not() -> None:
    minute = ffmpeg(tone(440, 60.0, 8000), *FORMATS["opus"])
    assert 59.9 < len(decode(minute)) / RATE < 60.25
    assert refused(ffmpeg(tone(440, 61.0, 8000), *FORMATS["opus"])) == "too_long"


def box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return (len(body) + 8).to_bytes(4, "big") + name + body


def moov_bomb(files: dict[str, bytes]) -> bytes:
    """An M4A whose index promises two thousand million samples."""
    data = bytes(ffmpeg(files["wav"], "-c:a", "aac", "-f", "ipod", "-movflags", "frag_keyframe+empty_moov"))
    at = data.index(b"stts")
    stts = box(b"stts", bytes(4), (1).to_bytes(4, "big"), b"\x7f\xff\xff\xff", b"\0\0\4\0")
    stsz = box(b"stsz", bytes(4), bytes(4), b"\x0f\xff\xff\xff")
    return data[: at - 4] + stts + data[at + 12 :].replace(b"stsz", stsz[4:], 1)


def outside(files: dict[str, bytes]) -> bytes:
    """An M4A whose sound is said to lie in another file."""
    data = files["m4a"]
    at = data.index(b"url ")
    return data[:at] + b"alis" + data[at + 4 :].replace(b"\0\0\0\1", b"\0\0\0\0", 1)


def test_hostile_files_are_refused(files: dict[str, bytes]) -> None:
    playlist = b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n"
    m4a, ogg, mp3 = (
        Media("m4a", "mov", "aac", seek=True),
        Media("ogg", "ogg", "opus"),
        Media("mp3", "mp3", "mp3float"),
    )
    noise = np.random.default_rng(1).bytes(50_000)
    for media in (m4a, ogg, mp3, Media("wav", "wav", "pcm_s16le"), Media("flac", "flac", "flac")):
        for data in (playlist, b"ffconcat version 1.0\nfile /etc/passwd\n", b"\0" * 1000, noise):
            assert refused(data, media=media) in {"undecodable", "empty"}, media
    # The decoder's own view of a file cannot be turned to another format than its header named.
    assert refused(files["mp3"], media=Media("ogg", "ogg", "opus")) == "undecodable"
    assert refused(files["vorbis"], media=ogg) == "undecodable"
    assert refused(moov_bomb(files)) in {"undecodable", "empty", "decoder_limit"}
    damaged = outside(files)
    try:
        assert len(decode(damaged)) <= 3.2 * RATE
    except ReferenceRefused as error:
        assert error.reason in {"undecodable", "empty"}
    assert children() == []


def test_time_and_memory_of_the_decoder_are_limited(files: dict[str, bytes]) -> None:
    assert refused(files["mp3"], Limits(wall_s=0.001)) == "decoder_limit"
    with pytest.raises((SettingsError, ReferenceRefused)):  # of one linked to libraries, and of a static one
        decode(files["mp3"], Limits(memory=64 << 20))
    assert children() == []


def test_processor_time_is_limited() -> None:
    # Much sound at once: two minutes that decode in some tenths of a second do not fit into 0 s.
    long = ffmpeg(tone(440, 120.0, 48_000), *FORMATS["vorbis"])
    assert refused(long, Limits(max_seconds=200, cpu_s=0)) == "decoder_limit"


def test_a_stopped_decoding_ends_at_once(files: dict[str, bytes]) -> None:
    view = memoryview(files["flac"])
    early = Decoding(FFMPEG, sniff(view), Limits())
    early.stop()
    with pytest.raises(ReferenceRefused) as caught:
        early.run(view)
    assert caught.value.reason == "decoder_limit"

    # A pipe that nobody writes to, so that the decoder waits for ever.
    late = Decoding(FFMPEG, sniff(view), Limits(wall_s=60))
    reasons: list[str] = []
    reading, writing = os.pipe()

    def run() -> None:
        try:
            late._decode(reading)
        except ReferenceRefused as error:
            reasons.append(error.reason)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while late._process is None or not Path(f"/proc/{late._process.pid}").exists():
            if not thread.is_alive():
                break
        late.stop()
        thread.join(30)
    finally:
        os.close(writing)
        os.close(reading)
    assert reasons == ["decoder_limit"]
    assert children() == []


def test_a_decoder_that_cannot_run(tmp_path: Path, files: dict[str, bytes]) -> None:
    view = memoryview(files["flac"])
    for path in (str(tmp_path / "missing"), program(tmp_path, "")):
        with pytest.raises(SettingsError) as caught:
            Decoding(path, sniff(view), Limits()).run(view)
        assert "ffmpeg does not run" in caught.value.message


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (1, "undecodable"),
        (69, "undecodable"),
        (-11, "undecodable"),
        (-31, "undecodable"),
        (-9, "decoder_limit"),
        (-24, "decoder_limit"),
        (255, "decoder_limit"),
    ],
)
def test_a_crash_is_a_refusal(status: int, reason: str) -> None:
    with pytest.raises(ReferenceRefused) as caught:
        Decoding(FFMPEG, Media("flac", "flac", "flac"), Limits())._judge(status)
    assert caught.value.reason == reason


def test_a_system_that_cannot_confine_refuses_all() -> None:
    with pytest.raises(SettingsError, match="cannot be confined"):
        Decoding(FFMPEG, Media("flac", "flac", "flac"), Limits())._judge(121)


def test_faults_in_a_file_are_noted(files: dict[str, bytes]) -> None:
    whole = memoryview(files["flac"])
    assert Decoding(FFMPEG, sniff(whole), Limits()).run(whole)[1] is False
    broken = bytearray(files["flac"])
    broken[len(broken) // 2] ^= 0xFF
    pcm, faults = Decoding(FFMPEG, sniff(memoryview(broken)), Limits()).run(memoryview(broken))
    assert faults is True
    assert 0 < len(pcm) <= 3 * RATE


def test_nothing_is_left_open(files: dict[str, bytes]) -> None:
    decode(files["m4a"])
    before = sorted(os.listdir("/proc/self/fd"))
    for name in ("m4a", "wav", "opus"):
        decode(files[name])
    refused(header(data=100) + bytes(100), media=Media("flac", "flac", "flac"))
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_ffmpeg_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stat.S_ISREG(os.stat(FFMPEG).st_mode)
    assert "seccomp" in sandbox(FFMPEG)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ffmpeg() is None

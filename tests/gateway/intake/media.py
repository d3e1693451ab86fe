"""Recordings as real programs write them, and hostile ones."""

from __future__ import annotations

import io
import struct
import subprocess
import wave
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

FORMATS: Mapping[str, tuple[str, ...]] = {
    "wav": ("-c:a", "pcm_s16le", "-f", "wav"),
    "wav24": ("-c:a", "pcm_s24le", "-ar", "48000", "-f", "wav"),
    "wav32f": ("-c:a", "pcm_f32le", "-f", "wav"),
    "alaw": ("-c:a", "pcm_alaw", "-ar", "8000", "-f", "wav"),
    "mulaw": ("-c:a", "pcm_mulaw", "-ar", "8000", "-f", "wav"),
    "flac": ("-c:a", "flac", "-f", "flac"),
    "mp3": ("-c:a", "libmp3lame", "-b:a", "64k", "-id3v2_version", "4", "-metadata", "title=A", "-f", "mp3"),
    "opus": ("-c:a", "libopus", "-f", "ogg"),
    "vorbis": ("-c:a", "libvorbis", "-f", "ogg"),
    "m4a": ("-c:a", "aac", "-f", "ipod", "-movflags", "frag_keyframe+empty_moov"),
}
"""Of ffmpeg, writing to a pipe."""

KINDS = {"wav24": "wav", "wav32f": "wav", "alaw": "wav", "mulaw": "wav", "opus": "ogg", "vorbis": "ogg"}


def wav(pcm: Samples, rate: int, channels: int = 1) -> bytearray:
    """16-bit WAV of interleaved samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((np.clip(pcm, -1, 1) * 32767).round().astype("<i2").tobytes())
    return bytearray(file.getvalue())


def ffmpeg(data: bytes | bytearray, *arguments: str) -> bytearray:
    """What ffmpeg makes of a WAV file."""
    done = subprocess.run(
        ["ffmpeg", "-v", "error", "-nostdin", "-i", "pipe:0", *arguments, "pipe:1"],
        input=data,
        capture_output=True,
        check=True,
        timeout=60,
    )
    return bytearray(done.stdout)


def header(*, tag: int = 1, channels: int = 1, rate: int = 22_050, bits: int = 16, data: int = 0) -> bytes:
    """A WAV header with any numbers, before ``data`` bytes."""
    block = channels * bits // 8
    fmt = struct.pack(
        "<HHIIHH", tag, channels & 0xFFFF, rate, rate * block & 0xFFFFFFFF, block & 0xFFFF, bits
    )
    body = b"WAVEfmt " + struct.pack("<I", 16) + fmt + b"data" + struct.pack("<I", data)
    return b"RIFF" + struct.pack("<I", len(body) + data) + body


def voice_like(seconds: float, rate: int = 22_050, *, seed: int = 0, level: float = 0.4) -> Samples:
    """With the rhythm and spectrum of speech: syllables of a buzz with moving overtones, and pauses."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    pitch = 2 * np.pi * np.cumsum(115 + 20 * np.sin(2 * np.pi * 0.7 * t)) / rate
    centre = 900 + 600 * np.sin(2 * np.pi * 1.3 * t + rng.uniform(0, 6))
    tone = np.zeros(len(t))
    for k in range(1, 30):
        tone += np.sin(k * pitch) * np.exp(-(((115 * k - centre) / 500) ** 2) / 2)
    gate = np.clip(3 * np.sin(2 * np.pi * 3.1 * t), 0, 1) * (np.sin(2 * np.pi * 0.35 * t + 0.4) > -0.6)
    out = tone * gate
    return np.asarray(level * out / np.abs(out).max(), np.float32)


def hours_in_a_kilobyte() -> bytearray:
    """FLAC of silence: 65,535 samples take a frame of 14 bytes."""
    return bytearray(
        subprocess.run(
            [
                "ffmpeg",
                "-v",
                "error",
                "-f",
                "lavfi",
                "-i",
                "anullsrc=r=8000:cl=mono",
                "-t",
                "580",
                "-c:a",
                "flac",
                "-frame_size",
                "65535",
                "-metadata_header_padding",
                "0",
                "-bitexact",
                "-f",
                "flac",
                "pipe:1",
            ],
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
    )

"""MP3, Ogg Opus, ADTS AAC and FLAC by PyAV, in a stream that starts with the first audio.

PyAV's wheels bring an FFmpeg that holds GPL parts (x264, x265), and take 106 MB: hence the extra.

The first bytes leave with the first frame of audio: of an MP3 a frame that tells the encoder's delay (see
``info_frame``), of Opus its two headers. Sound follows one frame later, after what LAME looks ahead, or
libavformat holds a page back; AAC and FLAC begin with their second. Engines make audio many times faster than
it is heard, so none of this waiting reaches the listener.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import av
import numpy as np

from sessions.events import AudioFormat, Encoding
from tts_core.errors import UnsupportedFormat

from .info_frame import VERSIONS, info_frame

MP3_DELAY = 1105
"""Samples that LAME puts before its input: 576 of its own and a decoder's 529 (LAME, technical FAQ)."""
_DECODER = 529
"""Samples of it that every decoder adds by itself; the tag gives the rest."""


@dataclass(frozen=True, slots=True)
class _Kind:
    container: str
    codec: str
    samples: str
    content_type: str
    rates: frozenset[int]
    bitrates: tuple[int, int] | None
    per_hertz: float = 0.0
    options: dict[str, str] = field(default_factory=dict)
    muxer: dict[str, str] = field(default_factory=dict)

    def choose(self, rate: int, asked: int | None) -> int | None:
        """Bits a second for a stream at ``rate``."""
        if self.bitrates is None:
            return None
        low, high = self.bitrates
        return min(max(asked or round(self.per_hertz * rate), low), high)


_KINDS = {
    "mp3": _Kind(
        "mp3", "libmp3lame", "s16p", "audio/mpeg", frozenset(VERSIONS), (8000, 320_000), 2.9,
        {"reservoir": "0"}, {"write_xing": "0", "id3v2_version": "0"},
    ),
    "opus": _Kind(
        "ogg", "libopus", "s16", "audio/ogg; codecs=opus", frozenset({8000, 16000, 24000, 48000}),
        (6000, 510_000), 1.35, {"application": "voip"}, {"page_duration": "20000"},
    ),
    "aac": _Kind(
        "adts", "aac", "fltp", "audio/aac", frozenset({8000, 16000, 22050, 24000, 32000, 44100, 48000}),
        (8000, 256_000), 2.7,
    ),
    "flac": _Kind(
        "flac", "flac", "s16", "audio/flac", frozenset({8000, 16000, 22050, 24000, 32000, 44100, 48000}), None
    ),
}  # fmt: skip


class _Out:
    """The file that PyAV writes to: it keeps what was written, and cannot seek."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> int:
        """Keep ``data``."""
        self._data += data
        return len(data)

    def take(self) -> bytes:
        """What was written since the last time."""
        data = bytes(self._data)
        self._data.clear()
        return data


class CompressedEncoder:
    """One compressed stream.

    Work is done in the caller's thread, some 5-15 ms an audio second.
    """

    compressed = True

    def __init__(self, container: str, fmt: AudioFormat, *, bitrate: int | None = None) -> None:
        """See ``gateway.encoding.open_encoder``. Raises UnsupportedFormat."""
        kind = _KINDS[container]
        if fmt.encoding is not Encoding.PCM_S16LE:
            raise UnsupportedFormat(f"{container} is made of pcm_s16le", field="encoding")
        if fmt.rate not in kind.rates:
            rates = ", ".join(map(str, sorted(kind.rates)))
            raise UnsupportedFormat(f"{container} holds sample rates of {rates}", field="sample_rate")
        self.content_type = kind.content_type
        self._rate, self._at, self._open = fmt.rate, 0, True
        self._out = _Out()
        self._file: Any = av.open(
            self._out,
            "w",
            format=kind.container,
            options={"flush_packets": "1", **kind.muxer},
            buffer_size=4096,
        )
        self._stream: Any = self._file.add_stream(kind.codec, rate=fmt.rate, options=kind.options)
        context: Any = self._stream.codec_context
        context.layout, context.format = "mono", kind.samples
        chosen = kind.choose(fmt.rate, bitrate)
        if chosen is not None:
            context.bit_rate = chosen
        if container == "mp3":
            self._out.write(info_frame(fmt.rate, MP3_DELAY - _DECODER))

    def feed(self, data: bytes) -> bytes:
        """Take 16-bit samples; what is ready."""
        if not self._open:
            raise ValueError("the stream has ended")
        if data:
            samples = np.frombuffer(data, "<i2")[None, :]
            frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
            frame.sample_rate, frame.time_base, frame.pts = self._rate, Fraction(1, self._rate), self._at
            self._at += samples.shape[1]
            self._mux(frame)
        return self._out.take()

    def finish(self) -> bytes:
        """End the stream; its last bytes."""
        if self._open:
            self._open = False
            self._mux(None)
            self._file.close()
        return self._out.take()

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._file.mux(packet)

    def __del__(self) -> None:
        # One that was dropped in the middle of a stream: its buffers go, its output is nobody's.
        if getattr(self, "_open", False):
            with contextlib.suppress(av.FFmpegError):
                self._file.close()


__all__ = ["MP3_DELAY", "CompressedEncoder"]

"""What an encoder is, and the two that need no codec."""

from __future__ import annotations

from typing import Protocol

from gateway.wav import header
from sessions.events import AudioFormat, Encoding

_RAW_TYPES = {
    Encoding.PCM_S16LE: "audio/pcm",
    Encoding.PCM_F32LE: "audio/pcm",
    Encoding.MULAW: "audio/basic",
    Encoding.ALAW: "audio/x-alaw-basic",
}


class Encoder(Protocol):
    """One stream of audio on its way into its container. Not for several threads."""

    @property
    def content_type(self) -> str:
        """Media type of what comes out."""
        ...

    @property
    def compressed(self) -> bool:
        """Whether feeding takes time that an event loop should not give."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take whole samples; what is ready to be sent, which may be nothing yet."""
        ...

    def finish(self) -> bytes:
        """End the stream: what was still held. Nothing may be fed after it; a second call gives nothing."""
        ...


class RawEncoder:
    """The samples themselves, without a header (R31 of protocols.md: raw stays raw)."""

    compressed = False

    def __init__(self, fmt: AudioFormat) -> None:
        self.content_type = _RAW_TYPES[fmt.encoding]
        if self.content_type == "audio/pcm":
            self.content_type += f";rate={fmt.rate}"

    def feed(self, data: bytes) -> bytes:
        """The same bytes."""
        return data

    def finish(self) -> bytes:
        """Nothing."""
        return b""


class WavEncoder:
    """One header with the first samples, no chunk behind the last (R31)."""

    content_type = "audio/wav"
    compressed = False

    def __init__(self, fmt: AudioFormat) -> None:
        self._head = header(fmt)

    def feed(self, data: bytes) -> bytes:
        """The bytes, after the header the first time."""
        head, self._head = self._head, b""
        return head + data

    def finish(self) -> bytes:
        """The header where nothing was fed: a proper, empty file."""
        return self.feed(b"")

"""WAV headers for streams whose length is not known yet.

Sources: Microsoft/IBM "Multimedia Programming Interface and Data Specifications 1.0" (RIFF, chunk padding)
and RFC 2361 (format tags: 1 PCM, 3 IEEE float, 6 A-law, 7 mu-law). Formats other than PCM carry an
extension size (``cbSize`` 0) and a ``fact`` chunk with the number of samples. While a stream runs, its sizes
are the largest that fit, which players take as "until the end"; a file gets them right at its end by
``finish``. The data chunk is the last one, so that nothing after the samples is ever played as a click
(protocols.md R31).
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from sessions.events import AudioFormat, Encoding
from tts_core.errors import BadRequest

UNKNOWN = 0xFFFFFFFF
_TAG = {Encoding.PCM_S16LE: 1, Encoding.PCM_F32LE: 3, Encoding.ALAW: 6, Encoding.MULAW: 7}


def header(audio: AudioFormat, samples: int | None = None) -> bytes:
    """The bytes before the first sample: mono, 44 bytes for PCM and 58 for the rest.

    Args:
        audio: encoding and rate of the samples.
        samples: how many follow; None while that is not known.

    Raises:
        BadRequest: more samples than a WAV file can hold (4 GiB).

    """
    width = audio.width
    extra = b"" if audio.encoding is Encoding.PCM_S16LE else struct.pack("<H", 0)
    tag = _TAG[audio.encoding]
    fmt = struct.pack("<HHIIHH", tag, 1, audio.rate, audio.rate * width, width, 8 * width) + extra
    body = b"WAVEfmt " + struct.pack("<I", len(fmt)) + fmt
    if extra:
        body += b"fact" + struct.pack("<II", 4, UNKNOWN if samples is None else samples)
    if samples is None:
        riff = size = UNKNOWN
    else:
        size = samples * width
        riff = len(body) + 8 + size + size % 2
        if riff >= UNKNOWN:
            raise BadRequest("too long for a WAV file")
    return b"RIFF" + struct.pack("<I", riff) + body + b"data" + struct.pack("<I", size)


class WavFile:
    """Writes samples as they come to a file that can be seeked; right in every field after ``finish``.

    Not closed by us. A file cut short before ``finish`` still plays: its sizes say "until the end".
    """

    def __init__(self, file: BinaryIO, audio: AudioFormat) -> None:
        self._file, self._audio, self._bytes = file, audio, 0
        file.write(header(audio))

    def write(self, data: bytes) -> None:
        """Append whole samples."""
        self._file.write(data)
        self._bytes += len(data)

    def finish(self) -> int:
        """Write the sizes and the pad byte of an odd length; returns the number of samples."""
        samples = self._bytes // self._audio.width
        if self._bytes % 2:
            self._file.write(b"\0")
        self._file.seek(0)
        self._file.write(header(self._audio, samples))
        self._file.seek(0, 2)
        return samples

"""What a file is, by its first bytes: an allow-list, read strictly before any decoder sees the file.

A file's name and its ``Content-Type`` say nothing. The headers are read far enough to name the one demuxer
and the one codec that may run, and to refuse what no recording of speech has: rates outside 8-192 kHz, more
than eight channels. Sources: WAV: RIFF MCI 1.0, RFC 2361, ``WAVEFORMATEXTENSIBLE``; FLAC: RFC 9639, 8.2; Ogg:
RFC 3533, 7845 (Opus) and the Vorbis I specification, 4.2.2; MP3: ISO/IEC 11172-3, 2.4.2.3; ID3v2: id3.org
2.4.0, 3.1; MP4: ISO/IEC 14496-12, 4.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

from .refusal import ReferenceRefused

Kind = Literal["wav", "flac", "mp3", "ogg", "m4a"]

RATES = range(8000, 192_001)
"""Sample rates in Hz that we take, where the header says one."""

CHANNELS = range(1, 9)
"""Channels that we take; a decoder that knows no layout for more could not mix them anyway."""

_WAV_CODECS = {
    (1, 8): "pcm_u8",
    (1, 16): "pcm_s16le",
    (1, 24): "pcm_s24le",
    (1, 32): "pcm_s32le",
    (3, 32): "pcm_f32le",
    (3, 64): "pcm_f64le",
    (6, 8): "pcm_alaw",
    (7, 8): "pcm_mulaw",
}
_EXTENSIBLE = 0xFFFE
_GUID = bytes.fromhex("000000001000800000aa00389b71")  # behind the two bytes of the tag
_MOST_CHUNKS = 64
_BRANDS = {
    *(b"M4A ", b"M4B ", b"M4V ", b"mp41", b"mp42", b"MSNV", b"dash"),
    *(b"isom", b"iso2", b"iso3", b"iso4", b"iso5", b"iso6", b"iso8", b"avc1", b"3gp4", b"3gp5", b"3gp6"),
}
_BITRATES = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_SYNC_WITHIN = 4096


@dataclass(frozen=True, slots=True)
class Media:
    """What to decode, and with what.

    Attributes:
        kind: the container.
        demuxer, codec: their names in ffmpeg.
        start: bytes to leave out before the media (a tag).
        seek: whether the demuxer must be able to seek (MP4 may have its index at the end).
    """

    kind: Kind
    demuxer: str
    codec: str
    start: int = 0
    seek: bool = False


@dataclass(frozen=True, slots=True)
class Wave:
    """The sound of a WAV file: codec as ffmpeg names it, channels, rate in Hz, and where its bytes lie."""

    codec: str
    channels: int
    rate: int
    start: int
    end: int


def sniff(data: memoryview) -> Media:
    """Say what the file is.

    Raises:
        ReferenceRefused: ``empty``; ``unsupported``: none of WAV, FLAC, MP3, Ogg (Vorbis or Opus), M4A, or a
            codec we do not take in one; ``damaged``: its header is not what it must be; ``rate``,
            ``channels``: out of bounds.
    """
    if not len(data):
        raise ReferenceRefused("empty", "the recording is empty")
    head = bytes(data[:64])
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return Media("wav", "wav", wave(data).codec)
    if head[:4] == b"fLaC":
        return _flac(head)
    if head[:4] == b"OggS":
        return _ogg(bytes(data[:512]))
    if head[4:8] == b"ftyp":
        return _m4a(bytes(data[:256]))
    found = _mp3(data)
    if found is None:
        raise ReferenceRefused(
            "unsupported", "the recording must be WAV, FLAC, MP3, Ogg (Vorbis or Opus) or M4A"
        )
    return found


def wave(data: memoryview) -> Wave:
    """Read the header of a WAV file.

    ``end`` is the end of the file where the header, as that of a stream does, promises more than there is.

    Raises:
        ReferenceRefused: as :func:`sniff`.
    """
    fmt: tuple[str, int, int, int] | None = None
    at = 12
    for _ in range(_MOST_CHUNKS):
        if at + 8 > len(data):
            break
        name, size = bytes(data[at : at + 4]), int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8
        if name == b"fmt ":
            if fmt is not None:
                raise _damaged("WAV")
            fmt = _fmt(bytes(data[at : at + min(size, 40)]))
        elif name == b"data":
            if fmt is None:
                raise _damaged("WAV")
            codec, channels, rate, block = fmt
            whole = min(size, len(data) - at) // block * block
            if not whole:
                raise ReferenceRefused("empty", "the recording is empty")
            return Wave(codec, channels, rate, at, at + whole)
        at += size + size % 2
    raise _damaged("WAV")


def _fmt(chunk: bytes) -> tuple[str, int, int, int]:
    """Codec, channels, rate and bytes of one sample of all channels."""
    if len(chunk) < 16:
        raise _damaged("WAV")
    tag, channels, rate, _, block, bits = struct.unpack("<HHIIHH", chunk[:16])
    if tag == _EXTENSIBLE:
        if len(chunk) < 40 or chunk[26:] != _GUID:
            raise ReferenceRefused("unsupported", "this kind of WAV is not supported")
        tag = int.from_bytes(chunk[24:26], "little")
    _bounds(rate, channels)
    codec = _WAV_CODECS.get((tag, bits))
    if codec is None:
        raise ReferenceRefused("unsupported", "this kind of WAV is not supported: save it as 16-bit PCM")
    if block != channels * bits // 8:
        raise _damaged("WAV")
    return codec, channels, rate, block


def _flac(head: bytes) -> Media:
    # "fLaC", the block's type (its top bit: it is the last one) and length, then 10 bytes before the rate.
    if len(head) < 42 or head[4] & 0x7F or int.from_bytes(head[5:8], "big") != 34:
        raise _damaged("FLAC")
    packed = int.from_bytes(head[18:22], "big")
    _bounds(packed >> 12, (packed >> 9 & 7) + 1)
    return Media("flac", "flac", "flac")


def _ogg(head: bytes) -> Media:
    begins = len(head) > 28 and head[4] == 0 and head[5] & 2
    if not begins or len(head) < 27 + head[26] + 19:
        raise _damaged("Ogg")
    packet = head[27 + head[26] :]
    if packet[:8] == b"OpusHead":
        if packet[8] >> 4:
            raise _damaged("Ogg")
        _bounds(48_000, packet[9])
        return Media("ogg", "ogg", "opus")
    if packet[:7] == b"\x01vorbis":
        _bounds(int.from_bytes(packet[12:16], "little"), packet[11])
        return Media("ogg", "ogg", "vorbis")
    raise ReferenceRefused("unsupported", "an Ogg recording must be Vorbis or Opus")


def _m4a(head: bytes) -> Media:
    size = int.from_bytes(head[:4], "big")
    if not 16 <= size <= len(head) or size % 4:
        raise _damaged("M4A")
    brands = {head[8:12], *(head[at : at + 4] for at in range(16, size, 4))}
    if not brands & _BRANDS:
        raise ReferenceRefused("unsupported", "this kind of MP4 is not supported: save it as M4A (AAC)")
    return Media("m4a", "mov", "aac", seek=True)


def _mp3(data: memoryview) -> Media | None:
    """MP3 by two headers in a row that fit each other; a tag before them is left out, not read."""
    start = 0
    if bytes(data[:3]) == b"ID3":
        tag = bytes(data[:10])
        if len(tag) < 10 or any(byte & 0x80 for byte in tag[6:]):
            raise _damaged("MP3")
        start = 10 + (tag[6] << 21 | tag[7] << 14 | tag[8] << 7 | tag[9]) + (10 if tag[5] & 0x10 else 0)
    window = bytes(data[start : start + 2 * _SYNC_WITHIN])
    padding = len(window) - len(window.lstrip(b"\0"))
    for at in range(padding, min(padding + _SYNC_WITHIN, len(window) - 4)):
        if window[at] != 0xFF:
            continue
        length = _frame_bytes(window[at : at + 4])
        if length and _frame_bytes(window[at + length : at + length + 4]):
            if window[at + 1] & 0xFE != window[at + length + 1] & 0xFE:
                continue
            return Media("mp3", "mp3", "mp3float", start + at)
    return None


def _frame_bytes(head: bytes) -> int:
    """Length of the layer III frame with this header; 0: it is none."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return 0
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate, padded = head[2] >> 4, head[2] >> 2 & 3, head[2] >> 1 & 1
    if version == 1 or layer != 1 or bitrate in {0, 15} or rate == 3:
        return 0
    first = version == 3
    hertz = (44_100, 48_000, 32_000)[rate] >> (0 if first else 1 if version == 2 else 2)
    return (144_000 if first else 72_000) * _BITRATES[1 if first else 2][bitrate] // hertz + padded


def _bounds(rate: int, channels: int) -> None:
    if rate not in RATES:
        raise ReferenceRefused("rate", "the recording's sample rate must lie between 8 and 192 kHz")
    if channels not in CHANNELS:
        raise ReferenceRefused("channels", "the recording must have one to eight channels")


def _damaged(what: str) -> ReferenceRefused:
    return ReferenceRefused("damaged", f"the recording is no proper {what} file")


__all__ = ["CHANNELS", "RATES", "Kind", "Media", "Wave", "sniff", "wave"]

"""The "Info" frame at the head of an MP3 stream: a frame without sound that tells the encoder's delay.

Encoders of MPEG layer III begin about 25-45 ms of silence early. A decoder that knows by how much leaves it
out, so the listener hears the voice that much sooner; one that does not plays one silent frame more. It also
lets the response begin with the first audio, while the encoder still looks ahead.

Sources: ISO/IEC 11172-3 and 13818-3 (frame header, side information), the "Xing" and "LAME" tag as
libavformat and mpg123 read it: after the side information the word Info, flags, 9 letters of the encoder's
name, 12 bytes of revision, filter and gain, then 12 bits of delay and 12 of padding.
"""

from __future__ import annotations

import struct

VERSIONS = {  # rate: (version bits, index of the rate)
    44100: (3, 0), 48000: (3, 1), 32000: (3, 2),
    22050: (2, 0), 24000: (2, 1), 16000: (2, 2),
    11025: (0, 0), 12000: (0, 1), 8000: (0, 2),
}  # fmt: skip
_KBPS_1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBPS_2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_TAG = 4 + 4 + 9 + 12 + 3 + 12
"""From "Info" to the checksum of the tag."""


def frame_samples(rate: int) -> int:
    """Samples of one frame at ``rate`` Hz: 1152 in MPEG-1, 576 in MPEG-2 and 2.5."""
    return 1152 if VERSIONS[rate][0] == 3 else 576


def info_frame(rate: int, delay: int) -> bytes:
    """A mono frame of the least size that holds the tag.

    Args:
        rate: Hz, one of VERSIONS.
        delay: samples of silence that the encoder puts before the first of its input, below 4096.
    """
    version, index = VERSIONS[rate]
    table = _KBPS_1 if version == 3 else _KBPS_2
    side = 17 if version == 3 else 9  # bytes of side information of a mono frame
    sizes = [frame_samples(rate) // 8 * kbps * 1000 // rate for kbps in table]
    code, size = next((code, size) for code, size in enumerate(sizes) if size >= 4 + side + _TAG)
    head = struct.pack(
        ">I", 0xFFE00000 | version << 19 | 1 << 17 | 1 << 16 | code << 12 | index << 10 | 3 << 6
    )
    name = b"Lavc".ljust(9)  # readers trust the delay of this name (and of LAME) alone
    tag = b"Info" + bytes(4) + name + bytes(12) + (delay << 12).to_bytes(3, "big") + bytes(12)
    return (head + bytes(side) + tag).ljust(size, b"\0")


__all__ = ["VERSIONS", "frame_samples", "info_frame"]

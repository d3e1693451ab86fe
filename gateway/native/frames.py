"""Binary frames of the native protocol: a 20-byte header, then encoded samples.

Little-endian: kind u8, flags u8, reserved u16 (0), index u32, seq u32, start sample u64. ``index`` is that of
``opened`` (kind 1) or ``call.started`` (kind 2); ``seq`` counts a stream's frames from 0; ``start`` is the
stream's sample at which the payload begins, at the stream's rate.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from tts_core.errors import BadRequest

_HEADER = struct.Struct("<BBHIIQ")
HEADER_BYTES = _HEADER.size


class Kind(IntEnum):
    """What a frame carries."""

    SPEECH = 1
    CALLER = 2


_KINDS = frozenset(int(kind) for kind in Kind)


class Flags(IntFlag):
    """``SEGMENT``: first frame of a new segment."""

    NONE = 0
    SEGMENT = 1


@dataclass(frozen=True, slots=True)
class Frame:
    """A decoded frame."""

    kind: Kind
    flags: Flags
    index: int
    seq: int
    start: int
    payload: bytes


def pack(  # noqa: PLR0917 - in the order of the header
    kind: Kind, flags: Flags, index: int, seq: int, start: int, payload: bytes
) -> bytes:
    """Encode a frame."""
    return _HEADER.pack(kind, flags, 0, index, seq & 0xFFFFFFFF, start) + payload


def unpack(data: bytes) -> Frame:
    """Decode a frame; BadRequest when it is too short or of an unknown kind."""
    if len(data) < HEADER_BYTES:
        raise BadRequest("binary frame shorter than its header")
    kind, flags, _, index, seq, start = _HEADER.unpack_from(data)
    if kind not in _KINDS:
        raise BadRequest("unknown kind of binary frame")
    return Frame(Kind(kind), Flags(flags & Flags.SEGMENT), index, seq, start, data[HEADER_BYTES:])

"""The language between the codec service and its processes, over one socket pair each.

Every frame is a length (u32), a kind (u8), three bytes of nothing, a stream (u32), a request (u32), and a
body. Kinds: ``CONTROL``, a MessagePack message of one of the structs below; the others are raw numbers, never
re-encoded: codes (uint8, 32 a frame) and samples (float32). Both ends are ours and of the same build, so
there is no version; a frame that does not fit raises ``WireError`` and the process is replaced. All
little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from .fsq import CHANNELS

CONTROL = 1
CODES = 2
SAMPLES = 3

MAX_FRAME = 1 << 24
"""Largest body: 16 MiB is 190 s of samples, more than one request may make."""

_HEAD = struct.Struct("<IB3xII")


class WireError(Exception):
    """The other end sent something that is not of this language."""


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """First message to a process. ``role`` is ``decode`` or ``encode``; the rest as in ``CodecService``."""

    role: str
    model: str
    backend: str
    device: str
    batch_frames: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The process is warm."""


class Close(msgspec.Struct, tag="close", frozen=True):
    """Forget ``stream`` and what waits for it."""

    stream: int


class Step(msgspec.Struct, tag="step", frozen=True):
    """A batch was worked on for ``busy_s`` seconds of wall time; it had ``frames`` frames of all streams."""

    frames: int
    busy_s: float


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """``request`` failed (0: the process could not start). ``message`` is ours and safe to show."""

    request: int
    message: str


Message = Configure | Ready | Close | Step | Failed


@dataclass(frozen=True, slots=True)
class Data:
    """Numbers of ``request`` of ``stream``: codes uint8 ``[n, 32]`` or samples float32 ``[n]``."""

    stream: int
    request: int
    array: NDArray[Any]


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message | Data) -> tuple[bytes, memoryview]:
    """One frame in two parts, to be sent one after the other; the second is the numbers, uncopied."""
    if isinstance(message, Data):
        array = np.ascontiguousarray(message.array)
        kind = CODES if array.dtype == np.uint8 else SAMPLES
        body = array.data.cast("B") if array.size else memoryview(b"")
        if len(body) > MAX_FRAME:
            raise WireError("too large for one frame")
        return _HEAD.pack(len(body), kind, message.stream, message.request), body
    control = _encoder.encode(message)
    return _HEAD.pack(len(control), CONTROL, 0, 0) + control, memoryview(b"")


class Reader:
    """Frames out of a byte stream that arrives in pieces, without copying bodies.

    Give ``buffer()`` to something that receives into it, then say how much came to ``received()``.
    """

    def __init__(self) -> None:
        self._head = bytearray(_HEAD.size)
        self._body: bytearray | None = None
        self._address = (0, 0, 0)
        self._at = 0

    def buffer(self) -> memoryview:
        """Room for the next bytes; never empty."""
        return memoryview(self._head if self._body is None else self._body)[self._at :]

    def received(self, count: int) -> Message | Data | None:
        """Take ``count`` bytes that were written into ``buffer()``; the frame they complete, if any.

        Raises:
            WireError: the bytes are no frame.

        """
        self._at += count
        if self._body is None and self._at == _HEAD.size:
            length, *address = _HEAD.unpack(self._head)
            self._address = (address[0], address[1], address[2])
            if length > MAX_FRAME or address[0] not in (CONTROL, CODES, SAMPLES):
                raise WireError("bad frame header")
            self._body, self._at = bytearray(length), 0
        if self._body is None or self._at < len(self._body):
            return None
        body, self._body, self._at = self._body, None, 0
        return _decode(*self._address, body)


def _decode(kind: int, stream: int, request: int, body: bytearray) -> Message | Data:
    if kind == CONTROL:
        try:
            return _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise WireError("unreadable message") from error
    if len(body) % (CHANNELS if kind == CODES else 4):
        raise WireError("numbers of odd size")
    if kind == CODES:
        return Data(stream, request, np.frombuffer(body, np.uint8).reshape(-1, CHANNELS))
    return Data(stream, request, np.frombuffer(body, np.float32))

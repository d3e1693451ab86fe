"""The language between an owner and its worker: messages, each with raw bytes beside it.

Every frame is the length of the message (u32) and of the payload (u32), little-endian; the message, a
MessagePack struct of the language, filled up with zeros to a multiple of eight bytes; and the payload, raw
numbers that are never re-encoded. Both ends are of the same build, so there is no version; bytes that are no
frame raise ``FrameError``, and the worker is replaced.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

M = TypeVar("M")
"""The messages of a language: a union of tagged ``msgspec.Struct`` types."""

Bytes: TypeAlias = bytes | bytearray | memoryview
"""What a payload may be given as; it arrives as a memoryview."""

MAX_FRAME = 1 << 24
"""Largest message and payload together, unless a language says otherwise: 16 MiB is three minutes of float32
audio at 22.05 kHz.
"""

_HEAD = struct.Struct("<II")
_ALIGN = 8
_NOTHING = memoryview(b"")


class FrameError(Exception):
    """The other end sent something that is not of this language, or it would not fit into a frame."""


class Language(Generic[M]):
    """The messages that two ends exchange, and how they become bytes.

    Args:
        messages: the union of all messages, both ways: ``LANGUAGE: Language[Message] = Language(Message)``.
        max_frame: largest message and payload together, bytes.
    """

    def __init__(self, messages: Any, *, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(messages)

    def encode(self, message: M, payload: Bytes = b"") -> tuple[bytes, memoryview]:
        """One frame in two parts, to be sent one after the other; the second is ``payload``, uncopied.

        Raises:
            FrameError: it is larger than ``max_frame``.
        """
        body = self._encoder.encode(message)
        view = memoryview(payload)
        raw = view.cast("B") if view.nbytes else _NOTHING
        if len(body) + len(raw) > self.max_frame:
            raise FrameError("too large for one frame")
        return _HEAD.pack(len(body), len(raw)) + body + bytes(-len(body) % _ALIGN), raw

    def decode(self, body: Bytes) -> M:
        """The message of a frame.

        Raises:
            FrameError: it is none of this language.
        """
        try:
            return self._decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise FrameError("unreadable message") from error


class Reader(Generic[M]):
    """Frames out of a byte stream that arrives in pieces, without copying payloads.

    Give ``buffer()`` to something that receives into it, then say how much came to ``received()``.
    """

    def __init__(self, language: Language[M]) -> None:
        self._language = language
        self._head = bytearray(_HEAD.size)
        self._body: bytearray | None = None
        self._sizes = (0, 0)
        self._at = 0

    def buffer(self) -> memoryview:
        """Room for the next bytes; never empty, and never beyond the frame that is being read."""
        return memoryview(self._head if self._body is None else self._body)[self._at :]

    def received(self, count: int) -> tuple[M, memoryview] | None:
        """Take ``count`` bytes that were written into ``buffer()``; the frame they complete, if any.

        The payload is writable, starts at a multiple of eight bytes, and belongs to the caller.

        Raises:
            FrameError: the bytes are no frame.
        """
        self._at += count
        if self._body is None and self._at == _HEAD.size:
            message, payload = self._sizes = _HEAD.unpack(self._head)
            if not message or message + payload > self._language.max_frame:
                raise FrameError("bad frame header")
            self._body, self._at = bytearray(_padded(message) + payload), 0
        if self._body is None or self._at < len(self._body):
            return None
        body, self._body, self._at = memoryview(self._body), None, 0
        message = self._sizes[0]
        return self._language.decode(body[:message]), body[_padded(message) :]


def numbers(payload: memoryview, dtype: DTypeLike, width: int | None = None) -> NDArray[Any]:
    """The numbers of a payload, uncopied: ``[n]``, or ``[n, width]``.

    Raises:
        FrameError: it is no whole number of them.
    """
    kind = np.dtype(dtype)
    if len(payload) % (kind.itemsize * (width or 1)):
        raise FrameError("numbers of odd size")
    array: NDArray[Any] = np.frombuffer(payload, kind)
    return array if width is None else array.reshape(-1, width)


def raw(array: NDArray[Any]) -> memoryview:
    """An array as a payload: its own memory where that is contiguous, else a copy."""
    return memoryview(np.ascontiguousarray(array).data).cast("B") if array.size else _NOTHING


def _padded(size: int) -> int:
    return size + -size % _ALIGN

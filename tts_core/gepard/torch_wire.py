"""The language between ``TorchModel`` and its worker process, over one socket pair.

Every frame is a length (u32, little-endian) and a MessagePack message of one of the structs below; arrays go
as their bytes. Both ends are ours and of the same build, so there is no version; what does not fit raises
``WireError``, and the worker is replaced.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from tts_core.errors import VoxwireError
from tts_core.nanocodec import fsq

from .frames import Finish, FrameBatch, FrameRequest, SpeakerPrefix
from .sampling import Sampling

MAX_FRAME = 1 << 22
"""Largest body: 4 MiB holds the largest prefix and context many times over."""

HEAD = struct.Struct("<I")


class WireError(Exception):
    """The other end sent something that is not of this language."""


class Load(msgspec.Struct, tag="load", frozen=True):
    """First message to a worker. ``threads`` 0 leaves their number to torch."""

    directory: str
    dtype: str
    threads: int


class Generate(msgspec.Struct, tag="generate", frozen=True):
    """A request; answered by ``Frames`` until one has a finish, or by ``Failed``.

    ``prefix`` holds float32 rows of ``width`` (0: no prefix), ``context`` uint8 frames.
    """

    id: int
    ids: tuple[int, ...]
    uncond: tuple[int, ...] | None
    sampling: dict[str, Any]
    fingerprint: str
    prefix: bytes
    width: int
    context: bytes

    @classmethod
    def of(cls, ident: int, request: FrameRequest) -> Generate:
        """``request`` under the number ``ident``."""
        prefix = request.prefix
        return cls(
            ident,
            request.ids,
            request.uncond,
            request.sampling.as_extra_args(),
            "" if prefix is None else prefix.fingerprint,
            b"" if prefix is None else prefix.rows.astype("<f4").tobytes(),
            0 if prefix is None else prefix.rows.shape[1],
            b"" if request.context is None else request.context.tobytes(),
        )

    def request(self) -> FrameRequest:
        """The request. Raises WireError, or what the request's own checks raise."""
        try:
            prefix = context = None
            if self.width:
                rows = np.frombuffer(self.prefix, "<f4").reshape(-1, self.width).astype(np.float32)
                prefix = SpeakerPrefix(self.fingerprint, rows)
            if self.context:
                context = np.frombuffer(self.context, np.uint8).reshape(-1, fsq.CHANNELS)
        except ValueError as error:
            raise WireError("arrays of odd size") from error
        return FrameRequest(str(self.id), self.ids, prefix, Sampling.of(self.sampling), self.uncond, context)


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Drop request ``id`` before its next step. One that is over is ignored."""

    id: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The worker is warm."""

    load_s: float


class Frames(msgspec.Struct, tag="frames", frozen=True):
    """Frames of request ``id``, made in ``busy_s`` seconds."""

    id: int
    codes: bytes
    entropy: bytes
    finish: Finish
    busy_s: float

    @classmethod
    def of(cls, ident: int, batch: FrameBatch, busy_s: float) -> Frames:
        """``batch`` of request ``ident``."""
        return cls(ident, batch.codes.tobytes(), batch.entropy.astype("<f4").tobytes(), batch.finish, busy_s)

    def batch(self) -> FrameBatch:
        """The frames. Raises WireError."""
        try:
            codes = np.frombuffer(self.codes, np.uint8).reshape(-1, fsq.CHANNELS)
            entropy = np.frombuffer(self.entropy, "<f4").astype(np.float32)
        except ValueError as error:
            raise WireError("arrays of odd size") from error
        if len(codes) != len(entropy):
            raise WireError("frames and entropies of different number")
        return FrameBatch(codes, entropy, self.finish)


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Request ``id`` failed (0: the worker could not start); code, words and field of a ``VoxwireError``."""

    id: int
    code: str
    message: str
    field: str | None = None

    @classmethod
    def of(cls, ident: int, error: VoxwireError) -> Failed:
        """``error`` of request ``ident``."""
        return cls(ident, error.code, error.message, error.field)


Message = Load | Generate | Cancel | Ready | Frames | Failed

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """One frame."""
    body = _encoder.encode(message)
    return HEAD.pack(len(body)) + body


class Reader:
    """Messages out of bytes that arrive in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Take ``data``; the messages that it completes, in order.

        Raises:
            WireError: the bytes are no frame.
        """
        self._buffer += data
        made: list[Message] = []
        at = 0
        while len(self._buffer) - at >= HEAD.size:
            (length,) = HEAD.unpack_from(self._buffer, at)
            if length > MAX_FRAME:
                raise WireError("a frame is too long")
            if len(self._buffer) - at < HEAD.size + length:
                break
            at += HEAD.size
            try:
                made.append(_decoder.decode(memoryview(self._buffer)[at : at + length]))
            except msgspec.MsgspecError as error:
                raise WireError("unreadable message") from error
            at += length
        del self._buffer[:at]
        return made

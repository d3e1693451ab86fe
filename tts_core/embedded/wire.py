"""The language between the engine and its workers, over one socket pair each.

Every frame is a length (u32), a kind (u8) and a body. Kinds: ``CONTROL``, a MessagePack message of one of
the structs below; ``AUDIO``, a fixed header, word marks and raw float32 samples, which are never
re-encoded. Both ends are ours and of the same build, so there is no version; a frame that does not fit
raises ``WireError`` and the worker is replaced. All numbers little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import msgspec
import numpy as np

from ..engine import Samples
from .trim import Trim

CONTROL = 1
AUDIO = 2

MAX_FRAME = 1 << 24
"""Largest body: 16 MiB is 170 s of audio, far more than one block."""

NO_SAMPLES: Samples = np.zeros(0, np.float32)
"""Audio of a request without sound."""

_HEAD = struct.Struct("<IB3x")
_AUDIO = struct.Struct("<IIHBx")
_MARK = struct.Struct("<4I")


class WireError(Exception):
    """The other end sent something that is not of this language."""


class VoiceFile(msgspec.Struct, frozen=True):
    """A voice to load."""

    id: str
    path: str
    sha256: str
    british: bool


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """First message to a worker. ``durations`` False ignores the duration tensor."""

    voices: tuple[VoiceFile, ...]
    trim: Trim
    gain: float
    durations: bool = True


class Speak(msgspec.Struct, tag="speak", frozen=True):
    """Speak ``text``; answered by audio frames, then Done or Failed."""

    id: int
    text: str
    voice: str
    speed: float
    seed: int | None


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """Stop request ``id`` at the next step; answered by Done. An id that is over is ignored."""

    id: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The worker is warm. ``audio_s`` were made in ``busy_s`` while warming up, for a first measure."""

    audio_s: float
    busy_s: float


class Done(msgspec.Struct, tag="done", frozen=True):
    """The worker is free again: ``audio_s`` seconds of audio were made in ``busy_s`` seconds of wall time."""

    id: int
    audio_s: float
    busy_s: float


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Request ``id`` failed (0: the worker could not start). ``message`` is ours and safe to show."""

    id: int
    message: str


Message = Configure | Speak | Cancel | Ready | Done | Failed


@dataclass(frozen=True, slots=True)
class Audio:
    """A block of request ``id`` from sample ``start`` on, with marks (text start, end, sample start, end)."""

    id: int
    start: int
    last: bool
    marks: tuple[tuple[int, int, int, int], ...]
    pcm: Samples


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message | Audio) -> tuple[bytes, memoryview]:
    """One frame in two parts, to be sent one after the other; the second is the samples, uncopied."""
    if isinstance(message, Audio):
        pcm = np.ascontiguousarray(message.pcm, np.float32)
        fixed = _AUDIO.pack(message.id, message.start, len(message.marks), message.last)
        fixed += b"".join(_MARK.pack(*m) for m in message.marks)
        samples = memoryview(pcm.data).cast("B") if len(pcm) else memoryview(b"")
        return _HEAD.pack(len(fixed) + len(samples), AUDIO) + fixed, samples
    body = _encoder.encode(message)
    return _HEAD.pack(len(body), CONTROL) + body, memoryview(b"")


def _decode(kind: int, body: bytearray) -> Message | Audio:
    if kind == CONTROL:
        try:
            return _decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise WireError("unreadable message") from error
    if len(body) < _AUDIO.size:
        raise WireError("short audio frame")
    ident, start, count, last = _AUDIO.unpack_from(body)
    at = _AUDIO.size + count * _MARK.size
    if at > len(body) or (len(body) - at) % 4:
        raise WireError("audio frame of odd size")
    marks = tuple(_MARK.unpack_from(body, _AUDIO.size + i * _MARK.size) for i in range(count))
    return Audio(ident, start, bool(last), marks, np.frombuffer(body, np.float32, offset=at))


class Reader:
    """Frames out of a byte stream that arrives in pieces, without copying bodies.

    Give ``buffer()`` to something that receives into it, then say how much came to ``received()``.
    """

    def __init__(self) -> None:
        self._head = bytearray(_HEAD.size)
        self._body: bytearray | None = None
        self._kind = 0
        self._at = 0

    def buffer(self) -> memoryview:
        """Room for the next bytes; never empty."""
        return memoryview(self._head if self._body is None else self._body)[self._at :]

    def received(self, count: int) -> Message | Audio | None:
        """Take ``count`` bytes that were written into ``buffer()``; the frame they complete, if any.

        Raises:
            WireError: the bytes are no frame.

        """
        self._at += count
        if self._body is None and self._at == _HEAD.size:
            length, self._kind = _HEAD.unpack(self._head)
            if length > MAX_FRAME or self._kind not in (CONTROL, AUDIO):
                raise WireError("bad frame header")
            self._body, self._at = bytearray(length), 0
        if self._body is None or self._at < len(self._body):
            return None
        body, self._body, self._at = self._body, None, 0
        return _decode(self._kind, body)

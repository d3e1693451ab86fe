"""What the codec service and its processes say to each other; see ``tts_core.child.frames`` for how."""

from __future__ import annotations

import msgspec

from ..child.failure import Failed
from ..child.frames import Language


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """First message to a process. ``role`` is ``decode`` or ``encode``; the rest as in ``CodecService``."""

    role: str
    model: str
    backend: str
    device: str
    batch_frames: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The process is warm."""


class Codes(msgspec.Struct, tag="codes", frozen=True):
    """Frames to decode for ``request`` of ``stream``, or the answer to a clip. Payload: uint8 ``[n, 32]``."""

    stream: int
    request: int


class Samples(msgspec.Struct, tag="samples", frozen=True):
    """A clip to encode, or the answer to codes. Payload: float32 ``[n]``."""

    stream: int
    request: int


class Close(msgspec.Struct, tag="close", frozen=True):
    """Forget ``stream`` and what waits for it."""

    stream: int


class Step(msgspec.Struct, tag="step", frozen=True):
    """A batch was worked on for ``busy_s`` seconds of wall time; it had ``frames`` frames of all streams."""

    frames: int
    busy_s: float


Message = Configure | Ready | Codes | Samples | Close | Step | Failed

LANGUAGE: Language[Message] = Language(Message)

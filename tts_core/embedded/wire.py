"""What the engine and its workers say to each other.

It is what all such engines say (``tts_core.pool.wire``), and what to load.
"""

from __future__ import annotations

import msgspec

from ..child.failure import Failed
from ..child.frames import Language
from ..pool.wire import Audio, Cancel, Done, Ready, Speak
from .trim import Trim


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


Message = Configure | Speak | Cancel | Ready | Audio | Done | Failed

LANGUAGE: Language[Message] = Language(Message)

__all__ = [
    "LANGUAGE",
    "Audio",
    "Cancel",
    "Configure",
    "Done",
    "Message",
    "Ready",
    "Speak",
    "VoiceFile",
]

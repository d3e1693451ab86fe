"""What the engine and its workers say to each other: as all such engines, and what to load."""

from __future__ import annotations

import msgspec

from ..child.failure import Failed
from ..child.frames import Language
from ..pool.wire import Audio, Cancel, Done, Ready, Speak


class VoiceFile(msgspec.Struct, frozen=True):
    """A voice and the numbers of its speakers; the first of ``ids`` is the voice itself."""

    path: str
    ids: tuple[tuple[str, int | None], ...]


class Configure(msgspec.Struct, tag="configure", frozen=True):
    """First message to a worker: its voices, the rate of all audio (Hz), and how many it holds loaded."""

    voices: tuple[VoiceFile, ...]
    rate: int
    loaded: int


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

"""What an engine and its workers say to each other; see ``tts_core.child.frames`` for how.

An engine's language is these, ``child.failure.Failed``, and the first message of its own.
"""

from __future__ import annotations

import msgspec


class Speak(msgspec.Struct, tag="speak", frozen=True):
    """Speak ``text``; answered by Audio, perhaps Failed, and Done."""

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


class Audio(msgspec.Struct, tag="audio", frozen=True):
    """A block of request ``id`` from sample ``start`` on, with marks (text start, end, sample start, end).

    Payload: its samples, float32.
    """

    id: int
    start: int
    last: bool
    marks: tuple[tuple[int, int, int, int], ...]


class Done(msgspec.Struct, tag="done", frozen=True):
    """The worker is free again: ``audio_s`` seconds of audio were made in ``busy_s`` seconds of wall time."""

    id: int
    audio_s: float
    busy_s: float

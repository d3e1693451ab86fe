"""What the cleaner says about a text: plain data between it and the segmenter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How final the end of the text is.

    MORE: text will follow. RELEASE: it paused; plain characters at the end stand as they are. FLUSH: all is
    to be spoken now, but an open ``<...`` may still be completed. END: nothing follows.
    """

    MORE = 0
    RELEASE = 1
    FLUSH = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Clean ``text`` from the source ``[start, end)``; ``exact`` when it is that slice unchanged.

    White space is one blank, or one line feed where a short line ends.
    """

    text: str
    start: int
    end: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """A sentence ends before source offset ``at``, whatever its words say (paragraph, list item, heading)."""

    at: int


@dataclass(frozen=True, slots=True)
class Break:
    """A tag at source offset ``at`` asks for a pause."""

    at: int
    ms: int


@dataclass(frozen=True, slots=True)
class Manner:
    """From source offset ``at`` on, these factors hold."""

    at: int
    speed: float
    volume: float


@dataclass(frozen=True, slots=True)
class Spell:
    """Reading out sign by sign begins (``on``) or ends."""

    on: bool


Item = Piece | Stop | Break | Manner | Spell

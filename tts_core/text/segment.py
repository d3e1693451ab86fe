"""Plain data between the stages of the text front end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .alignment import Alignment


class TextMode(StrEnum):
    """How a client's text messages join.

    DELTA: pieces of one running text, joined verbatim. SEGMENT: every message is a whole segment and is
    spoken as it stands; neighbours get one separator. FINAL: one message holds the whole text.
    """

    DELTA = "delta"
    SEGMENT = "segment"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Switches of the front end.

    ``clean``: drop markdown, emoji, code fences, tables and unknown markup. ``tags``: honour ``<break>``,
    ``<spell>``, ``<speed>``, ``<volume>``; when off they are dropped, never spoken. ``normalise``: expand
    numbers and the like. ``max_segment``: characters after which a segment is cut at the best safe place.
    """

    mode: TextMode = TextMode.DELTA
    clean: bool = True
    tags: bool = True
    normalise: bool = True
    max_segment: int = 280


@dataclass(frozen=True, slots=True)
class Segment:
    """A cleaned, still written-form unit of text.

    ``source_start``/``source_end``: the slice of everything the client sent that this segment accounts for;
    segments are contiguous and together cover the whole text. ``text``: cleaned; ``alignment`` maps its
    offsets to the client's text. ``spell``: ranges of ``text`` to be spelled out. ``pause_before_ms``: from
    ``<break>`` tags. ``speed`` and ``volume``: factors from tags. ``ends_sentence``: False for a clause cut.
    """

    index: int
    source_start: int
    source_end: int
    text: str
    alignment: Alignment
    spell: tuple[tuple[int, int], ...] = ()
    pause_before_ms: int = 0
    speed: float = 1.0
    volume: float = 1.0
    ends_sentence: bool = True


@dataclass(frozen=True, slots=True)
class Utterance:
    """A segment in spoken form, ready for an engine.

    ``text`` is empty where nothing can be spoken (punctuation, emoji alone). ``alignment`` maps offsets of
    ``text`` straight to the client's text.
    """

    segment: Segment
    text: str
    alignment: Alignment

"""The streaming front of the text path: what a client sends becomes segments, as early as is safe.

``TextFrontEnd`` is sans-I/O: it knows no clock. The caller says when the text paused (``release``), when it
is to be spoken as far as it goes (``flush``) and when it ends (``end``).

Rules:

- DELTA and FINAL: the first segment is a first clause or sentence, every later one a whole sentence; longer
  than ``max_segment`` only where there is no safe place to cut. The segments depend on the text alone: any
  split into deltas gives the same.
- SEGMENT: every message is spoken as it stands. It is cut only where it is too long, between its paragraphs
  and list items, and at tags. A tag may still be cut by message borders.
- Segments are contiguous: offsets count the characters of all text fed, joined as it came. The one separator
  that SEGMENT mode puts between neighbours has no offset; texts come without outer white space.
- What cannot be spoken goes with its neighbour. Where there is none, a segment with an empty text (or only
  punctuation) accounts for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tts_core.errors import BadRequest

from .alignment import Alignment
from .boundaries import decide, ends_sentence, releasable
from .cleaner import Cleaner
from .cuts import Cut, Reason
from .draft import Draft
from .items import Break, Level, Piece, Spell, Stop
from .markup import MAX_PAUSE_MS, MAX_TOTAL_PAUSE_MS
from .segment import Segment, TextMode, TextOptions

_WORD = re.compile(r"[A-Za-z0-9]+")
_WORDS = re.compile(r"[A-Za-z0-9 ]+")
MAX_CALM = 128
"""Characters of plain words that may pile up before they are looked at; spares work on tiny deltas."""
MIN_LIMIT = 20
"""Smallest ``max_segment`` that is honoured."""


@dataclass(slots=True)
class _Manner:
    """What holds for the segment in the making."""

    pause_ms: int = 0
    speed: float = 1.0
    volume: float = 1.0


class TextFrontEnd:
    """Segments the text of one context.

    All methods return the segments that became certain, in order. ``feed`` after ``end`` (and a second
    ``feed`` in FINAL mode) raises BadRequest; nothing else is raised for any text.
    """

    def __init__(self, options: TextOptions | None = None) -> None:
        options = options or TextOptions()
        self._mode = options.mode
        self._limit = max(MIN_LIMIT, options.max_segment)
        self._cleaner = Cleaner(options)
        self._draft = Draft()
        self._manner = _Manner()
        self._parts: list[str] = []
        self._length = 0
        self._scan = 0
        self._start = 0
        self._index = 0
        self._spoken = False
        self._paused_ms = 0
        self._ended = False
        self._calm = False
        self._eager = False
        self._partial = False
        self._out: list[Segment] = []

    @property
    def source(self) -> str:
        """All text so far."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def held(self) -> bool:
        """Whether text or a pause is kept back that ``flush`` or ``end`` would give out."""
        return bool(self._draft.text or self._manner.pause_ms or self._cleaner.waiting.strip())

    def feed(self, text: str, *, more: bool = False) -> list[Segment]:
        """Take the next message, or with ``more`` a part of it.

        A thousand characters cost about a millisecond: on an event loop a long message is handed over in
        parts.

        Raises:
            BadRequest: after ``end``, or a second message in FINAL mode.
        """
        begins, self._partial = not self._partial, more
        if self._ended or (self._mode is TextMode.FINAL and self._length and begins):
            raise BadRequest("text after the end of the text", field="text")
        self._parts.append(text)
        self._length += len(text)
        if self._mode is TextMode.SEGMENT:
            if begins:
                self._cleaner.new_message()
            self._cleaner.feed(text)
            if not more:
                return self._drain(Level.FLUSH)
            self._read(Level.MORE)
            return self._take()
        self._cleaner.feed(text)
        # Words decide nothing by themselves; only the first clause may end before a conjunction.
        plain = _WORDS if self._spoken else _WORD
        if self._calm and plain.fullmatch(text) and len(self._cleaner.waiting) < MAX_CALM:
            return []
        self._read(Level.MORE)
        return self._take()

    def release(self) -> list[Segment]:
        """The text paused: give out what only waited for the next character, never a part of a token."""
        if not self._ended:
            self._read(Level.RELEASE)
            if releasable(self._draft.text):
                self._finish(self._cleaner.at)
        return self._take()

    def flush(self) -> list[Segment]:
        """Give out everything, finished or not; only an open ``<...`` is still kept."""
        return [] if self._ended else self._drain(Level.FLUSH)

    def end(self) -> list[Segment]:
        """No more text: give out the rest. Idempotent."""
        if self._ended:
            return []
        segments = self._drain(Level.END)
        self._ended = True
        if self._start < self._length:
            self._emit("", Alignment(()), (), self._length, True)
            segments += self._take()
        return segments

    # -- reading ---------------------------------------------------------------------------------------------

    def _take(self) -> list[Segment]:
        out, self._out = self._out, []
        return out

    def _read(self, level: Level) -> None:
        """Take in all that the cleaner has decided, cutting as soon as a cut is certain."""
        for item in self._cleaner.items(level):
            if isinstance(item, Piece):
                self._draft.append(item)
                if self._mode is not TextMode.SEGMENT or len(self._draft.text) > self._limit:
                    self._cut(final=False)
            elif isinstance(item, Spell):
                self._draft.spell(item.on)
            elif isinstance(item, Stop):
                self._finish(item.at)
            elif isinstance(item, Break):
                self._finish(item.at)
                self._pause(item.ms)
            elif (item.speed, item.volume) != (self._manner.speed, self._manner.volume):
                self._finish(item.at)
                self._manner.speed, self._manner.volume = item.speed, item.volume

        self._calm = self._cleaner.calm and not self._eager

    def _drain(self, level: Level) -> list[Segment]:
        self._read(level)
        at = self._cleaner.at
        self._finish(at)
        if self._manner.pause_ms or self._draft.text or self._has_unspoken(at):
            self._emit_draft(at, ends_sentence(self._draft.text))
        return self._take()

    def _has_unspoken(self, at: int) -> bool:
        return at > self._start and not self.source[self._start : at].isspace()

    def _pause(self, ms: int) -> None:
        ms = min(ms, MAX_PAUSE_MS - self._manner.pause_ms, MAX_TOTAL_PAUSE_MS - self._paused_ms)
        self._manner.pause_ms += ms
        self._paused_ms += ms

    # -- cutting ---------------------------------------------------------------------------------------------

    def _finish(self, at: int) -> None:
        """A segment ends at source offset ``at`` if there is anything to say before it."""
        if self._mode is not TextMode.SEGMENT or len(self._draft.text) > self._limit:
            self._cut(final=True)
        if any(c.isalnum() for c in self._draft.text):
            self._emit_draft(at, ends_sentence(self._draft.text))
        else:
            self._draft.append(Piece(" ", at, at, False))
            self._scan = 0

    def _cut(self, *, final: bool) -> None:
        draft = self._draft
        while draft.text:
            found = decide(
                draft.text,
                self._scan,
                first=not self._spoken and self._mode is not TextMode.SEGMENT,
                final=final,
                limit=self._limit,
                shields=draft.shields,
            )
            if not isinstance(found, Cut):
                self._scan, self._eager = found.scan, found.eager
                return
            if final and not draft.text[found.at :].strip():
                return  # all of it is one segment, the caller's to finish
            text, alignment, spells, rest = draft.cut(found.at)
            self._scan = 0
            self._emit(text, alignment, spells, rest, found.reason is Reason.SENTENCE)

    def _emit_draft(self, at: int, complete: bool) -> None:
        text, alignment, spells, _ = self._draft.cut(len(self._draft.text))
        self._cleaner.forget_space()
        self._scan = 0
        self._emit(text, alignment, spells, at, complete)

    def _emit(
        self, text: str, alignment: Alignment, spells: tuple[tuple[int, int], ...], end: int, complete: bool
    ) -> None:
        manner = self._manner
        self._out.append(
            Segment(
                index=self._index,
                source_start=self._start,
                source_end=end,
                text=text,
                alignment=alignment,
                spell=spells,
                pause_before_ms=manner.pause_ms,
                speed=manner.speed,
                volume=manner.volume,
                ends_sentence=complete,
            )
        )
        self._index += 1
        self._eager = False
        self._start = end
        manner.pause_ms = 0
        self._spoken = self._spoken or any(c.isalnum() for c in text)

"""The clean text that is not cut into segments yet, with its offsets."""

from __future__ import annotations

from .alignment import Alignment, AlignmentBuilder
from .items import Piece


class Draft:
    """Grows at the end by pieces, shrinks at the front by cuts.

    ``text`` holds the clean characters; a line feed in it stands for a blank that ends a short line.
    """

    def __init__(self) -> None:
        self.text = ""
        self._pieces: list[Piece] = []
        self._spells: list[tuple[int, int]] = []
        self._spell_from: int | None = None

    def append(self, piece: Piece) -> None:
        """Add a piece; white space at the front, or after white space, adds nothing."""
        if piece.text in " \n" and (not self.text or self.text[-1] in " \n"):
            return
        self.text += piece.text
        self._pieces.append(piece)

    def spell(self, on: bool) -> None:
        """From here on the text is to be spelled out, or no more."""
        if on:
            self._spell_from = len(self.text)
        elif self._spell_from is not None:
            if self._spell_from < len(self.text):
                self._spells.append((self._spell_from, len(self.text)))
            self._spell_from = None

    @property
    def shields(self) -> list[tuple[int, int]]:
        """Ranges of ``text`` in which no cut is allowed."""
        if self._spell_from is None:
            return self._spells
        return [*self._spells, (self._spell_from, len(self.text) + 1)]

    def cut(self, at: int) -> tuple[str, Alignment, tuple[tuple[int, int], ...], int]:
        """Take the first ``at`` characters away.

        Returns their text without outer white space, its alignment, the ranges to spell, and the source
        offset at which the rest begins, or what was taken ends.
        """
        head = self.text[:at].rstrip(" \n")
        rest = at + len(self.text[at:]) - len(self.text[at:].lstrip(" \n"))
        builder = AlignmentBuilder()
        kept: list[Piece] = []
        pos = 0
        for piece in self._pieces:
            end = pos + len(piece.text)
            if pos < len(head):
                part = piece.text[: len(head) - pos]
                if piece.exact:
                    builder.copy(part, piece.start)
                else:
                    builder.replace(" " if part == "\n" else part, piece.start, piece.end)
            if end > rest:
                kept.append(piece if pos >= rest else _tail(piece, rest - pos))
            pos = end
        last = self._pieces[-1].end if self._pieces else 0
        self._pieces = kept
        self.text = self.text[rest:]
        spells = self._take_spells(len(head), rest)
        text, alignment = builder.build()
        return text, alignment, spells, kept[0].start if kept else last

    def _take_spells(self, end: int, rest: int) -> tuple[tuple[int, int], ...]:
        marks = self._spells
        if self._spell_from is not None:
            marks = [*marks, (self._spell_from, end)]
            self._spell_from = max(0, self._spell_from - rest)
        self._spells = [(max(0, a - rest), b - rest) for a, b in self._spells if b > rest]
        return tuple((a, min(b, end)) for a, b in marks if a < min(b, end))


def _tail(piece: Piece, count: int) -> Piece:
    """A piece without its first ``count`` characters; a block's source range stays with the first part."""
    start = piece.start + count if piece.exact else piece.end
    return Piece(piece.text[count:], start, piece.end, piece.exact)

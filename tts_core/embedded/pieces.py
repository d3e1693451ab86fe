"""Cuts a segment into runs of the network.

The network is made for one sentence of at most 400 phonemes at a time. A segment is one sentence as a rule,
and then it is one piece. Otherwise it is cut, in this order of preference, after the end of a sentence,
after a pause, between words, and inside a word only where one alone is too long. The first piece of a long
sentence is kept short, so that the time to the first audio does not grow with the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .phones import PAUSES, SpokenWord

MAX_PHONEMES = 400
"""Longest input of the network, as hibari-tts 0.2.1 limits it itself."""

LONG = 160
"""Phonemes above which a sentence is cut at a pause; about 25 words, 60 ms of work on one core."""

FIRST = 30
"""Least phonemes before the first cut of a long sentence; about 2 s of speech, during which the rest is made.
"""

_ENDS = frozenset(".!?…")
_CLAUSES = frozenset(",;:—")
_CLOSERS = frozenset('"”)')


@dataclass(frozen=True, slots=True)
class Piece:
    """Words ``[first, last)`` of the segment, and how the piece ends: "sentence", "clause" or "word"."""

    first: int
    words: tuple[SpokenWord, ...]
    ending: str

    @property
    def phonemes(self) -> str:
        """Input of the network, words parted by spaces."""
        return " ".join(w.phonemes for w in self.words)


def split(words: Sequence[SpokenWord]) -> list[Piece]:
    """Cut ``words`` into pieces that together have each word once, in order.

    A word of more than 400 phonemes becomes several pieces with the same ``first``, each with a part of it.
    """
    out: list[Piece] = []
    for start, end in _sentences(words):
        at = start
        while at < end:
            if len(words[at].phonemes) > MAX_PHONEMES:
                out.extend(_oversized(words[at], at))
                at += 1
                continue
            cut = _cut(words, at, end, first=not out)
            run = tuple(words[at:cut])
            out.append(Piece(at, run, _ending(run[-1].phonemes)))
            at = cut
    return out


def _sentences(words: Sequence[SpokenWord]) -> list[tuple[int, int]]:
    out, start = [], 0
    for i in range(1, len(words)):
        # A lower-case word goes on after an abbreviation we do not know.
        if _ending(words[i - 1].phonemes) == "sentence" and not words[i].text[:1].islower():
            out.append((start, i))
            start = i
    if start < len(words):
        out.append((start, len(words)))
    return out


def _ending(phonemes: str) -> str:
    bare = phonemes.rstrip("".join(_CLOSERS))
    if bare and bare[-1] in _ENDS:
        return "sentence"
    if bare and bare[-1] in _CLAUSES:
        return "clause"
    return "word"


def _cut(words: Sequence[SpokenWord], at: int, end: int, *, first: bool) -> int:
    """Index after the last word of the piece that begins with word ``at``; the sentence ends at ``end``."""
    total = sum(len(w.phonemes) + 1 for w in words[at:end]) - 1
    if total <= LONG:
        return end
    size, clause, fits = 0, 0, at + 1
    for i in range(at, end):
        size += len(words[i].phonemes) + (i > at)
        if size > MAX_PHONEMES:
            break
        fits = i + 1
        if i + 1 < end and _ending(words[i].phonemes) != "word":
            left = total - size - 1
            if first and size >= FIRST and left >= FIRST:
                return i + 1
            # Any later piece is as long as possible, but never so that a scrap is left over.
            if size >= FIRST and left >= FIRST and (size <= LONG or not clause):
                clause = i + 1
    if clause:
        return clause
    return end if total <= MAX_PHONEMES else fits


def _oversized(word: SpokenWord, index: int) -> list[Piece]:
    """Cut one word that the network cannot take whole."""
    out: list[Piece] = []
    rest = word.phonemes
    while rest:
        cut = min(len(rest), MAX_PHONEMES)
        space = rest.rfind(" ", MAX_PHONEMES // 2, cut)
        if len(rest) > MAX_PHONEMES and space > 0:
            cut = space
        part, rest = rest[:cut], rest[cut:].lstrip(" ")
        if any(c not in PAUSES for c in part) or not out:
            out.append(Piece(index, (SpokenWord(word.text, part),), _ending(part)))
    return out

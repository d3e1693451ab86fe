"""Which phonemes each word of the text became.

Piper turns a whole text into sentences of phonemes and does not tell where a word begins: "4215" is four
words of phonemes, "of the" may be one. Each word is therefore turned into phonemes once more, alone; it has
its share of the whole by how many it has then, and its ends are moved to the nearest gap between words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(r"\S+")
SILENT = frozenset(" .,:;!?-()'\"^$_ˈˌː…。，、？！")
"""Phonemes that are no sound of their own: gaps, punctuation, stress and length."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A word of the text ``[start, end)`` and its phonemes ``[first, last)``, counted over all sentences."""

    start: int
    end: int
    first: int
    last: int


def weight(phonemes: Sequence[str]) -> int:
    """How many sounds they are."""
    return sum(p not in SILENT for p in phonemes)


def spoken(
    text: str, sentences: Sequence[Sequence[str]], phonemes: Callable[[str], Sequence[str]]
) -> list[Spoken]:
    """The words of ``text`` that are heard, in order, never overlapping.

    Args:
        text: as it was given to Piper.
        sentences: the phonemes that it became.
        phonemes: gives those of one word alone.
    """
    flat = [p for sentence in sentences for p in sentence]
    found = [m for m in _TOKEN.finditer(text) if any(c.isalnum() for c in m.group())]
    tokens = [(m.start(), m.end(), weight(phonemes(m.group()))) for m in found]
    tokens = [token for token in tokens if token[2]]
    sounds = [p not in SILENT for p in flat]
    before = [0]  # sounds before each phoneme
    for sound in sounds:
        before.append(before[-1] + sound)
    if not tokens or not before[-1]:
        return []
    gaps = _gaps(sentences)
    share = before[-1] / sum(w for _, _, w in tokens)
    out: list[Spoken] = []
    at, first = 0, 0
    for i, (start, end, w) in enumerate(tokens):
        at += w
        last = len(flat) if i == len(tokens) - 1 else _cut(at * share, w * share, before, gaps, first)
        if last > first:
            out.append(Spoken(start, end, first, last))
            first = last
    return out


def _gaps(sentences: Sequence[Sequence[str]]) -> list[int]:
    """Phonemes with which a word may begin: after a blank, or first of a sentence."""
    gaps: list[int] = []
    base = 0
    for sentence in sentences:
        gaps.append(base)
        gaps += [base + i + 1 for i, p in enumerate(sentence) if p == " " and i + 1 < len(sentence)]
        base += len(sentence)
    return gaps


def _cut(sounds: float, own: float, before: list[int], gaps: list[int], first: int) -> int:
    """Where a word ends that should do so after ``sounds``: at a gap, unless none is near."""
    near = [g for g in gaps if g > first]
    gap = min(near, key=lambda g: abs(before[g] - sounds), default=None)
    if gap is not None and abs(before[gap] - sounds) <= max(1.0, own * 0.5):
        return gap
    return max(first, bisect_left(before, round(sounds)))

"""Turns an engine's spoken-word marks into timings of the words that the client sent.

The engine speaks "three hundred dollars"; the client sent "$300.". A word event always names a
whitespace-separated token of the cleaned text, with its offsets in the client's own text. Tokens come out in
order, each exactly once, never overlapping in time, so that they re-join to the text (protocols.md R25).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from tts_core.engine import WordMark
from tts_core.text.segment import Utterance

from .events import Word

_TOKEN = re.compile(r"\S+")
_SPOKEN = re.compile(r"\w+")


@dataclass(slots=True)
class _Token:
    text: str
    source_start: int
    source_end: int
    start: int = -1  # native samples within the segment
    end: int = -1


class WordAligner:
    """Collects the marks of one utterance and gives its words.

    Args:
        utterance: what is being spoken.
        rate: the engine's native rate, in Hz.
        offset_s: seconds of the context's audio before this utterance.
    """

    def __init__(self, utterance: Utterance, rate: int, offset_s: float) -> None:
        self._utterance = utterance
        self._rate = rate
        self._offset = offset_s
        segment = utterance.segment
        self._tokens = [
            _Token(m.group(), *segment.alignment.source_range(m.start(), m.end()))
            for m in _TOKEN.finditer(segment.text)
        ]
        self._starts = [t.source_start for t in self._tokens]
        self._spoken = [m.span() for m in _SPOKEN.finditer(utterance.text)]
        self._given = 0
        self._clock = 0  # native samples: no word begins before this

    def add(self, marks: tuple[WordMark, ...]) -> tuple[Word, ...]:
        """Take new marks (in order); returns the words that are complete by now.

        A word is complete when what is to be spoken next belongs to a later one: it need not wait for the
        next mark, which may come only with audio after the word.
        """
        for mark in marks:
            self._place(*self._covered(mark.text_start, mark.text_end), mark)
        return self._give(self._next(marks[-1].text_end) if marks else 0)

    def finish(self, total_samples: int) -> tuple[Word, ...]:
        """The utterance is over (``total_samples`` native): returns all remaining words."""
        if self._tokens and all(t.start < 0 for t in self._tokens):
            weights = [len(t.text) + 1 for t in self._tokens]
            at, whole = 0, sum(weights)
            for token, weight in zip(self._tokens, weights, strict=True):
                token.start = total_samples * at // whole
                at += weight
                token.end = total_samples * at // whole
        return self._give(len(self._tokens))

    def _next(self, spoken_end: int) -> int:
        """Index of the token to which the first spoken word from this offset belongs."""
        i = bisect_left(self._spoken, (spoken_end, 0))
        return self._covered(*self._spoken[i])[0] if i < len(self._spoken) else len(self._tokens)

    def _covered(self, start: int, end: int) -> tuple[int, int]:
        """Indices ``[first, last)`` of the tokens that a range of the spoken text stands for."""
        a, b = self._utterance.alignment.source_range(start, end)
        first = max(0, bisect_right(self._starts, a) - 1)
        if (
            first < len(self._tokens)
            and self._tokens[first].source_end <= a
            and first + 1 < len(self._tokens)
        ):
            first += 1
        last = first + 1
        while last < len(self._tokens) and self._tokens[last].source_start < b:
            last += 1
        return first, min(last, len(self._tokens))

    def _place(self, first: int, last: int, mark: WordMark) -> None:
        tokens = self._tokens[first:last]
        whole = sum(len(t.text) for t in tokens)
        at = 0
        length = mark.sample_end - mark.sample_start
        for token in tokens:
            start = mark.sample_start + length * at // max(1, whole)
            at += len(token.text)
            end = mark.sample_start + length * at // max(1, whole)
            token.start = start if token.start < 0 else min(token.start, start)
            token.end = max(token.end, end)

    def _give(self, upto: int) -> tuple[Word, ...]:
        out: list[Word] = []
        for token in self._tokens[self._given : upto]:
            # A token that the voice does not speak ("-") sits at the end of the one before it.
            start = self._clock if token.start < 0 else max(self._clock, token.start)
            end = max(start, token.end)
            self._clock = end
            out.append(
                Word(
                    token.text,
                    token.source_start,
                    token.source_end,
                    self._offset + start / self._rate,
                    self._offset + end / self._rate,
                )
            )
        self._given = max(self._given, upto)
        return tuple(out)

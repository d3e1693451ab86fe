"""Turns an engine's spoken-word marks into timings of the words that the client sent.

The engine speaks "three hundred dollars"; the client sent "$300.". A word event always names a
whitespace-separated token of the cleaned text, with its offsets in the client's own text. Tokens come out in
order, each exactly once, never overlapping in time, so that they re-join to the text (protocols.md R25).

A word is told no later than the audio in which it begins, and clients take no corrections. Where the engine
has then not yet marked all that is spoken for it, its end is told as it is foreseen, and the word after it
is told to begin no earlier. What is told and what is known by and by are therefore two things: the first is
for the client, the second says what the listener heard.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from tts_core.engine import WordMark
from tts_core.text.segment import Utterance

from .events import Word

CHARACTERS_S = 14.5
"""Characters a second, blanks included, of a voice that was not heard yet: English read at an easy speed."""

PRIOR = 15
"""Characters that what was known of the speed before counts for against what the marks say of it."""

_TOKEN = re.compile(r"\S+")
_SPOKEN = re.compile(r"\w+")


@dataclass(slots=True)
class _Token:
    text: str
    source_start: int
    source_end: int
    start: int = -1  # native samples within the segment; below 0 where it is not spoken
    end: int = -1


@dataclass(slots=True)
class _Group:
    """Tokens ``[first, last)`` that are spoken as one, by the words ``spoken`` (their offsets)."""

    first: int
    last: int
    spoken: list[tuple[int, int]]
    start: int = -1  # native samples within the segment
    end: int = -1
    mark_at: int = 0  # of the latest mark: where it begins, in samples and in the spoken text
    mark_text: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """``told``: words for the client, in order, each once. ``known``: words as they are known by now.

    ``known`` has every word of ``told``, and again those told before whose times are known better now.
    """

    told: tuple[Word, ...]
    known: tuple[Word, ...]


class WordAligner:
    """Collects the marks of one utterance and gives its words.

    Args:
        utterance: what is being spoken.
        rate: the engine's native rate, in Hz.
        offset: native samples of the context's audio before this utterance.
        speed: as requested of the engine.
        before: the aligner of the utterance before; its words come before ours.
    """

    def __init__(
        self,
        utterance: Utterance,
        rate: int,
        offset: int,
        *,
        speed: float = 1.0,
        before: WordAligner | None = None,
    ) -> None:
        self._rate = rate
        self._offset = offset
        self._speed = speed
        segment = utterance.segment
        self._tokens = [
            _Token(m.group(), *segment.alignment.source_range(m.start(), m.end()))
            for m in _TOKEN.finditer(segment.text)
        ]
        self._groups = self._grouped(utterance)
        self._ends = [group.spoken[-1][1] for group in self._groups]
        self._group = 0  # the first that is not all marked
        self._seen = 0  # end in the spoken text of what is marked
        self._first: WordMark | None = None
        self._latest: WordMark | None = None
        self._known = 0  # tokens with their times
        self._told = 0
        self._clock = 0  # no word begins before this
        self._told_clock: int = 0 if before is None else before._offset + before._told_clock - offset
        self._given = 0  # samples of the chunks before
        self._prior = rate / CHARACTERS_S if before is None else before._pace() * before._speed

    def add(self, marks: tuple[WordMark, ...], samples: int, *, last: bool = False) -> Timings:
        """Take the marks of a chunk (in order), before its audio is sent.

        Args:
            marks: those that came with it.
            samples: native samples of the utterance up to the end of the chunk.
            last: it is the last chunk; all remaining words are told.

        A word is complete when what is to be spoken next belongs to a later one: it need not wait for the
        next mark, which may come only with audio after the word. One that is not complete is told with the
        chunk in which it begins. A mark that comes after the audio it names cannot be told in time: such a
        word is told to begin where the chunk does.
        """
        for mark in marks:
            self._place(mark)
        told: list[Word] = []
        known: list[Word] = []
        if last and all(group.start < 0 for group in self._groups):
            self._spread(0, len(self._tokens), 0, samples)
        for token in self._tokens[self._known : self._settle(last)]:
            # A token that the voice does not speak ("-") sits at the end of the one before it.
            start = self._clock if token.start < 0 else max(self._clock, token.start)
            self._clock = max(start, token.end)
            word = self._word(token, start, self._clock)
            known.append(word)
            if self._known == self._told:
                told.append(self._tell(token, word, start, self._clock))
            self._known += 1
        if not last:
            for token in self._begun(samples):
                word = self._word(token, token.start, token.end)
                known.append(word)
                told.append(self._tell(token, word, token.start, token.end))
        self._given = samples
        return Timings(tuple(told), tuple(known))

    # What is spoken for what

    def _grouped(self, utterance: Utterance) -> list[_Group]:
        groups: list[_Group] = []
        starts = [token.source_start for token in self._tokens]
        source_range = utterance.alignment.source_range
        for match in _SPOKEN.finditer(utterance.text) if self._tokens else ():
            span = match.span()
            first, last = self._covered(starts, *source_range(*span))
            spoken = [span]
            while groups and first < groups[-1].last:
                group = groups.pop()
                first, last = min(first, group.first), max(last, group.last)
                spoken = group.spoken + spoken
            groups.append(_Group(first, last, spoken))
        return groups

    def _covered(self, starts: list[int], a: int, b: int) -> tuple[int, int]:
        """Indices ``[first, last)`` of the tokens in a range of the client's text; at least one."""
        first = bisect_right(starts, a) - 1
        if first < 0 or (first and starts[first - 1] == starts[first]):
            first = bisect_left(starts, starts[max(0, first)])
        if self._tokens[first].source_end <= a and first + 1 < len(self._tokens):
            first += 1
        return first, max(first + 1, bisect_left(starts, b))

    # What is known

    def _place(self, mark: WordMark) -> None:
        """Share a mark out over the groups it names, by their characters in it."""
        shares: list[tuple[_Group, int]] = []
        for i in range(bisect_right(self._ends, mark.text_start), len(self._groups)):
            group = self._groups[i]
            begin = max(mark.text_start, group.spoken[0][0])
            if (share := min(mark.text_end, self._ends[i]) - begin) <= 0:
                break
            shares.append((group, share))
            if mark.text_end <= self._ends[i]:
                break
        whole, at, length = sum(share for _, share in shares), 0, mark.sample_end - mark.sample_start
        for group, share in shares:
            begin = mark.sample_start + length * at // whole
            at += share
            group.start = begin if group.start < 0 else min(group.start, begin)
            group.end = max(group.end, mark.sample_start + length * at // whole)
            group.mark_at, group.mark_text = begin, max(mark.text_start, group.spoken[0][0])
        self._seen = max(self._seen, mark.text_end)
        self._first = self._first or mark
        self._latest = mark

    def _settle(self, last: bool) -> int:
        """Place the tokens of the groups that are complete; up to which token times are known."""
        while self._group < len(self._groups):
            group = self._groups[self._group]
            if not last and group.spoken[-1][0] >= self._seen:
                return group.first if self._seen else 0
            if group.start >= 0:
                self._spread(group.first, group.last, group.start, group.end)
            self._group += 1
        return len(self._tokens) if last or self._groups else 0

    def _spread(self, first: int, last: int, start: int, end: int) -> None:
        """Place tokens in a stretch of time by their characters."""
        tokens = self._tokens[first:last]
        weights = [len(token.text) + 1 for token in tokens]
        at, whole = 0, sum(weights)
        for token, weight in zip(tokens, weights, strict=True):
            token.start = start + (end - start) * at // whole
            at += weight
            token.end = start + (end - start) * at // whole

    # What is foreseen

    def _begun(self, samples: int) -> list[_Token]:
        """The tokens not yet told that begin before ``samples`` though not all of them is marked."""
        if self._group == len(self._groups):
            return []
        group = self._groups[self._group]
        if group.start < 0:
            return []
        pace, stop = self._pace(), group.spoken[-1][1]
        to_come = next(start for start, _ in group.spoken if start >= self._seen)
        # What is to come is not in this chunk, or its mark would be here.
        end = max(
            group.end,
            group.mark_at + round((stop - group.mark_text) * pace),
            samples + round((stop - to_come) * pace),
        )
        self._spread(group.first, group.last, max(self._clock, group.start), max(self._clock, end))
        begun: list[_Token] = []
        for token in self._tokens[self._told : group.last]:
            if token.start >= samples:
                break
            begun.append(token)
        return begun

    def _pace(self) -> float:
        """Samples of a character."""
        prior = self._prior / self._speed
        if self._first is None or self._latest is None:
            return prior
        samples = max(0, self._latest.sample_start - self._first.sample_start)
        characters = max(0, self._latest.text_start - self._first.text_start)
        return (prior * PRIOR + samples) / (PRIOR + characters)

    # What is told

    def _tell(self, token: _Token, word: Word, start: int, end: int) -> Word:
        """``word``, which is known from ``start`` to ``end``, as the client is told of it."""
        self._told += 1
        floor = max(self._told_clock, self._given)
        if floor <= start <= end:
            self._told_clock = end
            return word
        start = max(floor, start)
        self._told_clock = max(start, end)
        return self._word(token, start, self._told_clock)

    def _word(self, token: _Token, start: int, end: int) -> Word:
        return Word(
            token.text,
            token.source_start,
            token.source_end,
            (self._offset + start) / self._rate,
            (self._offset + end) / self._rate,
        )

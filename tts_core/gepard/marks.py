"""Where in the audio a word is, estimated: the model aligns nothing.

A word is placed in proportion to its characters, at the speed that the voice lately had; when the end is
known, what is left is spread over what is left. That is right to about a word in the middle of a clause, and
exact at its ends, which is what a barge-in needs to tell what was heard. A client that must have exact times
must not take them from here.

A mark is given with the chunk in which its word begins, or before, and never ends beyond sound that there is:
the words of the next segment come after it.
"""

from __future__ import annotations

import re
from collections import OrderedDict

from tts_core.engine import WordMark
from tts_core.nanocodec import fsq

CHARACTERS_S = 14.5
"""Characters a second, blanks included, of a voice that was not heard yet: English read at an easy speed."""

VOICES = 256
"""Voices whose speed is remembered."""

_SMOOTH = 0.3
_WORD = re.compile(r"\S+")


class Pace:
    """Samples of a character, of each voice lately; the least recently used voice is forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()

    def of(self, voice: str) -> float:
        """Samples of a character of ``voice``."""
        return self._known.get(voice, fsq.SAMPLE_RATE / CHARACTERS_S)

    def learn(self, voice: str, text: str, samples: int) -> None:
        """``text`` was spoken whole, in ``samples``."""
        said = sum(len(match[0]) + 1 for match in _WORD.finditer(text))
        if not said or not samples:
            return
        known = self.of(voice)
        self._known[voice] = known + _SMOOTH * (samples / said - known)
        self._known.move_to_end(voice)
        while len(self._known) > VOICES:
            self._known.popitem(last=False)


class Marks:
    """The words of one request, in order, each given once.

    Args:
        text: what is spoken.
        pace: samples of a character.
    """

    def __init__(self, text: str, pace: float) -> None:
        self._words = [match.span() for match in _WORD.finditer(text)]
        self._pace = pace
        self._given = 0
        self._at = 0.0  # where the next word begins, as far as one can tell
        self._clock = 0  # no word begins before this sample

    def upto(self, end: int, made: int) -> tuple[WordMark, ...]:
        """The words that begin before sample ``end``, the end of the chunk to be given.

        Args:
            end: samples given with that chunk.
            made: samples that are sure to come in all, at least ``end``.
        """
        out: list[WordMark] = []
        for start, stop in self._words[self._given :]:
            at, after = self._at, self._at + (stop - start + 1) * self._pace
            # Words whose end is sure can be told ahead; others not before their beginning is there.
            if at >= end and after > made:
                break
            out.append(self._mark(start, stop, int(at), min(int(after), made)))
            # A mark may be cut short by the sound that there is; the word is not.
            self._at = after
        return tuple(out)

    def finish(self, begin: int, total: int) -> tuple[WordMark, ...]:
        """The words that are left, over what is left of ``total`` samples.

        The last chunk begins at ``begin``. Words that came sooner than was thought take what they need, but
        nothing of the chunks before.
        """
        left = self._words[self._given :]
        whole = sum(stop - start + 1 for start, stop in left)
        begin = min(total, max(begin, self._clock, int(min(self._at, total - whole * self._pace))))
        said = 0
        out: list[WordMark] = []
        for start, stop in left:
            at = begin + (total - begin) * said // whole
            said += stop - start + 1
            out.append(self._mark(start, stop, at, begin + (total - begin) * said // whole))
        return tuple(out)

    def _mark(self, start: int, stop: int, begin: int, end: int) -> WordMark:
        self._given += 1
        begin = max(begin, self._clock)
        self._clock = max(begin, end)
        return WordMark(start, stop, begin, self._clock)

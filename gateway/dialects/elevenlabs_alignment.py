"""Character times as the ElevenLabs protocol has them: three arrays with each piece of audio.

Word times come from the engine; within a word its characters share the time evenly. The rules that clients
rely on (protocols.md 1.1 and 1.2, R25):

- joined, the characters are the text that was sent, each once, in order; times never overlap or run back;
- times count from the start of the message's own audio, and its last character lasts to the end of it;
- pipecat adds up these spans and takes the sum for the clock. Audio in which no character begins therefore
  carries one empty character, which joins to nothing. LiveKit counts array elements: it asks for
  ``sync_alignment``, and then such audio carries null.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from sessions.events import Word


@dataclass(frozen=True, slots=True)
class Slice:
    """The characters of one piece of audio; milliseconds, relative to its start unless absolute."""

    chars: tuple[str, ...]
    starts: tuple[int, ...]
    durations: tuple[int, ...]

    def ends(self) -> tuple[int, ...]:
        """When each one ends."""
        return tuple(start + length for start, length in zip(self.starts, self.durations, strict=True))


class CharacterClock:
    """The characters of one context.

    Args:
        rate: output rate in Hz; ``take`` counts samples of it.
        filler: audio without a character carries an empty one.
        absolute: times count from the start of the context.
    """

    def __init__(self, rate: int, *, filler: bool = True, absolute: bool = False) -> None:
        self._rate = rate
        self._filler = filler
        self._absolute = absolute
        self._chars: list[str] = []  # those that wait for their audio
        self._starts: list[int] = []  # when each begins: milliseconds of the context, never running back
        self._at = 0  # offset in the text of the first character without a time
        self._end = 0  # milliseconds: where the last word ends

    def add(self, words: tuple[Word, ...], text: str) -> None:
        """Take word times; ``text`` is everything that was sent so far."""
        for word in words:
            start, end = round(word.start * 1000), round(word.end * 1000)
            if word.text_end <= self._at:
                continue
            self._spread(text[self._at : word.text_start], self._end, start)
            self._at = max(self._at, word.text_start)
            self._spread(text[self._at : word.text_end], start, end)
            self._at, self._end = word.text_end, max(self._end, end)
            self._blanks(text)

    def _spread(self, chars: str, start: int, end: int) -> None:
        if not chars:
            return
        start = max(start, self._starts[-1] if self._starts else 0)
        whole, count = max(0, end - start), len(chars)
        self._chars += chars
        self._starts += [start + whole * i // count for i in range(count)]

    def _blanks(self, text: str) -> None:
        """White space goes with the word before it: pipecat takes a word for said when a blank follows."""
        start = self._at
        while self._at < len(text) and text[self._at].isspace():
            self._at += 1
        self._spread(text[start : self._at], self._end, self._end)

    def take(self, start_sample: int, end_sample: int) -> Slice | None:
        """The characters that begin before the end of this audio; None for none."""
        start, end = (round(sample * 1000 / self._rate) for sample in (start_sample, end_sample))
        count = bisect_left(self._starts, end)
        # A blank goes with what it ends.
        while count < len(self._starts) and self._starts[count] == end and self._chars[count].isspace():
            count += 1
        if not count:
            if not self._filler or self._absolute or end <= start:
                return None
            chars, starts = [""], [start]
        else:
            chars, starts = self._chars[:count], self._starts[:count]
            del self._chars[:count], self._starts[:count]
            late = bisect_left(starts, start)
            starts[:late] = [start] * late
        durations = [after - at for at, after in zip(starts, [*starts[1:], end], strict=True)]
        if not self._absolute:
            starts = [at - start for at in starts]
        return Slice(tuple(chars), tuple(starts), tuple(durations))

    def rest(self, text: str, end_sample: int) -> Slice | None:
        """At the end: what is left of the text, at an instant; None for nothing."""
        end = round(end_sample * 1000 / self._rate)
        chars = self._chars + list(text[self._at :])
        self._chars, self._starts = [], []
        self._at = len(text)
        if not chars:
            return None
        return Slice(tuple(chars), (end if self._absolute else 0,) * len(chars), (0,) * len(chars))


__all__ = ["CharacterClock", "Slice"]

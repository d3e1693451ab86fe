"""Maps offsets of a derived text (cleaned, normalised) back to the text that the client sent.

An alignment is a run of spans that cover the derived text from left to right. A span either maps character
by character (both sides equally long and ``exact``) or as a block (every offset inside maps to the whole
source range, as "two thirty" does to "2:30").
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Span:
    """Derived ``[start, end)`` comes from source ``[source_start, source_end)``; ``exact``: char by char."""

    start: int
    end: int
    source_start: int
    source_end: int
    exact: bool = False


class Alignment:
    """An immutable, ordered map from derived offsets to source offsets."""

    __slots__ = ("_starts", "spans")

    def __init__(self, spans: tuple[Span, ...]) -> None:
        self.spans = spans
        self._starts = [s.start for s in spans]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alignment) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)

    def __repr__(self) -> str:
        return f"Alignment({self.spans!r})"

    @classmethod
    def identity(cls, length: int, source_start: int = 0) -> Self:
        """Character-by-character map of a text of ``length`` that begins at ``source_start``."""
        if not length:
            return cls(())
        return cls((Span(0, length, source_start, source_start + length, exact=True),))

    def source_range(self, start: int, end: int) -> tuple[int, int]:
        """Source range of the derived range ``[start, end)``; an empty range maps to a point."""
        spans = self.spans
        if not spans:
            return (0, 0)
        if len(spans) == 1 and spans[0].exact and spans[0].start <= start <= end <= spans[0].end:
            shift = spans[0].source_start - spans[0].start  # nearly all text is as the client sent it
            return (start + shift, end + shift)
        return (self._map(start, right=False), self._map(max(end, start), right=True))

    def _map(self, offset: int, *, right: bool) -> int:
        spans = self.spans
        span = spans[0]
        if len(spans) > 1:
            i = bisect_right(self._starts, offset - 1 if right and offset > 0 else offset) - 1
            if i > 0:
                span = spans[i]
        if not span.exact:
            return span.source_end if right else span.source_start
        if offset <= span.start:
            return span.source_start
        return span.source_end if offset >= span.end else span.source_start + offset - span.start

    def then(self, inner: Alignment) -> Alignment:
        """Compose: ``inner`` maps to our derived text, the result maps straight to our source."""
        out: list[Span] = []
        for s in inner.spans:
            if not s.exact:
                a, b = self.source_range(s.source_start, s.source_end)
                out.append(Span(s.start, s.end, a, b))
                continue
            # An exact run may cross several of our spans: cut it where they meet.
            at = s.source_start
            for i in range(max(0, bisect_right(self._starts, at) - 1), len(self.spans)):
                mine = self.spans[i]
                if mine.start >= s.source_end:
                    break
                lo, hi = max(at, mine.start), min(s.source_end, mine.end)
                if lo >= hi:
                    continue
                d = s.start + (lo - s.source_start)
                if mine.exact:
                    src = mine.source_start + (lo - mine.start)
                    out.append(Span(d, d + hi - lo, src, src + hi - lo, exact=True))
                else:
                    out.append(Span(d, d + hi - lo, mine.source_start, mine.source_end))
                at = hi
        return Alignment(tuple(out))

    def shift(self, by: int) -> Alignment:
        """The same map with the source moved by ``by`` characters."""
        return Alignment(
            tuple(Span(s.start, s.end, s.source_start + by, s.source_end + by, s.exact) for s in self.spans)
        )


class AlignmentBuilder:
    """Builds a derived text and its alignment piece by piece."""

    __slots__ = ("_length", "_parts", "_spans")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._spans: list[Span] = []
        self._length = 0

    def copy(self, text: str, source_start: int) -> None:
        """Append ``text`` taken unchanged from the source at ``source_start``."""
        self._add(text, source_start, source_start + len(text), exact=True)

    def replace(self, text: str, source_start: int, source_end: int) -> None:
        """Append ``text`` that stands for the source range ``[source_start, source_end)``."""
        self._add(text, source_start, source_end, exact=False)

    def _add(self, text: str, a: int, b: int, *, exact: bool) -> None:
        if not text:
            return
        start, end = self._length, self._length + len(text)
        last = self._spans[-1] if self._spans else None
        if exact and last is not None and last.exact and last.source_end == a:
            self._spans[-1] = Span(last.start, end, last.source_start, b, exact=True)
        else:
            self._spans.append(Span(start, end, a, b, exact))
        self._parts.append(text)
        self._length = end

    def build(self) -> tuple[str, Alignment]:
        """The derived text and its alignment."""
        return "".join(self._parts), Alignment(tuple(self._spans))

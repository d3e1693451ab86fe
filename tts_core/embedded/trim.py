"""How much silence is kept around speech."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trim:
    """Silence kept, in milliseconds.

    ``lead_ms`` before the first sound and ``tail_ms`` after the last one of a request, whose caller adds
    the pauses between segments. Inside a request that is made in several pieces, ``sentence_ms``,
    ``clause_ms`` or ``word_ms`` is kept after a piece, by how it ends. The network itself gives 240-345 ms
    before and 295-515 ms after; silence before the sound counts in the time to first audio, and up to 19 ms
    of it are kept in any case, as much as the first frame's window may hold of the sound.
    """

    lead_ms: float = 5.0
    tail_ms: float = 75.0
    sentence_ms: float = 240.0
    clause_ms: float = 120.0
    word_ms: float = 40.0

    def after(self, ending: str, *, last: bool) -> float:
        """Silence kept after a piece with this ending: "sentence", "clause" or "word"."""
        if last:
            return self.tail_ms
        return {"sentence": self.sentence_ms, "clause": self.clause_ms}.get(ending, self.word_ms)

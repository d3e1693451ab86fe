"""How much silence is kept around speech."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trim:
    """Silence kept, in milliseconds: before the first sound, and after a piece by how it ends.

    The network gives 240-345 ms before and 295-515 ms after. Silence before counts in the time to first
    audio; silence after a sentence is the pause that a listener expects between two.
    """

    lead_ms: float = 20.0
    sentence_ms: float = 240.0
    clause_ms: float = 120.0
    word_ms: float = 60.0

    def tail_ms(self, ending: str) -> float:
        """Silence kept after a piece with this ending: "sentence", "clause" or "word"."""
        return {"sentence": self.sentence_ms, "clause": self.clause_ms}.get(ending, self.word_ms)

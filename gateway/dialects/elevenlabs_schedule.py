"""How much text the ElevenLabs protocol keeps back before it speaks.

Without ``auto_mode`` text is generated when enough of it has come: 120, 160, 250, then 290 characters each
time, unless ``generation_config.chunk_length_schedule`` says otherwise (protocols.md 1.1). What is let go is
still cut at safe places by the text front end, so a schedule changes when speech begins, never how it is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT = (120, 160, 250, 290)
TRIGGER = 50
"""Characters that ``try_trigger_generation`` needs; the vendor's smallest step of a schedule."""
PAUSE_S = 1.0
"""A pause in the text after which what is held is let go: frameworks give a turn up after 3 s of silence."""


class Schedule:
    """Holds the text of one context. ``lengths``: characters of each step, the last for all that follow."""

    def __init__(self, lengths: Sequence[int] = DEFAULT) -> None:
        self._lengths = tuple(lengths) or DEFAULT
        self._step = 0
        self._parts: list[str] = []
        self._held = 0

    @property
    def held(self) -> int:
        """Characters kept back."""
        return self._held

    def change(self, lengths: Sequence[int]) -> None:
        """Take another schedule from here on."""
        self._lengths = tuple(lengths) or DEFAULT

    def add(self, text: str, *, trigger: bool = False) -> str:
        """Add text; what is to be spoken now, "" for nothing yet. ``trigger``: as soon as it is worth it."""
        self._parts.append(text)
        self._held += len(text)
        due = self._lengths[min(self._step, len(self._lengths) - 1)]
        if self._held >= (min(due, TRIGGER) if trigger else due):
            return self.flush()
        return ""

    def flush(self) -> str:
        """Give out all that is held."""
        text = "".join(self._parts)
        self.drop()
        if text:
            self._step += 1
        return text

    def drop(self) -> None:
        """Forget what is held."""
        self._parts.clear()
        self._held = 0


__all__ = ["DEFAULT", "PAUSE_S", "TRIGGER", "Schedule"]

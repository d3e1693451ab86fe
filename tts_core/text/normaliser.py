"""Written form to spoken form, for what voice agents say in US English.

Plain text passes untouched. All else goes through the pre-pass (``prepass``), which claims typed spans and
spells them as words; the few spans that it only guesses (unknown units) are shown to a general library in a
helper process. Each segment is read on its own: the result depends on nothing but its text.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from . import prepass
from .alignment import Alignment, AlignmentBuilder
from .claims import Claim
from .library import Library
from .prepass import spell_out
from .segment import Segment, Utterance

__all__ = ["Normaliser", "as_written", "normalise_text", "spell_out"]

WINDOW = 180
"""Characters normalised at once; longer segments are cut between words and the event loop runs in between."""

EXPANSION = 8
SLACK = 160
"""The spoken form is at most ``EXPANSION`` times as long as the written one, plus ``SLACK`` characters."""

_OPENERS = frozenset("([{\"'“‘—–-/")


class Normaliser:
    """Turns segments into utterances.

    Args:
        library: ask the general library about what the pre-pass only guesses. Without it (or while it is not
            running) the guess stands.
    """

    def __init__(self, *, library: bool = True) -> None:
        self._library = Library() if library else None

    async def start(self) -> None:
        """Start the library's helper process where there is one; the normaliser works without it too."""
        if self._library is not None:
            try:
                await self._library.start()
            except (OSError, TimeoutError):
                # The helper is a nicety: a machine that cannot start it still speaks.
                return

    async def close(self) -> None:
        """End the helper process. Idempotent."""
        if self._library is not None:
            await self._library.close()

    async def normalise(self, segment: Segment) -> Utterance:
        """Spoken form of ``segment``. Never raises on any text; holds the event loop for at most a few ms."""
        text = segment.text
        if prepass.is_plain(text) and not segment.spell:
            return as_written(segment)
        pieces: list[tuple[int, str, list[Claim]]] = []
        for i, (start, end) in enumerate(_windows(text)):
            if i:
                await asyncio.sleep(0)
            folded, claims = prepass.claims(text[start:end], _within(segment.spell, start, end))
            if self._library is not None:
                for k, claim in enumerate(claims):
                    if claim.rest:
                        answer = await self._library.read(folded[claim.start : claim.end])
                        if answer:
                            claims[k] = replace(claim, spoken=answer)
            pieces.append((start, folded, claims))
        if len(pieces) > 1:
            await asyncio.sleep(0)
        return _utterance(segment, pieces)

    def normalise_sync(self, segment: Segment) -> Utterance:
        """As ``normalise``, without the library."""
        text = segment.text
        if prepass.is_plain(text) and not segment.spell:
            return as_written(segment)
        return _utterance(
            segment,
            [
                (start, *prepass.claims(text[start:end], _within(segment.spell, start, end)))
                for start, end in _windows(text)
            ],
        )


def normalise_text(text: str) -> str:
    """Spoken form of a bare text, without the library."""
    return (
        Normaliser(library=False)
        .normalise_sync(Segment(0, 0, len(text), text, Alignment.identity(len(text))))
        .text
    )


_SAFE_CUT = re.compile(r"(?<=[a-z][a-z,;]) (?=[a-z]{2})")


def _windows(text: str) -> list[tuple[int, int]]:
    """Cut long text between two plain words where there are such, else at a blank, else anywhere."""
    out: list[tuple[int, int]] = []
    at = 0
    while len(text) - at > WINDOW:
        low, high = at + WINDOW // 3, at + WINDOW
        safe = [m.end() for m in _SAFE_CUT.finditer(text, low, high)]
        cut = safe[-1] if safe else text.rfind(" ", low, high) + 1 or high
        out.append((at, cut))
        at = cut
    out.append((at, len(text)))
    return out


def _within(spell: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    return [(max(a, start) - start, min(b, end) - start) for a, b in spell if a < end and b > start]


def as_written(segment: Segment) -> Utterance:
    """``segment`` as it stands: for an engine that reads numbers itself, or in a language that we do not."""
    if not any(c.isalnum() for c in segment.text):
        return Utterance(segment, "", Alignment(()))
    return Utterance(segment, segment.text, segment.alignment)


def _utterance(segment: Segment, pieces: list[tuple[int, str, list[Claim]]]) -> Utterance:
    builder = AlignmentBuilder()
    budget = EXPANSION * len(segment.text) + SLACK
    last = ""
    for offset, folded, claims in pieces:
        at = 0
        for i, claim in enumerate(claims):
            if claim.start > at:
                last = _copy(builder, folded, (at, claim.start), offset, last)
            at = claim.end
            spoken = _fit(claim, folded, last, claims[i + 1].start if i + 1 < len(claims) else -1)
            if not spoken or len(spoken) > budget:
                continue
            budget -= len(spoken)
            builder.replace(spoken, offset + claim.start, offset + claim.end)
            last = spoken[-1]
        if at < len(folded):
            last = _copy(builder, folded, (at, len(folded)), offset, last)
    text, inner = builder.build()
    if not any(c.isalnum() for c in text):
        return Utterance(segment, "", Alignment(()))
    return Utterance(segment, text, segment.alignment.then(inner))


def _copy(builder: AlignmentBuilder, text: str, span: tuple[int, int], offset: int, last: str) -> str:
    """Copy ``text[start:end]`` without blanks that follow a blank; gives the last character written."""
    start, end = span
    if last.isspace() or (not last and start):
        while start < end and text[start].isspace():
            start += 1
    if start < end:
        builder.copy(text[start:end], offset + start)
        return text[end - 1]
    return last


def _fit(claim: Claim, text: str, last: str, following: int) -> str:
    """``claim.spoken`` with blanks where it would run into its neighbours, and without a doubled stop."""
    spoken = claim.spoken
    after = text[claim.end : claim.end + 1]
    if not spoken:
        return " " if last and not last.isspace() and after and after.isalnum() else ""
    if not last or last.isspace():
        spoken = spoken.lstrip() if last else spoken.lstrip(" ,—")
        if not spoken:
            return ""
    elif last not in _OPENERS and (spoken[0].isalnum() or spoken[0] == "—"):
        spoken = " " + spoken
    if after == "." and spoken.endswith("."):
        spoken = spoken[:-1]
    if after.isspace() or not after:
        spoken = spoken.rstrip()
    elif after.isalnum() and claim.end != following and not spoken.endswith(" "):
        spoken += " "
    return spoken

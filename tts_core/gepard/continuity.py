"""Lets a segment go on from the one before it: its text and its frames stand in the next one's prompt.

Whole segments alone are handed on, and only short ones: the model reads text and frames side by side, and
frames that are the end of a longer text would make it say the beginning again. It is off unless asked for,
as the model was trained on single clips (gepard.md A4) and what it makes of this was not heard.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from tts_core.engine import SpeechRequest
from tts_core.nanocodec import fsq

MOST_FRAMES = 64
"""Longest segment that is handed on: 3 s. Every frame of it is read anew with the next prompt."""

FORGET_S = 30.0
"""A stream that said nothing for so long begins anew."""

STREAMS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Before:
    """The segment before: what was said, as text and as codes uint8 ``[n, 32]``."""

    text: str
    codes: fsq.Codes


class Continuity:
    """The last short segment of each stream.

    Requests are of one stream when their ids are alike up to the last "/", and they have the same voice
    and salt. The one after says by ``continues`` that it follows.

    Args:
        most: longest segment handed on, in frames; 0 for none at all.
        clock: monotonic seconds.
    """

    def __init__(self, most: int = MOST_FRAMES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._last: OrderedDict[tuple[str, str, str], tuple[float, Before]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def before(self, request: SpeechRequest) -> Before | None:
        """What ``request`` may go on from."""
        kept = self._last.get(_key(request))
        if kept is None or not request.continues or self._clock() - kept[0] > FORGET_S:
            return None
        return kept[1] if kept[1].text.endswith(request.continues) else None

    def keep(self, request: SpeechRequest, codes: fsq.Codes) -> None:
        """``request`` was spoken whole, as ``codes``; one too long to hand on leaves nothing behind."""
        if not self._most:
            return
        key = _key(request)
        self._last.pop(key, None)
        if 0 < len(codes) <= self._most:
            self._last[key] = (self._clock(), Before(request.text, codes))
        # The oldest are first: those that lapsed, and those beyond what is kept.
        while self._last:
            first = next(iter(self._last))
            if len(self._last) <= STREAMS and self._clock() - self._last[first][0] <= FORGET_S:
                break
            del self._last[first]

    def drop(self, request: SpeechRequest) -> None:
        """``request`` was not spoken to its end: nothing goes on from it."""
        self._last.pop(_key(request), None)

    def forget(self, salt: str) -> None:
        """Drop all that was spoken under ``salt``: the voice was deleted."""
        for key in [key for key in self._last if key[2] == salt]:
            del self._last[key]


def _key(request: SpeechRequest) -> tuple[str, str, str]:
    return request.id.rpartition("/")[0], request.voice, request.salt

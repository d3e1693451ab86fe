"""Opened voices in this process: what makes the second segment of a call cost nothing.

An entry is *fresh* for a short while after the store has confirmed it, and is then used without asking. While
the store is away it may be used a while longer (its *grace*): a session's voice for its lease, as if the
lease had not been renewed, and a permanent one for five minutes. So every copy here ends by itself, even in a
process that hears nothing any more: deletion receipts rely on that bound.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from sessions.prefix import Conditioning
from sessions.store import Clock, Wall

FRESH_S = 20.0
GRACE_S = 300.0
MAX_BYTES = 16 * 1024 * 1024
_REMEMBERED = 4096


@dataclass(slots=True)
class Held:
    """One opened voice.

    ``session`` None is a permanent voice. ``record`` is the sealed data key as it was read: while the store
    still has the same bytes, the voice was not deleted.
    """

    session: str | None
    revision: str
    voice: Conditioning
    record: bytes
    confirmed: float = 0.0


class VoiceCache:
    """The least recently used voices go beyond ``max_bytes``.

    Args:
        max_bytes: of conditioning, over all tenants.
        clock: monotonic seconds.
        wall: Unix seconds, against which a voice's end is held.
    """

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, clock: Clock = time.monotonic, wall: Wall = time.time
    ) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._wall = wall
        self._held: OrderedDict[tuple[str, str], Held] = OrderedDict()
        self._gone: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def size(self) -> int:
        """Bytes of conditioning held."""
        return self._bytes

    def find(self, tenant: str, voice_id: str) -> Held | None:
        """A voice that may be used, at least while the store is away."""
        held = self._held.get((tenant, voice_id))
        if held is None:
            return None
        if self._over(held):
            self._drop((tenant, voice_id))
            return None
        self._held.move_to_end((tenant, voice_id))
        return held

    def fresh(self, held: Held) -> bool:
        """Whether the store need not be asked."""
        lease = held.voice.lease
        window = FRESH_S if held.session is None else min(FRESH_S, lease / 3)
        return self._clock() - held.confirmed < window

    def keep(self, tenant: str, voice_id: str, held: Held) -> bool:
        """Take in a voice just read; False if it was deleted while it was being read."""
        place = (tenant, voice_id)
        if place in self._gone:
            return False
        self._drop(place)
        held.confirmed = self._clock()
        if len(held.voice.data) <= self._max_bytes:
            self._held[place] = held
            self._bytes += len(held.voice.data)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._held)))
        return True

    def confirm(self, tenant: str, voice_id: str) -> None:
        """The store has just said that the voice is there."""
        held = self._held.get((tenant, voice_id))
        if held is not None:
            held.confirmed = self._clock()

    def forget(self, tenant: str, voice_id: str) -> int:
        """Drop a deleted voice and refuse to take it in again; how many copies there were.

        Ids are never used twice, so that a late reader cannot bring it back.
        """
        place = (tenant, voice_id)
        self._gone[place] = None
        self._gone.move_to_end(place)
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        return int(self._drop(place))

    def sweep(self) -> int:
        """Drop what may not be used any more; how many."""
        return self._drop_where(self._over)

    def clear(self) -> int:
        """Drop everything."""
        return self._drop_where(lambda _: True)

    def _over(self, held: Held) -> bool:
        grace = GRACE_S if held.session is None else held.voice.lease
        return self._clock() - held.confirmed >= grace or self._wall() >= held.voice.until

    def _drop_where(self, check: Callable[[Held], bool]) -> int:
        places = [place for place, held in self._held.items() if check(held)]
        for place in places:
            self._drop(place)
        return len(places)

    def _drop(self, place: tuple[str, str]) -> bool:
        held = self._held.pop(place, None)
        if held is None:
            return False
        self._bytes -= len(held.voice.data)
        return True

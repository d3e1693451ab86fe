"""Which gateways there are, as far as deletions must know.

A gateway says in a shared table that it is there, every few seconds, and takes its row away when it stops in
good order. One that was killed or is frozen stays expected for ten minutes: longer than any copy of a voice
in its memory may be used (:data:`sessions.voice_cache.GRACE_S`), so that leaving it out then hides nothing.
"""

from __future__ import annotations

import time

from sessions.store import Store, Wall, key

BEAT_S = 5.0
REMEMBER_S = 600.0
TABLE = key("", "nodes")


class NodeRegistry:
    """One gateway's place among the others.

    Args:
        store: shared by the gateways.
        node: this gateway's name, new at each start.
        wall: Unix seconds.
    """

    def __init__(self, store: Store, node: str, *, wall: Wall = time.time) -> None:
        self._store = store
        self.node = node
        self._wall = wall

    async def beat(self) -> None:
        """Say that we are here. Raises StoreError."""
        await self._store.table_set(TABLE, {self.node: b"%d" % round(self._wall() * 1000)})

    async def leave(self) -> None:
        """Say that we stop, with no copy left. Raises StoreError."""
        await self._store.table_drop(TABLE, self.node)

    async def expected(self) -> tuple[str, ...]:
        """Gateways that may hold copies, this one included, in order of name; forgets old ones.

        Raises StoreError.
        """
        rows = await self._store.table_all(TABLE)
        oldest = (self._wall() - REMEMBER_S) * 1000
        old = [n for n, seen in rows.items() if not seen.isdigit() or int(seen) < oldest]
        if old:
            await self._store.table_drop(TABLE, *old)
        return tuple(sorted((rows.keys() - set(old)) | {self.node}))

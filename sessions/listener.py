"""One subscription of one object, from its start to its close."""

from __future__ import annotations

from collections.abc import Callable

from sessions.store import Store, Unsubscribe


class Listener:
    """Hears a channel of the store; starting twice and closing twice are harmless."""

    def __init__(self, store: Store, channel: str, hear: Callable[[bytes], None]) -> None:
        self._store = store
        self._channel = channel
        self._hear = hear
        self._stop: Unsubscribe | None = None

    async def start(self) -> None:
        """Subscribe, see :meth:`sessions.store.Store.subscribe`."""
        if self._stop is None:
            self._stop = await self._store.subscribe(self._channel, self._hear)

    async def close(self) -> None:
        """Hear no more."""
        if self._stop is not None:
            self._stop()
            self._stop = None

"""One timer for many waits, each of which may last so long and no longer."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Patience:
    """As ``asyncio.timeout`` around each of many short waits of one task, for the price of one timer.

    Each wait is between ``begin`` and ``end``. One that lasts ``seconds`` (in the loop's time) is cancelled,
    and TimeoutError leaves the ``async with``. What the task awaits in between may take as long as it wants.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._timeout = asyncio.timeout(None)
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle

    async def __aenter__(self) -> Patience:
        self._loop = asyncio.get_running_loop()
        await self._timeout.__aenter__()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        timeout = self._timeout
        del self._timeout  # it has the task, whose error would have us
        await timeout.__aexit__(kind, error, trace)

    def begin(self) -> None:
        """A wait begins."""
        self._since = self._loop.time()

    def end(self) -> None:
        """It is over."""
        self._since = None

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if since + self._seconds <= now:
            self._timeout.reschedule(now)
        else:
            self._timer = self._loop.call_at(since + self._seconds, self._look)

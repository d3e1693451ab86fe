"""Redis messages: one connection with all subscriptions, opened again whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from sessions.store import Unsubscribe

log = logging.getLogger(__name__)


async def cancel_surely(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end.

    Once is not enough: redis-py sends under ``asyncio.wait_for``, which before Python 3.12 loses a
    cancellation that comes in the moment the sending is done (CPython issue 86296).
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=0.1)
        for task in done:
            if not task.cancelled():
                task.exception()  # seen


class Subscriber:
    """Fans messages out to callbacks.

    Args:
        client: used for nothing else, closed with this; without a ``socket_timeout``, deadlines are ours.
        deadline: seconds to connect and to confirm a subscription.
        quiet: seconds of silence after which the connection is asked for a sign of life.
    """

    def __init__(self, client: Redis, *, deadline: float, quiet: float = 5.0) -> None:
        self._client = client
        self._deadline = deadline
        self._quiet = quiet
        self._callbacks: dict[str, list[Callable[[bytes], None]]] = {}
        self._confirmed: dict[str, asyncio.Event] = {}
        self._pubsub: PubSub | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost = False  # told already; a long outage is one line, not one a second

    async def add(self, channel: str, callback: Callable[[bytes], None]) -> Unsubscribe:
        """Subscribe; returns when confirmed, or after the deadline (then it follows later)."""
        self._callbacks.setdefault(channel, []).append(callback)
        confirmed = self._confirmed.setdefault(channel, asyncio.Event())
        try:
            async with asyncio.timeout(self._deadline):
                if self._task is None:
                    self._task = asyncio.create_task(self._run(), name="store-subscriber")
                elif self._pubsub is not None and not confirmed.is_set():
                    await self._pubsub.subscribe(channel)
                await confirmed.wait()
        except (TimeoutError, RedisError, OSError) as exc:
            self._tell(exc)
        return lambda: self._remove(channel, callback)

    def _tell(self, error: Exception) -> None:
        if not self._lost:
            self._lost = True
            log.warning("subscription lost", extra={"reason": type(error).__name__})

    def _remove(self, channel: str, callback: Callable[[bytes], None]) -> None:
        callbacks = self._callbacks.get(channel, [])
        if callback in callbacks:
            callbacks.remove(callback)
        # The channel itself stays subscribed: there are a handful of them, all for the process's life.

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            await cancel_surely(self._task)
            self._task = None
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(self._deadline):
                await self._client.aclose(close_connection_pool=True)

    async def _run(self) -> None:
        delay = 0.05
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError) as exc:
                self._tell(exc)
            for event in self._confirmed.values():
                event.clear()
            if asyncio.get_running_loop().time() - began > self._quiet:
                delay = 0.05
            await asyncio.sleep(delay)
            delay = min(1.0, delay * 2)

    async def _listen(self) -> None:
        pubsub = self._client.pubsub()
        try:
            async with asyncio.timeout(4 * self._deadline):
                await pubsub.subscribe(*self._callbacks)
            self._pubsub = pubsub
            asked = False
            while True:
                message = await pubsub.get_message(timeout=self._quiet)
                if message is not None:
                    asked = False
                    self._deliver(message)
                elif asked:
                    raise TimeoutError
                else:
                    asked = True
                    async with asyncio.timeout(self._deadline):
                        await pubsub.ping()
        finally:
            self._pubsub = None
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(self._deadline):
                    await pubsub.aclose()  # type: ignore[no-untyped-call]

    def _deliver(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode() if isinstance(message["channel"], bytes) else ""
        if message["type"] == "subscribe":
            self._confirmed.setdefault(channel, asyncio.Event()).set()
            if self._lost:
                self._lost = False
                log.info("subscription back")
        elif message["type"] == "message":
            for callback in tuple(self._callbacks.get(channel, ())):
                callback(message["data"])

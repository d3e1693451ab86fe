"""The gateway's stores: one for what ends by itself, one for what must last; refused where they are unfit.

A session's voice must be gone with its call, so the Redis that holds it keeps nothing on disk. Keys,
consents, permanent voices, deletions and the audit chain must outlive a restart, so they want a Redis that
does. These are two servers, for persistence is a whole server's: ``VOXWIRE_REDIS_URL`` and
``VOXWIRE_REDIS_DURABLE_URL``. With the first alone everything is in it, nothing is on disk, and what must
last is lost with it; that is said in the log at each start. Without Redis both are this process, and keys are
in a file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from gateway.settings import Settings
from sessions.redis_check import RedisRules
from sessions.store import Store, open_store
from tts_core.errors import SettingsError

_log = logging.getLogger(__name__)


async def open_stores(
    settings: Settings,
    closing: AsyncExitStack,
    clock: Callable[[], float] = time.monotonic,
    on_change: Callable[[bool], None] = lambda _: None,
) -> tuple[Store, Store]:
    """Open and start the store of what ends by itself and that of what must last; they may be the same.

    ``closing`` closes them. ``on_change(healthy)`` is called whenever one of them goes or comes. A server
    that is away is no error: it is looked at when it is back, and takes no new voices if it is unfit then.
    Raises SettingsError for a bad address, and for a server that must not hold voices: a safety feature that
    cannot start stops the server, but one that is lost later does not end the calls.
    """
    made = _made(settings, clock)
    stores = [store for _, store in made]
    for name, store in made:
        store.on_change(lambda _: on_change(all(s.healthy for s in stores)))
        closing.push_async_callback(store.close)
        await _start(name, store)
    if settings.redis_url and not settings.redis_durable_url:
        _log.warning(
            "keys, consents, permanent voices and the audit chain are lost with Redis: "
            "set VOXWIRE_REDIS_DURABLE_URL to keep them"
        )
    return stores[0], stores[-1]


async def open_lasting(settings: Settings) -> Store:
    """The store of what must last alone, started, for the command line. Raises SettingsError."""
    name, store = _made(settings, time.monotonic)[-1]
    try:
        await _start(name, store)
    except BaseException:
        await store.close()
        raise
    return store


def _made(settings: Settings, clock: Callable[[], float]) -> list[tuple[str, Store]]:
    unchecked = settings.redis_unchecked
    rules = RedisRules(inspect_url=settings.redis_check_url, unchecked=unchecked)
    made = [("VOXWIRE_REDIS_URL", open_store(settings.redis_url or None, clock=clock, rules=rules))]
    if settings.redis_durable_url:
        rules = RedisRules(lasting=True, unchecked=unchecked)
        durable = open_store(settings.redis_durable_url, clock=clock, rules=rules)
        made.append(("VOXWIRE_REDIS_DURABLE_URL", durable))
    return made


async def _start(name: str, store: Store) -> None:
    await store.start()
    if store.faults:
        faults = "\n".join(f"- {fault}" for fault in store.faults)
        raise SettingsError(
            f"{name} names a Redis that must not hold voices:\n{faults}\n"
            "deploy/redis.conf makes one that may; while developing, VOXWIRE_REDIS_UNCHECKED=on takes any"
        )

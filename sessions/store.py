"""The store: the few verbs that keys, limits, leases, voices, consents and cached phrases need.

Two drivers speak it: :mod:`sessions.memory_store` (one process, the default) and
:mod:`sessions.redis_store` (shared by several gateways). Values are bytes, times are seconds, keys are made
by :func:`key` and by nothing else. Every verb of a shared driver has a deadline and raises ``StoreError``
when the store is slow or gone; callers decide what that means (a cache misses, a limit turns local, a
deletion is tried again). Cancelling any verb is safe: the command may or may not have taken effect.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tts_core.errors import SettingsError

if TYPE_CHECKING:
    from sessions.redis_check import RedisRules

Clock = Callable[[], float]
"""Monotonic seconds."""

Wall = Callable[[], float]
"""Seconds since 1970, for times that are written down or signed."""

Unsubscribe = Callable[[], None]

MAX_PART_BYTES = 200
"""Longest escaped part of a key; longer names are replaced by their digest so that keys stay short."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")


def escape(part: str) -> str:
    """One key part from any text, reversibly unless it is long; two texts never give the same part.

    Percent-encodes everything outside ``[A-Za-z0-9-_.~]``, so that a part holds no ``:`` (our separator),
    no ``*?[]`` (Redis patterns), no braces (cluster hash tags) and no control characters. The empty text is
    ``%`` and a text whose escape is too long is ``%h`` plus its SHA-256, neither of which encoding can give.
    """
    raw = part.encode("utf-8", "surrogatepass")
    if not raw:
        return "%"
    out = "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in raw)
    return out if len(out) <= MAX_PART_BYTES else "%h" + hashlib.sha256(raw).hexdigest()


def key(tenant: str, *parts: str) -> str:
    """``vx:TENANT:PART:...`` with every part escaped; the deployment's own keys have the tenant ``""``.

    Injective up to SHA-256 collisions: no client-chosen name reaches another tenant's or another kind's key.
    """
    return ":".join(("vx", escape(tenant), *(escape(p) for p in parts)))


def window_wait(
    previous: float, current: float, amount: float, *, limit: float, period: float, elapsed: float
) -> float:
    """Seconds until ``amount`` more fit into a sliding window; 0.0 when they fit now.

    The rule of both drivers: the use of the last ``period`` seconds is estimated as the use of the current
    aligned window plus that part of the previous one which the sliding window still covers, taken as evenly
    spread. It needs two counters and one atomic step, hence no script in the store. ``elapsed`` is the time
    since the current window began. ``inf`` when ``amount`` is over ``limit`` and can never fit.
    """
    slack = 1e-6
    previous = max(0.0, previous)
    if amount > limit:
        return float("inf")
    if previous * (1 - elapsed / period) + current + amount <= limit + slack:
        return 0.0
    room = limit - current - amount
    if room >= 0:  # enough room once the previous window has faded far enough
        return max(slack, period * (1 - room / previous) - elapsed)
    # Not in this window; in the next one today's use fades in turn.
    fade = period * (1 - (limit - amount) / current)
    return period - elapsed + max(0.0, fade)


@dataclass(frozen=True, slots=True)
class StoreState:
    """What ``/readyz`` and the metrics say about the store.

    ``breaker``: "closed" (calls go through) or "open" (calls fail at once while we probe). ``failures`` and
    ``opened`` count since the start. ``last_error`` is the class name of the last failure, never its text.
    ``latency``: round trip of the last probe in seconds, -1 before the first. ``evicted``: cached values
    dropped for size.
    """

    driver: str
    healthy: bool
    breaker: str = "closed"
    failures: int = 0
    opened: int = 0
    last_error: str = ""
    latency: float = -1.0
    evicted: int = 0


class Store(Protocol):
    """The verbs. ``ttl`` in seconds; ``None`` means until deleted. All raise StoreError as said above."""

    @property
    def healthy(self) -> bool:
        """False while calls fail at once; recovers by itself."""
        ...

    @property
    def state(self) -> StoreState:
        """A snapshot; cheap."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """Why no new voice may be kept here, each with what an operator has to change; empty if it may."""
        ...

    async def start(self) -> None:
        """Begin probing. Never raises for a store that is away: it shows in ``healthy``."""
        ...

    async def close(self) -> None:
        """Let go of connections and tasks. Idempotent."""
        ...

    def on_change(self, callback: Callable[[bool], None]) -> Unsubscribe:
        """Call ``callback(healthy)`` whenever ``healthy`` changes."""
        ...

    async def ping(self) -> float:
        """Round trip in seconds."""
        ...

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        ...

    async def get_many(self, *keys: str) -> tuple[bytes | None, ...]:
        """The values of several keys, in their order, in one round trip."""
        ...

    async def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write, replacing the value and the ttl."""
        ...

    async def set_if_absent(self, key: str, value: bytes, ttl: float | None) -> bool:
        """Write only if there is no value; True if we wrote. One atomic step."""
        ...

    async def set_many(self, values: dict[str, bytes], ttl: float | None = None) -> None:
        """Write several keys in one atomic step."""
        ...

    async def delete(self, *keys: str) -> int:
        """Drop the keys; how many existed."""
        ...

    async def touch(self, keys: tuple[str, ...], ttl: float) -> int:
        """Give existing keys a new ttl; how many existed. Never creates a key."""
        ...

    async def lease(self, key: str, owner: str, ttl: float) -> bool:
        """Take (or keep) the lease; False if somebody else holds it."""
        ...

    async def renew(self, key: str, owner: str, ttl: float) -> bool:
        """Extend a lease that we hold; False if we do not hold it (any more)."""
        ...

    async def release(self, key: str, owner: str) -> bool:
        """Give back a lease that we hold; False if we did not."""
        ...

    async def increment(self, key: str, ttl: float, by: int = 1) -> int:
        """Add to a counter and return it; ``ttl`` runs from its first increment."""
        ...

    async def take_tokens(self, key: str, amount: int, limit: int, period: float) -> float:
        """Use ``amount`` of at most ``limit`` per ``period`` seconds (see :func:`window_wait`).

        0.0 when granted, else the seconds to wait (nothing is used then). A negative amount gives back.
        The decision is one atomic step: concurrent callers are never granted more than the limit together.
        """
        ...

    async def cache_get(self, cache: str, member: str) -> bytes | None:
        """A cached value, marked as used now. Has the short cache deadline."""
        ...

    async def cache_put(self, cache: str, member: str, value: bytes, ttl: float, max_bytes: int) -> None:
        """Cache a value, dropping the least recently used ones of ``cache`` beyond ``max_bytes`` in all."""
        ...

    async def cache_clear(self, cache: str) -> int:
        """Drop a whole cache; how many values it had."""
        ...

    async def exists(self, *keys: str) -> tuple[bool, ...]:
        """For each key whether it has a value now."""
        ...

    async def table_set(
        self,
        table: str,
        rows: dict[str, bytes],
        *,
        ttl: float | None = None,
        values: dict[str, bytes] | None = None,
        values_ttl: float | None = None,
    ) -> None:
        """Write rows of a table and plain values, all in one atomic step.

        ``ttl`` is the whole table's; None leaves the one that it has. A table is no key: the verbs above do
        not reach it.
        """
        ...

    async def table_add(
        self,
        table: str,
        row: str,
        value: bytes,
        *,
        values: dict[str, bytes] | None = None,
        values_ttl: float | None = None,
    ) -> dict[str, bytes]:
        """Write a row and plain values, and give all rows as they are then, all in one atomic step.

        Who adds a row and counts is thus in one order with everybody else who does.
        """
        ...

    async def table_get(self, table: str, row: str) -> bytes | None:
        """One row, or None."""
        ...

    async def table_all(self, table: str) -> dict[str, bytes]:
        """All rows, in no order."""
        ...

    async def table_drop(self, table: str, *rows: str, keys: tuple[str, ...] = ()) -> int:
        """Drop rows of a table and plain keys in one atomic step; how many of them existed."""
        ...

    async def table_swap(self, table: str, row: str, old: bytes, new: bytes) -> bool:
        """Replace a row if it still is ``old``; False if it is not. One atomic step."""
        ...

    async def publish(self, channel: str, message: bytes) -> None:
        """Tell every subscriber on every node, at most once: whoever must not miss it also polls."""
        ...

    async def subscribe(self, channel: str, callback: Callable[[bytes], None]) -> Unsubscribe:
        """Call ``callback(message)`` in the event loop for each message. Survives a lost connection.

        Returns once messages published from now on will arrive, or once a deadline has passed with the
        store away (then it subscribes when the store is back). The callback must not block.
        """
        ...


def open_store(url: str | None, *, clock: Clock = time.monotonic, rules: RedisRules | None = None) -> Store:
    """The driver for ``url``: None, "" or ``memory:`` for one process, ``redis://``, ``rediss://``, ``unix://``.

    ``rules``: what is asked of a Redis, see :mod:`sessions.redis_check`; None asks for nothing. Call
    ``start`` before use. Raises SettingsError for any other URL.
    """
    if not url or url == "memory:":
        from sessions.memory_store import MemoryStore

        return MemoryStore(clock=clock)
    if url.split("://", 1)[0] in {"redis", "rediss", "unix"}:
        from sessions.redis_store import RedisStore

        return RedisStore(url, clock=clock, rules=rules)
    raise SettingsError("the store URL must begin with redis://, rediss:// or unix://")

"""The shared store: Redis 7.0 or later through redis.asyncio and hiredis.

No scripts: every verb is plain commands or one MULTI, so that the account used needs neither EVAL nor
SCRIPT (CVE-2025-49844 is the reason). :data:`sessions.redis_check.COMMANDS` lists all it needs, for an ACL
rule. With rules, each probe also looks whether the server is fit to hold voices, and ``faults`` says why it
is not; a server that was started anew is judged within a heartbeat. Times are the server's (clock offset
measured with TIME), so that several gateways agree on windows.

A call that misses its deadline is abandoned: its connection is closed and StoreError is raised at the
deadline, not when the clean-up ends. After a few failures in a row the breaker opens and calls fail at once,
while a background task probes until the server answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError, WatchError

from sessions.breaker import Breaker
from sessions.redis_check import Findings, RedisCheck, RedisRules
from sessions.redis_subscriber import Subscriber, cancel_surely
from sessions.store import Clock, StoreState, Unsubscribe, window_wait
from tts_core.errors import SettingsError, StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

CACHE_ENTRIES = 4096
"""Most values in one cache; bounds the size sum that each put reads back."""

LOOKS = 8
"""Deadlines that a look at the server's settings may take; it is some dozen commands."""

_SWAPS = 32
"""Times that a swap is tried while others write to the same table."""


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _transaction(client: Redis) -> Pipeline:
    return client.pipeline(transaction=True)


class RedisStore:
    """A :class:`sessions.store.Store` in Redis.

    Args:
        url: ``redis://``, ``rediss://`` (TLS) or ``unix://``. Raises SettingsError if it cannot be read.
        clock: monotonic seconds.
        deadline: seconds for every verb but the cache's.
        cache_deadline: seconds for the cache verbs; a phrase that takes longer to fetch is not worth it.
        heartbeat: seconds between probes while all is well.
        breaker: when to stop trying.
        rules: what is asked of the server; None asks for nothing.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock = time.monotonic,
        deadline: float = 0.25,
        cache_deadline: float = 0.05,
        heartbeat: float = 2.0,
        max_connections: int = 32,
        breaker: Breaker | None = None,
        rules: RedisRules | None = None,
    ) -> None:
        self._clock = clock
        self._deadline = deadline
        self._cache_deadline = cache_deadline
        self._heartbeat = heartbeat
        self._breaker = breaker or Breaker()
        self._latency = -1.0
        self._offset: float | None = None
        self._told = False
        self._evicted = 0
        self._listeners: list[Callable[[bool], None]] = []
        self._abandoned: set[asyncio.Task[Any]] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        options: dict[str, Any] = {
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": deadline,
            "socket_connect_timeout": deadline,
            "decode_responses": False,
        }
        try:
            pool = BlockingConnectionPool.from_url(
                url, max_connections=max_connections, timeout=deadline, **options
            )
            self._pool = pool
            self._client = Redis(connection_pool=pool)
            self._check = RedisCheck(url, rules, dict(options)) if rules is not None else None
            self._found = Findings() if self._check is None else self._check.address
            options["socket_timeout"] = None
            self._subscriber = Subscriber(Redis.from_url(url, **options), deadline=deadline)
        except (ValueError, RedisError) as exc:
            raise SettingsError("the store URL cannot be read") from exc

    @property
    def healthy(self) -> bool:
        """False while the breaker is open."""
        return not self._breaker.open

    @property
    def faults(self) -> tuple[str, ...]:
        """What forbids to keep voices here, each with what to change; as of the last look."""
        return self._found.faults

    @property
    def state(self) -> StoreState:
        """A snapshot."""
        b = self._breaker
        return StoreState(
            driver="redis",
            healthy=not b.open,
            breaker="open" if b.open else "closed",
            failures=b.failures,
            opened=b.opened,
            last_error=b.last_error,
            latency=self._latency,
            evicted=self._evicted,
        )

    async def start(self) -> None:
        """Probe once and keep probing; a server that is away shows in ``healthy`` within the deadline."""
        if self._task is not None:
            return
        for _ in range(self._breaker.threshold):
            if await self._probe():
                break
        self._task = asyncio.create_task(self._watch(), name="store-probe")

    async def close(self) -> None:
        """Stop probing, drop connections. Idempotent."""
        tasks = [t for t in (self._task, *self._abandoned) if t is not None]
        self._task = None
        await cancel_surely(*tasks)
        await self._subscriber.close()
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(self._deadline):
                await self._client.aclose(close_connection_pool=True)

    def on_change(self, callback: Callable[[bool], None]) -> Unsubscribe:
        """Call ``callback(healthy)`` on every change."""
        self._listeners.append(callback)

        def unsubscribe() -> None:
            if callback in self._listeners:
                self._listeners.remove(callback)

        return unsubscribe

    async def ping(self) -> float:
        """Round trip in seconds; also measures the server's clock."""
        began = self._clock()
        await self._call(self._measure)
        return self._clock() - began

    # Plain values

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        return cast("bytes | None", await self._call(lambda: self._client.get(key)))

    async def get_many(self, *keys: str) -> tuple[bytes | None, ...]:
        """The values, in order."""
        if not keys:
            return ()
        return tuple(await self._call(lambda: cast("Awaitable[list[bytes | None]]", self._client.mget(keys))))

    async def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write, replacing the value and the ttl."""
        px = None if ttl is None else _ms(ttl)
        await self._call(lambda: self._client.set(key, value, px=px))

    async def set_if_absent(self, key: str, value: bytes, ttl: float | None) -> bool:
        """Write only if there is no value."""
        px = None if ttl is None else _ms(ttl)
        return bool(await self._call(lambda: self._client.set(key, value, px=px, nx=True)))

    async def set_many(self, values: dict[str, bytes], ttl: float | None = None) -> None:
        """Write all or none."""
        px = None if ttl is None else _ms(ttl)

        async def go() -> None:
            async with _transaction(self._client) as p:
                for name, value in values.items():
                    p.set(name, value, px=px)
                await p.execute()

        await self._call(go)

    async def delete(self, *keys: str) -> int:
        """Drop the keys; how many existed."""
        if not keys:
            return 0
        return int(await self._call(lambda: self._client.unlink(*keys)))

    async def touch(self, keys: tuple[str, ...], ttl: float) -> int:
        """Give existing keys a new ttl."""

        async def go() -> int:
            async with _transaction(self._client) as p:
                for name in keys:
                    p.pexpire(name, _ms(ttl))
                return sum(bool(r) for r in await p.execute())

        return await self._call(go)

    async def exists(self, *keys: str) -> tuple[bool, ...]:
        """For each key whether it has a value."""
        if not keys:
            return ()

        async def go() -> tuple[bool, ...]:
            async with _transaction(self._client) as p:
                for name in keys:
                    p.exists(name)
                return tuple(bool(found) for found in await p.execute())

        return await self._call(go)

    # Tables: hashes

    async def table_set(
        self,
        table: str,
        rows: dict[str, bytes],
        *,
        ttl: float | None = None,
        values: dict[str, bytes] | None = None,
        values_ttl: float | None = None,
    ) -> None:
        """Write rows and values, all or none."""
        px = None if values_ttl is None else _ms(values_ttl)

        async def go() -> None:
            async with _transaction(self._client) as p:
                for name, value in rows.items():
                    p.hset(table, name, value)
                if ttl is not None:
                    p.pexpire(table, _ms(ttl))
                for name, value in (values or {}).items():
                    p.set(name, value, px=px)
                await p.execute()

        await self._call(go)

    async def table_add(
        self,
        table: str,
        row: str,
        value: bytes,
        *,
        values: dict[str, bytes] | None = None,
        values_ttl: float | None = None,
    ) -> dict[str, bytes]:
        """Write a row and values, and give all rows as they are then."""
        px = None if values_ttl is None else _ms(values_ttl)

        async def go() -> dict[bytes, bytes]:
            async with _transaction(self._client) as p:
                p.hset(table, row, value)
                for name, content in (values or {}).items():
                    p.set(name, content, px=px)
                p.hgetall(table)
                return cast("dict[bytes, bytes]", (await p.execute())[-1])

        return {name.decode(): content for name, content in (await self._call(go)).items()}

    async def table_get(self, table: str, row: str) -> bytes | None:
        """One row, or None."""
        return await self._call(lambda: cast("Awaitable[bytes | None]", self._client.hget(table, row)))

    async def table_all(self, table: str) -> dict[str, bytes]:
        """All rows."""
        found = await self._call(lambda: cast("Awaitable[dict[bytes, bytes]]", self._client.hgetall(table)))
        return {name.decode(): value for name, value in found.items()}

    async def table_drop(self, table: str, *rows: str, keys: tuple[str, ...] = ()) -> int:
        """Drop rows and keys; how many existed."""
        if not rows and not keys:
            return 0

        async def go() -> int:
            async with _transaction(self._client) as p:
                if rows:
                    p.hdel(table, *rows)
                if keys:
                    p.unlink(*keys)
                return sum(int(n) for n in await p.execute())

        return await self._call(go)

    async def table_swap(self, table: str, row: str, old: bytes, new: bytes) -> bool:
        """Replace a row if it still is ``old``; tried again while other rows of the table change."""

        async def go() -> bool:
            async with _transaction(self._client) as p:
                await p.watch(table)
                if await cast("Awaitable[bytes | None]", p.hget(table, row)) != old:
                    return False
                p.multi()  # type: ignore[no-untyped-call]
                p.hset(table, row, new)
                await p.execute()
                return True

        for _ in range(_SWAPS):
            with contextlib.suppress(WatchError):
                return await self._call(go)
        raise StoreError("the store is too busy")

    # Leases

    async def lease(self, key: str, owner: str, ttl: float) -> bool:
        """Take or keep the lease."""
        taken = await self._call(lambda: self._client.set(key, owner.encode(), px=_ms(ttl), nx=True))
        return bool(taken) or await self.renew(key, owner, ttl)

    async def renew(self, key: str, owner: str, ttl: float) -> bool:
        """Extend a lease that we hold."""
        return await self._if_owner(key, owner, lambda p: p.pexpire(key, _ms(ttl)))

    async def release(self, key: str, owner: str) -> bool:
        """Give back a lease that we hold."""
        return await self._if_owner(key, owner, lambda p: p.unlink(key))

    async def _if_owner(self, key: str, owner: str, change: Callable[[Pipeline], object]) -> bool:
        async def go() -> bool:
            async with _transaction(self._client) as p:
                await p.watch(key)
                if await cast("Awaitable[bytes | None]", p.get(key)) != owner.encode():
                    return False
                p.multi()  # type: ignore[no-untyped-call]
                change(p)
                return bool((await p.execute())[0])

        try:
            return await self._call(go)
        except WatchError:  # it changed hands or ended between the look and the change
            return False

    # Counters

    async def increment(self, key: str, ttl: float, by: int = 1) -> int:
        """Add to a counter; the ttl runs from its first increment."""

        async def go() -> int:
            async with _transaction(self._client) as p:
                p.incrby(key, by)
                p.pexpire(key, _ms(ttl), nx=True)
                return int((await p.execute())[0])

        return await self._call(go)

    async def take_tokens(self, key: str, amount: int, limit: int, period: float) -> float:
        """Use ``amount`` of ``limit`` per ``period``.

        One MULTI counts and looks; a refusal gives the count back. Callers at the same moment may be refused
        for each other's refused amounts, but are never granted more than the limit together.
        """

        async def go() -> float:
            if self._offset is None:
                await self._measure()
            now = self._clock() + (self._offset or 0.0)
            index = int(now // period)
            current = f"{key}:{index}"
            async with _transaction(self._client) as p:
                p.incrby(current, amount)
                p.pexpire(current, _ms(2 * period))
                p.get(f"{key}:{index - 1}")
                used, _, previous = await p.execute()
            if amount <= 0:
                return 0.0
            wait = window_wait(
                int(previous or 0),
                int(used) - amount,
                amount,
                limit=limit,
                period=period,
                elapsed=now - index * period,
            )
            if wait > 0:
                await self._client.decrby(current, amount)
            return wait

        return await self._call(go)

    # Size-capped caches: values in CACHE:v:MEMBER, last use in CACHE:i (sorted set), sizes in CACHE:s (hash)

    async def cache_get(self, cache: str, member: str) -> bytes | None:
        """A cached value, marked as used now."""

        async def go() -> bytes | None:
            async with _transaction(self._client) as p:
                p.get(f"{cache}:v:{member}")
                p.zadd(f"{cache}:i", {member: self._clock() + (self._offset or 0.0)}, xx=True, ch=True)
                value, indexed = await p.execute()
            if value is None and indexed:  # it ran out: its row goes too
                await self._unlist(cache, [member])
            return cast("bytes | None", value)

        return await self._call(go, self._cache_deadline)

    async def cache_put(self, cache: str, member: str, value: bytes, ttl: float, max_bytes: int) -> None:
        """Cache a value within ``max_bytes``; one that is larger by itself is not kept."""
        if len(value) > max_bytes:
            return

        async def go() -> None:
            async with _transaction(self._client) as p:
                p.set(f"{cache}:v:{member}", value, px=_ms(ttl))
                p.zadd(f"{cache}:i", {member: self._clock() + (self._offset or 0.0)})
                p.hset(f"{cache}:s", member, str(len(value)))
                p.pexpire(f"{cache}:i", _ms(2 * ttl))
                p.pexpire(f"{cache}:s", _ms(2 * ttl))
                p.hvals(f"{cache}:s")
                sizes = (await p.execute())[-1]
            over = sum(map(int, sizes)) - max_bytes
            if over > 0 or len(sizes) > CACHE_ENTRIES:
                await self._evict(cache, over, len(sizes) - CACHE_ENTRIES)

        await self._call(go, self._cache_deadline)

    async def _evict(self, cache: str, over: int, entries: int) -> None:
        oldest = await cast("Awaitable[list[bytes]]", self._client.zrange(f"{cache}:i", 0, -1))
        sizes = await cast("Awaitable[list[bytes | None]]", self._client.hmget(f"{cache}:s", oldest))
        drop: list[str] = []
        for member, size in zip(oldest[:-1], sizes, strict=False):  # never the newest
            if over <= 0 and entries <= 0:
                break
            drop.append(member.decode())
            over -= int(size or 0)
            entries -= 1
        if drop:
            self._evicted += len(drop)
            await self._unlist(cache, drop)

    async def _unlist(self, cache: str, members: list[str]) -> None:
        async with _transaction(self._client) as p:
            p.unlink(*(f"{cache}:v:{m}" for m in members))
            p.zrem(f"{cache}:i", *members)
            p.hdel(f"{cache}:s", *members)
            await p.execute()

    async def cache_clear(self, cache: str) -> int:
        """Drop a whole cache."""

        async def go() -> int:
            members = await cast("Awaitable[list[bytes]]", self._client.hkeys(f"{cache}:s"))
            names = [f"{cache}:v:{m.decode()}" for m in members]
            removed = int(await self._client.unlink(*names)) if names else 0
            await self._client.unlink(f"{cache}:i", f"{cache}:s")
            return removed

        return await self._call(go)

    # Messages

    async def publish(self, channel: str, message: bytes) -> None:
        """Tell every subscriber of every node."""
        await self._call(lambda: self._client.publish(channel, message))

    async def subscribe(self, channel: str, callback: Callable[[bytes], None]) -> Unsubscribe:
        """Call ``callback`` for each message."""
        return await self._subscriber.add(channel, callback)

    # Deadlines, breaker, probing

    async def _call(self, command: Callable[[], Awaitable[T]], deadline: float | None = None) -> T:
        if self._breaker.open:
            raise StoreError("the store is away")
        try:
            result = await self._within(command, deadline or self._deadline)
        except WatchError:
            self._breaker.succeeded()
            raise
        except ResponseError as exc:
            if isinstance(exc, AuthenticationError):
                self._failed(exc)
            # The server answered: a wrong type, a full memory or a missing permission is not an outage.
            raise StoreError("the store refused") from exc
        except (RedisError, OSError, TimeoutError) as exc:
            self._failed(exc)
            raise StoreError("the store is slow or gone") from exc
        self._breaker.succeeded()
        return result

    async def _within(self, command: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Run ``command`` or raise TimeoutError at the deadline, however long its clean-up takes."""

        async def run() -> T:
            return await command()

        task = asyncio.create_task(run())
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            raise TimeoutError
        return task.result()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._forget)
        task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # seen: it belongs to a call that has been answered

    def _failed(self, error: BaseException) -> None:
        if self._breaker.failed(type(error).__name__):
            log.warning("store away", extra={"reason": type(error).__name__})
            self._wake.set()
            self._tell()

    def _tell(self) -> None:
        healthy = self.healthy
        for callback in tuple(self._listeners):
            callback(healthy)

    async def _measure(self) -> None:
        began = self._clock()
        seconds, micros = await self._client.time()
        ended = self._clock()
        self._latency = ended - began
        self._offset = seconds + micros / 1e6 - (began + ended) / 2

    async def _look(self) -> None:
        if self._check is None:
            return
        if self._breaker.open:
            self._check.again()
        try:
            found = await self._check.look(self._pool)
        except ResponseError as exc:  # it answers, and is unlike any that we know
            found = Findings((f"it cannot be looked at ({type(exc).__name__})",))
        for fault in found.faults:
            if not self._told or fault not in self._found.faults:
                log.error("this Redis is not fit to hold voices", extra={"reason": fault})
        for note in found.notes:
            if not self._told or note not in self._found.notes:
                log.warning("of this Redis", extra={"reason": note})
        if self._found.faults and not found.faults:
            log.info("this Redis is fit to hold voices again")
        self._found, self._told = found, True

    async def _probe(self) -> bool:
        try:
            await self._within(self._measure, self._deadline)
            await self._within(self._look, LOOKS * self._deadline)
        except (RedisError, OSError, TimeoutError) as exc:
            self._breaker.probed(ok=False)
            self._failed(exc)
            return False
        self._breaker.succeeded()
        if self._breaker.probed(ok=True):
            log.info("store back")
            self._tell()
        return True

    async def _watch(self) -> None:
        well = True
        while True:
            self._wake.clear()
            wait = self._heartbeat if well and not self._breaker.open else self._breaker.probe_delay()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._wake.wait()
                    if self._breaker.open:  # just opened: give it the first delay before asking again
                        await asyncio.sleep(self._breaker.probe_delay())
            well = await self._probe()

"""The store of one process: dictionaries with expiry, bounded in entries and bytes."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from sessions.store import Clock, StoreState, Unsubscribe, window_wait
from tts_core.errors import StoreError

_OVERHEAD = 200
"""Bytes reckoned per entry for the dictionaries around it."""


@dataclass(slots=True)
class _Entry:
    value: bytes
    expires: float | None


@dataclass(slots=True)
class _Cache:
    entries: OrderedDict[str, _Entry] = field(default_factory=OrderedDict)
    size: int = 0


@dataclass(slots=True)
class _Table:
    rows: dict[str, bytes] = field(default_factory=dict)
    expires: float | None = None


def _cost(name: str, value: bytes) -> int:
    return len(name) + len(value) + _OVERHEAD


class MemoryStore:
    """A :class:`sessions.store.Store` in this process; nothing survives it.

    Args:
        clock: monotonic seconds.
        max_entries: keys held at most (cached values apart).
        max_bytes: bytes held at most, cached values included. Cached values give way to anything else; when
            there are none left a write raises StoreError.
    """

    def __init__(
        self,
        *,
        clock: Clock = time.monotonic,
        max_entries: int = 200_000,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._data: dict[str, _Entry] = {}
        self._due: list[tuple[float, str]] = []
        self._bytes = 0
        self._caches: dict[str, _Cache] = {}
        self._tables: dict[str, _Table] = {}
        self._tables_due: list[tuple[float, str]] = []
        self._rows = 0
        self._subscribers: dict[str, list[Callable[[bytes], None]]] = {}
        self._evicted = 0

    @property
    def healthy(self) -> bool:
        """Always."""
        return True

    @property
    def state(self) -> StoreState:
        """A snapshot."""
        return StoreState(driver="memory", healthy=True, latency=0.0, evicted=self._evicted)

    @property
    def faults(self) -> tuple[str, ...]:
        """None: it writes nothing down."""
        return ()

    async def start(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Forget everything."""
        self._data.clear()
        self._due.clear()
        self._caches.clear()
        self._tables.clear()
        self._tables_due.clear()
        self._rows = 0
        self._subscribers.clear()
        self._bytes = 0

    def on_change(self, callback: Callable[[bool], None]) -> Unsubscribe:
        """This store never changes its health."""
        del callback
        return lambda: None

    async def ping(self) -> float:
        """No round trip."""
        return 0.0

    # Plain values

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        entry = self._live(key)
        return entry.value if entry else None

    async def get_many(self, *keys: str) -> tuple[bytes | None, ...]:
        """The values, in order."""
        entries = [self._live(k) for k in keys]
        return tuple(entry.value if entry else None for entry in entries)

    async def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Write, replacing the value and the ttl."""
        self._write(key, value, ttl)

    async def set_if_absent(self, key: str, value: bytes, ttl: float | None) -> bool:
        """Write only if there is no value."""
        if self._live(key):
            return False
        self._write(key, value, ttl)
        return True

    async def set_many(self, values: dict[str, bytes], ttl: float | None = None) -> None:
        """Write all or none."""
        self._make_room(sum(_cost(k, v) for k, v in values.items()), len(values))
        for name, value in values.items():
            self._write(name, value, ttl)

    async def delete(self, *keys: str) -> int:
        """Drop the keys; how many existed."""
        return sum(self._drop(k) for k in keys if self._live(k))

    async def touch(self, keys: tuple[str, ...], ttl: float) -> int:
        """Give existing keys a new ttl."""
        found = 0
        for name in keys:
            entry = self._live(name)
            if entry:
                self._expire(name, entry, ttl)
                found += 1
        return found

    async def exists(self, *keys: str) -> tuple[bool, ...]:
        """For each key whether it has a value."""
        return tuple(self._live(k) is not None for k in keys)

    # Tables

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
        values = values or {}
        size = sum(_cost(k, v) for part in (rows, values) for k, v in part.items())
        self._make_room(size, len(rows) + len(values))
        held = self._table(table) or self._tables.setdefault(table, _Table())
        for name, value in rows.items():
            self._drop_row(held, name)
            held.rows[name] = value
            self._rows += 1
            self._bytes += _cost(name, value)
        if ttl is not None:
            held.expires = self._clock() + ttl
            heapq.heappush(self._tables_due, (held.expires, table))
        for name, value in values.items():
            self._write(name, value, values_ttl)

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
        await self.table_set(table, {row: value}, values=values, values_ttl=values_ttl)
        return await self.table_all(table)

    async def table_get(self, table: str, row: str) -> bytes | None:
        """One row, or None."""
        held = self._table(table)
        return held.rows.get(row) if held else None

    async def table_all(self, table: str) -> dict[str, bytes]:
        """All rows."""
        held = self._table(table)
        return dict(held.rows) if held else {}

    async def table_drop(self, table: str, *rows: str, keys: tuple[str, ...] = ()) -> int:
        """Drop rows and keys; how many existed."""
        held = self._table(table)
        found = sum(self._drop_row(held, row) for row in rows) if held else 0
        if held and not held.rows:
            del self._tables[table]
        return found + await self.delete(*keys)

    async def table_swap(self, table: str, row: str, old: bytes, new: bytes) -> bool:
        """Replace a row if it still is ``old``."""
        held = self._table(table)
        if not held or held.rows.get(row) != old:
            return False
        await self.table_set(table, {row: new})
        return True

    # Leases

    async def lease(self, key: str, owner: str, ttl: float) -> bool:
        """Take or keep the lease."""
        entry = self._live(key)
        if entry and entry.value != owner.encode():
            return False
        self._write(key, owner.encode(), ttl)
        return True

    async def renew(self, key: str, owner: str, ttl: float) -> bool:
        """Extend a lease that we hold."""
        entry = self._live(key)
        if not entry or entry.value != owner.encode():
            return False
        self._expire(key, entry, ttl)
        return True

    async def release(self, key: str, owner: str) -> bool:
        """Give back a lease that we hold."""
        entry = self._live(key)
        if not entry or entry.value != owner.encode():
            return False
        return self._drop(key)

    # Counters

    async def increment(self, key: str, ttl: float, by: int = 1) -> int:
        """Add to a counter; the ttl runs from its first increment."""
        entry = self._live(key)
        if not entry:
            self._write(key, b"%d" % by, ttl)
            return by
        total = int(entry.value) + by
        self._bytes -= len(entry.value)
        entry.value = b"%d" % total
        self._bytes += len(entry.value)
        return total

    async def take_tokens(self, key: str, amount: int, limit: int, period: float) -> float:
        """Use ``amount`` of ``limit`` per ``period``."""
        now = self._clock()
        index = int(now // period)
        before = self._live(f"{key}:{index - 1}")
        current = self._live(f"{key}:{index}")
        if amount > 0:
            wait = window_wait(
                int(before.value) if before else 0,
                int(current.value) if current else 0,
                amount,
                limit=limit,
                period=period,
                elapsed=now - index * period,
            )
            if wait > 0:
                return wait
        await self.increment(f"{key}:{index}", 2 * period, amount)
        return 0.0

    # Size-capped caches

    async def cache_get(self, cache: str, member: str) -> bytes | None:
        """A cached value, marked as used now."""
        box = self._caches.get(cache)
        entry = box.entries.get(member) if box else None
        if not box or not entry:
            return None
        if entry.expires is not None and entry.expires <= self._clock():
            self._uncache(cache, box, member)
            return None
        box.entries.move_to_end(member)
        return entry.value

    async def cache_put(self, cache: str, member: str, value: bytes, ttl: float, max_bytes: int) -> None:
        """Cache a value within ``max_bytes``; one that is larger by itself is not kept."""
        box = self._caches.get(cache)
        if box and member in box.entries:
            self._uncache(cache, box, member)
        if len(value) > max_bytes:
            return
        self._make_room(_cost(member, value), 0)
        box = self._caches.setdefault(cache, _Cache())
        box.entries[member] = _Entry(value, self._clock() + ttl)
        box.size += len(value)
        self._bytes += _cost(member, value)
        while box.size > max_bytes:
            self._uncache(cache, box, next(iter(box.entries)))
            self._evicted += 1

    async def cache_clear(self, cache: str) -> int:
        """Drop a whole cache."""
        box = self._caches.get(cache)
        if not box:
            return 0
        members = list(box.entries)
        for member in members:
            self._uncache(cache, box, member)
        return len(members)

    # Messages

    async def publish(self, channel: str, message: bytes) -> None:
        """Tell the subscribers in this process, from the event loop and not from inside this call."""
        loop = asyncio.get_running_loop()
        for callback in self._subscribers.get(channel, ()):
            loop.call_soon(callback, message)

    async def subscribe(self, channel: str, callback: Callable[[bytes], None]) -> Unsubscribe:
        """Call ``callback`` for each message from now on."""
        callbacks = self._subscribers.setdefault(channel, [])
        callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._subscribers.pop(channel, None)

        return unsubscribe

    # Inside

    def _live(self, name: str) -> _Entry | None:
        entry = self._data.get(name)
        if entry and entry.expires is not None and entry.expires <= self._clock():
            self._drop(name)
            return None
        return entry

    def _table(self, name: str) -> _Table | None:
        held = self._tables.get(name)
        if held and held.expires is not None and held.expires <= self._clock():
            for row in list(held.rows):
                self._drop_row(held, row)
            del self._tables[name]
            return None
        return held

    def _drop_row(self, table: _Table, row: str) -> bool:
        value = table.rows.pop(row, None)
        if value is None:
            return False
        self._rows -= 1
        self._bytes -= _cost(row, value)
        return True

    def _write(self, name: str, value: bytes, ttl: float | None) -> None:
        self._drop(name)
        self._make_room(_cost(name, value), 1)
        entry = _Entry(value, None)
        self._data[name] = entry
        self._bytes += _cost(name, value)
        if ttl is not None:
            self._expire(name, entry, ttl)

    def _expire(self, name: str, entry: _Entry, ttl: float) -> None:
        entry.expires = self._clock() + ttl
        heapq.heappush(self._due, (entry.expires, name))
        if len(self._due) > 2 * len(self._data) + 64:  # renewals leave stale rows behind
            self._due = [(e.expires, k) for k, e in self._data.items() if e.expires is not None]
            heapq.heapify(self._due)

    def _drop(self, name: str) -> bool:
        entry = self._data.pop(name, None)
        if entry is None:
            return False
        self._bytes -= _cost(name, entry.value)
        return True

    def _purge(self) -> None:
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, name = heapq.heappop(self._due)
            self._live(name)
        while self._tables_due and self._tables_due[0][0] <= now:
            _, name = heapq.heappop(self._tables_due)
            self._table(name)

    def _make_room(self, size: int, entries: int) -> None:
        self._purge()
        if len(self._data) + self._rows + entries > self._max_entries:
            raise StoreError("the store is full")
        while self._bytes + size > self._max_bytes:
            if not self._caches:
                raise StoreError("the store is full")
            # The largest cache gives way, so that one tenant's phrases do not push out another's.
            name, box = max(self._caches.items(), key=lambda item: item[1].size)
            self._uncache(name, box, next(iter(box.entries)))
            self._evicted += 1

    def _uncache(self, cache: str, box: _Cache, member: str) -> None:
        entry = box.entries.pop(member)
        box.size -= len(entry.value)
        self._bytes -= _cost(member, entry.value)
        if not box.entries:
            self._caches.pop(cache, None)

"""One suite for both drivers, and the pure functions that they share."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.store import Store, escape, key, open_store, window_wait
from tests.sessions.conftest import eventually
from tts_core.errors import SettingsError

NAMES = st.text(st.characters(codec=None), max_size=80)


@given(NAMES, NAMES)
def test_escape_is_injective_and_harmless(a: str, b: str) -> None:
    assert (escape(a) == escape(b)) == (a == b)
    assert re.fullmatch(r"[A-Za-z0-9\-_.~%]+", escape(a))


@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=4))
def test_keys_of_different_parts_differ(a: list[str], b: list[str]) -> None:
    assert (key(*a) == key(*b)) == (a == b)


@given(st.text(min_size=201, max_size=400), st.text(min_size=201, max_size=400))
def test_long_names_stay_short_and_apart(a: str, b: str) -> None:
    assert len(escape(a)) <= 200
    assert (escape(a) == escape(b)) == (a == b)


def test_key_shape() -> None:
    assert key("acme", "voice", "a:b*") == "vx:acme:voice:a%3Ab%2A"
    assert key("", "keys") == "vx:%:keys"
    assert key("%", "keys") != key("", "keys")


@given(
    previous=st.integers(0, 200),
    current=st.integers(0, 100),
    amount=st.integers(1, 100),
    limit=st.integers(1, 100),
    elapsed=st.floats(0, 9.999),
)
def test_window_wait_is_long_enough_and_not_too_long(
    previous: int, current: int, amount: int, limit: int, elapsed: float
) -> None:
    period = 10.0
    wait = window_wait(previous, current, amount, limit=limit, period=period, elapsed=elapsed)
    if amount > limit:
        assert wait == float("inf")
        return
    assert 0 <= wait <= 2 * period + 1e-3

    def fits(after: float) -> bool:
        t = elapsed + after
        before, now = (previous, current) if t < period else (current, 0)
        if t >= 2 * period:
            before = 0
        return window_wait(before, now, amount, limit=limit, period=period, elapsed=t % period) <= 1e-5

    assert fits(wait + 1e-5)
    if wait > 0.01:
        assert not fits(wait - 0.01) or wait - 0.01 + elapsed < 0


def test_open_store_by_url() -> None:
    assert isinstance(open_store(None), MemoryStore)
    assert isinstance(open_store("memory:"), MemoryStore)
    assert isinstance(open_store("redis://127.0.0.1:1/0"), RedisStore)
    for bad in ("http://x", "nonsense", "redis://127.0.0.1:port/0"):
        with pytest.raises(SettingsError):
            open_store(bad)


async def _until(store: Store, name: str) -> None:
    """Wait for a real expiry: ask until it is gone."""

    async def gone() -> bool:
        return await store.get(name) is None

    await eventually(gone)


async def test_values(store: Store) -> None:
    k = key("t", "a")
    assert await store.get(k) is None
    await store.set(k, b"\x00\xff", None)
    assert await store.get(k) == b"\x00\xff"
    assert not await store.set_if_absent(k, b"other", 5)
    assert await store.get(k) == b"\x00\xff"
    assert await store.delete(k, key("t", "none")) == 1
    assert await store.delete() == 0
    assert await store.set_if_absent(k, b"other", 5)
    await store.set_many({key("t", "x"): b"1", key("t", "y"): b"2"}, 5)
    assert [await store.get(key("t", n)) for n in "xy"] == [b"1", b"2"]


async def test_values_end_by_themselves(store: Store) -> None:
    k = key("t", "short")
    await store.set(k, b"1", 0.02)
    await _until(store, k)
    assert await store.touch((k,), 5) == 0
    assert await store.set_if_absent(k, b"2", 0.02)
    await store.set(k, b"3")  # a write without ttl takes the old ttl away
    assert await store.touch((k, key("t", "none")), 0.02) == 1
    await _until(store, k)


async def test_several_at_once(store: Store) -> None:
    await store.set("vx:t:a", b"1")
    await store.set("vx:t:b", b"")
    assert await store.get_many("vx:t:b", "vx:t:none", "vx:t:a") == (b"", None, b"1")
    assert await store.get_many() == ()


async def test_exists(store: Store) -> None:
    await store.set("vx:t:a", b"")
    await store.set("vx:t:b", b"1", 0.02)
    assert await store.exists("vx:t:none", "vx:t:a") == (False, True)
    assert await store.exists() == ()
    await _until(store, "vx:t:b")
    assert await store.exists("vx:t:b") == (False,)


async def test_tables(store: Store) -> None:
    t, u = key("t", "table"), key("t", "other")
    assert await store.table_all(t) == {}
    assert await store.table_get(t, "a") is None
    await store.table_set(t, {"a": b"1", "b": b"\xff\0"}, values={"vx:t:v": b"v", "vx:t:w": b"w"})
    await store.table_set(t, {"a": b"2"})
    await store.table_set(u, {"a": b"u"})
    assert await store.table_all(t) == {"a": b"2", "b": b"\xff\0"}
    assert await store.table_get(t, "b") == b"\xff\0"
    assert await store.get("vx:t:v") == b"v"
    assert not await store.table_swap(t, "a", b"1", b"3")
    assert not await store.table_swap(t, "none", b"1", b"3")
    assert await store.table_swap(t, "a", b"2", b"3")
    assert await store.table_get(t, "a") == b"3"
    assert await store.table_drop(t, "a", "none", keys=("vx:t:v", "vx:t:none")) == 2
    assert await store.table_drop(t, keys=("vx:t:w",)) == 1
    assert await store.table_drop(t) == 0
    assert await store.get("vx:t:v") is None
    assert await store.table_drop(t, "a", "b") == 1
    assert await store.table_all(t) == {}
    assert await store.table_all(u) == {"a": b"u"}


async def test_tables_and_their_values_end_by_themselves(store: Store) -> None:
    t = key("t", "table")
    await store.table_set(t, {"a": b"1"}, ttl=30, values={"vx:t:v": b"v"}, values_ttl=0.02)
    await _until(store, "vx:t:v")
    assert await store.table_get(t, "a") == b"1"
    await store.table_set(t, {"b": b"1"}, ttl=0.02)

    async def gone() -> bool:
        return not await store.table_all(t)

    await eventually(gone)
    await store.table_set(t, {"c": b"1"})
    assert await store.table_all(t) == {"c": b"1"}


async def test_swaps_that_meet_are_all_made_once(store: Store) -> None:
    t = key("t", "table")
    await store.table_set(t, {f"{i}": b"0" for i in range(4)})
    done = await asyncio.gather(*(store.table_swap(t, f"{i % 4}", b"0", b"n%d" % i) for i in range(16)))
    assert sum(done) == 4
    rows = await store.table_all(t)
    assert all(rows[f"{i % 4}"] == b"n%d" % i for i, ok in enumerate(done) if ok)


async def test_leases(store: Store) -> None:
    k = key("t", "lease")
    assert await store.lease(k, "a", 5)
    assert await store.lease(k, "a", 5)
    assert not await store.lease(k, "b", 5)
    assert not await store.renew(k, "b", 5)
    assert not await store.release(k, "b")
    assert await store.renew(k, "a", 0.02)
    await _until(store, k)
    assert not await store.renew(k, "a", 5)
    assert await store.lease(k, "b", 5)
    assert await store.release(k, "b")
    assert not await store.release(k, "b")


async def test_counters(store: Store) -> None:
    k = key("t", "n")
    assert await store.increment(k, 5) == 1
    assert await store.increment(k, 0.01, 4) == 5  # the ttl is the first one's
    assert await store.increment(k, 5, -2) == 3
    assert sorted(await asyncio.gather(*(store.increment(k, 5) for _ in range(50)))) == list(range(4, 54))


async def test_tokens_are_never_granted_twice(store: Store) -> None:
    k = key("t", "rate")
    # A refused caller may be refused on account of another one in flight, so ask one after the other.
    waits = [await store.take_tokens(k, 1, 10, 3600.0) for _ in range(15)]
    assert [w == 0.0 for w in waits] == [True] * 10 + [False] * 5
    assert all(0 < w <= 7200 for w in waits[10:])
    assert await store.take_tokens(k, -3, 10, 3600.0) == 0.0
    assert [await store.take_tokens(k, 1, 10, 3600.0) == 0.0 for _ in range(4)] == [True] * 3 + [False]
    assert await store.take_tokens(k, 11, 10, 3600.0) == float("inf")


async def test_tokens_under_concurrency(store: Store) -> None:
    waits = await asyncio.gather(*(store.take_tokens(key("t", "crowd"), 1, 10, 3600.0) for _ in range(40)))
    assert 1 <= sum(w == 0.0 for w in waits) <= 10


async def test_cache_keeps_the_recently_used(store: Store) -> None:
    cache = key("t", "phrases")
    for member in "abc":
        await store.cache_put(cache, member, member.encode() * 100, 60, 300)
    assert await store.cache_get(cache, "a") == b"a" * 100
    await store.cache_put(cache, "d", b"d" * 150, 60, 300)  # needs the room of the two oldest
    assert [await store.cache_get(cache, m) is not None for m in "abcd"] == [True, False, False, True]
    assert store.state.evicted == 2
    await store.cache_put(cache, "e", b"e" * 301, 60, 300)
    assert await store.cache_get(cache, "e") is None
    await store.cache_put(cache, "a", b"A" * 10, 60, 300)
    assert await store.cache_get(cache, "a") == b"A" * 10
    assert await store.cache_get(key("other", "phrases"), "a") is None
    assert await store.cache_clear(cache) == 2
    assert await store.cache_clear(cache) == 0
    assert await store.cache_get(cache, "a") is None


async def test_cached_values_end_by_themselves(store: Store) -> None:
    cache = key("t", "phrases")
    await store.cache_put(cache, "a", b"x", 0.02, 300)

    async def gone() -> bool:
        return await store.cache_get(cache, "a") is None

    await eventually(gone)
    assert await store.cache_clear(cache) == 0


async def test_messages(store: Store) -> None:
    got: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    one = await store.subscribe(key("", "one"), lambda m: got.put_nowait(("one", m)))
    await store.subscribe(key("", "two"), lambda m: got.put_nowait(("two", m)))
    await store.subscribe(key("", "one"), lambda m: got.put_nowait(("again", m)))
    await store.publish(key("", "one"), b"1")
    await store.publish(key("", "two"), b"\xff")
    async with asyncio.timeout(5):
        assert sorted([await got.get() for _ in range(3)]) == [
            ("again", b"1"),
            ("one", b"1"),
            ("two", b"\xff"),
        ]
    one()
    one()
    await store.publish(key("", "one"), b"2")
    async with asyncio.timeout(5):
        assert await got.get() == ("again", b"2")
    assert got.empty()


async def test_health(store: Store) -> None:
    assert store.healthy
    assert await store.ping() >= 0
    assert store.state.healthy
    assert store.state.breaker == "closed"
    assert store.state.latency >= 0

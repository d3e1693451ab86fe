"""What only the memory driver does: virtual time, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.memory_store import MemoryStore
from sessions.store import key
from tests.sessions.conftest import Clock
from tts_core.errors import StoreError


async def test_expiry_to_the_second(clock: Clock) -> None:
    s = MemoryStore(clock=clock)
    await s.set("k", b"v", 10)
    clock.move(9.999)
    assert await s.get("k") == b"v"
    assert await s.touch(("k",), 10) == 1
    clock.move(9.999)
    assert await s.get("k") == b"v"
    clock.move(0.001)
    assert await s.get("k") is None


async def test_counter_ttl_is_the_first(clock: Clock) -> None:
    s = MemoryStore(clock=clock)
    await s.increment("n", 10)
    clock.move(9)
    await s.increment("n", 10)
    clock.move(1)
    assert await s.increment("n", 10) == 1


async def test_expired_entries_make_room_for_new_ones(clock: Clock) -> None:
    s = MemoryStore(clock=clock, max_entries=10)
    for i in range(10):
        await s.set(f"k{i}", b"v", 1)
    with pytest.raises(StoreError):
        await s.set("more", b"v")
    clock.move(1)
    await s.set("more", b"v")


async def test_cached_values_give_way_to_others(clock: Clock) -> None:
    s = MemoryStore(clock=clock, max_bytes=3000)
    await s.cache_put(key("a", "p"), "m", b"x" * 1000, 60, 5000)
    await s.cache_put(key("b", "p"), "m", b"x" * 500, 60, 5000)
    await s.set("k", b"y" * 1500)
    assert await s.cache_get(key("a", "p"), "m") is None  # the larger cache gives way
    assert await s.cache_get(key("b", "p"), "m") == b"x" * 500
    with pytest.raises(StoreError):
        await s.set("k2", b"y" * 3000)
    assert await s.get("k") == b"y" * 1500


async def test_renewing_for_ever_keeps_the_books_small(clock: Clock) -> None:
    s = MemoryStore(clock=clock)
    await s.lease("l", "me", 60)
    for _ in range(1000):
        clock.move(20)
        assert await s.renew("l", "me", 60)
    assert len(s._due) < 100


@given(st.lists(st.tuples(st.sampled_from("gr"), st.integers(1, 6), st.floats(0, 7)), max_size=60))
async def test_use_stays_within_the_limit(steps: list[tuple[str, int, float]]) -> None:
    clock = Clock(0.0)
    s = MemoryStore(clock=clock)
    granted: dict[int, int] = {}
    for _, amount, move in steps:
        clock.move(move)
        wait = await s.take_tokens("r", amount, 10, 10.0)
        if wait == 0:
            window = int(clock.now // 10)
            granted[window] = granted.get(window, 0) + amount
            assert granted[window] <= 10
        else:
            clock.move(wait)
            assert await s.take_tokens("r", amount, 10, 10.0) == 0
            window = int(clock.now // 10)
            granted[window] = granted.get(window, 0) + amount


async def test_accounts_return_to_zero(clock: Clock) -> None:
    s = MemoryStore(clock=clock)
    await s.set("a", b"1", 5)
    await s.set("a", b"22", 5)
    await s.increment("n", 5, 99)
    await s.increment("n", 5, 1)
    await s.cache_put("c", "m", b"xx", 5, 100)
    await s.cache_put("c", "m", b"xxx", 5, 100)
    clock.move(6)
    assert await s.cache_get("c", "m") is None
    assert await s.get("a") is None
    assert await s.get("n") is None
    assert s._bytes == 0


async def test_expired_tables_make_room(clock: Clock) -> None:
    store = MemoryStore(clock=clock, max_entries=3)
    await store.table_set("t", {"a": b"1", "b": b"2"}, ttl=10)
    await store.set("k", b"1")
    with pytest.raises(StoreError):
        await store.table_set("t", {"c": b"3"})
    clock.move(10)
    await store.table_set("u", {"c": b"3"}, values={"l": b"1"})
    await store.table_drop("u", "c", keys=("k", "l"))
    assert store._bytes == 0
    assert store._rows == 0

"""What only Redis can do: be slow, be gone, come back; and how little it needs to be allowed."""

from __future__ import annotations

import asyncio
import time

import pytest

from sessions.breaker import Breaker
from sessions.redis_check import COMMANDS
from sessions.redis_store import RedisStore
from sessions.store import key
from tests.peers.redis import RedisServer
from tests.sessions.conftest import eventually
from tts_core.errors import StoreError


def _patient(url: str) -> RedisStore:
    return RedisStore(url, deadline=5.0, cache_deadline=5.0)


async def _healthy(store: RedisStore, wanted: bool) -> None:
    changed = asyncio.Event()
    stop = store.on_change(lambda healthy: changed.set() if healthy is wanted else None)
    if store.healthy is not wanted:
        async with asyncio.timeout(10):
            await changed.wait()
    stop()


async def test_paused_server_costs_one_deadline_and_then_nothing(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, heartbeat=60)
    await store.start()
    await store.set("vx:t:a", b"1")
    await store.cache_put("vx:t:p", "m", b"1", 60, 100)
    own_redis.pause()
    began = time.monotonic()
    with pytest.raises(StoreError):
        await store.cache_get("vx:t:p", "m")
    assert 0.04 < time.monotonic() - began < 0.2
    began = time.monotonic()
    with pytest.raises(StoreError):
        await store.get("vx:t:a")
    assert 0.2 < time.monotonic() - began < 0.45
    assert store.state.breaker == "closed"
    with pytest.raises(StoreError):
        await store.get("vx:t:a")
    assert not store.healthy
    assert store.state.breaker == "open"
    assert store.state.last_error == "TimeoutError"
    began = time.monotonic()
    for _ in range(1000):
        with pytest.raises(StoreError):
            await store.get("vx:t:a")
    assert time.monotonic() - began < 0.5
    own_redis.resume()
    await _healthy(store, True)
    assert await store.get("vx:t:a") == b"1"
    await store.close()


async def test_a_wrong_answer_never_reaches_the_next_caller(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, breaker=Breaker(threshold=1000), heartbeat=60)
    await store.start()
    for i in range(20):
        await store.set(f"vx:t:{i}", b"%d" % i)
    own_redis.pause()
    results = await asyncio.gather(*(store.get(f"vx:t:{i}") for i in range(20)), return_exceptions=True)
    assert all(isinstance(r, StoreError) for r in results)
    own_redis.resume()
    patient = _patient(own_redis.url)
    assert await patient.ping() >= 0
    await patient.close()
    assert [await store.get(f"vx:t:{i}") for i in range(20)] == [b"%d" % i for i in range(20)]
    await store.close()


async def test_killed_and_restarted_server(own_redis: RedisServer) -> None:
    store = _patient(own_redis.url)
    await store.start()
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await store.subscribe("vx:%:c", got.put_nowait)
    await store.publish("vx:%:c", b"before")
    async with asyncio.timeout(5):
        assert await got.get() == b"before"
    own_redis.kill()
    for _ in range(3):
        with pytest.raises(StoreError):
            await store.get("vx:t:a")
    await _healthy(store, False)
    own_redis.start()
    await _healthy(store, True)
    await store.set("vx:t:a", b"2")
    assert await store.get("vx:t:a") == b"2"
    # The subscription is open again by itself, too.
    with own_redis.client() as client:

        async def heard() -> bool:
            return bool(client.publish("vx:%:c", b"after"))

        await eventually(heard)
    async with asyncio.timeout(5):
        assert await got.get() == b"after"
    await store.close()


async def test_a_server_away_from_the_start(own_redis: RedisServer) -> None:
    own_redis.kill()
    store = _patient(own_redis.url)
    await store.start()
    assert not store.healthy
    with pytest.raises(StoreError):
        await store.set("vx:t:a", b"1")
    own_redis.start()
    await _healthy(store, True)
    await store.set("vx:t:a", b"1")
    await store.close()


async def test_an_idle_gateway_notices_too(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, heartbeat=0.05, deadline=0.1)
    await store.start()
    own_redis.pause()
    await _healthy(store, False)
    own_redis.resume()
    await _healthy(store, True)
    await store.close()


async def test_cancelled_calls_leave_nothing(shared_redis: RedisServer) -> None:
    store = _patient(shared_redis.url)
    await store.start()
    before = asyncio.all_tasks()
    for _ in range(100):
        task = asyncio.create_task(store.take_tokens("vx:t:cancel", 1, 10, 60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def forgotten() -> bool:
        return not store._abandoned

    await eventually(forgotten)
    assert asyncio.all_tasks() <= before
    assert await asyncio.gather(*(store.ping() for _ in range(40)))
    await store.close()
    await store.close()


async def test_a_refusal_is_not_an_outage(shared_redis: RedisServer) -> None:
    store = _patient(shared_redis.url)
    await store.set("vx:t:text", b"no number")
    for _ in range(5):
        with pytest.raises(StoreError):
            await store.increment("vx:t:text", 5)
    assert store.healthy
    await store.close()


async def test_the_shipped_account_is_enough(shared_redis: RedisServer) -> None:
    store = _patient(shared_redis.url)
    await store.start()
    assert not any(c.startswith(("eval", "script", "keys", "config", "migrate")) for c in COMMANDS)
    cache = key("t", "phrases")
    await store.set(key("t", "a"), b"1", 5)
    await store.set_many({key("t", "b"): b"1"}, 5)
    assert await store.get(key("t", "a")) == b"1"
    assert await store.touch((key("t", "a"),), 5) == 1
    assert await store.lease(key("t", "l"), "me", 5)
    assert await store.renew(key("t", "l"), "me", 5)
    assert not await store.renew(key("t", "l"), "you", 5)
    assert await store.release(key("t", "l"), "me")
    assert await store.increment(key("t", "n"), 5) == 1
    assert [await store.take_tokens(key("t", "r"), 1, 1, 3600.0) == 0 for _ in range(2)] == [True, False]
    for m in "abc":
        await store.cache_put(cache, m, b"x" * 100, 5, 200)
    assert await store.cache_get(cache, "a") is None
    assert await store.cache_clear(cache) == 2
    await store.cache_put(cache, "z", b"x", 0.001, 200)

    async def gone() -> bool:
        return await store.cache_get(cache, "z") is None

    await eventually(gone)
    assert await store.exists(key("t", "a")) == (True,)
    assert await store.get_many(key("t", "a")) == (b"1",)
    await store.table_set(key("t", "table"), {"r": b"1"}, ttl=5)
    assert await store.table_swap(key("t", "table"), "r", b"1", b"2")
    added = await store.table_add(key("t", "table"), "s", b"3", values={key("t", "v"): b"4"}, values_ttl=5)
    assert added == {"r": b"2", "s": b"3"}
    assert await store.table_drop(key("t", "table"), "s", keys=(key("t", "v"),)) == 2
    assert await store.table_get(key("t", "table"), "r") == b"2"
    assert await store.table_all(key("t", "table")) == {"r": b"2"}
    assert await store.table_drop(key("t", "table"), "r") == 1
    assert await store.delete(key("t", "a")) == 1
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await store.subscribe(key("", "c"), got.put_nowait)
    await store.publish(key("", "c"), b"hello")
    async with asyncio.timeout(5):
        assert await got.get() == b"hello"
    with pytest.raises(StoreError):
        await store.get("other:prefix")
    assert store.state.failures == 0
    await store.close()


async def test_windows_follow_the_server_clock(shared_redis: RedisServer) -> None:
    """Two gateways whose own clocks are hours apart share one limit."""
    here = RedisStore(shared_redis.url, deadline=5.0, clock=time.monotonic)
    there = RedisStore(shared_redis.url, deadline=5.0, clock=lambda: time.monotonic() + 86_400)
    name = key("t", "two gateways")
    grants = [await s.take_tokens(name, 1, 4, 3600.0) == 0 for s in (here, there) * 4]
    assert sum(grants) == 4
    await here.close()
    await there.close()

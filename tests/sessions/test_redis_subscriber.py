"""The one connection with all subscriptions."""

from __future__ import annotations

import asyncio
import logging

import pytest
from redis.asyncio import Redis

from sessions.redis_subscriber import Subscriber, cancel_surely
from tests.peers.redis import RedisServer
from tests.sessions.conftest import eventually


def _subscriber(server: RedisServer, **more: float) -> Subscriber:
    return Subscriber(
        Redis.from_url(server.url, protocol=2, socket_timeout=None),
        deadline=more.pop("deadline", 5.0),
        **more,
    )


async def test_subscriptions_before_and_after_the_connection(shared_redis: RedisServer) -> None:
    s = _subscriber(shared_redis)
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await asyncio.gather(*(s.add(f"vx:%:{i}", got.put_nowait) for i in range(5)))
    await s.add("vx:%:late", got.put_nowait)
    with shared_redis.client() as client:
        for name in ("0", "4", "late"):
            assert client.publish(f"vx:%:{name}", name) == 1
    async with asyncio.timeout(5):
        assert {await got.get() for _ in range(3)} == {b"0", b"4", b"late"}
    await s.close()
    await s.close()


async def test_an_idle_connection_is_kept(shared_redis: RedisServer) -> None:
    s = _subscriber(shared_redis, quiet=0.02)
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await s.add("vx:%:idle", got.put_nowait)
    first = s._pubsub
    pings = 0

    async def asked() -> bool:
        nonlocal pings
        with shared_redis.client() as client:
            info = client.info("commandstats")
        pings = info.get("cmdstat_ping", {}).get("calls", 0)
        return bool(pings >= before + 3)

    with shared_redis.client() as client:
        before = client.info("commandstats").get("cmdstat_ping", {}).get("calls", 0)
    await eventually(asked)
    assert s._pubsub is first
    await s.close()


async def test_a_server_that_gives_no_sign_of_life_is_left(own_redis: RedisServer) -> None:
    s = _subscriber(own_redis, deadline=0.2, quiet=0.02)
    got: asyncio.Queue[bytes] = asyncio.Queue()
    await s.add("vx:%:c", got.put_nowait)
    first = s._pubsub
    assert first is not None
    own_redis.pause()

    async def left() -> bool:
        return s._pubsub is not first

    await eventually(left)
    # Subscribing meanwhile costs one deadline and follows later.
    async with asyncio.timeout(2):
        await s.add("vx:%:d", got.put_nowait)
    own_redis.resume()
    with own_redis.client() as client:

        async def back() -> bool:
            return bool(client.publish("vx:%:d", b"hello"))

        await eventually(back)
    async with asyncio.timeout(5):
        assert await got.get() == b"hello"
    await s.close()


async def test_an_outage_is_told_once_and_so_is_its_end(
    own_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    s = _subscriber(own_redis)
    await s.add("vx:%:c", lambda _: None)
    own_redis.kill()
    attempts = 0
    subscribe = s._listen

    async def counted() -> None:
        nonlocal attempts
        attempts += 1
        await subscribe()

    s._listen = counted  # type: ignore[method-assign]

    async def tried() -> bool:
        return attempts >= 3

    await eventually(tried)
    own_redis.start()

    async def back() -> bool:
        return any(record.msg == "subscription back" for record in caplog.records)

    await eventually(back)
    await s.close()
    assert [record.msg for record in caplog.records] == ["subscription lost", "subscription back"]


async def test_cancellation_that_is_lost_once_is_asked_for_again() -> None:
    started = asyncio.Event()

    async def deaf() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    async def failed() -> None:
        raise ValueError

    tasks = [asyncio.create_task(deaf()), asyncio.create_task(failed())]
    await started.wait()
    async with asyncio.timeout(5):
        await cancel_surely(*tasks)
    assert all(t.done() for t in tasks)


async def test_closing_ends_at_any_moment(shared_redis: RedisServer) -> None:
    for turn in range(30):
        s = _subscriber(shared_redis, quiet=0.001)
        await s.add("vx:%:c", lambda _: None)
        for _ in range(turn * 7):
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await s.close()
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "store-subscriber"]

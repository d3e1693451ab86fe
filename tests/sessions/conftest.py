"""Stores for the suites of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.store import Store
from tests.peers.redis import RedisServer


class Clock:
    """Virtual seconds, moved by hand."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


async def eventually(check: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Ask a real peer until it says so."""
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def shared_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One healthy server for all tests that do not harm it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server to be paused and killed."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """Each driver in turn, empty; real time."""
    made: Store
    if request.param == "memory":
        made = MemoryStore()
    else:
        server: RedisServer = request.getfixturevalue("shared_redis")
        with server.client() as client:
            client.flushall()
        # A busy test machine may stall a healthy server for longer than production deadlines allow.
        made = RedisStore(server.url, deadline=5.0, cache_deadline=5.0)
    await made.start()
    yield made
    await made.close()

"""What a call notices when Redis is slow or gone: nothing. And what operators see: everything."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.peers.gateway import Running, Start
from tests.peers.redis import RedisServer

KEY = "a-long-enough-key-0123"


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


async def say(http: aiohttp.ClientSession, url: str, text: str) -> tuple[float, dict[str, Any], int]:
    """Seconds to the first audio, the terminal message, and the bytes of audio."""
    began, first, size = time.monotonic(), -1.0, 0
    async with http.ws_connect(f"{url}/v1/stream", headers={"X-API-Key": KEY}) as ws:
        await ws.send_json({"type": "hello", "version": 1})
        await ws.send_json({"type": "open", "context": "a", "text": text, "end": True, "cache": True})
        while True:
            message = await ws.receive(timeout=20)
            if message.type is aiohttp.WSMsgType.BINARY:
                first = time.monotonic() - began if first < 0 else first
                size += len(message.data) - 20
                continue
            assert message.type is aiohttp.WSMsgType.TEXT, message
            event = json.loads(message.data)
            if event["type"] in {"done", "cancelled", "error"}:
                return first, event, size


async def store_state(http: aiohttp.ClientSession, url: str) -> tuple[int, str, str]:
    async with http.get(f"{url}/readyz") as response:
        ready = await response.json()
    async with http.get(f"{url}/metrics", headers={"X-API-Key": KEY}) as response:
        text = await response.text()
    up = next(line.split()[1] for line in text.splitlines() if line.startswith("voxwire_store_up "))
    return response.status and ready["ready"], ready["store"]["state"], up


async def until(http: aiohttp.ClientSession, url: str, state: str) -> None:
    async with asyncio.timeout(15):
        while (await store_state(http, url))[1] != state:
            await asyncio.sleep(0)


@pytest.mark.parametrize("how", ["pause", "kill"])
async def test_calls_go_on_while_redis_is_away_and_it_recovers_by_itself(
    start_gateway: Start, redis: RedisServer, how: str
) -> None:
    gateway: Running = await start_gateway(
        redis_url=redis.url, api_keys=f"acme[speak+admin]:{KEY}", phrase_cache=True
    )
    async with aiohttp.ClientSession() as http:
        assert await store_state(http, gateway.url) == (True, "ok", "1.0")
        _, event, size = await say(http, gateway.url, "Welcome to Voxwire, friend.")
        assert event["type"] == "done"
        spoken = len(gateway.engine.requests)
        getattr(redis, how)()
        # The first one after the outage finds it out; none waits longer than the cache's own deadline.
        for text in ("And welcome again.", "Welcome to Voxwire, friend.", "A third phrase here."):
            first, event, size = await say(http, gateway.url, text)
            assert event["type"] == "done", event
            assert size > 10_000
            assert first < 1.0
        assert len(gateway.engine.requests) > spoken
        await until(http, gateway.url, "degraded")
        assert await store_state(http, gateway.url) == (True, "degraded", "0.0")
        if how == "pause":
            redis.resume()
        else:
            redis.start()
        await until(http, gateway.url, "ok")
        assert await store_state(http, gateway.url) == (True, "ok", "1.0")
        _, event, _ = await say(http, gateway.url, "Good to have you back.")
        assert event["type"] == "done"


async def test_a_greeting_costs_the_engine_nothing_the_second_time(
    start_gateway: Start, redis: RedisServer
) -> None:
    """Also on another gateway: the phrase is in Redis."""
    settings = {"redis_url": redis.url, "api_keys": f"acme:{KEY}", "phrase_cache": True, "secret": "s" * 40}
    one = await start_gateway(**settings)
    two = await start_gateway(**settings)
    async with aiohttp.ClientSession() as http:
        _, first, size = await say(http, one.url, "Welcome to Voxwire, friend.")
        assert first["stats"]["cached_segments"] == 0
        with redis.client() as client:
            async with asyncio.timeout(5):
                while not any(b"phrase" in n for n in client.keys("*")):
                    await asyncio.sleep(0)
        _, again, same = await say(http, one.url, "Welcome to Voxwire, friend.")
        assert again["stats"]["cached_segments"] == first["stats"]["segments"]
        _, other, third = await say(http, two.url, "Welcome to Voxwire, friend.")
        assert other["stats"]["cached_segments"] == first["stats"]["segments"]
        assert size == same == third
        assert two.engine.requests == []


async def test_without_the_opt_in_nothing_is_kept(start_gateway: Start, redis: RedisServer) -> None:
    gateway = await start_gateway(redis_url=redis.url, api_keys=f"acme:{KEY}")
    async with aiohttp.ClientSession() as http:
        segments = 0
        for _ in range(2):
            _, event, _ = await say(http, gateway.url, "Welcome to Voxwire, friend.")
            assert event["stats"]["cached_segments"] == 0
            segments += event["stats"]["segments"]
    assert len(gateway.engine.requests) == segments
    with redis.client() as client:
        assert not [name for name in client.keys("*") if b"phrase" in name]

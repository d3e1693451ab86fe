"""What a gateway takes for a store, and what it keeps where."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import stores
from gateway.settings import Settings
from gateway.startup import open_keys
from gateway.stores import open_lasting, open_stores
from tests.peers.clips import clip
from tests.peers.gateway import Start, open_gateway
from tests.peers.redis import RedisServer
from tests.peers.rest import Refused, voice_client
from tests.sessions.conftest import eventually
from tests.tone import ToneEngine
from tts_core.errors import SettingsError

KEY = "acme-key-0123456789"
SCOPES = "speak+voice:read+voice:enrol+voice:delete"


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[RedisServer]:
    """For what ends by itself."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """For what must last: a kill -9 loses nothing of it."""
    folder = tmp_path / "durable"
    folder.mkdir()
    server = RedisServer(folder, "--appendonly", "yes", "--appendfsync", "always")
    server.start()
    yield server
    server.kill()


async def test_without_redis_both_are_this_process() -> None:
    async with AsyncExitStack() as stack:
        one, two = await open_stores(Settings(), stack)
        assert one is two
        assert (one.state.driver, one.faults) == ("memory", ())


async def test_an_unfit_redis_is_refused_and_what_to_change_is_said(
    tmp_path: Path, start_gateway: Start
) -> None:
    server = RedisServer(tmp_path, "--appendonly", "yes", config=None)
    server.start()
    try:
        with pytest.raises(SettingsError) as error:
            await start_gateway(redis_url=server.url, api_keys=f"acme:{KEY}")
        lines = error.value.message.splitlines()
        assert lines[0] == "VOXWIRE_REDIS_URL names a Redis that must not hold voices:"
        assert len(lines) == 7
        assert '- it keeps voices on disk: set appendonly no and save ""' in lines
        assert "VOXWIRE_REDIS_UNCHECKED=on" in lines[-1]
        for refused in (open_keys(Settings(redis_url=server.url, data_dir=tmp_path)),):
            with pytest.raises(SettingsError):
                await refused
        gateway = await start_gateway(redis_url=server.url, redis_unchecked=True, api_keys=f"acme:{KEY}")
        assert gateway.services.store.faults == ()
    finally:
        server.kill()


async def test_the_durable_one_is_looked_at_too(brief: RedisServer, tmp_path: Path) -> None:
    with brief.client() as client:
        client.execute_command("ACL", "SETUSER", "voxwire", "+keys")
    with pytest.raises(SettingsError, match="VOXWIRE_REDIS_DURABLE_URL") as error:
        await open_lasting(Settings(redis_url="redis://u:p@127.0.0.1:1/0", redis_durable_url=brief.url))
    assert "may run KEYS" in error.value.message


async def test_one_redis_alone_is_said_to_lose_what_must_last(
    brief: RedisServer, durable: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for url, told in (("", True), (durable.url, False)):
        caplog.clear()
        async with AsyncExitStack() as stack:
            with caplog.at_level(logging.WARNING, logger=stores.__name__):
                one, two = await open_stores(Settings(redis_url=brief.url, redis_durable_url=url), stack)
            assert (one is two) == told
        assert any("are lost with Redis" in r.msg for r in caplog.records) == told


async def test_what_must_last_outlives_both_and_a_call_s_voice_does_not(
    brief: RedisServer, durable: RedisServer, tmp_path: Path
) -> None:
    values: dict[str, Any] = {
        "redis_url": brief.url,
        "redis_check_url": brief.check_url,
        "redis_durable_url": durable.url,
        "secret": "s" * 40,
        "api_keys": f"acme[{SCOPES}]:{KEY}",
    }
    async with AsyncExitStack() as stack:
        gateway = await open_gateway(stack, tmp_path / "a", engine=ToneEngine(can_clone=True), **values)
        desk, voices = gateway.services.desk, gateway.services.voices
        acme = await stack.enter_async_context(voice_client(gateway.url, KEY))
        consent = await acme.consent()
        kept = (await acme.enrol(clip(660), consent=consent))["id"]
        gone = await voices.put("acme", "call-1", bytes(32))
        issued = await gateway.services.keyring.create("acme", name="a key that was made")
        for server, own, other in ((brief, gone.voice_id, kept), (durable, kept, gone.voice_id)):
            with server.client() as client:
                names = [name.decode() for name in client.scan_iter("vx:*")]
                names += [row.decode() for row in client.hkeys("vx:acme:voices")]
            assert any(own in name for name in names)
            assert not any(other in name for name in names)
        assert (await desk.catalogue.counts("acme")) == (1, 1)
        assert [e.id for e in await desk.catalogue.list("acme", session="call-1")] == [kept, gone.voice_id]
        rows = (await desk.audit.head()).number
        for server in (brief, durable):
            server.kill()
            server.start()

    async with AsyncExitStack() as stack:
        gateway = await open_gateway(stack, tmp_path / "b", engine=ToneEngine(can_clone=True), **values)
        services = gateway.services
        acme = await stack.enter_async_context(voice_client(gateway.url, KEY))
        assert services.keyring.authenticate(issued.presented).tenant == "acme"
        assert await services.voices.conditioning("acme", kept, session="call-2", revision="tone 1")
        assert (await services.desk.catalogue.counts("acme")) == (1, 0)
        assert (await services.desk.audit.verify()).ok
        assert (await services.desk.audit.head()).number >= rows
        again = await acme.enrol(clip(550), consent=consent)
        receipt = (await acme.delete(kept))["receipt"]
        assert receipt["answered"] == receipt["expected"] == 1
        with pytest.raises(Refused):
            await acme.delete(kept)
        assert again["id"] != kept


async def test_either_one_away_is_degraded_and_no_reason_to_stop(
    brief: RedisServer, durable: RedisServer, start_gateway: Start
) -> None:
    gateway = await start_gateway(redis_url=brief.url, redis_durable_url=durable.url, api_keys=f"acme:{KEY}")
    services = gateway.services
    async with aiohttp.ClientSession() as http:

        async def ready() -> tuple[int, list[str]]:
            async with http.get(f"{gateway.url}/readyz") as response:
                return response.status, (await response.json())["reasons"]

        assert await ready() == (200, [])
        for server in (brief, durable):
            server.kill()

            async def away() -> bool:
                return await ready() == (200, ["store is away"])

            await eventually(away)
            server.start()

            async def back() -> bool:
                return await ready() == (200, [])

            await eventually(back)
        with brief.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")

        async def unfit() -> bool:
            return await ready() == (200, ["store must not hold voices: no new ones are made"])

        await eventually(unfit)
        assert services.store.healthy

"""Voices that live with a session or a call, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.holds import UnknownSession
from gateway.speaking import voice_revision
from sessions.voices import LEASE_S, StoredVoice
from tests import virtual
from tests.peers.gateway import Running, on_gateway
from tests.peers.native import native_client
from tests.tone import RATE, ToneEngine
from tts_core.errors import UnknownVoice


def cloning() -> ToneEngine:
    return ToneEngine(second="other", can_clone=True)


async def made(
    gateway: Running, session: str | None, pitch: float = 660, tenant: str = "default"
) -> StoredVoice:
    """A voice in the store, as an enrolment leaves it."""
    data = await gateway.engine.enroll(ToneEngine.tone(RATE, pitch), RATE)
    return await gateway.services.voices.put(
        tenant,
        session,
        data,
        None if session is None else LEASE_S,
        revision=voice_revision(gateway.engine.info),
    )


@on_gateway(cloning)
async def test_a_voice_lives_as_long_as_its_session(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client:
        voice = await made(gateway, client.hello["session"])
        services.holds.add(voice)
        assert services.holds.any(client.hello["session"])
        assert services.holds.scope("default", voice.voice_id) == client.hello["session"]
        await asyncio.sleep(5 * LEASE_S)
        await client.send("open", "a", voice=voice.voice_id, text="One two.", end=True)
        (turn,) = await client.ended("a")
        assert turn.end is not None
        assert turn.end["type"] == "done"
        await client.send("bye")
        await client.close_code()
    assert len(services.holds) == 0
    with pytest.raises(UnknownVoice):
        await services.voices.get(
            "default", voice.voice_id, session=voice.session, revision=voice_revision(gateway.engine.info)
        )


@on_gateway(cloning, resume_s=30)
async def test_a_dropped_session_keeps_its_voices_for_a_resume_and_no_longer(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client:
        voice = await made(gateway, client.hello["session"])
        services.holds.add(voice)
    await asyncio.sleep(29)
    assert len(services.holds) == 1
    await asyncio.sleep(2)
    assert len(services.holds) == 0
    assert services.native_sessions == {}
    assert await services.voices.catalogue.list("default", session=voice.session) == ()


@on_gateway(cloning)
async def test_a_voice_cannot_live_with_what_is_not_there(gateway: Running) -> None:
    async with native_client(gateway) as client:
        session = client.hello["session"]
        gateway.services.holds.check("default", session)
        for tenant, scope in (("default", "s_none"), ("other", session), ("default", "")):
            with pytest.raises(UnknownSession):
                gateway.services.holds.check(tenant, scope)
        await client.send("bye")
        await client.close_code()
        voice = await made(gateway, session)
        with pytest.raises(UnknownSession):
            gateway.services.holds.add(voice)
    assert len(gateway.services.holds) == 0


@on_gateway(cloning)
async def test_a_voice_that_is_deleted_is_let_go(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client:
        first, second = [await made(gateway, client.hello["session"]) for _ in range(2)]
        services.holds.add(first)
        services.holds.add(second)
        await services.voices.delete("default", first.voice_id)
        await asyncio.sleep(LEASE_S)
        assert services.holds.scope("default", first.voice_id) is None
        assert services.holds.scope("default", second.voice_id) == client.hello["session"]
        await services.voices.delete("default", second.voice_id)
        await asyncio.sleep(LEASE_S)
        assert not services.holds.any(client.hello["session"])


@on_gateway(cloning)
async def test_when_the_gateway_stops_its_voices_go(gateway: Running) -> None:
    services = gateway.services
    async with native_client(gateway) as client:
        services.holds.add(await made(gateway, client.hello["session"]))
        began = virtual.clock()
        await services.holds.close()
        assert virtual.clock() == began
    assert len(services.holds) == 0

"""What lies between the routes and the store, where it cannot be seen through the routes."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.holds import UnknownSession
from gateway.voice_api import cloning
from gateway.voice_api.cloning import AT_ONCE
from gateway.voice_api.upload import Enrolment, Upload
from sessions.consent import ConsentTerms, How, Reach
from tests.peers.clips import clip
from tests.peers.gateway import Running, Start
from tests.peers.native import native_client
from tests.tone import ToneEngine
from tts_core.engine import Samples
from tts_core.errors import Busy, Draining, EngineTimeout


async def consent(gateway: Running, kind: Reach = Reach.PERMANENT) -> str:
    terms = ConsentTerms("p1", kind, ("speech",), ("*",), How.WRITTEN, "ab" * 32)
    return (await gateway.services.desk.consents.create("default", terms)).id


class Slow(ToneEngine):
    """Makes a voice when it is told to."""

    def __init__(self) -> None:
        super().__init__(can_clone=True)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def enroll(self, reference: Samples, rate: int) -> bytes:
        self.asked.set()
        await self.go.wait()
        return await super().enroll(reference, rate)


async def test_a_voice_of_a_session_that_ended_meanwhile_is_destroyed(start_gateway: Start) -> None:
    engine = Slow()
    gateway = await start_gateway(engine=engine)
    services = gateway.services
    async with native_client(gateway) as client:
        session = client.hello["session"]
        asked = Enrolment(consent=await consent(gateway, Reach.SESSION), session=session)
        upload = Upload(asked, bytearray(clip()))
        making = asyncio.create_task(services.cloning.make("default", upload))
        await asyncio.wait_for(engine.asked.wait(), 10)
        await client.send("bye")
        await client.close_code()
    while session in services.native_sessions:
        await asyncio.sleep(0.01)
    engine.go.set()
    with pytest.raises(UnknownSession):
        await making
    assert not any(upload.clip)
    assert await services.voices.catalogue.list("default", session=session) == ()
    assert len(services.holds) == 0


async def test_an_enrolment_that_is_cancelled_leaves_nothing(start_gateway: Start) -> None:
    engine = Slow()
    gateway = await start_gateway(engine=engine)
    services = gateway.services
    upload = Upload(Enrolment(consent=await consent(gateway)), bytearray(clip()))
    making = asyncio.create_task(services.cloning.make("default", upload))
    await asyncio.wait_for(engine.asked.wait(), 10)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert not any(upload.clip)
    assert await services.voices.catalogue.list("default") == ()


async def test_an_engine_has_its_time(start_gateway: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloning, "ENROL_S", 0.05)
    gateway = await start_gateway(engine=Slow())
    upload = Upload(Enrolment(consent=await consent(gateway)), bytearray(clip()))
    with pytest.raises(EngineTimeout):
        await gateway.services.cloning.make("default", upload)


async def test_who_is_too_many_or_too_late_is_told_before_a_clip_is_read(start_gateway: Start) -> None:
    gateway = await start_gateway(engine=ToneEngine(can_clone=True))
    made = gateway.services.cloning
    with contextlib.ExitStack() as places:
        for n in range(AT_ONCE):
            places.enter_context(made.place(f"tenant {n % 2}"))
        with pytest.raises(Busy), made.place("another"):
            pass
    with pytest.raises(ValueError, match="of the block"), made.place("default"):
        raise ValueError("of the block")
    with contextlib.ExitStack() as places:  # all are free again
        for n in range(AT_ONCE):
            places.enter_context(made.place(f"tenant {n % 2}"))
    gateway.services.draining.set()
    with pytest.raises(Draining), made.place("default"):
        pass

"""Limits of a tenant's voices, over all gateways."""

from __future__ import annotations

import asyncio

import pytest

from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_catalogue import SEAT_S, table_name
from sessions.voice_limits import VoiceGuard, VoiceLimits
from sessions.voices import VoiceStore
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock
from tts_core.errors import LimitExceeded

SECRET = DeploymentSecret(b"deployment secret of these tests")


def _guard(store: Store, **limits: float) -> tuple[VoiceStore, VoiceGuard]:
    voices = VoiceStore(store, SECRET)
    return voices, VoiceGuard(store, voices.catalogue, VoiceLimits(**limits))  # type: ignore[arg-type]


async def test_enrolments_an_hour(store: Store) -> None:
    _, one = _guard(store, enrolments_per_hour=3)
    _, two = _guard(store, enrolments_per_hour=3)
    for guard in (one, two, one):
        await guard.enrolment("acme", session=True)
    with pytest.raises(LimitExceeded) as error:
        await two.enrolment("acme", session=False)
    assert error.value.retry_after
    assert 0 < error.value.retry_after <= 7200
    await two.enrolment("other", session=True)


async def test_none_at_all(store: Store) -> None:
    _, guard = _guard(store, enrolments_per_hour=0)
    with pytest.raises(LimitExceeded) as error:
        await guard.enrolment("acme", session=True)
    assert error.value.retry_after is None


async def test_living_voices(store: Store) -> None:
    voices, guard = _guard(store, session_voices=2, permanent_voices=1)
    first = await voices.put("acme", "s1", b"x")
    await voices.put("acme", "s2", b"x")
    with pytest.raises(LimitExceeded):
        await guard.enrolment("acme", session=True)
    await guard.enrolment("acme", session=False)
    await guard.enrolment("other", session=True)
    await voices.delete("acme", first.voice_id)
    await guard.enrolment("acme", session=True)
    await voices.put("acme", None, b"x", None)
    with pytest.raises(LimitExceeded):
        await guard.enrolment("acme", session=False)


async def test_voices_that_have_lapsed_do_not_count(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices, guard = _guard(store, session_voices=1)
    await voices.put("acme", "s1", b"x", 60.0)
    with pytest.raises(LimitExceeded):
        await guard.enrolment("acme", session=True)
    clock.move(61)
    await guard.enrolment("acme", session=True)


async def test_five_wrong_consents_then_a_pause(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    _, guard = _guard(store)
    for _ in range(4):
        await guard.wrong_consent("acme")
        await guard.consents_open("acme")
    await guard.wrong_consent("acme")
    with pytest.raises(LimitExceeded) as error:
        await guard.consents_open("acme")
    assert error.value.retry_after == 900
    await guard.consents_open("other")
    clock.move(899)
    with pytest.raises(LimitExceeded):
        await guard.consents_open("acme")
    clock.move(1)
    await guard.consents_open("acme")
    await guard.wrong_consent("acme")  # counted from the beginning
    await guard.consents_open("acme")


async def test_wrong_consents_are_forgiven(clock: Clock) -> None:
    _, guard = _guard(MemoryStore(clock=clock))
    for _ in range(10):
        await guard.wrong_consent("acme")
        await guard.consents_open("acme")
        clock.move(300)


@pytest.mark.parametrize("session", [True, False])
@pytest.mark.parametrize("living", [0, 7])
async def test_however_many_ask_at_once_no_place_is_given_twice(
    shared_redis: RedisServer, session: bool, living: int
) -> None:
    """60 enrolments at the same moment through two gateways, for 10 places."""
    with shared_redis.client() as client:
        client.flushall()
    stores = [RedisStore(shared_redis.url, deadline=10.0) for _ in range(2)]
    desks = [_guard(s, session_voices=10, permanent_voices=10, enrolments_per_hour=1000) for s in stores]

    async def enrol(i: int) -> bool:
        voices, guard = desks[i % 2]
        owner, ttl = (f"s{i}", 60.0) if session else (None, None)
        try:
            place = await guard.enrolment("acme", session=session)
        except LimitExceeded:
            return False
        await voices.put("acme", owner, b"x", ttl, voice_id=place)
        return True

    for i in range(living):
        assert await enrol(i)
    granted = sum(await asyncio.gather(*(enrol(i) for i in range(60))))
    assert granted == 10 - living
    counts = await desks[0][0].catalogue.counts("acme")
    assert counts == ((0, 10) if session else (10, 0))
    assert len(await stores[0].table_all(table_name("acme"))) == 10  # nothing is left of the refused ones
    for store in stores:
        await store.close()


async def test_a_place_is_given_back_or_lapses(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices, guard = _guard(store, session_voices=1, permanent_voices=1)
    for session in (True, False):
        place = await guard.enrolment("acme", session=session)
        assert await voices.catalogue.list("acme", session="s1") == ()
        with pytest.raises(LimitExceeded):
            await guard.enrolment("acme", session=session)
        await guard.give_back("acme", place, session=session)
        await guard.give_back("acme", place, session=session)
        place = await guard.enrolment("acme", session=session)
        clock.move(SEAT_S - 1)
        with pytest.raises(LimitExceeded):
            await guard.enrolment("acme", session=session)
        clock.move(1)
        await guard.enrolment("acme", session=session)
        clock.move(SEAT_S)


async def test_a_voice_keeps_the_place_that_it_took(store: Store) -> None:
    voices, guard = _guard(store, session_voices=1)
    place = await guard.enrolment("acme", session=True)
    voice = await voices.put("acme", "s1", b"x", voice_id=place)
    assert voice.voice_id == place
    await guard.give_back("acme", place, session=True)  # too late: it is a voice by now
    assert await voices.get("acme", place, session="s1") == b"x"
    with pytest.raises(LimitExceeded):
        await guard.enrolment("acme", session=True)


async def test_an_hour_s_limit_leaves_no_place_behind(store: Store) -> None:
    _, guard = _guard(store, enrolments_per_hour=1, session_voices=2)
    await guard.enrolment("acme", session=True)
    for _ in range(5):
        with pytest.raises(LimitExceeded, match="an hour"):
            await guard.enrolment("acme", session=True)
    assert len(await store.table_all(table_name("acme"))) == 1

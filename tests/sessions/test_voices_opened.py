"""Opened voices: what a call speaks with, with the store and without."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_catalogue import About
from sessions.voices import VoiceStore
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import BadRequest, StoreError, UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
DATA = bytes(range(256)) * 64


@pytest.fixture
def voices(store: Store) -> VoiceStore:
    return VoiceStore(store, SECRET)


async def test_warm_in_process_needs_no_store(voices: VoiceStore, store: Store) -> None:
    p = await voices.put("acme", None, DATA, None, revision="m1")
    assert await voices.conditioning("acme", p.voice_id, session="s1", revision="m1") == DATA
    calls = _count(store)
    for session in ("s1", "s2", None):
        assert await voices.conditioning("acme", p.voice_id, session=session, revision="m1") == DATA
    assert calls == []
    assert voices.hits == 3
    for tenant, revision in (("other", "m1"), ("acme", "m2")):
        with pytest.raises(UnknownVoice):
            await voices.conditioning(tenant, p.voice_id, revision=revision)


def _count(store: Store) -> list[str]:
    """The verbs that are called from now on."""
    calls: list[str] = []

    def watch(verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            calls.append(verb)
            return call(*args, **options)

        return watched

    for verb in (
        "get",
        "get_many",
        "set",
        "exists",
        "touch",
        "delete",
        "table_get",
        "table_all",
        "table_drop",
    ):
        setattr(store, verb, watch(verb, getattr(store, verb)))
    return calls


async def test_foreign_and_missing_take_the_same_steps(voices: VoiceStore, store: Store) -> None:
    """The time is the same because the path is: the same questions to the store and the same failures."""
    mine = await voices.put("acme", "s1", DATA, revision="m1")
    permanent = await voices.put("acme", None, DATA, None, revision="m1")
    await voices.conditioning("acme", mine.voice_id, session="s1", revision="m1")
    await voices.conditioning("acme", permanent.voice_id, revision="m1")
    calls = _count(store)
    steps = []
    for tenant, voice_id in (
        ("other", mine.voice_id),
        ("other", permanent.voice_id),
        ("acme", mine.voice_id),
        ("acme", "vc_" + "0" * 32),
        ("other", "vc_" + "0" * 32),
        ("acme", "no id"),
    ):
        calls.clear()
        with pytest.raises(UnknownVoice) as missing:
            await voices.conditioning(tenant, voice_id, session="s2", revision="m1")
        with pytest.raises(UnknownVoice) as unlisted:
            await voices.catalogue.find(tenant, voice_id, session="s2")
        steps.append((tuple(calls), missing.value.message, missing.value.field, unlisted.value.message))
    assert len(set(steps)) == 1
    assert steps[0][0] == ("get_many", "table_get", "get", "exists")


async def test_a_deletion_elsewhere_drops_the_copy_here(store: Store) -> None:
    one, two = VoiceStore(store, SECRET), VoiceStore(store, SECRET)
    await two.start()
    p = await one.put("acme", None, DATA, None)
    assert await two.conditioning("acme", p.voice_id) == DATA
    assert len(two.cache) == 1
    await one.delete("acme", p.voice_id)

    async def dropped() -> bool:
        return not two.cache

    await eventually(dropped)
    with pytest.raises(UnknownVoice):
        await two.conditioning("acme", p.voice_id)
    await two.close()


async def test_a_deletion_that_was_not_heard_of_is_noticed(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    one, two = (VoiceStore(store, SECRET, clock=clock, wall=clock) for _ in range(2))
    gone: list[str] = []
    two.on_deleted(lambda tenant, voice: gone.append(voice))
    p = await one.put("acme", None, DATA, None)
    await two.conditioning("acme", p.voice_id)
    clock.move(25)
    assert await two.conditioning("acme", p.voice_id) == DATA  # asked again, confirmed
    await one.delete("acme", p.voice_id)
    clock.move(25)
    with pytest.raises(UnknownVoice):
        await two.conditioning("acme", p.voice_id)
    assert gone == [p.voice_id]


async def test_a_voice_that_is_deleted_while_it_is_read_is_not_kept(voices: VoiceStore, store: Store) -> None:
    p = await voices.put("acme", None, DATA, None)
    get = store.get_many
    read, late = asyncio.Event(), asyncio.Event()

    async def slow(*keys: str) -> tuple[bytes | None, ...]:
        value = await get(*keys)
        read.set()
        await late.wait()
        return value

    store.get_many = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(voices.conditioning("acme", p.voice_id))
    await read.wait()
    store.get_many = get  # type: ignore[method-assign]
    await voices.delete("acme", p.voice_id)
    late.set()
    with pytest.raises(UnknownVoice):
        await reading
    assert not voices.cache


async def test_a_running_call_goes_on_without_redis_until_its_lease_ends(
    own_redis: RedisServer, clock: Clock
) -> None:
    store = RedisStore(own_redis.url)
    voices = VoiceStore(store, SECRET, clock=clock)
    v = await voices.put("acme", "s1", DATA, 60.0)
    lease = voices.hold(v)
    await voices.conditioning("acme", v.voice_id, session="s1")
    own_redis.kill()
    clock.move(30)  # no longer fresh: the store is asked, and is away
    assert await voices.conditioning("acme", v.voice_id, session="s1") == DATA
    assert await lease.beat()
    with pytest.raises(StoreError):
        await voices.conditioning("acme", v.voice_id, session="s2")
    clock.move(30)
    with pytest.raises(StoreError):
        await voices.conditioning("acme", v.voice_id, session="s1")
    assert not voices.cache
    await lease.close()
    await voices.close()
    await store.close()


async def test_a_renewed_lease_keeps_the_copy(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices = VoiceStore(store, SECRET, clock=clock, wall=clock)
    v = await voices.put("acme", "s1", DATA)
    lease = voices.hold(v)
    await voices.conditioning("acme", v.voice_id, session="s1")
    calls = _count(store)
    for _ in range(10):
        clock.move(15)
        assert await lease.beat()
        assert await voices.conditioning("acme", v.voice_id, session="s1") == DATA
    assert set(calls) == {"touch"}
    clock.move(61)
    assert not await lease.beat()
    assert not voices.cache
    await lease.close()


async def test_a_voice_ends_with_its_terms(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices = VoiceStore(store, SECRET, clock=clock, wall=clock)
    about = About(until=clock.now + 100)
    s = await voices.put("acme", "s1", DATA, about=about)
    p = await voices.put("acme", None, DATA, None, about=about)
    q = await voices.put("acme", None, DATA, 50.0, about=about)
    assert (p.ttl, q.ttl) == (100, 50)
    lease = voices.hold(s)
    for v in (s, p):
        await voices.conditioning("acme", v.voice_id, session="s1")
    for _ in range(5):
        clock.move(20)
        await lease.beat()
    for v in (s, p, q):
        with pytest.raises(UnknownVoice):
            await voices.conditioning("acme", v.voice_id, session="s1")
    assert await voices.catalogue.list("acme", session="s1") == ()
    with pytest.raises(BadRequest):
        await voices.put("acme", None, DATA, None, about=about)
    await lease.close()


async def test_consent_is_asked_when_a_voice_is_opened_and_confirmed(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices = VoiceStore(store, SECRET, clock=clock, wall=clock)
    consent = "cn_" + "5" * 32
    asked: list[tuple[str, str]] = []
    answer = True

    async def check(tenant: str, consent_id: str) -> bool:
        asked.append((tenant, consent_id))
        return answer

    voices.use_consents(check)
    v = await voices.put("acme", None, DATA, None, about=About(consent=consent))
    await voices.conditioning("acme", v.voice_id)
    await voices.conditioning("acme", v.voice_id)
    assert asked == [("acme", consent)]
    answer = False
    clock.move(25)
    with pytest.raises(UnknownVoice):
        await voices.conditioning("acme", v.voice_id)
    assert not voices.cache


async def test_holders_of_copies_are_waited_for(voices: VoiceStore, caplog: pytest.LogCaptureFixture) -> None:
    p = await voices.put("acme", None, DATA, None)
    await voices.conditioning("acme", p.voice_id)

    async def device(tenant: str, voice: str) -> int:
        await asyncio.sleep(0)
        return 3

    async def broken(tenant: str, voice: str) -> int:
        raise StoreError("no device")

    voices.on_deleted(device)
    voices.on_deleted(lambda tenant, voice: 2)
    assert await voices.forget("acme", p.voice_id) == 1 + 3 + 2
    stop = voices.on_deleted(broken)
    with pytest.raises(StoreError):
        await voices.forget("acme", p.voice_id)
    await voices.delete("acme", p.voice_id)

    async def logged() -> bool:
        return "copies of a voice were not dropped" in caplog.text

    await eventually(logged)
    stop()
    await voices.close()


def test_salts_differ(clock: Clock) -> None:
    voices = VoiceStore(MemoryStore(clock=clock), SECRET)
    other = VoiceStore(MemoryStore(clock=clock), DeploymentSecret(b"another deployment's very secret"))
    salts = [v.salt(t, i) for v in (voices, other) for t in ("a", "b", "ab") for i in ("v", "bv", "w")]
    assert len(set(salts)) == len(salts)
    assert all(len(bytes.fromhex(s)) == 32 for s in salts)
    assert voices.salt("a", "v") == salts[0]


async def test_a_thousand_voices_fit(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, deadline=5.0)
    voices = VoiceStore(store, SECRET)
    with own_redis.client() as client:
        before = client.info("memory")["used_memory"]
        for i in range(1000):
            data = os.urandom(16_384)
            await voices.put("acme", None, data, None, revision="m" * 64, about=About(name=f"v{i}"))
        used = client.info("memory")["used_memory"] - before
    assert used <= 40e6
    assert len(await voices.catalogue.list("acme")) == 1000
    await store.close()

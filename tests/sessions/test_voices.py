"""Voices of a session: sealed, leased, surely deleted."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.memory_store import MemoryStore
from sessions.prefix import MAX_BYTES
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store, key
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


async def _unknown(
    voices: VoiceStore, tenant: str, voice_id: str, session: str | None, revision: str = ""
) -> bool:
    try:
        await voices.get(tenant, voice_id, session=session, revision=revision)
    except UnknownVoice as exc:
        assert exc.message == "no such voice"
        return True
    return False


async def test_put_get_delete(voices: VoiceStore) -> None:
    v = await voices.put("acme", "s1", DATA, revision="m1")
    assert len(v.voice_id) == 3 + 32
    assert await voices.get("acme", v.voice_id, session="s1", revision="m1") == DATA
    assert await voices.delete("acme", v.voice_id)
    assert not await voices.delete("acme", v.voice_id)
    assert await _unknown(voices, "acme", v.voice_id, "s1", "m1")
    assert not await voices.renew("acme", v.voice_id)


async def test_foreign_is_missing(voices: VoiceStore) -> None:
    v = await voices.put("acme", "s1", DATA, revision="m1")
    p = await voices.put("acme", None, DATA, None)
    for tenant, voice_id, session, revision in (
        ("other", v.voice_id, "s1", "m1"),
        ("acme", v.voice_id, "s2", "m1"),
        ("acme", v.voice_id, None, "m1"),
        ("acme", v.voice_id, "s1", "m2"),
        ("acme", p.voice_id, "s1", ""),
        ("other", p.voice_id, None, ""),
        ("acme", "vc_" + "0" * 32, "s1", "m1"),
        ("acme", "vc_*", "s1", "m1"),
        ("acme", "", "s1", "m1"),
    ):
        assert await _unknown(voices, tenant, voice_id, session, revision)
    assert not await voices.delete("other", v.voice_id)
    assert not await voices.renew("other", v.voice_id)
    assert await voices.get("acme", v.voice_id, session="s1", revision="m1") == DATA
    assert await voices.get("acme", p.voice_id) == DATA


async def test_bad_data(voices: VoiceStore) -> None:
    for data in (b"", b"x" * (MAX_BYTES + 1)):
        with pytest.raises(BadRequest):
            await voices.put("acme", "s1", data)
    with pytest.raises(BadRequest):
        await voices.put("acme", "s1", DATA, None)


@given(
    st.binary(min_size=1, max_size=300),
    st.text(max_size=5),
    st.none() | st.text(max_size=5),
    st.text(max_size=5),
)
async def test_any_bytes_and_names(data: bytes, tenant: str, session: str | None, revision: str) -> None:
    voices = VoiceStore(MemoryStore(), SECRET)
    v = await voices.put(tenant, session, data, revision=revision)
    assert await voices.get(tenant, v.voice_id, session=session, revision=revision) == data
    assert await _unknown(voices, tenant, v.voice_id, (session or "") + "x", revision)
    assert await _unknown(voices, tenant + "x", v.voice_id, session, revision)


async def test_the_store_never_sees_the_voice_nor_its_key(shared_redis: RedisServer) -> None:
    store = RedisStore(shared_redis.url, deadline=5.0)
    voices = VoiceStore(store, SECRET)
    about = About(name="Grandmother Ida", language="de-DE", notes=("a little noise",))
    v = await voices.put("dump", "a-session", DATA, about=about)
    p = await voices.put("dump", None, DATA, None, about=about)
    records = []
    with shared_redis.client() as client:
        for name in client.scan_iter("vx:dump:*"):
            table = client.type(name) == b"hash"
            records += list(client.hgetall(name).values()) if table else [client.get(name)]
    assert len(records) == 2 * 2 + 1 + 2
    for record in records:
        assert isinstance(record, bytes)
        assert not any(DATA[i : i + 16] in record for i in range(256))
        assert not any(word in record for word in (b"Ida", b"de-DE", b"noise", b"a-session"))
    other = VoiceStore(store, DeploymentSecret(b"another deployment's very secret"))
    assert await _unknown(other, "dump", v.voice_id, "a-session")
    assert await _unknown(other, "dump", p.voice_id, None)
    assert not await _unknown(VoiceStore(store, SECRET), "dump", v.voice_id, "a-session")
    await store.close()


async def test_swapped_and_damaged_records_stay_shut(voices: VoiceStore, store: Store) -> None:
    a, b = await voices.put("acme", "s1", b"a" * 100), await voices.put("acme", "s1", b"b" * 100)
    names = {
        (v.voice_id, part): key("acme", "voice", v.voice_id, part) for v in (a, b) for part in ("key", "data")
    }
    records = {n: await store.get(k) for n, k in names.items()}

    async def restore(changes: dict[tuple[str, str], bytes | None]) -> None:
        for n, k in names.items():
            value = (records | changes)[n]
            await store.set(k, value) if value is not None else await store.delete(k)

    for parts in (["data"], ["key"], ["key", "data"]):
        await restore({(x.voice_id, p): records[y.voice_id, p] for x, y in ((a, b), (b, a)) for p in parts})
        assert await _unknown(voices, "acme", a.voice_id, "s1")
        assert await _unknown(voices, "acme", b.voice_id, "s1")
    for part in ("key", "data"):
        whole = records[a.voice_id, part]
        assert whole is not None
        flipped = bytes([whole[0] ^ 1]) + whole[1:]
        for damaged in (b"", whole[:5], whole[:-1], whole + b"\0", flipped, None):
            await restore({(a.voice_id, part): damaged})
            assert await _unknown(voices, "acme", a.voice_id, "s1")
    await restore({})
    assert await voices.get("acme", a.voice_id, session="s1") == b"a" * 100


async def test_lease_in_virtual_time(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices = VoiceStore(store, SECRET, clock=clock)
    v = await voices.put("acme", "s1", DATA)
    lost: list[bool] = []
    lease = voices.hold(v, on_lost=lambda: lost.append(True))
    for _ in range(10):
        clock.move(20)
        assert await lease.beat()
    clock.move(59.9)
    assert await voices.get("acme", v.voice_id, session="s1") == DATA
    clock.move(0.2)
    assert await _unknown(voices, "acme", v.voice_id, "s1")
    assert not await lease.beat()
    assert not await lease.beat()
    assert lost == [True]
    await lease.close()
    await lease.close()


async def test_a_held_voice_outlives_its_lease_and_ends_with_it(voices: VoiceStore, store: Store) -> None:
    v = await voices.put("acme", "s1", DATA, 0.3)
    renewed = 0
    touch = store.touch

    async def count(keys: tuple[str, ...], ttl: float) -> int:
        nonlocal renewed
        renewed += 1
        return await touch(keys, ttl)

    store.touch = count  # type: ignore[method-assign]
    async with voices.hold(v) as lease:

        async def beyond() -> bool:
            return renewed >= 6

        await eventually(beyond)
        assert not lease.lost
        assert await voices.get("acme", v.voice_id, session="s1") == DATA
    assert await _unknown(voices, "acme", v.voice_id, "s1")
    assert not [
        t
        for t in asyncio.all_tasks()
        if t.get_name() == "voice-lease" and not t.cancelling() and not t.done()
    ]


async def test_every_gateway_hears_of_a_deletion(store: Store) -> None:
    one, two = VoiceStore(store, SECRET), VoiceStore(store, SECRET)
    await two.start()
    heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    stop = two.on_deleted(lambda tenant, voice: heard.put_nowait((tenant, voice)))
    v = await one.put("acme", "s1", DATA)
    async with one.hold(v):
        pass
    async with asyncio.timeout(5):
        assert await heard.get() == ("acme", v.voice_id)
    two._hear(b"noise")
    stop()
    await one.delete("acme", v.voice_id)
    await two.close()
    assert heard.empty()


async def test_a_paused_store_is_told_when_it_is_back(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url)
    await store.start()
    voices = VoiceStore(store, SECRET)
    dropped: list[str] = []
    voices.on_deleted(lambda tenant, voice: dropped.append(voice))
    v = await voices.put("acme", "s1", DATA)
    lease = voices.hold(v)
    own_redis.pause()
    assert await lease.beat()  # away is not lost
    await lease.close()
    assert dropped == [v.voice_id]  # copies here go at once
    assert voices.owed == 1
    with pytest.raises(StoreError):
        await voices.get("acme", v.voice_id, session="s1")
    own_redis.resume()

    async def repaid() -> bool:
        return voices.owed == 0

    await eventually(repaid)
    with own_redis.client() as client:
        assert not list(client.scan_iter("vx:acme:*"))
    await voices.close()
    await store.close()


async def test_a_cancelled_goodbye_still_deletes(voices: VoiceStore, store: Store) -> None:
    v = await voices.put("acme", "s1", DATA)
    lease = voices.hold(v)

    async def never(*keys: str) -> int:
        await asyncio.Event().wait()
        return 0

    delete, store.delete = store.delete, never  # type: ignore[method-assign]
    task = asyncio.create_task(lease.close())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    store.delete = delete  # type: ignore[method-assign]

    async def gone() -> bool:
        return await _unknown(voices, "acme", v.voice_id, "s1")

    await eventually(gone)
    await voices.close()


HOLDER = """
import asyncio, sys
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.voice_catalogue import About
from sessions.voices import VoiceStore

async def main():
    voices = VoiceStore(RedisStore(sys.argv[1], deadline=5.0), DeploymentSecret(b"x" * 32))
    voice = await voices.put("killed", "s1", b"data" * 100, 3.0)
    async with voices.hold(voice):
        print(voice.voice_id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_gateway_leaves_no_voice(shared_redis: RedisServer) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        HOLDER,
        shared_redis.url,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    async with asyncio.timeout(20):
        voice_id = (await process.stdout.readline()).decode().strip()
    name = key("killed", "voice", voice_id, "key")
    with shared_redis.client() as client:
        assert client.exists(name)
        process.send_signal(signal.SIGKILL)
        await process.wait()

        async def gone() -> bool:
            return not client.exists(name)

        await eventually(gone, 15)
        # What is left is a mark: a random id, no name, no key, no voice.
        assert list(client.scan_iter("vx:killed:*")) == [b"vx:killed:voices"]
        marks = client.hgetall("vx:killed:voices")
        assert isinstance(marks, dict)
        assert [(len(i), len(mark)) for i, mark in marks.items()] == [(35, 9)]
    store = RedisStore(shared_redis.url, deadline=5.0)
    assert await VoiceStore(store, DeploymentSecret(b"x" * 32)).catalogue.counts("killed") == (0, 0)
    with shared_redis.client() as client:
        assert not list(client.scan_iter("vx:killed:*"))
    await store.close()


async def test_a_voice_that_was_kept_without_our_knowing_is_deleted(own_redis: RedisServer) -> None:
    """The server took the voice, but its answer came too late: nobody knows the id, so it must go."""
    store = RedisStore(own_redis.url)
    await store.start()
    voices = VoiceStore(store, SECRET)
    own_redis.pause()
    with pytest.raises(StoreError):
        await voices.put("acme", None, DATA, None)
    assert voices.owed == 1
    own_redis.resume()

    async def repaid() -> bool:
        return voices.owed == 0

    await eventually(repaid)
    with own_redis.client() as client:
        assert not list(client.scan_iter("vx:acme:*"))
    await voices.close()
    await store.close()


async def test_a_debt_ends_with_the_lease(own_redis: RedisServer, clock: Clock) -> None:
    store = RedisStore(own_redis.url)
    own_redis.kill()
    voices = VoiceStore(store, SECRET, clock=clock)
    await voices.delete_surely("acme", "vc_" + "0" * 32)
    assert voices.owed == 1
    clock.move(61)

    async def ended() -> bool:
        return voices.owed == 0

    await eventually(ended)
    await voices.close()
    await store.close()

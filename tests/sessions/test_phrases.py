"""The phrase cache: what it keeps, for whom, and that it never fails a call."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.memory_store import MemoryStore
from sessions.phrases import MAX_PHRASE_BYTES, Phrase, PhraseCache, PhraseKey, pack, unpack
from sessions.principal import Principal
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store, key
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock
from tts_core.engine import EngineInfo, SpeechChunk, SpeechRequest, VoiceInfo, WordMark
from tts_core.errors import StoreError

SECRET = DeploymentSecret(b"deployment secret of these tests")
CALLER = Principal("acme", "k1", phrase_cache=True)
OTHER = Principal("other", "k2", phrase_cache=True)
INFO = EngineInfo("toy", "r1", 24000, (VoiceInfo("ada", "Ada"),))

U32 = st.integers(0, 2**32 - 1)
WORDS = st.lists(st.builds(WordMark, U32, U32, U32, U32), max_size=8).map(tuple)
PCM = st.lists(st.integers(-32768, 32767), max_size=64).map(lambda x: np.array(x, dtype=np.int16))
PHRASES = st.builds(Phrase, PCM, U32, WORDS)


def _same(a: Phrase | None, b: Phrase) -> bool:
    return a is not None and np.array_equal(a.pcm, b.pcm) and (a.rate, a.words) == (b.rate, b.words)


def _phrase(samples: int = 100, seed: int = 0) -> Phrase:
    rng = np.random.default_rng(seed)
    return Phrase(rng.integers(-9999, 9999, samples, dtype=np.int16), 24000, (WordMark(0, 5, 10, 90),))


def _key(cache: PhraseCache, caller: Principal = CALLER, text: str = "hello") -> PhraseKey:
    k = cache.key(caller, revision="r1", voice="ada", speed=1.0, text=text)
    assert k is not None
    return k


@given(PHRASES, st.text(max_size=70))
def test_round_trip(phrase: Phrase, name: str) -> None:
    assert _same(unpack(pack(phrase, name), name), phrase)


@given(PHRASES, st.integers(0, 10_000), st.integers(0, 7))
def test_any_flipped_bit_is_damage(phrase: Phrase, at: int, bit: int) -> None:
    data = bytearray(pack(phrase, "n"))
    data[at % len(data)] ^= 1 << bit
    assert unpack(bytes(data), "n") is None


@given(PHRASES, st.integers(0, 300))
def test_any_cut_or_foreign_name_is_damage(phrase: Phrase, cut: int) -> None:
    data = pack(phrase, "n")
    assert unpack(data[: cut % len(data)], "n") is None
    assert unpack(data + b"\0", "n") is None
    assert unpack(data, "m") is None


@given(st.binary(max_size=200))
def test_noise_is_damage(data: bytes) -> None:
    assert unpack(data, "n") is None


async def test_put_and_get(store: Store) -> None:
    here, there = PhraseCache(store, SECRET), PhraseCache(store, SECRET)
    k = _key(here)
    assert await here.get(k) is None
    assert await here.put(k, _phrase())
    assert _same(await here.get(k), _phrase())  # from the front
    assert _same(await there.get(_key(there)), _phrase())  # from the store
    assert (here.hits, here.misses, there.hits, there.misses) == (1, 1, 1, 0)


async def test_everything_that_changes_the_audio_is_in_the_name() -> None:
    cache = PhraseCache(MemoryStore(), SECRET)
    base = {"revision": "r", "voice": "v", "speed": 1.0, "text": "t", "form": "f"}
    names = {cache.key(CALLER, **base)}  # type: ignore[arg-type]
    changes = ({"revision": "r2"}, {"voice": "v2"}, {"speed": 1.1}, {"text": "T"}, {"form": "g"})
    for change in (*changes, {"voice": "vt", "text": ""}, {"voice": "", "text": "vt"}):
        names.add(cache.key(CALLER, **(base | change)))  # type: ignore[arg-type]
    names.add(cache.key(OTHER, **base))  # type: ignore[arg-type]
    names.add(PhraseCache(MemoryStore(), DeploymentSecret(b"x" * 32)).key(CALLER, **base))  # type: ignore[arg-type]
    assert len({k.name for k in names if k}) == 10


async def test_only_for_those_who_asked(store: Store) -> None:
    cache = PhraseCache(store, SECRET)
    caller = replace(CALLER, phrase_cache=False)
    assert cache.key(caller, revision="r", voice="v", speed=1, text="t") is None
    assert cache.of(caller, INFO) is None
    assert not await cache.put(None, _phrase())
    assert await cache.get(None) is None
    assert (cache.hits, cache.misses) == (0, 0)


async def test_tenants_share_nothing(store: Store) -> None:
    cache = PhraseCache(store, SECRET)
    mine, theirs = _key(cache, CALLER), _key(cache, OTHER)
    assert mine.name != theirs.name
    await cache.put(mine, _phrase())
    assert await cache.get(theirs) is None
    # Even knowing the name, or moving the value, another tenant gets nothing.
    assert await cache.get(PhraseKey("other", mine.name)) is None
    value = await store.cache_get(key("acme", "phrases"), mine.name)
    assert value is not None
    await store.cache_put(key("other", "phrases"), theirs.name, value, 60, 1 << 20)
    assert await cache.get(theirs) is None
    assert cache.damaged == 1


async def test_damage_is_a_miss_and_repaired_by_the_next_put(store: Store) -> None:
    cache = PhraseCache(store, SECRET, front_bytes=0)
    k = _key(cache)
    await cache.put(k, _phrase())
    await store.cache_put(key("acme", "phrases"), k.name, b"VXP1 nonsense", 60, 1 << 20)
    assert await cache.get(k) is None
    assert cache.damaged == 1
    await cache.put(k, _phrase())
    assert _same(await cache.get(k), _phrase())


async def test_size_cap_of_a_tenant(store: Store) -> None:
    size = len(pack(_phrase(), "x" * 64))
    cache = PhraseCache(store, SECRET, max_bytes=3 * size, front_bytes=0)
    keys = [_key(cache, text=f"t{i}") for i in range(4)]
    for k in keys[:3]:
        assert await cache.put(k, _phrase())
    assert await cache.get(keys[0])
    assert await cache.put(keys[3], _phrase())
    assert [await cache.get(k) is not None for k in keys] == [True, False, True, True]
    assert not await cache.put(keys[0], _phrase(10_000))


async def test_too_long_and_empty_phrases_are_not_kept(store: Store) -> None:
    cache = PhraseCache(store, SECRET)
    assert not await cache.put(_key(cache), _phrase(MAX_PHRASE_BYTES // 2))
    assert not await cache.put(_key(cache), Phrase(np.zeros(0, np.int16), 24000))
    assert await cache.get(_key(cache)) is None


async def test_front_is_bounded_and_short_lived(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    size = len(pack(_phrase(), "x" * 64))
    cache = PhraseCache(store, SECRET, front_bytes=2 * size, ttl=100, clock=clock)
    keys = [_key(cache, text=f"t{i}") for i in range(5)]
    for k in keys:
        await cache.put(k, _phrase())
        assert cache._front_size <= 2 * size
    assert len(cache._front) == 2
    clock.move(61)
    assert await cache.get(keys[4])  # from the store again
    clock.move(40)
    assert await cache.get(keys[0]) is None
    await cache.close()
    assert cache._front_size == 0


async def test_clear_reaches_every_gateway(store: Store) -> None:
    here, there = PhraseCache(store, SECRET), PhraseCache(store, SECRET)
    await there.start()
    await here.put(_key(here), _phrase())
    await here.put(_key(here, OTHER), _phrase())
    assert await there.get(_key(there))
    assert await there.get(_key(there, OTHER))
    told = asyncio.Event()
    await store.subscribe(key("", "phrases", "cleared"), lambda _: told.set())
    assert await here.clear("acme") == 1
    async with asyncio.timeout(5):
        await told.wait()
    assert await here.get(_key(here)) is None
    assert await there.get(_key(there)) is None
    assert await there.get(_key(there, OTHER))
    await there.close()


async def test_what_a_voice_of_the_tenants_own_spoke_goes_with_it(store: Store) -> None:
    cache = PhraseCache(store, SECRET)
    mine, other, built_in = (
        cache.key(CALLER, revision="r1", voice=voice, speed=1.0, text="hello", own=own)
        for voice, own in (("vc_1", True), ("vc_2", True), ("ada", False))
    )
    for k in (mine, other, built_in):
        assert await cache.put(k, _phrase())
    fresh = PhraseCache(store, SECRET)
    assert await fresh.get(mine)
    assert await fresh.clear_voice("acme", "vc_1") == 1
    assert await cache.clear_voice("acme", "vc_1") == 1
    for at in (cache, PhraseCache(store, SECRET)):
        assert await at.get(mine) is None
        assert await at.get(other)
        assert await at.get(built_in)
    assert await cache.clear("acme") == 1
    assert await PhraseCache(store, SECRET).get(other)


async def test_a_paused_store_is_a_miss_within_its_deadline(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, heartbeat=60)
    await store.start()
    cache = PhraseCache(store, SECRET, front_bytes=0)
    k = _key(cache)
    assert await cache.put(k, _phrase())
    own_redis.pause()
    began = time.monotonic()
    assert await cache.get(k) is None
    assert not await cache.put(k, _phrase())
    assert time.monotonic() - began < 0.3
    with pytest.raises(StoreError):
        await cache.clear("acme")
    assert cache.failures == 2
    own_redis.resume()
    await store.close()


async def test_front_serves_while_the_store_is_away(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url)
    own_redis.kill()
    cache = PhraseCache(store, SECRET)
    assert not await cache.put(_key(cache), _phrase())
    assert _same(await cache.get(_key(cache)), _phrase())
    await store.close()


def _request(**changes: object) -> SpeechRequest:
    base = SpeechRequest("id", "hello", "ada")
    return replace(base, **changes)  # type: ignore[arg-type]


async def test_in_the_terms_of_an_engine(store: Store) -> None:
    cache = PhraseCache(store, SECRET)
    phrases = cache.of(CALLER, INFO)
    assert phrases is not None
    pcm = np.linspace(-1, 1, 1001, dtype=np.float32)
    words = (WordMark(0, 2, 0, 500), WordMark(2, 5, 500, 1001))
    chunks = (
        SpeechChunk(pcm[:400], 0, words[:1]),
        SpeechChunk(pcm[400:], 400, words[1:]),
        SpeechChunk(pcm[:0], 1001, last=True),
    )
    assert await phrases.get(_request()) is None
    await phrases.put(_request(), chunks[:2])  # cut short
    assert await phrases.get(_request()) is None
    await phrases.put(_request(), ())
    await phrases.put(_request(), chunks)
    got = await phrases.get(_request(id="another", deadline=5.0))
    assert got is not None
    assert len(got) == 1
    assert got[0].last
    assert got[0].words == words
    assert got[0].pcm.dtype == np.float32
    assert np.abs(got[0].pcm - pcm).max() <= 1 / 32768 + 1e-7
    for changes in (
        {"seed": 1},
        {"conditioning": b"c"},
        {"continues": "so"},
        {"speed": 1.1},
        {"voice": "bob"},
    ):
        assert await phrases.get(_request(**changes)) is None
    newer = cache.of(CALLER, replace(INFO, revision="r2"))
    assert newer is not None
    assert await newer.get(_request()) is None


async def test_speech_that_is_too_long_to_keep_is_not_even_converted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrases = PhraseCache(store, SECRET).of(CALLER, INFO)
    assert phrases is not None
    touched: list[int] = []
    monkeypatch.setattr(np, "concatenate", lambda parts: touched.append(len(parts)))
    half = np.zeros(MAX_PHRASE_BYTES // 4 + 1, np.float32)
    await phrases.put(_request(), (SpeechChunk(half, 0), SpeechChunk(half, len(half), last=True)))
    assert touched == []
    assert await phrases.get(_request()) is None

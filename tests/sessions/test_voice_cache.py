"""Opened voices in memory: bounded in bytes and in time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.prefix import Conditioning
from sessions.voice_cache import FRESH_S, GRACE_S, Held, VoiceCache
from tests.sessions.conftest import Clock


def _held(size: int = 10, *, session: str | None = None, lease: float = 0.0, until: float = 1e9) -> Held:
    return Held(session, "m1", Conditioning(bytes(size), until, lease), b"record")


@pytest.fixture
def cache(clock: Clock) -> VoiceCache:
    return VoiceCache(max_bytes=100, clock=clock, wall=clock)


def test_fresh_then_grace_then_gone(cache: VoiceCache, clock: Clock) -> None:
    held = _held()
    assert cache.keep("t", "v", held)
    assert cache.find("t", "v") is held
    assert cache.fresh(held)
    clock.move(FRESH_S)
    assert not cache.fresh(held)
    assert cache.find("t", "v") is held
    cache.confirm("t", "v")
    assert cache.fresh(held)
    clock.move(GRACE_S)
    assert cache.find("t", "v") is None
    assert cache.size == 0
    cache.confirm("t", "v")


def test_a_sessions_voice_lasts_for_its_lease(cache: VoiceCache, clock: Clock) -> None:
    held = _held(session="s", lease=6.0)
    cache.keep("t", "v", held)
    clock.move(1.9)
    assert cache.fresh(held)
    clock.move(0.2)
    assert not cache.fresh(held)
    clock.move(3.8)
    assert cache.find("t", "v") is held
    clock.move(0.1)
    assert cache.find("t", "v") is None


def test_a_voice_ends_with_its_terms(cache: VoiceCache, clock: Clock) -> None:
    cache.keep("t", "v", _held(until=clock.now + 5))
    clock.move(4.9)
    assert cache.find("t", "v")
    clock.move(0.1)
    assert cache.sweep() == 1
    assert len(cache) == 0


def test_deleted_stays_deleted(cache: VoiceCache) -> None:
    cache.keep("t", "v", _held())
    assert cache.forget("t", "v") == 1
    assert cache.forget("t", "v") == 0
    assert not cache.keep("t", "v", _held())  # who read it before the deletion comes too late
    assert cache.find("t", "v") is None
    assert cache.keep("other", "v", _held())


def test_what_is_remembered_is_bounded(cache: VoiceCache) -> None:
    for i in range(5000):
        cache.forget("t", str(i))
    assert len(cache._gone) == 4096
    assert not cache.keep("t", "4999", _held())


def test_too_large_for_all(cache: VoiceCache) -> None:
    assert cache.keep("t", "small", _held())
    assert cache.keep("t", "large", _held(101))
    assert cache.find("t", "large") is None
    assert cache.find("t", "small")
    assert cache.clear() == 1
    assert cache.size == 0


@given(
    st.lists(st.tuples(st.sampled_from(["keep", "find", "forget"]), st.integers(0, 9), st.integers(1, 60)))
)
def test_bytes_are_counted_and_bounded(steps: list[tuple[str, int, int]]) -> None:
    cache = VoiceCache(max_bytes=100)
    last: list[int] = []
    for verb, number, size in steps:
        if verb == "keep":
            cache.keep("t", str(number), _held(size))
        elif verb == "find":
            cache.find("t", str(number))
        else:
            cache.forget("t", str(number))
        if verb != "forget" and cache.find("t", str(number)):
            last.append(number)
        assert cache.size == sum(len(h.voice.data) for h in cache._held.values()) <= 100
        if last and verb == "keep" and ("t", str(number)) not in cache._gone:
            assert cache.find("t", str(number))  # the newest is never the one to go

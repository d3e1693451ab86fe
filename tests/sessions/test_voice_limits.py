"""Limits of a tenant's voices, over all gateways."""

from __future__ import annotations

import pytest

from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_limits import VoiceGuard, VoiceLimits
from sessions.voices import VoiceStore
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

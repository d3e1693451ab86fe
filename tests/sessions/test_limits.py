"""Rates on both stores and without one; the gate of generating contexts against a model."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sessions.limits import SILENT_S, ContextGate, RateLimiter, Slot
from sessions.memory_store import MemoryStore
from sessions.principal import Limits, Principal
from sessions.redis_store import RedisStore
from sessions.store import Store
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import LimitExceeded


def _caller(
    tenant: str = "t", key_id: str = "k", *, own: Limits | None = None, shared: Limits | None = None
) -> Principal:
    return Principal(tenant, key_id, limits=own or Limits(), tenant_limits=shared or Limits())


async def _granted(
    limiter: RateLimiter, caller: Principal, *, requests: int = 0, characters: int = 0
) -> bool:
    try:
        await limiter.use(caller, requests=requests, characters=characters)
    except LimitExceeded as exc:
        assert exc.retry_after is None or 0 < exc.retry_after <= 120
        return False
    return True


async def test_requests_and_characters(store: Store) -> None:
    limiter = RateLimiter(store)
    caller = _caller(own=Limits(requests_per_minute=3, characters_per_minute=100))
    assert [await _granted(limiter, caller, requests=1, characters=10) for _ in range(4)] == [True] * 3 + [
        False
    ]
    # The refused request used no characters.
    assert await _granted(limiter, caller, characters=70)
    assert not await _granted(limiter, caller, characters=1)
    with pytest.raises(LimitExceeded) as caught:
        await limiter.use(caller, characters=101)
    assert caught.value.retry_after is None  # waiting will not help
    assert await _granted(limiter, _caller(key_id="other"), requests=100, characters=10_000)


async def test_keys_share_the_tenants_limit(store: Store) -> None:
    limiter = RateLimiter(store)
    shared = Limits(requests_per_minute=4)
    a = _caller(key_id="a", own=Limits(requests_per_minute=3), shared=shared)
    b = _caller(key_id="b", own=Limits(requests_per_minute=3), shared=shared)
    assert [await _granted(limiter, a, requests=1) for _ in range(5)] == [True] * 3 + [False] * 2
    # What was refused to one key is not taken from the other's tenant share.
    assert [await _granted(limiter, b, requests=1) for _ in range(2)] == [True, False]
    elsewhere = _caller(tenant="u", key_id="a", own=Limits(requests_per_minute=3), shared=shared)
    assert await _granted(limiter, elsewhere, requests=3)


async def test_refusal_says_when(clock: Clock) -> None:
    limiter = RateLimiter(MemoryStore(clock=clock), clock=clock)
    caller = _caller(own=Limits(characters_per_minute=100))
    await limiter.use(caller, characters=100)
    with pytest.raises(LimitExceeded) as caught:
        await limiter.use(caller, characters=40)
    wait = caught.value.retry_after
    assert wait is not None
    clock.move(wait)
    await limiter.use(caller, characters=40)
    assert not await _granted(limiter, caller, characters=40)


async def test_limits_turn_local_while_the_store_is_away(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url, heartbeat=60)
    await store.start()
    limiter = RateLimiter(store)
    caller = _caller(own=Limits(requests_per_minute=5))
    assert await _granted(limiter, caller, requests=1)
    own_redis.pause()
    began = time.monotonic()
    grants = [await _granted(limiter, caller, requests=1) for _ in range(7)]
    assert time.monotonic() - began < 1.5  # three deadlines, then nothing
    assert grants == [True] * 5 + [False] * 2
    assert limiter.local_decisions == 7
    own_redis.resume()

    async def back() -> bool:
        return store.healthy

    await eventually(back)
    assert await _granted(limiter, caller, requests=1)
    assert limiter.local_decisions == 7
    await store.close()


class GateMachine(RuleBasedStateMachine):
    """Any order of acquire, release, double and late release: counts equal a model's, nothing leaks."""

    @initialize(own=st.none() | st.integers(0, 3), shared=st.none() | st.integers(0, 4))
    def begin(self, own: int | None, shared: int | None) -> None:
        self.gate = ContextGate(clock=Clock())
        self.own, self.shared = own, shared
        self.model: dict[str, tuple[str, str]] = {}
        self.slots: list[Slot] = []

    @rule(tenant=st.sampled_from("tu"), key_id=st.sampled_from("kl"), context=st.sampled_from("abcdef"))
    def acquire(self, tenant: str, key_id: str, context: str) -> None:
        key_id = tenant + key_id
        caller = _caller(tenant, key_id, own=Limits(contexts=self.own), shared=Limits(contexts=self.shared))
        held = self.model.get(context)
        keys = sum(k == key_id for _, k in self.model.values())
        tenants = sum(t == tenant for t, _ in self.model.values())
        if held:
            fits = held == (tenant, key_id)
        else:
            fits = (self.own is None or keys < self.own) and (self.shared is None or tenants < self.shared)
        try:
            self.slots.append(self.gate.acquire(caller, context))
        except LimitExceeded:
            assert not fits
        else:
            assert fits
            self.model[context] = (tenant, key_id)

    @rule(context=st.sampled_from("abcdef"))
    def release_by_key(self, context: str) -> None:
        assert self.gate.release(context) == (context in self.model)
        self.model.pop(context, None)

    @rule(i=st.integers(0, 50))
    def release_some_slot_once_more(self, i: int) -> None:
        if self.slots:
            slot = self.slots[i % len(self.slots)]
            live = self.gate._slots.get(slot.context_key) is slot
            slot.release()
            if live:
                del self.model[str(slot.context_key)]

    @invariant()
    def counts_are_the_models(self) -> None:
        if not hasattr(self, "gate"):
            return
        assert self.gate.active == len(self.model)
        for tenant in "tu":
            assert self.gate.generating(tenant=tenant) == sum(t == tenant for t, _ in self.model.values())
            for k in ("k", "l"):
                mine = sum(x == tenant + k for _, x in self.model.values())
                assert self.gate.generating(key_id=tenant + k) == mine

    def teardown(self) -> None:
        if hasattr(self, "gate"):
            for slot in self.slots:
                slot.release()
            assert self.gate.active == 0
            assert not self.gate._tenants
            assert not self.gate._keys


TestGate = GateMachine.TestCase


def test_refusal_carries_a_hint_and_frees_nothing() -> None:
    gate = ContextGate()
    caller = _caller(own=Limits(contexts=1))
    with gate.acquire(caller, "a"):
        with pytest.raises(LimitExceeded) as caught:
            gate.acquire(caller, "b")
        assert caught.value.retry_after
        assert not gate.release("b")
        assert gate.active == 1
    gate.acquire(caller, "b").release()


def test_other_gateways_count_until_they_fall_silent(clock: Clock) -> None:
    here, there = ContextGate(clock=clock, node="here"), ContextGate(clock=clock, node="there")
    caller = _caller(shared=Limits(contexts=2))
    there.acquire(caller, "x")
    there.acquire(caller, "y")
    here.hear(there.tell())
    here.hear(here.tell())  # its own echo
    assert here.generating(tenant="t") == here.generating(key_id="k") == 2
    with pytest.raises(LimitExceeded):
        here.acquire(caller, "a")
    there.release("x")
    here.hear(there.tell())
    slot = here.acquire(caller, "a")
    with pytest.raises(LimitExceeded):
        here.acquire(caller, "b")
    clock.move(SILENT_S + 0.1)  # it died
    here.acquire(caller, "b")
    slot.release()
    assert here.generating(tenant="t") == 1
    assert not here._peers


@given(st.binary(max_size=64))
def test_noise_on_the_channel_is_left_alone(message: bytes) -> None:
    gate = ContextGate()
    gate.hear(message)
    assert gate.generating(tenant="t") == 0


async def test_gateways_hear_each_other_through_the_store(store: Store) -> None:
    gates = [ContextGate(store, node=n) for n in ("one", "two")]
    before = asyncio.all_tasks()
    for gate in gates:
        await gate.start()
    caller = _caller(own=Limits(contexts=1))
    slot = gates[0].acquire(caller, "a")

    async def counted() -> bool:
        return gates[1].generating(key_id="k") == 1

    await eventually(counted)
    with pytest.raises(LimitExceeded):
        gates[1].acquire(caller, "b")
    slot.release()

    async def freed() -> bool:
        return gates[1].generating(key_id="k") == 0

    await eventually(freed)
    gates[1].acquire(caller, "b")
    for gate in gates:
        await gate.close()
    assert {t for t in asyncio.all_tasks() - before if t.get_name() == "context-gate"} == set()


async def test_no_store_and_full_books_let_callers_speak(clock: Clock) -> None:
    limiter = RateLimiter(MemoryStore(clock=clock, max_entries=0), clock=clock)
    limiter._local = MemoryStore(clock=clock, max_entries=1)
    callers = [_caller(key_id=k, own=Limits(requests_per_minute=1)) for k in "ab"]
    assert [await _granted(limiter, c, requests=1) for c in (*callers, *callers)] == [True, True, False, True]
    assert limiter.local_decisions == 4

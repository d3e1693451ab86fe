"""V14 of the requirements: another tenant's voice and none at all are the same, in answer and in time."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scipy.stats import ks_2samp

from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_desk import VoiceDesk
from tests.peers.redis import RedisServer
from tts_core.errors import UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
DATA = bytes(range(256)) * 64
PROBES = 1000
ROUNDS = 3
"""Times are those of a shared machine: equal ones are told apart by chance in one round of a hundred, in all
of them in one run of a million; different ones are told apart in every round."""

Probe = Callable[[VoiceDesk, str], Awaitable[object]]
PROBES_OF: dict[str, Probe] = {
    "speak": lambda desk, v: desk.voices.conditioning("rival", v, session="s9", revision="m1"),
    "open": lambda desk, v: desk.voices.get("rival", v, revision="m1"),
    "find": lambda desk, v: desk.catalogue.find("rival", v, session="s9"),
    "rename": lambda desk, v: desk.catalogue.rename("rival", v, name="mine"),
    "delete": lambda desk, v: desk.deletions.delete("rival", v, session="s9", wait=0),
}


class Counting:
    """A store that writes down which verb was used on what, ids left out."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.did: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb):
            return verb

        def counted(*args: object, **more: object) -> object:
            self.did.append((name, *(_shape(a) for a in args), *((k, _shape(v)) for k, v in more.items())))
            return verb(*args, **more)

        return counted


def _shape(value: object) -> object:
    if isinstance(value, str):
        return ":".join("ID" if part.startswith("vc_") else part for part in value.split(":"))
    return tuple(map(_shape, value)) if isinstance(value, tuple) else value


def _missing() -> str:
    return f"vc_{secrets.token_hex(16)}"


async def _answer(probe: Probe, desk: VoiceDesk, voice: str) -> tuple[object, ...]:
    with pytest.raises(UnknownVoice) as error:
        await probe(desk, voice)
    return type(error.value), error.value.message, error.value.field, error.value.retry_after


@pytest.mark.parametrize("stores", [1, 2])
@pytest.mark.parametrize("name", PROBES_OF)
async def test_the_same_answer_after_the_same_steps(name: str, stores: int) -> None:
    """Whatever the id: the store is asked the same things, so that time can tell no more than they do."""
    store = Counting(MemoryStore())
    lasting = Counting(MemoryStore()) if stores == 2 else store
    desk = VoiceDesk(store, SECRET, lasting=lasting)
    kinds: dict[str, str] = {
        "session's": (await desk.voices.put("acme", "s1", DATA, revision="m1")).voice_id,
        "same session's name": (await desk.voices.put("acme", "s9", DATA, revision="m1")).voice_id,
        "permanent": (await desk.voices.put("acme", None, DATA, None, revision="m1")).voice_id,
        "being made": await desk.guard.enrolment("acme", session=True),
        "missing": _missing(),
    }
    await desk.voices.conditioning("acme", kinds["permanent"], revision="m1")  # it is held here, too
    seen = {}
    for kind, voice in kinds.items():
        for log in (store, lasting):
            log.did.clear()
        answer = await _answer(PROBES_OF[name], desk, voice)
        seen[kind] = (answer, tuple(store.did), tuple(lasting.did))
    assert set(seen.values()) == {seen["missing"]}
    assert seen["missing"][1] or seen["missing"][2]
    await desk.close()


async def _times(
    desk: VoiceDesk, probes: dict[str, Callable[[], Awaitable[object]]]
) -> dict[str, list[float]]:
    """Seconds of each kind, all kinds in one random order so that none has the better moments."""
    order = [kind for kind in probes for _ in range(PROBES)]
    random.Random(14).shuffle(order)
    found: dict[str, list[float]] = {kind: [] for kind in probes}
    for kind in order:
        call = probes[kind]()
        began = time.perf_counter()
        try:
            await call
        except UnknownVoice:
            found[kind].append(time.perf_counter() - began)
    assert all(len(times) == PROBES for times in found.values())
    return found


@pytest.mark.parametrize("name", ["speak", "delete"])
async def test_a_thousand_probes_each_cannot_be_told_apart_by_their_time(
    shared_redis: RedisServer, name: str
) -> None:
    store = RedisStore(shared_redis.url, deadline=10.0)
    await store.start()
    desk = VoiceDesk(store, SECRET)
    made = await asyncio.gather(
        *(desk.voices.put("acme", "s1" if i % 2 else None, DATA, 600.0, revision="m1") for i in range(50))
    )
    foreign, probe = [v.voice_id for v in made], PROBES_OF[name]

    async def twice() -> object:
        await desk.voices.catalogue.look("rival", "vc_none")
        return await probe(desk, _missing())

    probes = {
        "foreign": lambda: probe(desk, random.choice(foreign)),
        "missing": lambda: probe(desk, _missing()),
        "slower": twice,
    }
    chances = []
    for _ in range(ROUNDS):
        found = await _times(desk, probes)
        # That a difference of one look would be seen at all:
        assert ks_2samp(found["slower"], found["missing"]).pvalue < 1e-6
        chances.append(ks_2samp(found["foreign"], found["missing"]).pvalue)
        if chances[-1] > 0.01:
            break
    assert max(chances) > 0.01, chances
    await desk.close()
    await store.close()

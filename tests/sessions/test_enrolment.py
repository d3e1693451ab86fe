"""Enrolment: one clip is computed once, whoever dies meanwhile, and nothing is kept by halves."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sessions.consent import ConsentTerms, How, Reach
from sessions.enrolment import Enrolment
from sessions.memory_store import MemoryStore
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.store import Store, key
from sessions.voice_desk import VoiceDesk
from sessions.voice_limits import VoiceLimits
from sessions.voices import StoredVoice
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import BadRequest, Busy, EngineError, Forbidden, LimitExceeded, StoreError, UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
PREFIX = np.random.default_rng(3).standard_normal((8, 1024)).astype("<f2").tobytes()
CLIP = hashlib.sha256(b"a clip").hexdigest()
TERMS = ConsentTerms("person:17", Reach.PERMANENT, ("calls",), ("*",), How.WRITTEN, "5f" * 32)


class Model:
    """Computes a prefix, when it is let, and counts."""

    def __init__(self, *, ready: bool = True) -> None:
        self.begun = 0
        self.done = 0
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()

    async def __call__(self) -> bytes:
        self.begun += 1
        await self.ready.wait()
        self.done += 1
        return PREFIX


@pytest.fixture
async def desks(store: Store) -> AsyncIterator[list[VoiceDesk]]:
    """Eight gateways."""
    made = [VoiceDesk(store, SECRET, size=16_384) for _ in range(8)]
    for desk in made:
        await desk.start()
    yield made
    for desk in made:
        await desk.close()


@pytest.fixture
def desk(desks: list[VoiceDesk]) -> VoiceDesk:
    return desks[0]


async def _consent(desk: VoiceDesk, tenant: str = "acme", **change: object) -> str:
    return (await desk.consents.create(tenant, replace(TERMS, **change))).id  # type: ignore[arg-type]


async def test_a_voice_is_made_and_described(desk: VoiceDesk) -> None:
    consent, model = await _consent(desk), Model()
    v = await desk.enrolment.enrol(
        "acme", None, CLIP, "m1", consent, model, name="Ida", language="en-GB", notes=("a little noise",)
    )
    assert await desk.voices.conditioning("acme", v.voice_id, revision="m1") == PREFIX
    entry = await desk.catalogue.find("acme", v.voice_id)
    assert (entry.name, entry.language, entry.consent) == ("Ida", "en-GB", consent)
    assert (entry.notes, entry.revision, entry.kind, entry.until) == (
        ("a little noise",),
        "m1",
        "permanent",
        None,
    )
    s = await desk.enrolment.enrol("acme", "s1", CLIP, "m1", consent, model)
    assert (await desk.catalogue.find("acme", s.voice_id, session="s1")).lease == 60
    assert (v.reused, s.reused, model.begun) == (False, True, 1)
    events = [r.event async for r in desk.audit.rows(tenant="acme")]
    assert events == ["voice.enrolled", "voice.enrolled", "consent.recorded"]


async def test_eight_gateways_compute_a_clip_once(desks: list[VoiceDesk]) -> None:
    consent, model = await _consent(desks[0]), Model(ready=False)
    tasks = [
        asyncio.create_task(desk.enrolment.enrol("acme", f"s{i}", CLIP, "m1", consent, model))
        for i, desk in enumerate(desks)
    ]

    async def all_wait() -> bool:
        return sum(bool(desk.enrolment._waiting) for desk in desks) == 7

    await eventually(all_wait)
    model.ready.set()
    voices = await asyncio.gather(*tasks)
    assert (model.begun, model.done) == (1, 1)
    assert len({v.voice_id for v in voices}) == 8
    assert sorted(v.reused for v in voices) == [False] + [True] * 7
    for i, v in enumerate(voices):
        got = await desks[7 - i].voices.conditioning("acme", v.voice_id, session=f"s{i}", revision="m1")
        assert got == PREFIX
    assert len({v.commitment for v in voices}) == 8  # each under its own key


async def test_what_is_not_the_same_is_computed_by_itself(desk: VoiceDesk) -> None:
    consent, foreign, model = await _consent(desk), await _consent(desk, "other"), Model()
    await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    await desk.enrolment.enrol("acme", None, CLIP, "m2", consent, model)
    await desk.enrolment.enrol("acme", None, "0" * 64, "m1", consent, model)
    await desk.enrolment.enrol("other", None, CLIP, "m1", foreign, model)
    assert model.done == 4


async def test_a_deleted_voice_is_not_found_again(desk: VoiceDesk, store: Store) -> None:
    consent, model = await _consent(desk), Model()
    v = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    again = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    assert again.reused
    receipt = await desk.deletions.delete("acme", v.voice_id, wait=0)
    assert receipt.commitment == v.commitment
    assert await desk.voices.conditioning("acme", again.voice_id, revision="m1") == PREFIX
    await desk.deletions.delete("acme", again.voice_id, wait=0)
    assert not (await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)).reused
    assert model.done == 2


@pytest.mark.parametrize(
    "what",
    ["unknown", "over", "foreign", "revoked", "wrong kind", "wrong language", "wrong purpose", "free text"],
)
async def test_a_bad_consent_computes_nothing(store: Store, clock: Clock, what: str) -> None:
    desk = VoiceDesk(store, SECRET, wall=clock)
    consent = {
        "unknown": "cn_" + "0" * 32,
        "over": await _consent(desk, until=1001.0),
        "foreign": await _consent(desk, "other"),
        "revoked": await _consent(desk),
        "wrong kind": await _consent(desk, kind=Reach.SESSION),
        "wrong language": await _consent(desk, languages=("en",)),
        "wrong purpose": await _consent(desk),
        "free text": "the speaker has agreed",
    }[what]
    clock.move(2)
    if what == "revoked":
        await desk.consents.revoke("acme", consent)
    model = Model()
    with pytest.raises(Forbidden, match="this consent cannot be used"):
        await desk.enrolment.enrol(
            "acme",
            None,
            CLIP,
            "m1",
            consent,
            model,
            language="fr" if what == "wrong language" else "en",
            purpose="advertising" if what == "wrong purpose" else None,
        )
    assert model.begun == 0
    assert await desk.catalogue.list("acme") == ()
    await desk.close()


async def test_consent_that_is_revoked_while_we_compute(desk: VoiceDesk) -> None:
    consent, model = await _consent(desk), Model(ready=False)
    task = asyncio.create_task(desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def begun() -> bool:
        return model.begun == 1

    await eventually(begun)
    await desk.consents.revoke("acme", consent)
    model.ready.set()
    with pytest.raises(Forbidden):
        await task
    assert await desk.catalogue.list("acme") == ()


async def test_consent_that_is_revoked_in_the_moment_before_it_is_kept(
    desks: list[VoiceDesk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last look at the consent and before the voice is among those that a revocation finds."""
    desk = desks[0]
    consent, put = await _consent(desk), desk.voices.put

    async def late(*args: Any, **how: Any) -> StoredVoice:
        await desks[1].consents.revoke("acme", consent)
        return await put(*args, **how)

    monkeypatch.setattr(desk.voices, "put", late)
    with pytest.raises(Forbidden, match="meanwhile"):
        await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, Model())
    assert await desk.catalogue.list("acme") == ()
    assert await desk.catalogue.counts("acme") == (0, 0)


async def test_a_consent_for_some_languages_wants_to_know_which(desk: VoiceDesk) -> None:
    consent, model = await _consent(desk, languages=("en", "de-AT")), Model()
    with pytest.raises(BadRequest, match="en, de-AT") as error:
        await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    assert (error.value.field, model.begun) == ("language", 0)
    assert await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model, language="de-AT")


async def test_revocation_ends_what_was_made(desks: list[VoiceDesk]) -> None:
    consent = await _consent(desks[0])
    v = await desks[0].enrolment.enrol("acme", None, CLIP, "m1", consent, Model())
    s = await desks[1].enrolment.enrol("acme", "s1", CLIP, "m1", consent, Model())
    for desk in desks:
        await desk.voices.conditioning("acme", v.voice_id, revision="m1")
        await desk.voices.conditioning("acme", s.voice_id, session="s1", revision="m1")
    _, receipts = await desks[2].consents.revoke("acme", consent)
    assert len(receipts) == 2

    async def all_dropped() -> bool:
        return not any(desk.voices.cache for desk in desks)

    await eventually(all_dropped)
    for desk in desks:
        for voice_id in (v.voice_id, s.voice_id):
            with pytest.raises(UnknownVoice):
                await desk.voices.conditioning("acme", voice_id, session="s1", revision="m1")


async def test_a_voice_ends_with_its_consent(clock: Clock) -> None:
    desk = VoiceDesk(MemoryStore(clock=clock), SECRET, clock=clock, wall=clock)
    consent = await _consent(desk, until=clock.now + 100)
    v = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, Model())
    short = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, Model(), ttl=10.0)
    assert (v.ttl, short.ttl) == (100, 10)
    clock.move(99)
    assert await desk.voices.conditioning("acme", v.voice_id, revision="m1") == PREFIX
    clock.move(1)
    with pytest.raises(UnknownVoice):
        await desk.voices.conditioning("acme", v.voice_id, revision="m1")


@pytest.mark.parametrize("made", [b"", PREFIX[:-2], PREFIX + b"\0\0", bytes(16_384), b"\xff\x7f" * 8192])
async def test_what_is_no_prefix_is_refused(desk: VoiceDesk, made: bytes) -> None:
    consent = await _consent(desk)

    async def wrong() -> bytes:
        return made

    with pytest.raises(BadRequest):
        await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, wrong)
    assert await desk.catalogue.list("acme") == ()


async def test_bad_requests_compute_nothing(desk: VoiceDesk) -> None:
    consent, model = await _consent(desk), Model()
    for digest, options in (
        ("A" * 64, {}),
        ("clip.wav", {}),
        (CLIP, {"name": "x" * 101}),
        (CLIP, {"language": "english"}),
        (CLIP, {"ttl": 0.0}),
        (CLIP, {"ttl": float("nan")}),
    ):
        with pytest.raises(BadRequest):
            await desk.enrolment.enrol("acme", None, digest, "m1", consent, model, **options)
    assert model.begun == 0


async def test_limits_compute_nothing(store: Store) -> None:
    desk = VoiceDesk(store, SECRET, limits=VoiceLimits(enrolments_per_hour=1))
    consent, model = await _consent(desk), Model()
    await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    with pytest.raises(LimitExceeded):
        await desk.enrolment.enrol("acme", None, "0" * 64, "m1", consent, model)
    assert model.begun == 1
    await desk.close()


async def test_the_limit_of_living_voices_holds_for_many_at_once(store: Store) -> None:
    limits = VoiceLimits(session_voices=5, permanent_voices=5)
    desks = [VoiceDesk(store, SECRET, limits=limits) for _ in range(2)]
    consent, model = await _consent(desks[0]), Model()
    results = await asyncio.gather(
        *(desks[i % 2].enrolment.enrol("acme", None, f"{i:064x}", "m1", consent, model) for i in range(24)),
        return_exceptions=True,
    )
    assert sum(isinstance(r, LimitExceeded) for r in results) == 19
    assert len(await desks[0].catalogue.list("acme")) == model.begun == 5
    for desk in desks:
        await desk.close()


async def test_an_enrolment_that_comes_to_nothing_gives_its_place_back(store: Store) -> None:
    desk = VoiceDesk(store, SECRET, size=16_384, limits=VoiceLimits(permanent_voices=1))
    consent, model = await _consent(desk), Model(ready=False)

    async def broken() -> bytes:
        return b"not a prefix"

    with pytest.raises(BadRequest):
        await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, broken)
    task = asyncio.create_task(desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def begun() -> bool:
        return model.begun == 1

    await eventually(begun)
    assert await desk.catalogue.counts("acme") == (1, 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await desk.catalogue.counts("acme") == (0, 0)
    made = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, Model())
    assert await desk.catalogue.counts("acme") == (1, 0)
    assert (await desk.catalogue.list("acme"))[0].id == made.voice_id
    await desk.close()


async def test_a_failed_computation_lets_the_next_one_try(desks: list[VoiceDesk]) -> None:
    consent, model = await _consent(desks[0]), Model()
    tried, fail = asyncio.Event(), asyncio.Event()

    async def broken() -> bytes:
        tried.set()
        await fail.wait()
        raise EngineError("no model")

    first = asyncio.create_task(desks[0].enrolment.enrol("acme", None, CLIP, "m1", consent, broken))
    await tried.wait()
    second = asyncio.create_task(desks[1].enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def waits() -> bool:
        return bool(desks[1].enrolment._waiting)

    await eventually(waits)
    fail.set()
    with pytest.raises(EngineError):
        await first
    assert not (await second).reused
    assert model.done == 1


async def test_a_cancelled_enrolment_keeps_nothing_and_frees_the_clip(desks: list[VoiceDesk]) -> None:
    consent, model = await _consent(desks[0]), Model(ready=False)
    task = asyncio.create_task(desks[0].enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def begun() -> bool:
        return model.begun == 1

    await eventually(begun)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert await desks[0].catalogue.list("acme") == ()
    async with asyncio.timeout(5):  # at once, not when the lease lapses
        assert not (await desks[1].enrolment.enrol("acme", None, CLIP, "m1", consent, Model())).reused


async def test_one_that_takes_too_long_makes_the_others_busy(store: Store) -> None:
    desk = VoiceDesk(store, SECRET)
    hasty = Enrolment(
        store,
        SECRET,
        desk.voices,
        consents=desk.consents,
        guard=desk.guard,
        audit=desk.audit,
        deadline=0.2,
    )
    consent, model = await _consent(desk), Model(ready=False)
    task = asyncio.create_task(desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def begun() -> bool:
        return model.begun == 1

    await eventually(begun)
    with pytest.raises(Busy) as error:
        await hasty.enrol("acme", None, CLIP, "m1", consent, model)
    assert error.value.retry_after == 10
    assert hasty._waiting == {}
    model.ready.set()
    await task
    await desk.close()


async def test_a_damaged_memory_of_a_clip_is_computed_anew(desk: VoiceDesk, store: Store) -> None:
    consent, model = await _consent(desk), Model()
    v = await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)
    source = (await desk.catalogue.find("acme", v.voice_id)).source
    for damage in (b"", b"noise", b"x" * 80):
        await store.set(key("acme", "clip", source), damage)
        assert not (await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model)).reused
    assert CLIP[:16] not in source  # the name tells nothing about the clip


async def test_a_voice_that_cannot_be_written_down_in_the_chain_is_not_kept(
    desk: VoiceDesk, store: Store
) -> None:
    consent = await _consent(desk)
    append = desk.audit.append

    async def away(event: str, **options: object) -> object:
        if event == "voice.enrolled":
            raise StoreError("the store is slow or gone")
        return await append(event, **options)  # type: ignore[arg-type]

    desk.audit.append = away  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreError):
        await desk.enrolment.enrol("acme", None, CLIP, "m1", consent, Model())
    assert await desk.catalogue.list("acme") == ()


async def _killed_meanwhile(redis: RedisServer, *, back: bool) -> BaseException | None:
    """What an enrolment ends with when Redis dies (and is back, empty) while the model computes."""
    store = RedisStore(redis.url)
    await store.start()
    desk = VoiceDesk(store, SECRET)
    await desk.start()
    consent, model = await _consent(desk), Model(ready=False)
    task = asyncio.create_task(desk.enrolment.enrol("acme", None, CLIP, "m1", consent, model))

    async def begun() -> bool:
        return model.begun == 1

    async def usable() -> bool:
        with contextlib.suppress(StoreError):
            await store.ping()
            return True
        return False

    await eventually(begun)
    redis.kill()
    if back:
        redis.start()
        await eventually(usable)
    model.ready.set()
    await asyncio.gather(task, return_exceptions=True)
    await desk.close()
    await store.close()
    return task.exception()


async def test_redis_dies_while_we_compute(own_redis: RedisServer) -> None:
    error = await _killed_meanwhile(own_redis, back=False)
    assert isinstance(error, StoreError)
    assert "store" in error.message


async def test_redis_dies_while_we_compute_and_is_back_empty(own_redis: RedisServer) -> None:
    error = await _killed_meanwhile(own_redis, back=True)
    assert isinstance(error, StoreError)
    assert error.message == "the enrolment was interrupted: try again"
    with own_redis.client() as client:
        assert list(client.scan_iter("vx:acme:voice*")) == []


GATEWAY = """
import asyncio, sys
from sessions.redis_store import RedisStore
from sessions.enrolment import Enrolment
from tests.sessions.test_enrolment import CLIP, SECRET, VoiceDesk

async def compute():
    print("computing", flush=True)
    await asyncio.Event().wait()

async def main():
    store = RedisStore(sys.argv[1], deadline=5.0)
    desk = VoiceDesk(store, SECRET)
    enrolment = Enrolment(store, SECRET, desk.voices, consents=desk.consents, guard=desk.guard,
                          audit=desk.audit, lock=1.0)
    await enrolment.enrol("killed", None, CLIP, "m1", sys.argv[2], compute)

asyncio.run(main())
"""


async def test_who_waits_takes_over_from_a_killed_gateway(shared_redis: RedisServer) -> None:
    with shared_redis.client() as client:
        client.flushall()
    store = RedisStore(shared_redis.url, deadline=5.0)
    await store.start()
    desk = VoiceDesk(store, SECRET)
    await desk.start()
    consent = await _consent(desk, "killed")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", GATEWAY, shared_redis.url, consent),
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"computing\n"
    model = Model()
    task: Awaitable[object] = asyncio.create_task(
        desk.enrolment.enrol("killed", None, CLIP, "m1", consent, model)
    )
    with shared_redis.client() as client:
        (lock,) = client.scan_iter("vx:killed:clip:*:lock")
        left, renewed = int(client.pttl(lock)), 0

        async def outlived() -> bool:
            nonlocal left, renewed
            last, left = left, int(client.pttl(lock))
            renewed += left > last
            return renewed >= 5

        await eventually(outlived)  # longer than one lease: it is renewed as long as its holder lives
    assert model.begun == 0
    process.send_signal(signal.SIGKILL)
    await process.wait()
    async with asyncio.timeout(10):
        await task
    assert model.done == 1
    await desk.close()
    await store.close()

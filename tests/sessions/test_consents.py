"""The book of consents: whatever is wrong with one, it is refused alike and nothing is computed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from sessions.audit import AuditChain
from sessions.consent import DOMAIN, ConsentTerms, How, Reach
from sessions.consents import KEEP_S, PAPER, ConsentBook
from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.signing import Signer, canonical
from sessions.store import Store, key
from sessions.voice_limits import VoiceGuard, VoiceLimits
from sessions.voices import VoiceStore
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import BadRequest, Forbidden, LimitExceeded, StoreError

SECRET = DeploymentSecret(b"deployment secret of these tests")
SIGNER = Signer(SECRET)
TERMS = ConsentTerms("person:17", Reach.PERMANENT, ("calls",), ("en",), How.WRITTEN, "5f" * 32, until=2000.0)


@dataclass
class Desk:
    store: Store
    clock: Clock
    limits: VoiceLimits = field(default_factory=lambda: VoiceLimits(wrong_consents=1000))
    verified: frozenset[How] = PAPER
    withdrawn: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.audit = AuditChain(self.store, wall=self.clock)
        self.book = self.another()

    def another(self) -> ConsentBook:
        guard = VoiceGuard(self.store, VoiceStore(self.store, SECRET).catalogue, self.limits)
        return ConsentBook(
            self.store, SECRET, SIGNER, audit=self.audit, guard=guard, withdraw=self.withdraw,
            verified=self.verified, wall=self.clock,
        )  # fmt: skip

    async def withdraw(self, tenant: str, consent: str) -> tuple[str, ...]:
        self.withdrawn.append((tenant, consent))
        return ("del_1",)

    async def events(self) -> list[str]:
        return [r.event async for r in self.audit.rows()][::-1][1:]

    async def refusal(self, tenant: str, consent_id: str, **use: str) -> tuple[str, str | None] | None:
        try:
            await self.book.require(tenant, consent_id, kind=Reach.SESSION, **use)
        except Forbidden as error:
            return error.message, error.field
        return None


@pytest.fixture
def desk(store: Store, clock: Clock) -> Desk:
    return Desk(store, clock)


async def test_record_and_use(desk: Desk) -> None:
    record = await desk.book.create("acme", TERMS)
    assert await desk.book.fetch("acme", record.id) == record
    assert await desk.book.require("acme", record.id, kind=Reach.PERMANENT, language="en-GB") == record
    assert await desk.book.valid("acme", record.id)
    assert await desk.book.list("acme") == (record,)
    assert await desk.book.list("other") == ()
    assert await desk.events() == ["consent.recorded"]
    with pytest.raises(BadRequest):
        await desk.book.create("acme", replace(TERMS, how=How.SPOKEN))
    assert len(await desk.book.list("acme")) == 1


async def test_records_are_counted_and_a_long_list_lets_others_have_their_turn(desk: Desk) -> None:
    desk.limits = VoiceLimits(consents_per_hour=70)
    book = desk.another()
    for _ in range(70):
        await book.create("acme", TERMS)
    with pytest.raises(LimitExceeded, match="70 consents an hour"):
        await book.create("acme", TERMS)
    await book.create("other", TERMS)
    turns, verify = [0], SIGNER.verify
    most = 0

    def counted(*args: Any) -> bool:
        nonlocal most
        turns[0] += 1
        most = max(most, turns[0])
        return verify(*args)

    async def another() -> None:
        while True:
            turns[0] = 0
            await asyncio.sleep(0)

    beside = asyncio.create_task(another())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SIGNER, "verify", counted)
        assert len(await book.list("acme")) == 70
    beside.cancel()
    assert most <= 5


async def test_all_that_is_wrong_is_refused_alike(desk: Desk, store: Store) -> None:
    good, over, revoked, damaged, moved, forged = [
        await desk.book.create("acme", replace(TERMS, until=until))
        for until in (None, 1500.0, None, None, None, None)
    ]
    foreign = await desk.book.create("other", TERMS)
    await desk.book.revoke("acme", revoked.id)
    table = key("acme", "consents")
    raw = await store.table_get(table, damaged.id)
    assert raw is not None
    longer = msgspec.structs.replace(forged, purposes=("calls", "advertising"))
    theirs = Signer(DeploymentSecret(b"another deployment's very secret")).sign(DOMAIN, moved)
    await store.table_set(
        table,
        {
            damaged.id: raw[:-1],
            forged.id: canonical(longer),
            moved.id: canonical(theirs),
            "cn_" + "1" * 32: canonical(good),
        },
    )
    desk.clock.move(600)
    assert await desk.refusal("acme", good.id, purpose="calls", language="en") is None
    refusals = [
        await desk.refusal(tenant, consent_id)
        for tenant, consent_id in (
            ("acme", over.id),
            ("acme", revoked.id),
            ("acme", damaged.id),
            ("acme", forged.id),
            ("acme", moved.id),
            ("acme", "cn_" + "1" * 32),
            ("acme", "cn_" + "0" * 32),
            ("acme", foreign.id),
            ("other", good.id),
            ("acme", ""),
            ("acme", "I have the speaker's consent"),
        )
    ]
    refusals.append(await desk.refusal("acme", good.id, purpose="advertising"))
    refusals.append(await desk.refusal("acme", good.id, language="fr"))
    assert len(set(refusals)) == 1
    assert refusals[0] is not None
    assert refusals[0][1] == "consent"
    for tenant, consent_id in (("other", good.id), ("acme", damaged.id), ("acme", "cn_" + "0" * 32)):
        with pytest.raises(Forbidden, match="no such consent"):
            await desk.book.fetch(tenant, consent_id)
        with pytest.raises(Forbidden, match="no such consent"):
            await desk.book.revoke(tenant, consent_id)
        assert not await desk.book.valid(tenant, consent_id)
    assert not await desk.book.valid("acme", over.id)
    assert (await desk.events()).count("consent.refused") == len(refusals)
    assert {r.id for r in await desk.book.list("acme")} == {good.id, over.id, revoked.id}


async def test_too_many_refusals_pause_all_consents_of_the_tenant(store: Store, clock: Clock) -> None:
    desk = Desk(store, clock, VoiceLimits())
    record = await desk.book.create("acme", TERMS)
    for _ in range(5):
        assert await desk.refusal("acme", "cn_" + "0" * 32)
    with pytest.raises(LimitExceeded) as error:
        await desk.book.require("acme", record.id, kind=Reach.SESSION)
    assert error.value.retry_after == 900
    assert await desk.book.valid("acme", record.id)  # running calls are no attempts


async def test_revocation_is_heard_everywhere_and_done_again_if_need_be(desk: Desk) -> None:
    there = desk.another()
    await there.listener.start()
    heard: list[tuple[str, str]] = []
    stop = there.on_revoked(lambda tenant, consent: heard.append((tenant, consent)))
    record = await desk.book.create("acme", TERMS)
    revoked, receipts = await desk.book.revoke("acme", record.id)
    assert revoked.revoked_at_ms == 1_000_000
    assert receipts == ("del_1",)
    assert await desk.book.fetch("acme", record.id) == revoked
    assert not await there.valid("acme", record.id)

    async def told() -> bool:
        return heard == [("acme", record.id)]

    await eventually(told)
    there._hear(b"noise")
    stop()
    desk.clock.move(5)
    again, _ = await desk.book.revoke("acme", record.id)
    assert again == revoked
    assert desk.withdrawn == [("acme", record.id)] * 2
    assert await desk.events() == ["consent.recorded", "consent.revoked"]
    await there.listener.close()
    await there.listener.close()
    assert heard == [("acme", record.id)]


async def test_two_who_revoke_at_once(desk: Desk) -> None:
    record = await desk.book.create("acme", TERMS)
    results = await asyncio.gather(*(desk.another().revoke("acme", record.id) for _ in range(4)))
    assert {r.revoked_at_ms for r, _ in results} == {1_000_000}


async def test_a_revocation_that_could_not_delete_says_so(desk: Desk, store: Store) -> None:
    record = await desk.book.create("acme", TERMS)

    async def away(tenant: str, consent: str) -> tuple[str, ...]:
        raise StoreError

    desk.book._withdraw = away
    with pytest.raises(StoreError):
        await desk.book.revoke("acme", record.id)
    assert not await desk.book.valid("acme", record.id)  # no new context, whatever happens next


async def test_records_leave_three_years_after_their_end(clock: Clock) -> None:
    desk = Desk(MemoryStore(clock=clock), clock)
    over, revoked, endless = [
        await desk.book.create("acme", replace(TERMS, until=until)) for until in (2000.0, None, None)
    ]
    clock.move(500)
    await desk.book.revoke("acme", revoked.id)
    clock.move(KEEP_S)
    assert {r.id for r in await desk.book.list("acme")} == {over.id, revoked.id, endless.id}
    clock.move(1)
    assert {r.id for r in await desk.book.list("acme")} == {over.id, endless.id}
    clock.move(500)
    assert [r.id for r in await desk.book.list("acme")] == [endless.id]
    assert len(await desk.store.table_all(key("acme", "consents"))) == 1


SPOKEN = replace(TERMS, how=How.SPOKEN)
VOICE = b"what a model made of the voice"


async def test_the_voice_that_spoke_is_kept_sealed_until_the_consent_is_revoked(
    store: Store, clock: Clock
) -> None:
    desk = Desk(store, clock, verified=frozenset(How))
    with pytest.raises(BadRequest, match="challenge"):
        await desk.book.create("acme", SPOKEN)
    kept, other = [await desk.book.create("acme", SPOKEN, voice=voice) for voice in (VOICE, VOICE[::-1])]
    assert await desk.another().voice(kept) == VOICE
    names = [key("acme", "consent", record.id, "voice") for record in (kept, other)]
    sealed = await store.get(names[0])
    assert sealed is not None
    assert VOICE not in sealed
    await store.set(names[1], sealed)  # one voice for another
    assert await desk.book.voice(other) is None
    assert await desk.book.voice(msgspec.structs.replace(kept, tenant="other")) is None
    await desk.book.revoke("acme", kept.id)
    assert await desk.book.voice(kept) is None
    assert await store.get(names[0]) is None


async def test_the_voice_is_kept_no_longer_than_the_consent_holds(clock: Clock) -> None:
    desk = Desk(MemoryStore(clock=clock), clock, verified=frozenset(How))
    ends, endless = [
        await desk.book.create("acme", replace(SPOKEN, until=until), voice=VOICE) for until in (2000.0, None)
    ]
    paper = await desk.book.create("acme", TERMS)
    clock.move(999)
    assert await desk.book.voice(ends) == VOICE
    clock.move(2)
    assert [await desk.book.voice(record) for record in (ends, endless, paper)] == [None, VOICE, None]

"""All parts of a gateway's voices together."""

from __future__ import annotations

import pytest

from sessions.consent import ConsentTerms, How, Reach
from sessions.nodes import TABLE
from sessions.receipt import verify_receipt
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_desk import VoiceDesk
from tts_core.errors import BadRequest, UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
TERMS = ConsentTerms("person:17", Reach.SESSION, ("calls",), ("*",), How.LICENSED, "5f" * 32)


async def test_a_voices_whole_life(store: Store) -> None:
    desk, other = VoiceDesk(store, SECRET, node="one"), VoiceDesk(store, SECRET)
    for d in (desk, other, desk):
        await d.start()
    assert set(await store.table_all(TABLE)) == {"one", other.nodes.node}
    consent = await desk.consents.create("acme", TERMS)

    async def compute() -> bytes:
        return b"conditioning"

    v = await desk.enrolment.enrol("acme", "call-1", "ab" * 32, "m1", consent.id, compute, name="Ida")
    async with desk.voices.hold(v) as lease:
        got = await desk.voices.conditioning("acme", v.voice_id, session="call-1", revision="m1")
        assert got == b"conditioning"
        assert [e.name for e in await other.catalogue.list("acme", session="call-1")] == ["Ida"]
        assert await other.catalogue.list("acme") == ()
    assert lease.receipt is not None
    receipt = await other.deletions.receipt("acme", lease.receipt)
    assert verify_receipt(desk.signer.public_bytes, receipt).voice == v.voice_id
    with pytest.raises(UnknownVoice):
        await other.voices.conditioning("acme", v.voice_id, session="call-1", revision="m1")
    events = [r.event async for r in other.audit.rows(tenant="acme")]
    assert events == ["voice.deleted", "voice.enrolled", "consent.recorded"]
    assert (await other.audit.verify()).ok
    for d in (desk, other, desk):
        await d.close()
    assert await store.table_all(TABLE) == {}


async def test_what_the_installation_can_verify_is_said(store: Store) -> None:
    terms = ConsentTerms("person:17", Reach.SESSION, ("calls",), ("*",), How.SPOKEN, "5f" * 32)
    with pytest.raises(BadRequest, match="needs the verifier"):
        await VoiceDesk(store, SECRET).consents.create("acme", terms)
    with pytest.raises(BadRequest, match="lacks a model of speakers"):
        await VoiceDesk(store, SECRET, missing="a model of speakers").consents.create("acme", terms)
    desk = VoiceDesk(store, SECRET, verified=frozenset(How))
    record = await desk.consents.create("acme", terms, voice=b"a voice")
    assert record.how == "spoken"

"""With the real model of speakers on real voices; what was read is told by the test."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from gateway.intake.clip import Clip, decode_clip
from gateway.intake.refusal import ReferenceRefused
from gateway.trust.challenge import ChallengeGone, Challenges
from gateway.trust.recogniser import Recogniser
from gateway.trust.speaker import THRESHOLD
from gateway.trust.verifier import NotRead, Verifier, VoiceCheck, centre, pack, unpack
from sessions.audit import AuditRow
from sessions.consent import ConsentRecord, ConsentTerms, How, Reach
from sessions.denied import DenyList
from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.voice_desk import VoiceDesk
from tests.peers.clips import wav
from tests.peers.speakers import Clip as Said
from tests.peers.speakers import heart, joe, model, over_the_phone
from tts_core.engine import Samples
from tts_core.errors import BadRequest, Busy, LimitExceeded, VoxwireError

SECRET = DeploymentSecret(b"deployment secret of these tests")
PAPER = ConsentTerms("p", Reach.SESSION, ("calls",), ("*",), How.WRITTEN, "5f" * 32)
TERMS = ConsentTerms("person:17", Reach.PERMANENT, ("calls",), ("en",), How.SPOKEN, "")


class Told(Recogniser):
    """Hears what it is told, or raises it."""

    def __init__(self) -> None:
        super().__init__(Path("none"))
        self.hears: str | VoxwireError = ""
        self.listened = 0

    async def hear(self, pcm: Samples, language: str) -> str:
        assert language == "en"
        assert pcm.any()
        self.listened += 1
        if isinstance(self.hears, VoxwireError):
            raise self.hears
        return self.hears


@dataclass
class Office:
    desk: VoiceDesk
    told: Told = field(default_factory=Told)

    def __post_init__(self) -> None:
        store = MemoryStore()
        self.verifier = Verifier(Challenges(store), self.desk, self.told, model())
        self.denied = DenyList(store, SECRET, audit=self.desk.audit)
        self.check = VoiceCheck(self.desk.consents, self.desk.audit, model(), self.denied)

    async def answer(
        self,
        said: Said,
        *,
        change: tuple[str, str] = ("", ""),
        terms: ConsentTerms = TERMS,
        challenge: str = "",
    ) -> ConsentRecord:
        """A challenge, and an answer in which it was read, with that change."""
        issued = await self.verifier.challenge("acme", company="Acme")
        self.told.hears = issued.challenge.text.replace(*change)
        return await self.send(said, challenge or issued.id, terms=terms)

    async def send(self, said: Said, challenge: str, *, terms: ConsentTerms = TERMS) -> ConsentRecord:
        data = bytearray(wav(*said))
        try:
            return await self.verifier.record("acme", challenge, data, terms)
        finally:
            assert not any(data)

    async def rows(self, event: str) -> list[AuditRow]:
        return [row async for row in self.desk.audit.rows() if row.event == event]


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    desk = VoiceDesk(MemoryStore(), SECRET, verified=frozenset(How))
    await desk.start()
    yield Office(desk)
    await desk.close()


async def clip(said: Said) -> Clip:
    return await decode_clip(bytearray(wav(*said)))


async def test_who_read_the_challenge_may_be_cloned_and_nobody_else(office: Office) -> None:
    record = await office.answer(heart()[0])
    assert (record.how, record.subject, record.tenant) == ("spoken", "person:17", "acme")
    for said in (heart()[1], over_the_phone(heart()[2])):
        assert await office.check.look(await clip(said), record) == []
    (finding,) = await office.check.look(await clip(joe()[1]), record)
    assert (finding.code, finding.severity) == ("other_speaker", "refuse")
    scores = [float(row.details["similarity"]) for row in await office.rows("voice.compared")][::-1]
    assert [score >= THRESHOLD for score in scores] == [True, True, False]
    assert all(row.subject == record.id for row in await office.rows("voice.compared"))


async def test_the_evidence_is_of_text_and_file(office: Office) -> None:
    issued = await office.verifier.challenge("acme")
    office.told.hears = issued.challenge.text
    record = await office.send(heart()[0], issued.id)
    parts = (issued.challenge.text.encode(), wav(*heart()[0]))
    joined = ":".join(hashlib.sha256(part).hexdigest() for part in parts)
    assert record.evidence == hashlib.sha256(joined.encode()).hexdigest()


async def test_a_voice_is_needed_and_no_longer_than_its_consent(office: Office) -> None:
    record = await office.answer(heart()[0])
    none = VoiceCheck(office.desk.consents, office.desk.audit, None)
    assert [finding.severity for finding in await none.look(await clip(heart()[1]), record)] == ["refuse"]
    await office.desk.consents.revoke("acme", record.id)
    assert [f.code for f in await office.check.look(await clip(heart()[1]), record)] == ["other_speaker"]
    written = await office.desk.consents.create("acme", PAPER)
    for check in (none, office.check):
        assert await check.look(await clip(joe()[1]), written) == []
    assert len(await office.rows("voice.compared")) == 0


async def test_whatever_the_consent_one_person_speaks_and_none_who_is_denied(office: Office) -> None:
    written = await office.desk.consents.create("acme", PAPER)
    two = np.concatenate([_at_24k(said[n]) for n in range(2) for said in (heart(), joe())])
    (finding,) = await office.check.look(await clip((two, 24_000)), written)
    assert (finding.code, finding.severity) == ("several_speakers", "refuse")
    await office.denied.add(model().embed(*heart()[0]), "case-1")
    (finding,) = await office.check.look(await clip(heart()[1]), written)
    assert (finding.code, finding.severity) == ("denied", "refuse")
    (row,) = await office.rows("voice.refused")
    assert row.subject == written.id
    deaf = VoiceCheck(office.desk.consents, office.desk.audit, None, office.denied)
    assert [(f.code, f.severity) for f in await deaf.look(await clip(joe()[1]), written)] == [
        ("denied", "refuse")
    ]
    for entry in await office.denied.entries():
        await office.denied.remove(entry.id)
    assert await deaf.look(await clip(joe()[1]), written) == []
    assert await office.check.look(await clip(joe()[1]), written) == []


def test_a_voice_from_windows_is_the_models_own() -> None:
    windows = model().windows(*heart()[0])
    np.testing.assert_allclose(centre(windows), model().embed(*heart()[0]), atol=1e-6)
    np.testing.assert_array_equal(unpack(pack(centre(windows))), centre(windows))


@pytest.mark.parametrize(
    ("change", "wrong"),
    [(("", ""), 0), (("voice", "verse"), 1), (("voice.", "verse, er, uh."), 1), (("copy my", "coffee"), 2)],
)
async def test_one_word_may_be_wrong(office: Office, change: tuple[str, str], wrong: int) -> None:
    if wrong <= 1:
        await office.answer(heart()[0], change=change)
        return
    with pytest.raises(NotRead) as error:
        await office.answer(heart()[0], change=change)
    assert (error.value.code, error.value.status) == ("challenge_not_read", 422)
    (row,) = await office.rows("consent.refused")
    assert row.details == {"why": "not read"}
    assert await office.desk.consents.list("acme") == ()


async def test_what_was_listened_to_is_used_up_right_or_wrong(office: Office) -> None:
    for hears in (None, "something else altogether"):
        issued = await office.verifier.challenge("acme")
        office.told.hears = hears or issued.challenge.text
        if hears:
            with pytest.raises(NotRead):
                await office.send(heart()[0], issued.id)
        else:
            await office.send(heart()[0], issued.id)
        before = office.told.listened
        office.told.hears = issued.challenge.text
        with pytest.raises(ChallengeGone):
            await office.send(heart()[0], issued.id)
        assert office.told.listened == before
    assert len(await office.desk.consents.list("acme")) == 1


async def test_what_cannot_be_listened_to_leaves_it_open(office: Office) -> None:
    issued = await office.verifier.challenge("acme")
    office.told.hears = issued.challenge.text
    silent = (np.zeros(48_000, np.float32), 24_000)
    pcm, rate = heart()[0]
    long = (np.tile(pcm, 8), rate)
    for said, code in ((silent, "reference_silent"), (long, "reference_too_long")):
        with pytest.raises(ReferenceRefused) as error:
            await office.send(said, issued.id)
        assert error.value.code == code
    with pytest.raises(BadRequest) as refused:
        await office.send(heart()[0], issued.id, terms=ConsentTerms("", *_rest()))
    assert refused.value.field == "subject"
    assert office.told.listened == 0
    await office.send(heart()[0], issued.id)


def _rest() -> tuple[Reach, tuple[str, ...], tuple[str, ...], How, str]:
    return TERMS.kind, TERMS.purposes, TERMS.languages, TERMS.how, TERMS.evidence


async def test_one_person_answers(office: Office) -> None:
    two = [np.concatenate([_at_24k(heart()[n]), _at_24k(joe()[n])]) for n in range(2)]
    with pytest.raises(ReferenceRefused) as error:
        await office.answer((np.concatenate(two), 24_000))
    assert error.value.code == "reference_several_speakers"


def _at_24k(said: Said) -> Samples:
    from telephony.dsp.resample import Resampler

    pcm, rate = said
    if rate == 24_000:
        return pcm
    resampler = Resampler(rate, 24_000)
    made: Samples = np.concatenate([resampler.process(pcm), resampler.flush()])
    return made


async def test_a_recogniser_that_is_busy_makes_nobody_guilty(office: Office) -> None:
    issued = await office.verifier.challenge("acme")
    office.told.hears = Busy("full")
    with pytest.raises(Busy):
        await office.send(heart()[0], issued.id)
    assert await office.rows("consent.refused") == []


async def test_five_failures_make_a_tenant_wait(office: Office) -> None:
    for n in range(5):
        with pytest.raises(NotRead if n % 2 else ChallengeGone):
            await office.answer(
                heart()[0], change=("Today", "now then"), challenge="" if n % 2 else "ch_none"
            )
    for again in (office.verifier.challenge("acme"), office.send(heart()[0], "ch_none")):
        with pytest.raises(LimitExceeded) as error:
            await again
        assert error.value.retry_after == 900
    await office.verifier.challenge("other")

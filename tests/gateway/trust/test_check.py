from __future__ import annotations

import asyncio

import pytest

from gateway.intake.clip import Clip, decode_clip
from gateway.intake.quality import Finding
from gateway.intake.refusal import ReferenceRefused
from gateway.trust.check import Inspector
from gateway.voice_api.upload import Enrolment, Upload
from sessions.consent import ConsentRecord, ConsentTerms, How, Reach
from tests.peers.clips import clip
from tests.peers.gateway import Running, Start
from tests.tone import ToneEngine
from tts_core.errors import Busy, EngineError, EngineTimeout, VoxwireError

RECORD = ConsentRecord(
    id="cn_" + "0" * 32, tenant="t", subject="p1", kind="session", purposes=("speech",), languages=("*",),
    how="written", evidence="ab" * 32, at_ms=1,
)  # fmt: skip


class Finds:
    """Finds what it was made with, or raises it, and keeps what it was given to see."""

    def __init__(self, *found: Finding | Exception) -> None:
        self.found = found
        self.seen: list[tuple[Clip, ConsentRecord]] = []

    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        self.seen.append((clip, record))
        for finding in self.found:
            if isinstance(finding, Exception):
                raise finding
        return [finding for finding in self.found if isinstance(finding, Finding)]


class Hangs:
    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        await asyncio.Event().wait()
        raise AssertionError


A = Finding("old", "warn", "it is old")
B = Finding("odd", "warn", "it is odd")
NO = Finding("two_speakers", "refuse", "two people speak")


async def test_warnings_come_in_the_order_of_the_checks() -> None:
    recording = await decode_clip(clip())
    first, second = Finds(A), Finds(B)
    assert await Inspector([first, second]).inspect(recording, RECORD) == [A, B]
    assert first.seen == second.seen == [(recording, RECORD)]


async def test_the_first_refusal_ends_it() -> None:
    later = Finds(A)
    with pytest.raises(ReferenceRefused) as error:
        await Inspector([Finds(B, NO), later]).inspect(await decode_clip(clip()), RECORD)
    assert error.value.code == "reference_two_speakers"
    assert later.seen == []


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(RuntimeError("in a library"), EngineError), (TimeoutError(), EngineTimeout), (Busy("full"), Busy)],
)
async def test_a_check_that_fails_refuses(raised: Exception, seen: type[VoxwireError]) -> None:
    with pytest.raises(seen) as error:
        await Inspector([Finds(raised), Finds(A)]).inspect(await decode_clip(clip()), RECORD)
    assert "library" not in error.value.message


async def test_a_check_has_its_time() -> None:
    with pytest.raises(EngineTimeout):
        await Inspector([Hangs()], deadline=0.02).inspect(await decode_clip(clip()), RECORD)


async def make(gateway: Running) -> tuple[str, ...]:
    terms = ConsentTerms("p1", Reach.PERMANENT, ("speech",), ("*",), How.WRITTEN, "ab" * 32)
    consent = (await gateway.services.desk.consents.create("default", terms)).id
    upload = Upload(Enrolment(consent=consent), bytearray(clip()))
    made = await gateway.services.cloning.make("default", upload)
    entry = await gateway.services.voices.catalogue.find("default", made.voice.voice_id, session=None)
    assert tuple(finding.code for finding in made.warnings) == entry.notes
    return entry.notes


async def test_a_voice_is_made_with_its_warnings_or_not_computed_at_all(start_gateway: Start) -> None:
    engine = ToneEngine(can_clone=True)
    gateway = await start_gateway(engine=engine)
    check = Finds(A)
    gateway.services.inspector.checks.append(check)
    assert await make(gateway) == ("old",)
    assert engine.enrolled == 1
    [(recording, record)] = check.seen
    assert record.how == "written"
    assert not recording.pcm.any()
    gateway.services.inspector.checks.append(Finds(NO))
    with pytest.raises(ReferenceRefused):
        await make(gateway)
    assert engine.enrolled == 1
    assert not any(recording.pcm.any() for recording, _ in check.seen)

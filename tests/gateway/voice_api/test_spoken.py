"""Spoken consent through the routes: real speech, the real recogniser, the real model of speakers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.peers.ears import configured, patient, read_by
from tests.peers.gateway import Start
from tests.peers.rest import Refused, VoiceClient, voice_client
from tests.peers.speakers import TEXTS
from tests.tone import ToneEngine

ACME, OTHER = "acme-key-0123456789ab", "other-key-0123456789ab"
KEYS = f"acme-health[speak+voice:read+voice:enrol+voice:delete]:{ACME},other[speak+voice:enrol]:{OTHER}"

pytestmark = pytest.mark.slow


@pytest.fixture
def clips() -> dict[str, bytes]:
    """A reference of each reader."""
    return {reader: read_by(reader, TEXTS[1]) for reader in ("heart", "joe")}


async def refused(client: VoiceClient, challenge: str, answer: bytes) -> str:
    with pytest.raises(Refused) as error:
        await client.spoken(challenge, answer)
    return str(error.value.code)


async def test_from_the_challenge_to_the_voice(start_gateway: Start, clips: dict[str, bytes]) -> None:
    engine = ToneEngine(can_clone=True)
    gateway = await start_gateway(engine=engine, api_keys=KEYS, **configured())
    patient(gateway.services)
    async with voice_client(gateway.url, ACME) as acme, voice_client(gateway.url, OTHER) as other:
        ways = (await acme.ask("GET", "/v1/voices"))["consents"]
        assert ways == ["licensed", "self_voice", "spoken", "written"]
        challenge = await acme.ask("POST", "/v1/consents/challenges", data=b"")
        assert acme.status == 201
        assert re.search(r"I give Acme Health permission", challenge["text"])
        answer = read_by("heart", challenge["text"], phone=True)
        assert await refused(other, challenge["id"], answer) == "challenge_gone"
        record = await acme.spoken(challenge["id"], answer, purposes="calls, reading", languages="en")
        assert (record["how"], record["purposes"], record["languages"]) == (
            "spoken",
            ["calls", "reading"],
            ["en"],
        )
        assert (await acme.ask("GET", f"/v1/consents/{record['id']}"))["signature"] == record["signature"]
        assert await refused(acme, challenge["id"], answer) == "challenge_gone"  # a replay

        voice = await acme.enrol(clips["heart"], consent=record["id"], language="en")
        assert voice["consent"] == record["id"]
        assert engine.enrolled == 1
        with pytest.raises(Refused) as error:
            await acme.enrol(clips["joe"], consent=record["id"], language="en")
        assert (error.value.status, error.value.code) == (422, "reference_other_speaker")
        assert engine.enrolled == 1

        # Yesterday's recording is of yesterday's text; what is new is not in it.
        fresh = await acme.ask("POST", "/v1/consents/challenges", json={"company": "Acme Health"})
        assert await refused(acme, fresh["id"], answer) == "challenge_not_read"
        fresh = await acme.ask("POST", "/v1/consents/challenges", json={})
        first, second = fresh["text"].rstrip(".").split()[-2:]
        swapped = fresh["text"].replace(first, "window,").replace(second, "paper")
        assert await refused(acme, fresh["id"], read_by("heart", swapped)) == "challenge_not_read"

        revoked = await acme.ask("DELETE", f"/v1/consents/{record['id']}")
        assert len(revoked["receipts"]) == 1
        with pytest.raises(Refused):
            await acme.enrol(clips["heart"], consent=record["id"], language="en")
    rows = [row async for row in gateway.services.desk.audit.rows(tenant="acme-health")]
    assert sum(row.event == "voice.compared" for row in rows) == 2
    assert not any("window" in str(row) for row in rows)


async def test_bad_forms_are_named(start_gateway: Start, tmp_path: Path) -> None:
    gateway = await start_gateway(engine=ToneEngine(can_clone=True), api_keys=KEYS, **configured())
    async with voice_client(gateway.url, ACME) as acme:
        with pytest.raises(Refused) as error:
            await acme.consent(how="spoken")  # stated, not spoken
        assert error.value.field == "how"
        assert "challenge" in error.value.message
        for fields, field in (
            ({"how": "written"}, "how"),
            ({"kind": "for ever"}, "kind"),
            ({"until": "soon"}, "until"),
            ({"purposes": ","}, "purposes"),
            ({"subject": "Jane Doe"}, "subject"),
            ({"evidence": "ab" * 32}, None),
            ({"url": "https://example.com/a.wav"}, None),
        ):
            with pytest.raises(Refused) as error:
                await acme.spoken("ch_" + "0" * 32, b"RIFF", **fields)
            assert (error.value.status, error.value.code, error.value.field) == (400, "bad_request", field)
        for asked, field in (({"language": "fr"}, "language"), ({"company": "{date}"}, "company")):
            with pytest.raises(Refused) as error:
                await acme.ask("POST", "/v1/consents/challenges", json=asked)
            assert error.value.field == field
        challenge = await acme.ask("POST", "/v1/consents/challenges", json={})
        with pytest.raises(Refused) as error:
            await acme.spoken(challenge["id"], b"this is no sound" * 100)
        assert error.value.code == "reference_unsupported"

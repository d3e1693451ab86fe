from __future__ import annotations

import base64
import hashlib
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from gateway.voice_api.consents import digest
from sessions.consent import DOMAIN, ConsentRecord
from sessions.signing import verify
from tests.peers.gateway import Running
from tests.peers.rest import Refused, voice_client

PAPER = hashlib.sha256(b"a signed paper").hexdigest()


async def test_a_record_is_made_found_and_revoked(gateway: Running) -> None:
    async with voice_client(gateway.url, gateway.key) as client:
        asked = {
            "subject": "person:17",
            "how": "licensed",
            "kind": "permanent",
            "purposes": ["calls", "ivr"],
            "languages": ["en-US", "de"],
            "until": 4_000_000_000.5,
            "evidence": PAPER,
        }
        made = await client.ask("POST", "/v1/consents", json=asked)
        assert client.status == 201
        assert {k: made[k] for k in asked if k != "until"} == {k: v for k, v in asked.items() if k != "until"}
        assert (made["tenant"], made["until_ms"], made["revoked_at_ms"]) == (
            "default",
            4_000_000_000_500,
            None,
        )
        assert await client.ask("GET", f"/v1/consents/{made['id']}") == made
        revoked = await client.ask("DELETE", f"/v1/consents/{made['id']}")
        assert revoked["receipts"] == []
        assert revoked["consent"]["revoked_at_ms"] >= made["at_ms"]
        again = await client.ask("DELETE", f"/v1/consents/{made['id']}")
        assert again == revoked
        assert (await client.ask("GET", "/v1/consents"))["consents"] == [revoked["consent"]]
        # Whoever has the published key can check what we signed.
        public = await client.ask("GET", "/v1/receipts/key")
        key = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(public["x"] + "=="))
        record = msgspec.convert(made, ConsentRecord)
        assert verify(key, DOMAIN, record)
        assert not verify(key, DOMAIN, msgspec.structs.replace(record, subject="person:18"))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": "Ada Lovelace"}, "subject"),
        ({"subject": None}, "subject"),
        ({"how": "told me so"}, "how"),
        ({"how": "spoken"}, "how"),
        ({"how": "self_voice"}, "how"),
        ({"kind": "forever"}, "kind"),
        ({"purposes": []}, "purposes"),
        ({"languages": ["English"]}, "languages"),
        ({"until": 1.0}, "until"),
        ({"evidence": "I have it in writing"}, "evidence"),
        ({"evidence": ""}, "evidence"),
        ({"statement": "both"}, "evidence"),
        ({"revoked_at_ms": 1}, None),
    ],
)
async def test_what_is_wrong_is_named(gateway: Running, change: dict[str, Any], field: str | None) -> None:
    asked = {"subject": "p1", "how": "written", "evidence": PAPER} | change
    async with voice_client(gateway.url, gateway.key) as client:
        with pytest.raises(Refused) as refused:
            await client.ask("POST", "/v1/consents", json=asked)
        assert (refused.value.status, refused.value.field) == (400, field)
        assert (await client.ask("GET", "/v1/consents"))["consents"] == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"subject": "a", "subject": "b"}', b"\xff", b"{" * 20_000])
async def test_what_is_no_object_is_refused(gateway: Running, body: bytes) -> None:
    async with voice_client(gateway.url, gateway.key) as client:
        with pytest.raises(Refused) as refused:
            await client.ask("POST", "/v1/consents", data=body)
        assert refused.value.status in {400, 413}


async def test_a_statement_is_digested_and_not_kept(gateway: Running) -> None:
    statement = "  This is my own voice. I agree, says Zoë.\n"
    async with voice_client(gateway.url, gateway.key) as client:
        asked = {"subject": "p1", "how": "written", "statement": statement}
        made = await client.ask("POST", "/v1/consents", json=asked)
    assert made["evidence"] == hashlib.sha256(statement.strip().encode()).hexdigest()
    assert (made["kind"], made["purposes"], made["languages"]) == ("session", ["speech"], ["*"])
    assert "statement" not in made


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_a_statements_digest_does_not_depend_on_how_it_was_typed(text: str) -> None:
    assert digest(text) == digest(f" {text}\n")
    assert digest("Zoe\u0308" + text) == digest("Zoë" + text)

"""The receipt can be checked offline, and no field of it can be changed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from sessions.receipt import DOMAIN, MAX_BYTES, NodeAnswer, Receipt, verify_receipt
from sessions.secret import DeploymentSecret
from sessions.signing import Signer
from tts_core.errors import BadRequest

SIGNER = Signer(DeploymentSecret(b"deployment secret of these tests"))
RECEIPT = SIGNER.sign(
    DOMAIN,
    Receipt(
        id="del_1",
        tenant="acme",
        voice="vc_1",
        kind="session",
        consent="cn_1",
        reason="session ended",
        commitment="ab" * 32,
        ordered_at_ms=1000,
        key_destroyed_at_ms=1001,
        issued_at_ms=1010,
        answered=1,
        expected=2,
        nodes=(NodeAnswer("a", "answered", 1002, 1), NodeAnswer("b", "late")),
        audit_row=7,
        audit_digest="cd" * 32,
        chain="ef" * 16,
        head_row=9,
        head_digest="01" * 32,
    ),
)
TEXT = msgspec.json.encode(RECEIPT)


def test_it_verifies_with_the_published_bytes() -> None:
    assert verify_receipt(SIGNER.public_bytes, TEXT) == RECEIPT
    assert verify_receipt(SIGNER.public, RECEIPT) == RECEIPT
    assert verify_receipt(SIGNER.public_bytes, json.dumps(json.loads(TEXT), indent=2).encode()) == RECEIPT
    assert not RECEIPT.complete
    assert msgspec.structs.replace(RECEIPT, answered=2).complete
    assert not msgspec.structs.replace(RECEIPT, answered=2, key_destroyed_at_ms=None).complete
    assert "cannot prove" in RECEIPT.proves


def _refused(key: bytes | Ed25519PublicKey, receipt: bytes) -> bool:
    try:
        verify_receipt(key, receipt)
    except BadRequest:
        return True
    return False


@pytest.mark.parametrize("field", sorted(json.loads(TEXT)))
def test_changing_any_field_fails(field: str) -> None:
    fields = json.loads(TEXT)
    value = fields[field]
    changes: list[Any]
    if isinstance(value, int):
        changes = [value + 1, value - 1, None, str(value)]
    elif isinstance(value, str):
        changes = [value + "x", value[1:], "", value.upper() + " "]
    else:
        changes = [
            value[:1],
            value[::-1],
            [],
            [value[0] | {"copies": 0}, value[1]],
            [value[0], value[1] | {"state": "answered"}],
            [value[0] | {"node": "c"}, value[1]],
            [value[0] | {"at_ms": 1003}, value[1]],
        ]
    for change in changes:
        assert _refused(SIGNER.public_bytes, json.dumps(fields | {field: change}).encode())
    del fields[field]
    if field != "proves":  # leaving out what always says the same changes nothing
        assert _refused(SIGNER.public_bytes, json.dumps(fields).encode())
    assert _refused(SIGNER.public_bytes, json.dumps(fields | {"more": 1}).encode())


@given(st.data())
def test_changing_any_byte_fails(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TEXT) - 1))
    changed = TEXT[:at] + bytes([TEXT[at] ^ data.draw(st.integers(1, 255))]) + TEXT[at + 1 :]
    assert _refused(SIGNER.public_bytes, changed)


@given(st.binary(max_size=200))
def test_noise_fails(noise: bytes) -> None:
    assert _refused(SIGNER.public_bytes, noise)
    assert _refused(noise[:40], TEXT)


def test_other_keys_and_sizes_fail() -> None:
    assert _refused(Signer(DeploymentSecret(b"another deployment's very secret")).public_bytes, TEXT)
    assert _refused(SIGNER.public_bytes, b" " * (MAX_BYTES + 1))
    huge = json.dumps(json.loads(TEXT) | {"audit_row": int("9" * 60)}).encode()
    assert _refused(SIGNER.public_bytes, huge)
    other = SIGNER.sign("another kind of paper", RECEIPT)
    assert _refused(SIGNER.public_bytes, msgspec.json.encode(other))

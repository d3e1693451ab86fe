"""The deletion receipt: what was destroyed, who has answered, signed so that it can be checked offline."""

from __future__ import annotations

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from sessions.signing import Signed, verify
from tts_core.errors import BadRequest

DOMAIN = "voxwire deletion receipt 1"
MAX_BYTES = 1 << 20
PROVES = (
    "The sealed key of this voice was destroyed in the deployment's store at key_destroyed_at_ms, so that "
    "its ciphertext, named by its SHA-256 in commitment, can no longer be opened with anything in that "
    "store. The gateways listed as answered have reported at the given times that they dropped their "
    "copies; those listed as late have not. It cannot prove that nobody with full access to a machine made "
    "a copy before, nor what a late gateway still holds in its memory."
)
"""What a receipt may honestly claim; it is part of what is signed."""


class NodeAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One gateway: ``state`` is ``answered`` or ``late``; ``copies`` that it dropped from memory."""

    node: str
    state: str
    at_ms: int | None = None
    copies: int = 0


class Receipt(Signed, frozen=True, kw_only=True):
    """Times in Unix milliseconds, digests in hex.

    ``audit_row`` and ``audit_digest`` are the row of this deletion in the audit chain ``chain``;
    ``head_row`` and ``head_digest`` its newest row when this receipt was issued.
    """

    id: str
    tenant: str
    voice: str
    kind: str
    consent: str
    reason: str
    commitment: str
    ordered_at_ms: int
    key_destroyed_at_ms: int | None
    issued_at_ms: int
    answered: int
    expected: int
    nodes: tuple[NodeAnswer, ...]
    audit_row: int
    audit_digest: str
    chain: str
    head_row: int
    head_digest: str
    proves: str = PROVES

    @property
    def complete(self) -> bool:
        """Whether the key is destroyed and every gateway has answered."""
        return self.key_destroyed_at_ms is not None and self.answered == self.expected


def verify_receipt(public_key: bytes | Ed25519PublicKey, receipt: bytes | Receipt) -> Receipt:
    """Check a receipt offline with the deployment's published key (32 bytes).

    Raises BadRequest if the receipt is not one, was not signed with that key, or was changed anywhere.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(public_key) if isinstance(public_key, bytes) else public_key
        if isinstance(receipt, bytes):
            if len(receipt) > MAX_BYTES:
                raise BadRequest("this is no deletion receipt", field="receipt")
            receipt = msgspec.json.decode(receipt, type=Receipt)
    except ValueError:  # msgspec's errors are ValueErrors too
        raise BadRequest("this is no deletion receipt, or no public key", field="receipt") from None
    if not verify(key, DOMAIN, receipt):
        raise BadRequest("the signature does not fit: it was changed or is another's", field="receipt")
    return receipt

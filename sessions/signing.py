"""What the deployment signs: consent records and deletion receipts.

What is signed are the document's domain (a word that keeps one kind of document from passing as another), a
line feed, and the document as canonical JSON with an empty ``signature``: sorted names, no spaces, integers
and text only, which for our ASCII names is RFC 8785.
The algorithm is Ed25519 (RFC 8032) and nothing else; its key is derived from the deployment secret, so that
all gateways sign alike and none has to keep a key of its own.
"""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from sessions.secret import DeploymentSecret
from sessions.tokens import key_id


class Signed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of documents that are signed: the signing key's id, and 64 bytes in unpadded base64url."""

    kid: str = ""
    signature: str = ""


T = TypeVar("T", bound=Signed)


def canonical(document: object) -> bytes:
    """A struct, list or dictionary as canonical JSON: the same value always gives the same bytes."""
    return msgspec.json.encode(document, order="sorted")


def verify(public: Ed25519PublicKey, domain: str, document: Signed) -> bool:
    """Whether ``document`` was signed for ``domain`` by the owner of ``public`` and is unchanged."""
    try:
        signature = base64.urlsafe_b64decode(document.signature + "==")
        public.verify(signature, _signed(domain, document))
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    # Base64 has several spellings of the same bytes; one of them is ours.
    return document.kid == key_id(public) and document.signature == _text(signature)


class Signer:
    """Signs and verifies with the deployment's key for documents."""

    def __init__(self, secret: DeploymentSecret) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(secret.derive("documents"))
        self.public = self._private.public_key()
        self.kid = key_id(self.public)

    @property
    def public_bytes(self) -> bytes:
        """The 32 bytes to publish: whoever has them can verify without us."""
        return self.public.public_bytes_raw()

    def sign(self, domain: str, document: T) -> T:
        """The same document with ``kid`` and ``signature`` filled in."""
        named = msgspec.structs.replace(document, kid=self.kid, signature="")
        signature = _text(self._private.sign(_signed(domain, named)))
        return msgspec.structs.replace(named, signature=signature)

    def verify(self, domain: str, document: Signed) -> bool:
        """Whether we signed this document and it is unchanged."""
        return verify(self.public, domain, document)


def _signed(domain: str, document: Signed) -> bytes:
    bare = msgspec.structs.replace(document, signature="")
    return domain.encode() + b"\n" + canonical(bare)


def _text(signature: bytes) -> str:
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()

"""AES-256-GCM (NIST SP 800-38D) as voices use it: a random nonce in front, a context that binds."""

from __future__ import annotations

import json
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE = 12
TAG = 16
KEY_RECORD = NONCE + 32 + TAG
"""Bytes of a sealed data key."""


def context(kind: str, *parts: str | int | None) -> bytes:
    """What a record is bound to, written so that two lists of parts never look alike."""
    return json.dumps([kind, *parts]).encode()


def new_key() -> bytes:
    """256 random bits."""
    return AESGCM.generate_key(256)


def seal(secret: bytes, data: bytes, bound_to: bytes) -> bytes:
    """Encrypt and authenticate ``data``, which opens only with the same ``bound_to``."""
    nonce = secrets.token_bytes(NONCE)
    return nonce + AESGCM(secret).encrypt(nonce, data, bound_to)


def unseal(secret: bytes, sealed: bytes, bound_to: bytes) -> bytes | None:
    """The data, or None for a wrong key, a wrong context or any damage."""
    if len(sealed) < NONCE + TAG:
        return None
    try:
        return AESGCM(secret).decrypt(sealed[:NONCE], sealed[NONCE:], bound_to)
    except InvalidTag:
        return None

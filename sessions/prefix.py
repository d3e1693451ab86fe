"""The form in which a voice's conditioning is kept inside its seal: versioned, checksummed, of exact length.

Conditioning is plain numbers, never a serialised object: a GEPARD prefix is 8 x 1024 little-endian float16
without any header of its own. Around it we put, little-endian:

====== ===================================================================================
bytes  what
====== ===================================================================================
3      ``VXV``
1      version, 2
8      float64: Unix seconds after which the voice may not be used (infinity: none)
4      float32: seconds of its lease (0: it has none)
16     the consent's id (zeros: none)
4      uint32: bytes of conditioning
n      conditioning
16     BLAKE2b-128 of everything before
====== ===================================================================================

Nobody but a gateway can write this (it lies inside AES-GCM); it is read as if anybody could.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from dataclasses import dataclass

import numpy as np

from tts_core.errors import BadRequest

MAGIC = b"VXV"
VERSION = 2
MAX_BYTES = 1 << 20
_HEAD = struct.Struct("<3sBdf16sI")
_CHECK = 16
OVERHEAD = _HEAD.size + _CHECK
CONSENT_ID = re.compile(r"cn_[0-9a-f]{32}")


class Damaged(ValueError):
    """The bytes are not what :func:`pack` makes."""


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What is kept of a voice: its bytes and under which terms they may be used.

    ``until`` in Unix seconds, infinity for ever; ``lease`` in seconds, 0 for a voice without a lease;
    ``consent`` is an id of :mod:`sessions.consent` or "".
    """

    data: bytes
    until: float = math.inf
    lease: float = 0.0
    consent: str = ""


def pack(voice: Conditioning) -> bytes:
    """The bytes to seal. Raises BadRequest for no or too much data."""
    if not 0 < len(voice.data) <= MAX_BYTES:
        raise BadRequest(f"a voice has 1 to {MAX_BYTES} bytes", field="voice")
    if voice.consent and not CONSENT_ID.fullmatch(voice.consent):
        raise BadRequest("no such consent", field="consent")
    consent = bytes.fromhex(voice.consent[3:]) if voice.consent else bytes(16)
    head = _HEAD.pack(MAGIC, VERSION, voice.until, voice.lease, consent, len(voice.data))
    body = head + voice.data
    return body + _checksum(body)


def unpack(packed: bytes) -> Conditioning:
    """The opposite of :func:`pack`. Raises Damaged for anything else, whatever it is."""
    if not OVERHEAD < len(packed) <= OVERHEAD + MAX_BYTES:
        raise Damaged("length")
    body, check = packed[:-_CHECK], packed[-_CHECK:]
    magic, version, until, lease, consent, length = _HEAD.unpack_from(body)
    if magic != MAGIC or version != VERSION or length != len(body) - _HEAD.size:
        raise Damaged("header")
    if check != _checksum(body):
        raise Damaged("checksum")
    if math.isnan(until) or not 0 <= lease < math.inf:
        raise Damaged("terms")
    return Conditioning(body[_HEAD.size :], until, lease, f"cn_{consent.hex()}" if any(consent) else "")


def check_float16(data: bytes, size: int) -> None:
    """Raises BadRequest unless ``data`` is ``size`` bytes of finite little-endian float16, not all zero."""
    if len(data) != size or size % 2:
        raise BadRequest(f"a voice of this model has {size} bytes", field="voice")
    numbers = np.frombuffer(data, "<f2")
    if not np.isfinite(numbers).all() or not numbers.any():
        raise BadRequest("the voice has values that are no numbers", field="voice")


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK).digest()

"""Voices that may not be cloned in this deployment, kept as commitments (trust.md V7).

A voice comes as a speaker embedding. On which side of each of many planes it lies is one bit, and the planes
follow from the deployment's secret (random hyperplanes: Charikar, 2002). Voices that are alike differ in few
bits: the angle between their embeddings is the share of bits that differ times 180 degrees. A commitment is
the HMAC of the bits under another key. The store has, by commitment, the bits and a reason's id, sealed under
a third key: not the embedding, no name, nothing that can be compared without the secret.

What that is worth. Who has only the store learns how many entries there are and when they change. Who has the
secret too can test any voice against the list, and can compute from the bits an embedding close to the listed
one: treat the list as biometric data. Bits of another deployment cannot be compared with ours: an export is
for a backup, or for a deployment of the same secret. Who may write to the store can delete entries unseen by
the list itself; the audit chain has a row for each that we added or removed.

The match is one of the model's: two people who sound alike to it are one voice here, and a disguised voice is
another.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from dataclasses import dataclass

import msgspec
import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from sessions.audit import AuditChain
from sessions.sealing import context, seal, unseal
from sessions.secret import DeploymentSecret
from sessions.store import Store, Wall, key
from tts_core.errors import BadRequest, LimitExceeded, StoreError

BITS = 1024
"""Of a voice: enough that chance moves the similarity that is compared by less than 0.03."""
SIMILAR = 0.84
"""Similarity (cosine) from which a voice counts as a listed one: that of the same person (V3)."""
MOST = 2000
"""Entries; 0.6 MB in the store, and in an export."""
MOST_EXPORT = 700_000
TABLE = key("", "denied", "voices")
MARK = key("", "denied", "mark")
"""Changes with the list, so that gateways need not read all of it for each voice."""

_REASON = re.compile(r"[A-Za-z0-9._~:-]{1,64}")
_ID = re.compile(r"dv_[0-9a-f]{32}")
_FORMAT = b"voxwire denied 1\n"
_ONES = np.array([byte.bit_count() for byte in range(256)], np.uint8)

Vector = NDArray[np.float32]
Bits = NDArray[np.uint8]


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bits: bytes
    reason: str
    at_ms: int


class _Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entries: dict[str, _Kept]


@dataclass(frozen=True, slots=True)
class Denied:
    """An entry: its commitment, why it is there (an id of the operator's), since when (Unix ms)."""

    id: str
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Read:
    """The list as it was under a mark."""

    mark: bytes | None
    rows: dict[str, bytes]
    entries: dict[str, _Kept]
    bits: Bits


class DenyList:
    """The list of one deployment, on one gateway.

    Args:
        store: shared by the gateways.
        secret: of the deployment; gives planes and keys.
        audit: gets a row for each entry added, removed or imported.
        similar: cosine from which a voice counts as a listed one.
        wall: Unix seconds.

    All verbs raise StoreError when the store is away or holds what this secret does not open: a list that
    cannot be read must stop what it guards (trust.md S35). Cancelled, a change may or may not have been made.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        *,
        audit: AuditChain,
        similar: float = SIMILAR,
        wall: Wall = time.time,
    ) -> None:
        self._store = store
        self._audit = audit
        self._wall = wall
        self._seal = secret.derive("denied voices", "seal")
        self._commit = secret.derive("denied voices", "commit")
        self._planes_key = secret.derive("denied voices", "planes")
        self._planes: Vector | None = None
        self._most = int(np.arccos(similar) / np.pi * BITS)
        self._read: _Read | None = None

    async def add(self, embedding: Vector, reason: str) -> str:
        """List a voice; its commitment. The same embedding again changes its reason alone.

        Args:
            embedding: float32 ``[n]``, any length but 0, of the model whose voices are asked for.
            reason: why, as an id of the operator's: 1-64 of ``A-Za-z0-9._~:-``, never a name.

        Raises:
            BadRequest: the reason is no such id, or the embedding no voice.
            LimitExceeded: the list is full.

        """
        _check_reason(reason)
        bits = (await asyncio.to_thread(self._project, embedding)).tobytes()
        name = self._commitment(bits)
        known = await self._load()
        if name not in known.entries and len(known.entries) >= MOST:
            raise LimitExceeded(f"the list of denied voices has {MOST} entries")
        await self._write({name: _Kept(bits, reason, round(self._wall() * 1000))})
        await self._audit.append("voice.denied", subject=name, details={"reason": reason})
        return name

    async def remove(self, commitment: str) -> bool:
        """Take a voice off the list; False if it was not on it. One that cannot be read goes, too."""
        if not _ID.fullmatch(commitment) or await self._store.table_get(TABLE, commitment) is None:
            return False
        # The mark goes in the same step, so that no gateway takes an old list for the present one.
        await self._store.table_drop(TABLE, commitment, keys=(MARK,))
        await self._store.set(MARK, secrets.token_bytes(8))
        self._read = None
        await self._audit.append("voice.allowed", subject=commitment)
        return True

    async def match(self, embedding: Vector) -> bool:
        """Whether this voice is on the list. A refusal's audit row is the caller's."""
        known = await self._load()
        if not known.entries:
            return False
        return await asyncio.to_thread(self._near, known.bits, embedding)

    async def empty(self) -> bool:
        """Whether nothing is on the list; told from the store's rows, whether they can be read or not."""
        return not await self._store.table_all(TABLE)

    async def entries(self) -> tuple[Denied, ...]:
        """What is on the list, oldest first."""
        known = await self._load()
        found = (Denied(name, kept.reason, kept.at_ms) for name, kept in known.entries.items())
        return tuple(sorted(found, key=lambda entry: (entry.at_ms, entry.id)))

    async def export(self) -> bytes:
        """The whole list, sealed: for :meth:`load` of a deployment with the same secret."""
        known = await self._load()
        raw = msgspec.msgpack.encode(_Export(known.entries))
        return _FORMAT + await asyncio.to_thread(seal, self._seal, raw, context("denied export"))

    async def load(self, data: bytes) -> int:
        """Add the entries of an export to the list; how many were new.

        Raises:
            BadRequest: the export is damaged, or of a deployment with another secret.
            LimitExceeded: the list would be too long.

        """
        if len(data) > MOST_EXPORT or not data.startswith(_FORMAT):
            raise BadRequest("this is no export of denied voices", field="export")
        raw = await asyncio.to_thread(unseal, self._seal, data[len(_FORMAT) :], context("denied export"))
        if raw is None:
            raise BadRequest(
                "this export of denied voices is damaged or of another deployment", field="export"
            )
        found = msgspec.msgpack.decode(raw, type=_Export).entries
        known = await self._load()
        new = {name: kept for name, kept in found.items() if name not in known.entries}
        if len(known.entries) + len(new) > MOST:
            raise LimitExceeded(f"the list of denied voices would exceed {MOST} entries")
        if new:
            await self._write(new)
            await self._audit.append("voice.denied", details={"imported": str(len(new))})
        return len(new)

    # The store

    async def _write(self, entries: dict[str, _Kept]) -> None:
        rows = await asyncio.to_thread(
            lambda: {name: self._sealed(name, kept) for name, kept in entries.items()}
        )
        await self._store.table_set(TABLE, rows, values={MARK: secrets.token_bytes(8)})
        self._read = None

    async def _load(self) -> _Read:
        """The list as it is now; read anew only when its mark has changed."""
        mark = await self._store.get(MARK)  # before the rows: they are then as new as the mark, or newer
        known = self._read
        if known is not None and mark is not None and mark == known.mark:
            return known
        rows = await self._store.table_all(TABLE)
        fresh = await asyncio.to_thread(self._open, mark, rows, known)
        self._read = fresh
        return fresh

    def _open(self, mark: bytes | None, rows: dict[str, bytes], known: _Read | None) -> _Read:
        entries: dict[str, _Kept] = {}
        for name, row in rows.items():
            if known is not None and known.rows.get(name) == row:
                entries[name] = known.entries[name]
            else:
                entries[name] = self._opened(name, row)
        packed = np.frombuffer(b"".join(kept.bits for kept in entries.values()), np.uint8)
        return _Read(mark, rows, entries, packed.reshape(-1, BITS // 8))

    def _sealed(self, name: str, kept: _Kept) -> bytes:
        return seal(self._seal, msgspec.msgpack.encode(kept), context("denied", name))

    def _opened(self, name: str, row: bytes) -> _Kept:
        raw = unseal(self._seal, row, context("denied", name))
        kept = msgspec.msgpack.decode(raw, type=_Kept) if raw is not None else None
        if kept is None or len(kept.bits) != BITS // 8 or self._commitment(kept.bits) != name:
            raise StoreError("the list of denied voices cannot be read with this deployment's secret")
        return kept

    # Voices as bits

    def _commitment(self, bits: bytes) -> str:
        return "dv_" + hmac.digest(self._commit, bits, hashlib.sha256).hex()[:32]

    def _near(self, listed: Bits, embedding: Vector) -> bool:
        apart = _ONES[listed ^ self._project(embedding)].sum(axis=1, dtype=np.int64)
        return bool((apart <= self._most).any())

    def _project(self, embedding: Vector) -> Bits:
        if embedding.ndim != 1 or not np.isfinite(embedding).all() or not np.any(embedding):
            raise BadRequest("this is no voice")
        if self._planes is None or self._planes.shape[1] != len(embedding):
            self._planes = planes(self._planes_key, len(embedding))
        bits: Bits = np.packbits(self._planes @ embedding.astype(np.float32) >= 0)
        return bits


def planes(secret: bytes, size: int) -> Vector:
    """The normals of the planes, float32 ``[BITS, size]``, spread evenly over all directions.

    Gaussian numbers by Box and Muller (1958) from the keystream of AES-256 in counter mode, so that they are
    the same on every gateway whatever its numpy.
    """
    count = (BITS * size + 1) // 2
    encryptor = Cipher(algorithms.AES(secret), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(encryptor.update(bytes(8 * count)), "<u4").astype(np.float64)
    uniform = (words + 0.5) / 2.0**32
    radius = np.sqrt(-2 * np.log(uniform[:count]))
    angle = 2 * np.pi * uniform[count:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return normal[: BITS * size].reshape(BITS, size).astype(np.float32)


def _check_reason(reason: str) -> None:
    if not _REASON.fullmatch(reason):
        raise BadRequest("a reason is an id of 1 to 64 letters, digits and ._~:-", field="reason")


__all__ = ["BITS", "MOST", "SIMILAR", "Denied", "DenyList"]

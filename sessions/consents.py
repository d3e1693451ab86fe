"""The book of consents: created, looked up at every use, revoked at once everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from sessions.audit import AuditChain
from sessions.consent import (
    ANY_LANGUAGE,
    DOMAIN,
    EARS,
    ConsentRecord,
    ConsentTerms,
    How,
    Reach,
    check_terms,
    is_id,
    new_record,
    unverified,
)
from sessions.listener import Listener
from sessions.sealing import context, seal, unseal
from sessions.secret import DeploymentSecret
from sessions.signing import Signer, canonical
from sessions.store import Store, Unsubscribe, Wall, key
from sessions.voice_limits import VoiceGuard
from tts_core.errors import BadRequest, Forbidden, StoreError

log = logging.getLogger(__name__)

CHANNEL = key("", "consents", "revoked")
KEEP_S = 3 * 366 * 86_400.0
"""A record is kept for three years after its end."""
PAPER = frozenset({How.WRITTEN, How.LICENSED})
"""What can be recorded without a verifier of speech."""
SPOKEN = frozenset({How.SPOKEN, How.SELF_VOICE})
"""What a voice is kept of, to be compared with that of a clip."""
_BATCH = 5
"""Signatures (0.1 to 0.2 ms each) that are verified before others have their turn."""
_REFUSED = "this consent cannot be used: it is unknown, over or revoked, or does not cover this use"
_NOBODY = "cn_none"


class _Revoked(msgspec.Struct):
    tenant: str
    consent: str


class ConsentBook:
    """Keeps the signed records of all tenants.

    Args:
        store: shared by the gateways.
        secret: of the deployment.
        signer: of the deployment.
        audit: gets a row for each record, revocation and refusal.
        guard: counts refusals.
        withdraw: deletes every voice that was made under a consent (:meth:`sessions.receipts.Deletions.
            withdraw`); returns the ids of the receipts.
        verified: ways of consent that this installation can check.
        missing: what it takes for the others, in words.
        wall: Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        signer: Signer,
        *,
        audit: AuditChain,
        guard: VoiceGuard,
        withdraw: Callable[[str, str], Awaitable[tuple[str, ...]]],
        verified: Iterable[How] = PAPER,
        missing: str = EARS,
        wall: Wall = time.time,
    ) -> None:
        self._store = store
        self._secret = secret
        self._signer = signer
        self._audit = audit
        self._guard = guard
        self._withdraw = withdraw
        self.verified = frozenset(verified)
        self._missing = missing
        self._wall = wall
        self._callbacks: list[Callable[[str, str], None]] = []
        # Of revocations.
        self.listener = Listener(store, CHANNEL, self._hear)

    def on_revoked(self, callback: Callable[[str, str], None]) -> Unsubscribe:
        """Call ``callback(tenant, consent id)`` on every gateway when a consent is revoked.

        The deletion of its voices is told besides (:meth:`sessions.voices.VoiceStore.on_deleted`).
        """
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return unsubscribe

    def check(self, terms: ConsentTerms) -> None:
        """Raises BadRequest that names the field for terms that no record can have here."""
        check_terms(terms, verified=self.verified, now=self._wall(), missing=self._missing)

    def unverified(self, how: How) -> BadRequest:
        """The refusal of a way that cannot be checked here, with what that would take."""
        return unverified(how, verified=self.verified, missing=self._missing)

    async def create(self, tenant: str, terms: ConsentTerms, *, voice: bytes | None = None) -> ConsentRecord:
        """Sign and keep a record.

        ``voice``: what a speaker model made of the spoken answer; it is sealed under the tenant's key and
        kept as long as the consent holds. What is spoken needs one; that the answer is right was checked
        before. Raises BadRequest that names the field; LimitExceeded for too many an hour; StoreError.
        """
        self.check(terms)
        if terms.how in SPOKEN and voice is None:
            raise BadRequest(
                f"{terms.how} consent is given by reading a challenge aloud: POST /v1/consents/challenges, "
                "then its answer as a form",
                field="how",
            )
        await self._guard.consent(tenant)
        record = new_record(self._signer, tenant, terms, self._wall())
        await self._audit.append(
            "consent.recorded",
            tenant=tenant,
            subject=record.id,
            details={"kind": record.kind, "how": record.how, "evidence": record.evidence},
        )
        values = {} if voice is None else {_voice_name(tenant, record.id): self._seal(record, voice)}
        await self._store.table_set(
            _table(tenant),
            {record.id: canonical(record)},
            values=values,
            values_ttl=None if terms.until is None else max(1.0, terms.until - self._wall()),
        )
        return record

    async def voice(self, record: ConsentRecord) -> bytes | None:
        """What was kept of the voice that spoke; None if nothing is (any more). Raises StoreError."""
        sealed = await self._store.get(_voice_name(record.tenant, record.id))
        return None if sealed is None else unseal(self._voice_key(record), sealed, _voice_context(record))

    def _seal(self, record: ConsentRecord, voice: bytes) -> bytes:
        return seal(self._voice_key(record), voice, _voice_context(record))

    def _voice_key(self, record: ConsentRecord) -> bytes:
        return self._secret.derive("consent voices", record.tenant)

    async def fetch(self, tenant: str, consent_id: str) -> ConsentRecord:
        """A record, revoked or over as it may be.

        Raises Forbidden, in the same words and after the same steps, for one that is missing, another
        tenant's or tampered with; StoreError.
        """
        return (await self._existing(tenant, consent_id))[0]

    async def list(self, tenant: str) -> tuple[ConsentRecord, ...]:
        """All records, oldest first; drops those that ended more than three years ago. Raises StoreError."""
        found: list[ConsentRecord] = []
        oldest = (self._wall() - KEEP_S) * 1000
        rows = await self._store.table_all(_table(tenant))
        for turn, (consent_id, raw) in enumerate(rows.items()):
            if turn % _BATCH == 0:
                await asyncio.sleep(0)  # thousands of records must not hold up the audio
            record = self._verify(tenant, consent_id, raw)
            if record is None:
                continue
            ends = [t for t in (record.until_ms, record.revoked_at_ms) if t is not None]
            if ends and min(ends) < oldest:
                await self._store.table_drop(
                    _table(tenant), consent_id, keys=(_voice_name(tenant, consent_id),)
                )
            else:
                found.append(record)
        return tuple(sorted(found, key=lambda r: (r.at_ms, r.id)))

    async def require(
        self,
        tenant: str,
        consent_id: str,
        *,
        kind: Reach | str,
        language: str = "",
        purpose: str | None = None,
    ) -> ConsentRecord:
        """The record, if it allows this use now.

        Raises Forbidden, always in the same words, for one that is unknown, another tenant's, tampered with,
        over, revoked or for another use (each is counted and goes into the audit chain); BadRequest where it
        is for some languages and none is named; LimitExceeded after too many refusals; StoreError.
        """
        await self._guard.consents_open(tenant)
        record, _ = await self._read(tenant, consent_id)
        if (
            record is None
            or not record.holds(self._wall())
            or not record.covers(kind=kind, language=language, purpose=purpose)
        ):
            await self._guard.wrong_consent(tenant)
            await self._audit.append(
                "consent.refused", tenant=tenant, subject=consent_id if is_id(consent_id) else ""
            )
            raise Forbidden(_REFUSED, field="consent")
        if not language and ANY_LANGUAGE not in record.languages:
            allowed = ", ".join(record.languages)
            raise BadRequest(f"this consent is for {allowed}: say which language it is", field="language")
        return record

    async def valid(self, tenant: str, consent_id: str) -> bool:
        """Whether voices made under it may be used now; counts nothing. Raises StoreError."""
        record, _ = await self._read(tenant, consent_id)
        return record is not None and record.holds(self._wall())

    async def revoke(self, tenant: str, consent_id: str) -> tuple[ConsentRecord, tuple[str, ...]]:
        """End a consent: no new context may use its voices, which are deleted.

        Returns the record and the ids of the deletions' receipts. Doing it again finishes what an outage
        left undone. Raises as :meth:`fetch`.
        """
        record, raw = await self._existing(tenant, consent_id)
        if record.revoked_at_ms is None:
            await self._audit.append("consent.revoked", tenant=tenant, subject=consent_id)
            revoked = self._signer.sign(
                DOMAIN, msgspec.structs.replace(record, revoked_at_ms=round(self._wall() * 1000))
            )
            if await self._store.table_swap(_table(tenant), consent_id, raw, canonical(revoked)):
                record = revoked
            else:  # the one change that a record knows was made by somebody else at the same moment
                record, _ = await self._existing(tenant, consent_id)
        await self._store.delete(_voice_name(tenant, consent_id))
        self._tell(tenant, consent_id)
        with contextlib.suppress(StoreError):
            await self._store.publish(CHANNEL, msgspec.msgpack.encode(_Revoked(tenant, consent_id)))
        return record, await self._withdraw(tenant, consent_id)

    async def _existing(self, tenant: str, consent_id: str) -> tuple[ConsentRecord, bytes]:
        record, raw = await self._read(tenant, consent_id)
        if record is None:
            raise Forbidden("no such consent", field="consent")
        return record, raw

    async def _read(self, tenant: str, consent_id: str) -> tuple[ConsentRecord | None, bytes]:
        wanted = consent_id if is_id(consent_id) else _NOBODY
        raw = await self._store.table_get(_table(tenant), wanted)
        return self._verify(tenant, wanted, raw or b"{}"), raw or b""

    def _verify(self, tenant: str, consent_id: str, raw: bytes) -> ConsentRecord | None:
        try:
            record = msgspec.json.decode(raw, type=ConsentRecord)
        except msgspec.MsgspecError:
            return None
        if record.id != consent_id or record.tenant != tenant or not self._signer.verify(DOMAIN, record):
            return None
        return record

    def _hear(self, message: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            revoked = msgspec.msgpack.decode(message, type=_Revoked)
            self._tell(revoked.tenant, revoked.consent)

    def _tell(self, tenant: str, consent_id: str) -> None:
        for callback in tuple(self._callbacks):
            callback(tenant, consent_id)


def _table(tenant: str) -> str:
    return key(tenant, "consents")


def _voice_name(tenant: str, consent_id: str) -> str:
    return key(tenant, "consent", consent_id, "voice")


def _voice_context(record: ConsentRecord) -> bytes:
    return context("consent voice", record.tenant, record.id)

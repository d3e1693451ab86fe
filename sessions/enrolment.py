"""Enrolment: from a clip's digest to a stored voice, computed once over all gateways.

The clip itself never comes here: who enrols brings its SHA-256 and a way to compute the conditioning. Under
the digest and the model's revision a tenant's voice is found again, and its bytes are sealed anew under the
new voice's own key; there is no third copy that a deletion could miss, and deleting the first voice makes the
next enrolment compute again. The name under which it is found is an HMAC under the tenant's own key, so that
nobody learns which clips a tenant has, and no tenant profits from another's.

Who computes holds a lease and renews it; when it dies, the lease lapses and one of those who wait takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import msgspec

from sessions.audit import AuditChain
from sessions.consent import ConsentRecord, Reach
from sessions.consents import ConsentBook
from sessions.listener import Listener
from sessions.prefix import check_float16
from sessions.sealing import context, seal, unseal
from sessions.secret import DeploymentSecret
from sessions.store import Clock, Store, key
from sessions.voice_catalogue import About, check_about, clip_name
from sessions.voice_limits import VoiceGuard
from sessions.voices import LEASE_S, StoredVoice, VoiceStore
from tts_core.errors import BadRequest, Busy, Forbidden, StoreError, UnknownVoice

CHANNEL = key("", "enrolments")
LOCK_S = 10.0
DEADLINE_S = 60.0
FOUND_AGAIN_S = 3600.0
"""Seconds that a session's clip is found again, as long as its voice lives."""
_POLL_S = 0.25
_DIGEST = re.compile(r"[0-9a-f]{64}")


class _Clip(msgspec.Struct):
    """Which voice was made from a clip."""

    voice: str
    session: str | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    tenant: str
    session: str | None
    revision: str
    about: About
    purpose: str | None
    ttl: float | None
    source: str
    place: str = ""


class Enrolment:
    """Makes voices.

    Args:
        store: shared by the gateways.
        secret: of the deployment.
        voices: where they are kept.
        consents: asked before anything is computed, and again before the voice is kept.
        guard: the tenant's limits.
        audit: gets a row for each enrolment.
        size: exact bytes of float16 conditioning that the model makes (None: any bytes).
        lock: seconds of the lease of whoever computes.
        deadline: seconds after which a wait for another gateway ends.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        voices: VoiceStore,
        *,
        consents: ConsentBook,
        guard: VoiceGuard,
        audit: AuditChain,
        size: int | None = None,
        lock: float = LOCK_S,
        deadline: float = DEADLINE_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._store = store
        self._secret = secret
        self._voices = voices
        self._consents = consents
        self._guard = guard
        self._audit = audit
        self._size = size
        self._lock = lock
        self._deadline = deadline
        self._clock = clock
        self._waiting: dict[str, set[asyncio.Event]] = {}
        # Of clips that other gateways have done.
        self.listener = Listener(store, CHANNEL, self._hear)

    async def enrol(  # noqa: PLR0917 - in the order in which they are decided
        self,
        tenant: str,
        session: str | None,
        clip_digest: str,
        revision: str,
        consent_id: str,
        compute: Callable[[], Awaitable[bytes]],
        *,
        name: str = "",
        language: str = "",
        purpose: str | None = None,
        ttl: float | None = None,
        notes: tuple[str, ...] = (),
    ) -> StoredVoice:
        """A new voice of the tenant, or of ``session``, from the clip with this SHA-256 (64 hex digits).

        ``compute`` is awaited at most once, and not at all where the tenant has a living voice from the same
        clip and model, or another gateway is making one now. ``ttl`` is a permanent voice's (None: no end
        but the consent's); a session's has its lease of 60 s, see :meth:`sessions.voices.VoiceStore.hold`.

        Raises, before anything is computed: BadRequest for a bad digest or description, Forbidden for a
        consent that cannot be used, LimitExceeded for the tenant's limits. Later: Busy when another gateway
        has not finished in time, what ``compute`` raises, Forbidden if the consent was revoked meanwhile,
        StoreError if the store went away (nothing is kept then). Cancelling it lets another gateway take
        over at once.
        """
        if not _DIGEST.fullmatch(clip_digest):
            raise BadRequest("a clip is named by its SHA-256, 64 hex digits", field="clip")
        about = check_about(About(name=name, language=language, consent=consent_id, notes=notes))
        if session is None and ttl is not None and not 1 <= ttl < 1e10:
            raise BadRequest("a voice lives at least a second", field="ttl")
        source = self._source(tenant, clip_digest, revision)
        wanted = _Wanted(tenant, session, revision, about, purpose, ttl, source)
        await self._require(wanted)
        wanted = replace(wanted, place=await self._guard.enrolment(tenant, session=session is not None))
        try:
            return await self._once(wanted, compute)
        except BaseException:
            with contextlib.suppress(StoreError):  # else it lapses
                await self._guard.give_back(tenant, wanted.place, session=session is not None)
            raise

    async def _once(self, wanted: _Wanted, compute: Callable[[], Awaitable[bytes]]) -> StoredVoice:
        until = self._clock() + self._deadline
        while True:
            found = await self._found(wanted)
            if found is not None:
                return await self._keep(wanted, *found)
            owner = secrets.token_hex(8)
            if await self._store.lease(_lock_name(wanted), owner, self._lock):
                return await self._make(wanted, owner, compute)
            await self._news(wanted.source, until)

    async def _make(
        self, wanted: _Wanted, owner: str, compute: Callable[[], Awaitable[bytes]]
    ) -> StoredVoice:
        renewing = asyncio.create_task(self._renew(_lock_name(wanted), owner), name="enrolment-lease")
        try:
            found = await self._found(wanted)  # done between our look and our lease
            if found is not None:
                return await self._keep(wanted, *found)
            data = await compute()
            if self._size is not None:
                check_float16(data, self._size)
            # A store that was lost meanwhile has lost the lease, and with it what the consent rests on.
            if not await self._store.renew(_lock_name(wanted), owner, self._lock):
                raise StoreError("the enrolment was interrupted: try again")
            return await self._keep(wanted, data, None)
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            with contextlib.suppress(StoreError):  # else it lapses, and those who wait look again
                await self._store.release(_lock_name(wanted), owner)
                await self._store.publish(CHANNEL, wanted.source.encode())

    async def _keep(self, wanted: _Wanted, data: bytes, clip: _Clip | None) -> StoredVoice:
        record = await self._require(wanted)  # it may have been revoked, or be over, by now
        about = replace(
            wanted.about,
            until=None if record.until_ms is None else record.until_ms / 1000,
            source=wanted.source,
        )
        lease = wanted.ttl if wanted.session is None else LEASE_S
        voice = await self._voices.put(
            wanted.tenant,
            wanted.session,
            data,
            lease,
            revision=wanted.revision,
            about=about,
            voice_id=wanted.place,
        )
        try:
            # Revoked in the moment before it was kept, it was not among the voices that were withdrawn.
            if not await self._consents.valid(wanted.tenant, about.consent):
                await self._voices.delete_surely(wanted.tenant, voice.voice_id, LEASE_S)
                raise Forbidden("the consent was revoked meanwhile", field="consent")
            if clip is None or clip.session is not None:
                await self._remember(wanted, voice)
            await self._audit.append(
                "voice.enrolled",
                tenant=wanted.tenant,
                subject=voice.voice_id,
                details={"consent": about.consent, "commitment": voice.commitment, "kind": record.kind},
            )
        except (StoreError, asyncio.CancelledError):  # nobody will know its id
            await self._voices.delete_surely(wanted.tenant, voice.voice_id, LEASE_S)
            raise
        return replace(voice, reused=clip is not None)

    async def _require(self, wanted: _Wanted) -> ConsentRecord:
        return await self._consents.require(
            wanted.tenant,
            wanted.about.consent,
            kind=Reach.PERMANENT if wanted.session is None else Reach.SESSION,
            language=wanted.about.language,
            purpose=wanted.purpose,
        )

    # Clips that were done before

    def _source(self, tenant: str, digest: str, revision: str) -> str:
        text = context("clip", digest, revision)
        return hmac.new(self._secret.derive("clip names", tenant), text, hashlib.sha256).hexdigest()[:32]

    async def _found(self, wanted: _Wanted) -> tuple[bytes, _Clip] | None:
        raw = await self._store.get(clip_name(wanted.tenant, wanted.source))
        if raw is None:
            return None
        opened = unseal(self._clip_key(wanted), raw, context("clip", wanted.tenant, wanted.source))
        if opened is None:
            return None
        try:
            clip = msgspec.msgpack.decode(opened, type=_Clip)
            data = await self._voices.get(
                wanted.tenant, clip.voice, session=clip.session, revision=wanted.revision
            )
        except (UnknownVoice, msgspec.MsgspecError):  # that voice has ended since
            return None
        return data, clip

    async def _remember(self, wanted: _Wanted, voice: StoredVoice) -> None:
        sealed = seal(
            self._clip_key(wanted),
            msgspec.msgpack.encode(_Clip(voice.voice_id, voice.session)),
            context("clip", wanted.tenant, wanted.source),
        )
        ttl = voice.ttl if voice.session is None else FOUND_AGAIN_S
        await self._store.set(clip_name(wanted.tenant, wanted.source), sealed, ttl)

    def _clip_key(self, wanted: _Wanted) -> bytes:
        return self._secret.derive("clips", wanted.tenant)

    # Waiting for each other

    async def _renew(self, name: str, owner: str) -> None:
        while True:
            await asyncio.sleep(self._lock / 3)
            with contextlib.suppress(StoreError):  # whether we still have it is looked at in the end
                await self._store.renew(name, owner, self._lock)

    async def _news(self, source: str, until: float) -> None:
        left = until - self._clock()
        if left <= 0:
            raise Busy("another gateway is still working on this clip", retry_after=self._lock)
        event = asyncio.Event()
        self._waiting.setdefault(source, set()).add(event)
        try:
            with contextlib.suppress(TimeoutError):  # a lost message costs a moment
                async with asyncio.timeout(min(_POLL_S, left)):
                    await event.wait()
        finally:
            self._waiting[source].discard(event)
            if not self._waiting[source]:
                del self._waiting[source]

    def _hear(self, message: bytes) -> None:
        for event in self._waiting.get(message.decode("ascii", "replace"), ()):
            event.set()


def _lock_name(wanted: _Wanted) -> str:
    return key(wanted.tenant, "clip", wanted.source, "lock")

"""Voices of a session: conditioning bytes that end with the call.

Each voice is sealed with AES-256-GCM under its own random data key; the data key is sealed under a key of its
tenant that is derived from the deployment secret and never enters the store. Both records are bound to
tenant, session, voice id, model revision and format version, so that a record moved elsewhere opens nothing.
A session's voice lives on a lease: if its holder dies, both records lapse within the lease without anybody's
action. To delete is to drop the sealed data key; without it the ciphertext, wherever a copy may lie, stays
shut.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sessions.secret import DeploymentSecret
from sessions.store import Clock, Store, Unsubscribe, key
from tts_core.errors import BadRequest, StoreError, UnknownVoice

log = logging.getLogger(__name__)

LEASE_S = 60.0
RENEW_S = 20.0
MAX_BYTES = 1 << 20
VERSION = 1
CHANNEL = key("", "voices", "deleted")
_ID = re.compile(r"vc_[0-9a-f]{32}")
_NONCE = 12


class _Deleted(msgspec.Struct):
    tenant: str
    voice: str


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A voice that was put: its id (128 random bits), and the seconds it lives if nobody renews it."""

    tenant: str
    voice_id: str
    session: str | None
    revision: str
    ttl: float | None


class VoiceStore:
    """Keeps conditioning bytes.

    Args:
        store: where the sealed records are.
        secret: of the deployment.
        clock: monotonic seconds.
    """

    def __init__(self, store: Store, secret: DeploymentSecret, *, clock: Clock = time.monotonic) -> None:
        self._store = store
        self._secret = secret
        self._clock = clock
        self._deleted_callbacks: list[Callable[[str, str], None]] = []
        self._unsubscribe: Unsubscribe | None = None
        self._owed: dict[tuple[str, str], float] = {}
        self._owing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen for deletions by other gateways."""
        if self._unsubscribe is None:
            self._unsubscribe = await self._store.subscribe(CHANNEL, self._hear)

    async def close(self) -> None:
        """Stop listening. Deletions still owed are left to the lease, which ends by itself."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._owing is not None:
            self._owing.cancel()
            await asyncio.gather(self._owing, return_exceptions=True)
            self._owing = None

    @property
    def owed(self) -> int:
        """Deletions that wait for the store to come back."""
        return len(self._owed)

    def on_deleted(self, callback: Callable[[str, str], None]) -> Unsubscribe:
        """Call ``callback(tenant, voice_id)`` in the event loop at each deletion: drop every copy.

        Messages may be lost with a connection; a holder learns of it at the next renewal at the latest.
        """
        self._deleted_callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._deleted_callbacks:
                self._deleted_callbacks.remove(callback)

        return unsubscribe

    async def put(
        self,
        tenant: str,
        session: str | None,
        data: bytes,
        ttl: float | None = LEASE_S,
        *,
        revision: str = "",
    ) -> StoredVoice:
        """Seal and keep ``data``.

        With a ``session`` the voice is that session's alone and has a lease of ``ttl`` seconds; without one
        it is the tenant's, and permanent if ``ttl`` is None. ``revision`` names the bytes' model.
        Raises BadRequest for no or too much data, StoreError if it was not kept.
        """
        if not 0 < len(data) <= MAX_BYTES:
            raise BadRequest(f"a voice has 1 to {MAX_BYTES} bytes", field="voice")
        if session is not None and ttl is None:
            raise BadRequest("a session's voice needs a lease", field="ttl")
        voice_id = f"vc_{secrets.token_hex(16)}"
        context = _context(tenant, session, voice_id, revision)
        data_key = AESGCM.generate_key(256)
        wrapped = _seal(self._tenant_key(tenant), data_key, b"key" + context)
        sealed = _seal(data_key, data, b"data" + context)
        key_name, data_name = _names(tenant, voice_id)
        try:
            await self._store.set_many({key_name: wrapped, data_name: sealed}, ttl)
        except (StoreError, asyncio.CancelledError):
            self._owe(tenant, voice_id, LEASE_S if ttl is None else ttl)  # it may have been kept all the same
            raise
        return StoredVoice(tenant, voice_id, session, revision, ttl)

    async def get(
        self, tenant: str, voice_id: str, *, session: str | None = None, revision: str = ""
    ) -> bytes:
        """The conditioning bytes.

        Raises UnknownVoice, in the same words, for one that is missing, deleted, lapsed, another tenant's,
        another session's, made by another model, or damaged; StoreError if the store is away.
        """
        names = _names(tenant, voice_id) if _ID.fullmatch(voice_id) else _names(tenant, "vc_none")
        wrapped, sealed = await asyncio.gather(*(self._store.get(n) for n in names))
        context = _context(tenant, session, voice_id, revision)
        # A missing voice takes the same path, with records that open nothing.
        try:
            data_key = _open(self._tenant_key(tenant), wrapped or bytes(60), b"key" + context)
            return _open(data_key, sealed or bytes(60), b"data" + context)
        except InvalidTag:
            raise UnknownVoice("no such voice", field="voice") from None

    async def renew(self, tenant: str, voice_id: str, ttl: float = LEASE_S) -> bool:
        """Extend a voice's lease; False if it is gone. Raises StoreError."""
        return await self._store.touch(_names(tenant, voice_id), ttl) == 2

    async def delete(self, tenant: str, voice_id: str) -> bool:
        """Drop the data key and the ciphertext, tell every gateway; False if there was none.

        Raises StoreError if it could not be done now: see :meth:`delete_surely`.
        """
        existed = await self._store.delete(*_names(tenant, voice_id)) > 0
        self._tell(tenant, voice_id)
        with contextlib.suppress(StoreError):
            await self._store.publish(CHANNEL, msgspec.msgpack.encode(_Deleted(tenant, voice_id)))
        return existed

    async def delete_surely(self, tenant: str, voice_id: str, within: float = LEASE_S) -> None:
        """Delete now, or in the background as soon as the store is back.

        Copies here are dropped at once. After ``within`` seconds the lease has done it. Never raises;
        cancelled, it goes on in the background.
        """
        try:
            await self.delete(tenant, voice_id)
        except asyncio.CancelledError:
            self._owe(tenant, voice_id, within)
            raise
        except StoreError:
            self._tell(tenant, voice_id)
            self._owe(tenant, voice_id, within)

    def hold(self, voice: StoredVoice, *, on_lost: Callable[[], None] | None = None) -> VoiceLease:
        """Keep a session's voice alive until the lease is closed, which deletes it.

        ``on_lost`` is called once if the voice turns out to be gone (deleted elsewhere, or lapsed while the
        store was away): no new context may use it.
        """
        return VoiceLease(self, voice, on_lost)

    def _tenant_key(self, tenant: str) -> bytes:
        return self._secret.derive("voice", tenant)

    def _hear(self, message: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            deleted = msgspec.msgpack.decode(message, type=_Deleted)
            self._tell(deleted.tenant, deleted.voice)

    def _tell(self, tenant: str, voice_id: str) -> None:
        for callback in tuple(self._deleted_callbacks):
            callback(tenant, voice_id)

    def _owe(self, tenant: str, voice_id: str, within: float) -> None:
        self._owed[tenant, voice_id] = self._clock() + within
        if self._owing is None or self._owing.done():
            self._owing = asyncio.create_task(self._repay(), name="voice-deletion")

    async def _repay(self) -> None:
        while self._owed:
            await asyncio.sleep(0.25)
            now = self._clock()
            for (tenant, voice_id), until in list(self._owed.items()):
                try:
                    await self.delete(tenant, voice_id)
                except StoreError:
                    if now < until:
                        continue
                    log.warning("a voice was left to its lease")
                self._owed.pop((tenant, voice_id), None)


class VoiceLease:
    """A session's hold on its voice: renewed every 20 s by a task of its own, deleted at the end."""

    def __init__(self, voices: VoiceStore, voice: StoredVoice, on_lost: Callable[[], None] | None) -> None:
        self.voice = voice
        self.lost = False
        self._voices = voices
        self._on_lost = on_lost
        self._closed = False
        self._task: asyncio.Task[None] | None = asyncio.create_task(self._run(), name="voice-lease")

    async def beat(self) -> bool:
        """Renew once; False if the voice is gone. A store that is away is no loss yet: the lease may last."""
        if self.lost or self._closed:
            return False
        try:
            alive = await self._voices.renew(
                self.voice.tenant, self.voice.voice_id, self.voice.ttl or LEASE_S
            )
        except StoreError:
            return True
        if not alive and not self._closed:
            self.lost = True
            if self._on_lost is not None:
                self._on_lost()
        return alive

    async def close(self) -> None:
        """Let go: the voice is deleted. Idempotent; never raises."""
        if self._closed:
            return
        self._closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        v = self.voice
        await self._voices.delete_surely(v.tenant, v.voice_id, v.ttl or LEASE_S)

    async def __aenter__(self) -> VoiceLease:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _run(self) -> None:
        period = min(RENEW_S, (self.voice.ttl or LEASE_S) / 3)
        while True:
            await asyncio.sleep(period)
            if not await self.beat():
                return


def _names(tenant: str, voice_id: str) -> tuple[str, str]:
    return key(tenant, "voice", voice_id, "key"), key(tenant, "voice", voice_id, "data")


def _context(tenant: str, session: str | None, voice_id: str, revision: str) -> bytes:
    """What both records are bound to, unambiguously written."""
    return json.dumps([VERSION, tenant, session, voice_id, revision]).encode()


def _seal(secret: bytes, data: bytes, context: bytes) -> bytes:
    nonce = secrets.token_bytes(_NONCE)
    return nonce + AESGCM(secret).encrypt(nonce, data, context)


def _open(secret: bytes, sealed: bytes, context: bytes) -> bytes:
    if len(sealed) < _NONCE + 16:
        raise InvalidTag
    return AESGCM(secret).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)

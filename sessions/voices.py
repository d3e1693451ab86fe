"""Voices: conditioning bytes that nobody but their tenant can use, and that end when they shall.

Each voice is sealed with AES-256-GCM under its own random data key; the data key is sealed under a key of its
tenant that is derived from the deployment secret and never enters the store. Both records are bound to
tenant, session, voice id, model revision and format version, so that a record moved elsewhere opens nothing.
A session's voice lives on a lease: if its holder dies, both records lapse within the lease without anybody's
action. To delete is to drop the sealed data key; without it the ciphertext, wherever a copy may lie, stays
shut. Opened voices are kept in this process for a short while (:mod:`sessions.voice_cache`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import inspect
import json
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from sessions.prefix import Conditioning, Damaged, pack, unpack
from sessions.sealing import KEY_RECORD, context, new_key, seal, unseal
from sessions.secret import DeploymentSecret
from sessions.store import Clock, Store, Unsubscribe, Wall, key
from sessions.voice_cache import Held, VoiceCache
from sessions.voice_catalogue import (
    VOICE_ID,
    About,
    VoiceCatalogue,
    VoiceEntry,
    check_about,
    clip_name,
    entry_name,
    names,
    new_voice_id,
    table_name,
)
from tts_core.errors import BadRequest, StoreError, UnknownVoice

log = logging.getLogger(__name__)

LEASE_S = 60.0
RENEW_S = 20.0
DROP_S = 5.0
"""Seconds that a holder of copies has to drop them."""
VERSION = 2
CHANNEL = key("", "voices", "deleted")
_MISSING = bytes(KEY_RECORD)

OnDeleted = Callable[[str, str], "int | Awaitable[int | None] | None"]
"""Told tenant and voice id; returns (now, or when awaited) how many copies it dropped."""


class _Deleted(msgspec.Struct):
    tenant: str
    voice: str


@dataclass(frozen=True, slots=True)
class StoredVoice:
    """A voice that was put: its id (128 random bits), and the seconds it lives if nobody renews it.

    ``commitment`` is the SHA-256 (hex) of its ciphertext. ``reused``: its bytes had been computed before.
    """

    tenant: str
    voice_id: str
    session: str | None
    revision: str
    ttl: float | None
    commitment: str = ""
    reused: bool = False


class VoiceStore:
    """Keeps conditioning bytes.

    Args:
        store: where the sealed records are, and where deletions are told.
        secret: of the deployment.
        lasting: where the sealed records of permanent voices are (None: there, too).
        clock: monotonic seconds.
        wall: Unix seconds.
        cache: of opened voices.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        *,
        lasting: Store | None = None,
        clock: Clock = time.monotonic,
        wall: Wall = time.time,
        cache: VoiceCache | None = None,
    ) -> None:
        self._store = store
        self._secret = secret
        self._salt_key = secret.derive("prefix cache")
        self._clock = clock
        self._wall = wall
        self.catalogue = VoiceCatalogue(store, secret, lasting=lasting, wall=wall)
        self.cache = cache or VoiceCache(clock=clock, wall=wall)
        self.hits = 0
        """Times that :meth:`conditioning` answered without the store."""
        self._consents: Callable[[str, str], Awaitable[bool]] | None = None
        self._deleter: Callable[[str, str], Awaitable[str | None]] = self._plainly
        self._deleted_callbacks: list[OnDeleted] = []
        self._dropping: set[asyncio.Task[int]] = set()
        self._unsubscribe: Unsubscribe | None = None
        self._owed: dict[tuple[str, str], float] = {}
        self._owing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen for deletions by other gateways."""
        if self._unsubscribe is None:
            self._unsubscribe = await self._store.subscribe(CHANNEL, self._hear)

    async def close(self) -> None:
        """Stop listening, drop opened voices. Deletions still owed are left to the lease."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        tasks = [t for t in (self._owing, *self._dropping) if t is not None]
        self._owing = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.cache.clear()

    @property
    def owed(self) -> int:
        """Deletions that wait for the store to come back."""
        return len(self._owed)

    def use_consents(self, check: Callable[[str, str], Awaitable[bool]]) -> None:
        """Ask ``check(tenant, consent id)`` whenever a voice is opened or confirmed."""
        self._consents = check

    def use_deleter(self, delete: Callable[[str, str], Awaitable[str | None]]) -> None:
        """Let leases and debts delete with ``delete(tenant, voice id)``.

        It returns the id of a receipt, if there is one, and may raise StoreError.
        """
        self._deleter = delete

    def on_deleted(self, callback: OnDeleted) -> Unsubscribe:
        """Call ``callback(tenant, voice_id)`` in the event loop at each deletion: drop every copy.

        It may be called more than once for a voice. Messages may be lost with a connection; a holder learns
        of it at the next renewal at the latest.
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
        about: About | None = None,
        voice_id: str | None = None,
    ) -> StoredVoice:
        """Seal and keep ``data``: voice, key and row in one step, so that there is never half a voice.

        With a ``session`` the voice is that session's alone and has a lease of ``ttl`` seconds; without one
        it is the tenant's, and permanent if ``ttl`` is None. ``revision`` names the bytes' model. A voice
        ends with its ``about.until``, whatever its ttl. ``voice_id``: the place that was reserved for it
        (:meth:`sessions.voice_catalogue.VoiceCatalogue.reserve`). Raises BadRequest for no or too much data
        or a bad description, StoreError if it was not kept, or must not be in such a store.
        """
        home = self._home(session)
        if home.faults:
            raise StoreError("the store must not hold voices now")
        about, now = check_about(about or About()), self._wall()
        if session is not None and ttl is None:
            raise BadRequest("a session's voice needs a lease", field="ttl")
        if about.until is not None and about.until <= now:
            raise BadRequest("the voice would have ended already", field="until")
        until = about.until
        if session is None and ttl is not None:
            until = min(now + ttl, math.inf if until is None else until)
        elif session is None and until is not None:
            ttl = until - now
        lease = None if session is None else ttl
        packed = pack(Conditioning(data, math.inf if until is None else until, lease or 0.0, about.consent))
        voice_id = voice_id or new_voice_id()
        bound = _bound(tenant, session, voice_id, revision)
        data_key = new_key()
        wrapped = seal(self._tenant_key(tenant), data_key, context("key", *bound))
        sealed = seal(data_key, packed, context("data", *bound))
        commitment = hashlib.sha256(sealed).hexdigest()
        entry = VoiceEntry(
            id=voice_id,
            session=session,
            name=about.name,
            language=about.language,
            created=now,
            until=until,
            lease=lease,
            revision=revision,
            consent=about.consent,
            commitment=commitment,
            source=about.source,
            notes=about.notes,
        )
        key_name, data_name = names(tenant, voice_id)
        row, beside = self.catalogue.encode(tenant, entry)
        try:
            await home.table_set(
                table_name(tenant),
                {voice_id: row},
                values={key_name: wrapped, data_name: sealed, **beside},
                values_ttl=ttl,
            )
        except (StoreError, asyncio.CancelledError):
            self._owe(tenant, voice_id, LEASE_S if ttl is None else ttl)  # it may have been kept all the same
            raise
        return StoredVoice(tenant, voice_id, session, revision, ttl, commitment)

    async def get(
        self, tenant: str, voice_id: str, *, session: str | None = None, revision: str = ""
    ) -> bytes:
        """The conditioning bytes of a voice of exactly this session (or None), from the store.

        Raises UnknownVoice, in the same words, for one that is missing, deleted, lapsed, another tenant's,
        another session's, made by another model, or damaged; StoreError if the store is away.
        """
        return (await self._open(tenant, voice_id, (session,), revision)).voice.data

    async def conditioning(
        self, tenant: str, voice_id: str, *, session: str | None = None, revision: str = ""
    ) -> bytes:
        """The bytes to speak with: of a permanent voice, or of one of ``session``.

        Answered from this process where the voice was opened or confirmed a moment ago. While the store is
        away, a voice that is held here goes on until its lease would have ended (a permanent one: five
        minutes). Raises as :meth:`get`, and UnknownVoice where its consent does not hold any more.
        """
        held = self.cache.find(tenant, voice_id)
        if held is not None and held.session in {None, session} and held.revision == revision:
            if self.cache.fresh(held):
                self.hits += 1
                return held.voice.data
            with contextlib.suppress(StoreError):
                if not await self._confirmed(tenant, voice_id, held):
                    await self.forget(tenant, voice_id)
            if self.cache.find(tenant, voice_id) is held:
                return held.voice.data
        held = await self._open(
            tenant, voice_id, (session, None) if session is not None else (None,), revision
        )
        if not await self._consented(tenant, held) or not self.cache.keep(tenant, voice_id, held):
            raise _unknown()
        return held.voice.data

    def salt(self, tenant: str, voice_id: str) -> str:
        """Salt (hex) for an engine's prefix cache: nobody else's request ever meets this voice's entries.

        The rule is S24: one tenant must not learn from the time to the first audio what another has said.
        """
        text = json.dumps([tenant, voice_id]).encode()
        return hmac.digest(self._salt_key, text, "sha256").hex()

    async def renew(self, tenant: str, voice_id: str, ttl: float = LEASE_S) -> bool:
        """Extend the lease of a session's voice; False if it is gone. Raises StoreError."""
        alive = await self._store.touch((*names(tenant, voice_id), entry_name(tenant, voice_id)), ttl) == 3
        if alive:
            self.cache.confirm(tenant, voice_id)
        return alive

    async def destroy(self, tenant: str, voice_id: str) -> bool:
        """Drop key, ciphertext and entry in one step and tell nobody; False if there was none.

        Where there are two stores, what the other one may have (the clip's name) goes next.

        Raises StoreError.
        """
        entry, _, _ = await self.catalogue.look(tenant, voice_id)
        keys = [*names(tenant, voice_id), entry_name(tenant, voice_id)]
        if entry is not None and entry.source:
            keys.append(clip_name(tenant, entry.source))
        first = self._store if entry is None else self._home(entry.session)
        dropped = 0
        for store in sorted(self.catalogue.stores, key=lambda store: store is not first):
            dropped += await store.table_drop(table_name(tenant), voice_id, keys=tuple(keys))
        return dropped > 0

    async def forget(self, tenant: str, voice_id: str) -> int:
        """Drop every copy in this process and whatever else holds one for it; how many there were.

        Raises TimeoutError or what a holder raised if one did not drop its copies.
        """
        copies, waiting = self._tell(tenant, voice_id)
        return copies + await _sum(waiting)

    def lost(self, tenant: str, voice_id: str) -> None:
        """A voice has turned out to be gone: its copies here go too."""
        self._drop_copies(tenant, voice_id)

    async def delete(self, tenant: str, voice_id: str) -> bool:
        """Drop the data key and the ciphertext, tell every gateway; False if there was none.

        Raises StoreError if it could not be done now: see :meth:`delete_surely`.
        """
        existed = await self.destroy(tenant, voice_id)
        self._drop_copies(tenant, voice_id)
        with contextlib.suppress(StoreError):
            await self._store.publish(CHANNEL, msgspec.msgpack.encode(_Deleted(tenant, voice_id)))
        return existed

    async def delete_surely(self, tenant: str, voice_id: str, within: float = LEASE_S) -> str | None:
        """Delete now, or in the background as soon as the store is back.

        Copies here are dropped at once. After ``within`` seconds the lease has done it. Returns the id of
        the receipt, if there is one by now. Never raises; cancelled, it goes on in the background.
        """
        try:
            return await self._deleter(tenant, voice_id)
        except asyncio.CancelledError:
            self._owe(tenant, voice_id, within)
            raise
        except StoreError:
            self._drop_copies(tenant, voice_id)
            self._owe(tenant, voice_id, within)
            return None

    def hold(self, voice: StoredVoice, *, on_lost: Callable[[], None] | None = None) -> VoiceLease:
        """Keep a session's voice alive until the lease is closed, which deletes it.

        ``on_lost`` is called once if the voice turns out to be gone (deleted elsewhere, or lapsed while the
        store was away): no new context may use it.
        """
        return VoiceLease(self, voice, on_lost)

    async def _open(
        self, tenant: str, voice_id: str, sessions: tuple[str | None, ...], revision: str
    ) -> Held:
        found = names(tenant, voice_id if VOICE_ID.fullmatch(voice_id) else "vc_none")
        stores = list(dict.fromkeys(self._home(session) for session in sessions))
        records = dict(
            zip(stores, await asyncio.gather(*(store.get_many(*found) for store in stores)), strict=True)
        )
        # A missing voice takes the same path, with records that open nothing.
        for session in sessions:
            wrapped, sealed = records[self._home(session)]
            bound = _bound(tenant, session, voice_id, revision)
            data_key = unseal(self._tenant_key(tenant), wrapped or _MISSING, context("key", *bound))
            if data_key is None:
                continue
            packed = unseal(data_key, sealed or _MISSING, context("data", *bound))
            if packed is None:
                continue
            try:
                voice = unpack(packed)
            except Damaged:
                continue
            if self._wall() < voice.until:
                return Held(session, revision, voice, wrapped or b"")
        raise _unknown()

    async def _confirmed(self, tenant: str, voice_id: str, held: Held) -> bool:
        record = await self._home(held.session).get(names(tenant, voice_id)[0])
        if record != held.record or not await self._consented(tenant, held):
            return False
        self.cache.confirm(tenant, voice_id)
        return True

    async def _consented(self, tenant: str, held: Held) -> bool:
        if not held.voice.consent or self._consents is None:
            return True
        return await self._consents(tenant, held.voice.consent)

    async def _plainly(self, tenant: str, voice_id: str) -> None:
        await self.delete(tenant, voice_id)

    def _home(self, session: str | None) -> Store:
        return self.catalogue.home(session=session is not None)

    def _tenant_key(self, tenant: str) -> bytes:
        return self._secret.derive("voice", tenant)

    def _hear(self, message: bytes) -> None:
        with contextlib.suppress(msgspec.MsgspecError):
            deleted = msgspec.msgpack.decode(message, type=_Deleted)
            self._drop_copies(deleted.tenant, deleted.voice)

    def _tell(self, tenant: str, voice_id: str) -> tuple[int, list[Awaitable[int | None]]]:
        copies, waiting = self.cache.forget(tenant, voice_id), []
        for callback in tuple(self._deleted_callbacks):
            answer = callback(tenant, voice_id)
            if inspect.isawaitable(answer):
                waiting.append(answer)
            else:
                copies += answer or 0
        return copies, waiting

    def _drop_copies(self, tenant: str, voice_id: str) -> None:
        _, waiting = self._tell(tenant, voice_id)
        if waiting:
            task = asyncio.create_task(_sum(waiting), name="voice-copies")
            self._dropping.add(task)
            task.add_done_callback(self._dropped)

    def _dropped(self, task: asyncio.Task[int]) -> None:
        self._dropping.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("copies of a voice were not dropped", extra={"reason": type(error).__name__})

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
                    await self._deleter(tenant, voice_id)
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
        self.receipt: str | None = None
        """After :meth:`close`: the id of the deletion's receipt, if there is one."""
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
            self._voices.lost(self.voice.tenant, self.voice.voice_id)
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
        self.receipt = await self._voices.delete_surely(v.tenant, v.voice_id, v.ttl or LEASE_S)

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


def _bound(tenant: str, session: str | None, voice_id: str, revision: str) -> tuple[str | int | None, ...]:
    """What both records are bound to."""
    return VERSION, tenant, session, voice_id, revision


def _unknown() -> UnknownVoice:
    return UnknownVoice("no such voice", field="voice")


async def _sum(waiting: list[Awaitable[int | None]]) -> int:
    async with asyncio.timeout(DROP_S):
        return sum(n or 0 for n in await asyncio.gather(*waiting))

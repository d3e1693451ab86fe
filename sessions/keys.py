"""API keys: ``vx_ID_SECRET``, kept as HMAC-SHA-256 under a pepper.

The secret has 192 random bits, so no slow hash is needed: it would only turn a flood of wrong keys into
blocked connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sessions.key_table import (
    CHANGED,
    KeyDocument,
    KeyFile,
    KeyInStore,
    KeyRecord,
    KeyTable,
    KeyVersion,
    TenantRecord,
    decode,
    encode,
    merge,
)
from sessions.principal import DEFAULT_SCOPES, Kind, Limits, Principal, Scope, parse_scopes
from sessions.secret import write_private
from sessions.store import Store, Unsubscribe, Wall
from tts_core.errors import BadRequest, SettingsError, StoreError, Unauthorised

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_PRESENTED = 512
MIN_CONFIGURED = 16
POLL_S = 2.0
"""How often the table is looked at; with the announcement on top a revocation is known within 5 s."""
USED_S = 60.0
"""How coarsely the last use is noted."""

_NOBODY = b"\0" * 32
_ENTRY = re.compile(r"(?P<name>[A-Za-z0-9_.-]{1,64})(\[(?P<scopes>[a-z:+]*)\])?:(?P<key>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key as it is shown once: ``presented`` is never stored."""

    key_id: str
    presented: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """What may be shown of a key; times in Unix seconds."""

    key_id: str
    tenant: str
    name: str
    scopes: tuple[str, ...]
    limits: Limits
    kind: str
    versions: int
    created: float
    used: float | None
    revoked: float | None


@dataclass(frozen=True, slots=True)
class _Slot:
    principal: Principal
    digests: tuple[bytes, bytes]
    until: tuple[float, float]


_EMPTY = _Slot(Principal("", ""), (_NOBODY, _NOBODY), (0.0, 0.0))


def parse_configured(text: str) -> dict[str, tuple[str, frozenset[Scope]]]:
    """``name:key,other[speak+call]:key`` to ``{name: (key, scopes)}``.

    Without brackets the scope is ``speak``. The key is any text without a comma, at least 16 characters,
    because client SDKs send what they are given. Raises SettingsError, which never repeats a key.
    """
    out: dict[str, tuple[str, frozenset[Scope]]] = {}
    for i, entry in enumerate(e.strip() for e in text.split(",") if e.strip()):
        match = _ENTRY.fullmatch(entry)
        if not match:
            raise SettingsError(f"API key {i + 1} must be name:key or name[scope+scope]:key")
        name, presented = match["name"], match["key"]
        if not MIN_CONFIGURED <= len(presented) <= MAX_PRESENTED:
            raise SettingsError(f"API key {name} must have {MIN_CONFIGURED} to {MAX_PRESENTED} characters")
        try:
            scopes = (
                parse_scopes(filter(None, match["scopes"].split("+"))) if match["scopes"] else DEFAULT_SCOPES
            )
        except BadRequest as exc:
            raise SettingsError(f"API key {name}: {exc.message}") from None
        if name in out or any(hmac.compare_digest(presented.encode(), k.encode()) for k, _ in out.values()):
            raise SettingsError(f"API key {name} is given twice")
        out[name] = (presented, scopes)
    return out


class KeyRing:
    """All keys of this deployment, looked up in memory.

    Args:
        source: a path (JSON file of mode 0600), the shared store, or None for configured keys alone.
        pepper: secret of the deployment under which digests are made.
        configured: ``VOXWIRE_API_KEYS``; their tenant is their name.
        phrase_cache: whether the operator turned the phrase cache on for every key.
        wall: Unix seconds.
        poll: seconds between looks at the source.
    """

    def __init__(
        self,
        source: Path | Store | None,
        pepper: bytes,
        *,
        configured: str = "",
        phrase_cache: bool = False,
        wall: Wall = time.time,
        poll: float = POLL_S,
    ) -> None:
        self._table: KeyTable | None = None
        self._store: Store | None = None
        if isinstance(source, Path):
            self._table = KeyFile(source)
        elif source is not None:
            self._table = KeyInStore(source)
            self._store = source
        self._pepper = pepper
        self._phrase_cache = phrase_cache
        self._wall = wall
        self._poll = poll
        self._document = KeyDocument()
        self._slots: dict[str, _Slot] = {}
        self._used: dict[str, float] = {}
        self._revoked_callbacks: list[Callable[[str], None]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Unsubscribe | None = None
        self._opaque: dict[bytes, Principal] = {
            self._digest(presented): Principal(
                name, f"configured:{name}", scopes, kind=Kind.CONFIGURED, phrase_cache=phrase_cache
            )
            for name, (presented, scopes) in parse_configured(configured).items()
        }

    def __len__(self) -> int:
        """Keys that open something, apart from local ones (a bind beyond loopback needs one)."""
        stored = sum(slot.principal.kind is not Kind.LOCAL for slot in self._slots.values())
        return len(self._opaque) + stored

    async def start(self) -> None:
        """Load the keys and keep looking for changes.

        Raises SettingsError if the file is damaged. A store that is away is tried again in the background.
        """
        if self._task is not None or self._table is None:
            return
        try:
            await self.refresh()
        except ValueError as exc:
            raise SettingsError("the key table is damaged") from exc
        except StoreError as exc:
            if self._store is None:
                raise
            log.warning("keys not loaded", extra={"reason": exc.code})
        if self._store is not None:
            self._unsubscribe = await self._store.subscribe(CHANGED, lambda _: self._wake.set())
        self._task = asyncio.create_task(self._watch(), name="key-ring")

    async def close(self) -> None:
        """Stop looking, note the last uses."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        with contextlib.suppress(StoreError, ValueError):
            await self._note_use()

    # Looking up

    def authenticate(self, presented: str, *, loopback: bool = False) -> Principal:
        """The caller who presents this key. No I/O.

        A local key works only with ``loopback`` True: the caller says that the peer's address is one. Raises
        Unauthorised, the same for a missing, wrong, unknown, expired and revoked key; an unknown id costs as
        much as a wrong secret.
        """
        known = self._opaque.get(self._digest(presented[:MAX_PRESENTED]))
        prefix, _, rest = presented[:MAX_PRESENTED].partition("_")
        key_id, _, secret = rest.partition("_")
        slot = self._slots.get(key_id, _EMPTY)
        digest = self._digest(secret)
        now = self._wall()
        good = False
        for expected, until in zip(slot.digests, slot.until, strict=True):
            good |= hmac.compare_digest(digest, expected) & (now < until)
        good &= prefix == "vx" and len(presented) <= MAX_PRESENTED
        if known is not None and len(presented) <= MAX_PRESENTED:
            return known
        if not good or (slot.principal.kind is Kind.LOCAL and not loopback):
            raise Unauthorised("the API key is missing, wrong or revoked")
        if now - self._used.get(key_id, 0.0) >= USED_S:
            self._used[key_id] = now
        return slot.principal

    def principal(self, key_id: str) -> Principal | None:
        """The holder of a live key by its id, as signed tokens name it; None if it was revoked."""
        slot = self._slots.get(key_id)
        if slot is not None:
            return slot.principal if self._wall() < max(slot.until) else None
        return next((p for p in self._opaque.values() if p.key_id == key_id), None)

    def on_revoked(self, callback: Callable[[str], None]) -> Unsubscribe:
        """Call ``callback(key_id)`` in the event loop when a key stops being valid: close its sockets."""
        self._revoked_callbacks.append(callback)

        def unsubscribe() -> None:
            if callback in self._revoked_callbacks:
                self._revoked_callbacks.remove(callback)

        return unsubscribe

    def list(self) -> tuple[KeyInfo, ...]:
        """All stored keys, oldest first."""
        return tuple(
            KeyInfo(
                key_id=r.id,
                tenant=r.tenant,
                name=r.name,
                scopes=tuple(r.scopes),
                limits=r.limits,
                kind=r.kind,
                versions=len(r.versions),
                created=r.created,
                used=max(filter(None, (r.used, self._used.get(r.id))), default=None),
                revoked=r.revoked,
            )
            for r in sorted(self._document.keys.values(), key=lambda r: (r.created, r.id))
        )

    # Changing

    async def create(
        self,
        tenant: str,
        *,
        name: str = "",
        scopes: Iterable[Scope] = DEFAULT_SCOPES,
        limits: Limits | None = None,
        phrase_cache: bool = False,
        kind: Kind = Kind.KEY,
    ) -> IssuedKey:
        """Make a key. Raises StoreError if it cannot be written down."""
        if not tenant:
            raise BadRequest("a key needs a tenant", field="tenant")
        secret = secrets.token_urlsafe(24)
        now = self._wall()

        def change(document: KeyDocument) -> str:
            key_id = secrets.token_hex(6)
            while key_id in document.keys:
                key_id = secrets.token_hex(6)
            document.keys[key_id] = KeyRecord(
                id=key_id,
                tenant=tenant,
                name=name,
                scopes=sorted(scopes),
                versions=[KeyVersion(self._digest(secret).hex(), now)],
                created=now,
                kind=kind,
                limits=limits or Limits(),
                phrase_cache=phrase_cache,
            )
            return key_id

        key_id = await self._change(change)
        return IssuedKey(key_id, f"vx_{key_id}_{secret}")

    async def rotate(self, key_id: str, *, grace: float | None = None) -> IssuedKey:
        """Give the key a new secret; the last one stays good too, for ``grace`` seconds or until ``retire``.

        Two are live at most: an older one ends. Raises BadRequest for an unknown or revoked key.
        """
        secret = secrets.token_urlsafe(24)
        now = self._wall()

        def change(document: KeyDocument) -> None:
            record = _record(document, key_id)
            last = record.versions[0]
            if grace is not None:
                last.expires = now + grace
            record.versions = [KeyVersion(self._digest(secret).hex(), now), last]
            record.revision += 1

        await self._change(change)
        return IssuedKey(key_id, f"vx_{key_id}_{secret}")

    async def retire(self, key_id: str) -> None:
        """End all but the newest secret of a key."""

        def change(document: KeyDocument) -> None:
            record = _record(document, key_id)
            del record.versions[1:]
            record.revision += 1

        await self._change(change)

    async def revoke(self, key_id: str) -> None:
        """End a key for good, on every node within 5 s.

        Raises BadRequest for an unknown key, StoreError if it could not be written down.
        """
        now = self._wall()

        def change(document: KeyDocument) -> None:
            record = _record(document, key_id)
            record.revoked = now
            record.revision += 1

        await self._change(change)

    async def set_tenant(self, tenant: str, limits: Limits, *, phrase_cache: bool = False) -> None:
        """Limits that all keys of a tenant share, and whether its phrases may be cached."""

        def change(document: KeyDocument) -> None:
            old = document.tenants.get(tenant)
            document.tenants[tenant] = TenantRecord(limits, phrase_cache, old.revision + 1 if old else 1)

        await self._change(change)

    async def ensure_local_key(self, path: Path) -> str:
        """The key of a fresh install, for this machine alone: read from ``path`` or made (mode 0600).

        It has every scope and is good for loopback peers only.
        """

        def read() -> str:
            return path.read_text().strip() if path.exists() else ""

        presented = await asyncio.to_thread(read)
        with contextlib.suppress(Unauthorised):
            self.authenticate(presented, loopback=True)
            return presented
        issued = await self.create("default", name="this machine", scopes=frozenset(Scope), kind=Kind.LOCAL)
        await asyncio.to_thread(write_private, path, issued.presented.encode() + b"\n")
        return issued.presented

    # Keeping up

    async def refresh(self) -> None:
        """Look at the source now. Raises StoreError or ValueError; the known keys stay as they were then."""
        if self._table is None:
            return
        document = await self._table.load()
        if document is None:
            return
        if not self._table.keeps:
            # A store that lost its data must neither lock everybody out nor bring a revoked key back.
            whole = merge(self._document, document)
            if whole != document:
                await self._change(lambda _: None)
                return
        self._apply(document)

    async def _change(self, change: Callable[[KeyDocument], T]) -> T:
        if self._table is None:
            raise StoreError("there is no place to keep keys")
        keeps = self._table.keeps

        def step(document: KeyDocument) -> T:
            if not keeps:
                _add(document, self._document)
            return change(document)

        try:
            document, result = await self._table.update(step)
        except ValueError as exc:
            raise StoreError("the key table is damaged") from exc
        self._apply(document)
        return result

    def _apply(self, document: KeyDocument) -> None:
        before = self._slots.keys()
        self._document = document
        self._slots = {
            r.id: self._slot(r, document.tenants.get(r.tenant) or TenantRecord())
            for r in document.keys.values()
            if r.revoked is None and r.versions
        }
        for key_id in before - self._slots.keys():
            self._used.pop(key_id, None)
            for callback in tuple(self._revoked_callbacks):
                callback(key_id)

    def _slot(self, r: KeyRecord, tenant: TenantRecord) -> _Slot:
        first, second = (*r.versions, KeyVersion(_NOBODY.hex(), 0, 0))[:2]
        return _Slot(
            Principal(
                tenant=r.tenant,
                key_id=r.id,
                scopes=parse_scopes(s for s in r.scopes if s in set(Scope)),
                limits=r.limits,
                kind=Kind(r.kind),
                tenant_limits=tenant.limits,
                phrase_cache=self._phrase_cache or r.phrase_cache or tenant.phrase_cache,
            ),
            (bytes.fromhex(first.digest), bytes.fromhex(second.digest)),
            (_until(first), _until(second)),
        )

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._pepper, secret.encode("utf-8", "surrogatepass"), "sha256")

    async def _note_use(self) -> None:
        noted = {r.id: r.used or 0.0 for r in self._document.keys.values()}
        fresh = {k: t for k, t in self._used.items() if t > noted.get(k, t)}
        if not fresh or self._table is None:
            return

        def change(document: KeyDocument) -> None:
            for key_id, used in fresh.items():
                record = document.keys.get(key_id)
                if record is not None:
                    record.used = max(used, record.used or 0.0)

        await self._change(change)

    async def _watch(self) -> None:
        last_note = self._wall()
        stale = False  # told already; a long outage is one line
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.refresh()
                if self._wall() - last_note >= USED_S:
                    last_note = self._wall()
                    await self._note_use()
            except (StoreError, ValueError, SettingsError) as exc:
                if not stale:
                    stale = True
                    log.warning("keys not refreshed", extra={"reason": type(exc).__name__})
            else:
                if stale:
                    stale = False
                    log.info("keys refreshed again")


def _until(version: KeyVersion) -> float:
    return float("inf") if version.expires is None else version.expires


def _record(document: KeyDocument, key_id: str) -> KeyRecord:
    record = document.keys.get(key_id)
    if record is None or record.revoked is not None:
        raise BadRequest("no such key", field="key_id")
    return record


def _add(document: KeyDocument, known: KeyDocument) -> None:
    """Bring what is known here into ``document``, as copies."""
    whole = merge(decode(encode(known)), document)
    document.keys, document.tenants = whole.keys, whole.tenants

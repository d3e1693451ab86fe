"""Where API keys are written down: one document, in a file of mode 0600 or in the shared store."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from sessions.principal import Limits
from sessions.secret import write_private
from sessions.store import Store, key
from tts_core.errors import SettingsError, StoreError

T = TypeVar("T")

DOCUMENT = key("", "keys", "table")
LOCK = key("", "keys", "lock")
CHANGED = key("", "keys", "changed")
"""Channel on which a change of the shared document is announced."""


class KeyVersion(msgspec.Struct, forbid_unknown_fields=True):
    """One secret of a key: hex HMAC-SHA-256, and Unix seconds."""

    digest: str
    created: float
    expires: float | None = None


class KeyRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One key, newest version first, at most two of them. ``revision`` grows with every change."""

    id: str
    tenant: str
    name: str
    scopes: list[str]
    versions: list[KeyVersion]
    created: float
    kind: str = "key"
    limits: Limits = Limits()
    phrase_cache: bool = False
    revoked: float | None = None
    used: float | None = None
    revision: int = 1


class TenantRecord(msgspec.Struct, forbid_unknown_fields=True):
    """What all keys of a tenant share."""

    limits: Limits = Limits()
    phrase_cache: bool = False
    revision: int = 1


class KeyDocument(msgspec.Struct, forbid_unknown_fields=True):
    """All keys and tenants."""

    format: int = 1
    keys: dict[str, KeyRecord] = msgspec.field(default_factory=dict)
    tenants: dict[str, TenantRecord] = msgspec.field(default_factory=dict)


def decode(data: bytes) -> KeyDocument:
    """Read a document. Raises ValueError (msgspec's errors are) if it is damaged or of another format."""
    document = msgspec.json.decode(data, type=KeyDocument)
    if document.format != 1:
        raise ValueError("unknown format")
    return document


def encode(document: KeyDocument) -> bytes:
    """Write a document, readable by people."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def merge(ours: KeyDocument, theirs: KeyDocument) -> KeyDocument:
    """The union: the newer revision of each record wins, and a revocation known to either stays."""
    out = KeyDocument(keys=dict(theirs.keys), tenants=dict(theirs.tenants))
    for name, record in ours.keys.items():
        other = out.keys.get(name)
        if other is None or (record.revoked is not None, record.revision) > (
            other.revoked is not None,
            other.revision,
        ):
            out.keys[name] = record
    for name, tenant in ours.tenants.items():
        if name not in out.tenants or tenant.revision > out.tenants[name].revision:
            out.tenants[name] = tenant
    return out


class KeyTable(Protocol):
    """A document with one writer at a time."""

    keeps: bool
    """Whether a record that is gone was removed on purpose (a file) or lost (a store without persistence)."""

    async def load(self) -> KeyDocument | None:
        """The document if it changed since the last load (always at first), else None.

        Raises StoreError if it cannot be read, ValueError if it is damaged.
        """
        ...

    async def update(self, change: Callable[[KeyDocument], T]) -> tuple[KeyDocument, T]:
        """Read, change and write as one step; raises as ``load`` does, or what ``change`` raises."""
        ...


class KeyFile:
    """The document in a file; other processes of this machine may change it at any time."""

    keeps = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None

    async def load(self) -> KeyDocument | None:
        """Read it if its inode, size or time changed; a file that is not there is an empty document."""
        return await asyncio.to_thread(self._load)

    async def update(self, change: Callable[[KeyDocument], T]) -> tuple[KeyDocument, T]:
        """Under a lock file, replaced atomically. ``change`` runs in a thread."""
        return await asyncio.to_thread(self._update, change)

    def _stamp(self) -> tuple[int, ...]:
        try:
            s = self._path.stat()
        except FileNotFoundError:
            return ()
        return (s.st_ino, s.st_size, s.st_mtime_ns)

    def _load(self) -> KeyDocument | None:
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            document = self._read()
        except OSError as exc:
            raise StoreError("the key file cannot be read") from exc
        self._seen = stamp
        return document

    def _read(self) -> KeyDocument:
        try:
            if self._path.stat().st_mode & 0o077:
                raise SettingsError("the key file must be readable by its owner alone (0600)")
            return decode(self._path.read_bytes())
        except FileNotFoundError:
            return KeyDocument()

    def _update(self, change: Callable[[KeyDocument], T]) -> tuple[KeyDocument, T]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                document = self._read()
                result = change(document)
                write_private(self._path, encode(document))
                self._seen = self._stamp()
            finally:
                os.close(lock)
        except OSError as exc:
            raise StoreError("the key file cannot be written") from exc
        return document, result


class KeyInStore:
    """The document in the shared store, under a lease while it is changed."""

    keeps = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: bytes | None = None
        self._owner = secrets.token_hex(8)

    async def load(self) -> KeyDocument | None:
        """Read it if it changed."""
        data = await self._store.get(DOCUMENT) or b""
        if data == self._seen:
            return None
        document = decode(data) if data else KeyDocument()
        self._seen = data
        return document

    async def update(self, change: Callable[[KeyDocument], T]) -> tuple[KeyDocument, T]:
        """Under a lease, then announced."""
        for _ in range(40):
            if await self._store.set_if_absent(LOCK, self._owner.encode(), 5):
                break
            await asyncio.sleep(0.05)
        else:
            raise StoreError("the key table is busy")
        try:
            data = await self._store.get(DOCUMENT)
            document = decode(data) if data else KeyDocument()
            result = change(document)
            self._seen = encode(document)
            await self._store.set(DOCUMENT, self._seen)
        finally:
            await self._store.release(LOCK, self._owner)
        await self._store.publish(CHANGED, b"")
        return document, result

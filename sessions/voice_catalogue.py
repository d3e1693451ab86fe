"""What a tenant's voices are called: an entry for each voice, sealed and bound to it.

Entries hold what may be shown of a voice and what its deletion needs; the voice itself lies under keys of its
own (:mod:`sessions.voices`). The entries of permanent voices are the rows of one table for each tenant. The
entry of a session's voice lapses with the voice, so it lies beside it, and the table has only a mark: its
random id and eight bytes that tell which marks are a session's own. A mark without a voice is dropped when
the table is next looked through. A session's voice is seen by that session alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from sessions.sealing import context, seal, unseal
from sessions.secret import DeploymentSecret
from sessions.store import Store, Wall, key
from tts_core.errors import BadRequest, StoreError, UnknownVoice

MAX_NAME = 100
MAX_NOTES = 16
MAX_NOTE = 200
VOICE_ID = re.compile(r"vc_[0-9a-f]{32}")
_NOBODY = "vc_none"
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}")
_SESSION, _PERMANENT = b"s", b"p"
SEAT_S = 300.0
"""Seconds after which a place that nobody took or gave back is free again; no enrolment takes that long."""
_SEAT = b"seat"
_BATCH = 100
_SWAPS = 8


@dataclass(frozen=True, slots=True)
class About:
    """What is said of a voice when it is put.

    ``name`` up to 100 characters, ``language`` a BCP 47 tag or "", ``consent`` an id or "", ``until`` Unix
    seconds after which it may not be used, ``source`` names the clip it was made from, ``notes`` are warnings
    about the clip.
    """

    name: str = ""
    language: str = ""
    consent: str = ""
    until: float | None = None
    source: str = ""
    notes: tuple[str, ...] = ()


class VoiceEntry(msgspec.Struct, frozen=True):
    """One voice of the catalogue.

    ``session`` is None for a permanent voice. ``created`` and ``until`` are Unix seconds, ``lease`` the
    seconds it lives if nobody renews it. ``commitment`` is the SHA-256 (hex) of its ciphertext.
    """

    id: str
    session: str | None
    name: str
    language: str
    created: float
    until: float | None
    lease: float | None
    revision: str
    consent: str
    commitment: str
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """``session`` or ``permanent``."""
        return "permanent" if self.session is None else "session"


def new_voice_id() -> str:
    """128 random bits."""
    return f"vc_{secrets.token_hex(16)}"


def table_name(tenant: str) -> str:
    """The store's table of a tenant's voices."""
    return key(tenant, "voices")


def names(tenant: str, voice_id: str) -> tuple[str, str]:
    """The store's keys of a voice: its sealed data key and its ciphertext."""
    return key(tenant, "voice", voice_id, "key"), key(tenant, "voice", voice_id, "data")


def entry_name(tenant: str, voice_id: str) -> str:
    """The store's key of the entry of a session's voice."""
    return key(tenant, "voice", voice_id, "entry")


def clip_name(tenant: str, source: str) -> str:
    """The store's key under which the voice made from a clip is found again."""
    return key(tenant, "clip", source)


def check_about(about: About) -> About:
    """The same with a tidy name. Raises BadRequest that names the field."""
    name = unicodedata.normalize("NFC", about.name).strip()
    if len(name) > MAX_NAME or any(unicodedata.category(c)[0] == "C" for c in name):
        raise BadRequest(f"a name has up to {MAX_NAME} characters on one line", field="name")
    if about.language and not _LANGUAGE.fullmatch(about.language):
        raise BadRequest("a language is a tag such as en or en-US", field="language")
    if len(about.notes) > MAX_NOTES or any(len(n) > MAX_NOTE for n in about.notes):
        raise BadRequest(f"a voice has up to {MAX_NOTES} short notes", field="notes")
    return About(name, about.language, about.consent, about.until, about.source, about.notes)


class VoiceCatalogue:
    """Lists, finds, renames, and gives out places.

    Args:
        store: where voices of sessions are.
        secret: of the deployment.
        lasting: where permanent voices are (None: there, too).
        wall: Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        *,
        lasting: Store | None = None,
        wall: Wall = time.time,
    ) -> None:
        self._store = store
        self._lasting = lasting or store
        self.stores = (store,) if self._lasting is store else (store, self._lasting)
        """Every store that may have something of a voice."""
        self._secret = secret
        self._wall = wall

    def home(self, *, session: bool) -> Store:
        """Where voices of sessions are, or permanent ones."""
        return self._store if session else self._lasting

    async def reserve(self, tenant: str, *, session: bool, most: int) -> str | None:
        """The id of a voice to be made, or None if ``most`` of its kind live or are being made.

        The place is taken and counted in one step, so all gateways together never give out one too many;
        at a full house two that ask at once may both be refused. The voice takes its place when it is put,
        :meth:`give_back` frees it, and else it lapses after five minutes. Raises StoreError.
        """
        home, kind = self.home(session=session), _SESSION if session else _PERMANENT
        for lapsed in (True, False):
            voice_id = new_voice_id()
            rows = await home.table_add(
                table_name(tenant),
                voice_id,
                kind + bytes(8),
                values={names(tenant, voice_id)[0]: _SEAT},
                values_ttl=SEAT_S,
            )
            if sum(row[:1] == kind for row in rows.values()) <= most:
                return voice_id
            await self._free(home, tenant, voice_id)
            if lapsed:  # voices that have lapsed were counted, too
                await self._rows(home, tenant)
        return None

    async def give_back(self, tenant: str, voice_id: str, *, session: bool) -> None:
        """Free a place that no voice has taken. Raises StoreError."""
        home = self.home(session=session)
        if await home.get(names(tenant, voice_id)[0]) == _SEAT:
            await self._free(home, tenant, voice_id)

    async def _free(self, home: Store, tenant: str, voice_id: str) -> None:
        await home.table_drop(table_name(tenant), voice_id, keys=(names(tenant, voice_id)[0],))

    def encode(self, tenant: str, entry: VoiceEntry) -> tuple[bytes, dict[str, bytes]]:
        """The table's row, and the values that belong beside the voice."""
        secret = self._key(tenant)
        sealed = seal(secret, msgspec.msgpack.encode(entry), context("entry", tenant, entry.id))
        if entry.session is None:
            return _PERMANENT + sealed, {}
        return self._mark(tenant, entry.session), {entry_name(tenant, entry.id): sealed}

    async def look(self, tenant: str, voice_id: str) -> tuple[VoiceEntry | None, bytes, bool]:
        """The entry, the table's row, and whether the voice itself is there.

        The same steps whatever is there. Raises StoreError.
        """
        wanted = voice_id if VOICE_ID.fullmatch(voice_id) else _NOBODY
        found = await asyncio.gather(*(self._look(store, tenant, wanted) for store in self.stores))
        return next((f for f in found if f[0] is not None), found[0])

    async def _look(self, store: Store, tenant: str, wanted: str) -> tuple[VoiceEntry | None, bytes, bool]:
        row, beside, there = await asyncio.gather(
            store.table_get(table_name(tenant), wanted),
            store.get(entry_name(tenant, wanted)),
            store.exists(*names(tenant, wanted)),
        )
        row = row or b""
        sealed = row[1:] if row[:1] == _PERMANENT else beside
        return _decode(self._key(tenant), tenant, wanted, sealed or bytes(60)), row, all(there)

    async def find(self, tenant: str, voice_id: str, *, session: str | None = None) -> VoiceEntry:
        """A permanent voice, or one of ``session``.

        Raises UnknownVoice, in the same words and after the same steps, for one that is missing, lapsed,
        another tenant's or another session's; StoreError.
        """
        entry, _, there = await self.look(tenant, voice_id)
        if entry is None or not there or entry.session not in {None, session} or self._over(entry):
            raise UnknownVoice("no such voice", field="voice")
        return entry

    async def list(self, tenant: str, *, session: str | None = None) -> tuple[VoiceEntry, ...]:
        """Permanent voices and those of ``session``, oldest first. Raises StoreError."""
        own = b"" if session is None else self._mark(tenant, session)
        return await self._living(tenant, lambda row: row[:1] == _PERMANENT or row == own)

    async def by_consent(self, tenant: str, consent: str) -> tuple[VoiceEntry, ...]:
        """All voices of all sessions that were made under a consent. Raises StoreError."""
        return tuple(e for e in await self._living(tenant, lambda _: True) if e.consent == consent)

    async def counts(self, tenant: str) -> tuple[int, int]:
        """How many permanent voices, and how many of sessions, live or are being made. Raises StoreError."""
        rows = [row for store in self.stores for row in (await self._rows(store, tenant)).values()]
        sessions = sum(row[:1] == _SESSION for row in rows)
        return len(rows) - sessions, sessions

    async def rename(
        self,
        tenant: str,
        voice_id: str,
        *,
        name: str | None = None,
        language: str | None = None,
    ) -> VoiceEntry:
        """Change what a permanent voice is called; None leaves as it is.

        Raises as :meth:`find` (a session's voice is not found here), and BadRequest.
        """
        tidy = check_about(About(name=name or "", language=language or ""))
        for _ in range(_SWAPS):
            old, row, there = await self.look(tenant, voice_id)
            if old is None or not there or old.session is not None or self._over(old):
                raise UnknownVoice("no such voice", field="voice")
            new = msgspec.structs.replace(
                old,
                name=old.name if name is None else tidy.name,
                language=old.language if language is None else tidy.language,
            )
            if await self._lasting.table_swap(table_name(tenant), voice_id, row, self.encode(tenant, new)[0]):
                return new
        raise StoreError("the store is too busy")

    async def _living(self, tenant: str, wanted: Callable[[bytes], bool]) -> tuple[VoiceEntry, ...]:
        found = [entry for store in self.stores async for entry in self._entries(store, tenant, wanted)]
        return tuple(sorted(found, key=lambda e: (e.created, e.id)))

    async def _entries(
        self, store: Store, tenant: str, wanted: Callable[[bytes], bool]
    ) -> AsyncIterator[VoiceEntry]:
        secret = self._key(tenant)
        rows = {i: row for i, row in (await self._rows(store, tenant)).items() if wanted(row)}
        for batch in _batches(list(rows)):
            beside = [i for i in batch if rows[i][:1] == _SESSION]
            values = await store.get_many(*(entry_name(tenant, i) for i in beside))
            sealed = dict(zip(beside, values, strict=True))
            for voice_id in batch:
                entry = _decode(secret, tenant, voice_id, sealed.get(voice_id, rows[voice_id][1:]) or b"")
                if entry is not None and not self._over(entry):
                    yield entry
            await asyncio.sleep(0)  # thousands of rows must not hold up the audio

    async def _rows(self, store: Store, tenant: str) -> dict[str, bytes]:
        """Rows of voices and places that are there; the others are dropped."""
        table = table_name(tenant)
        rows = await store.table_all(table)
        for batch in _batches(list(rows)):
            there = await store.exists(*(names(tenant, voice_id)[0] for voice_id in batch))
            lapsed = [voice_id for voice_id, alive in zip(batch, there, strict=True) if not alive]
            await store.table_drop(table, *lapsed)
            for voice_id in lapsed:
                del rows[voice_id]
        return rows

    def _mark(self, tenant: str, session: str) -> bytes:
        text = session.encode("utf-8", "surrogatepass")
        return (
            _SESSION + hmac.new(self._secret.derive("voice marks", tenant), text, hashlib.sha256).digest()[:8]
        )

    def _over(self, entry: VoiceEntry) -> bool:
        return entry.until is not None and self._wall() >= entry.until

    def _key(self, tenant: str) -> bytes:
        return self._secret.derive("voice entries", tenant)


def _batches(voice_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (voice_ids[i : i + _BATCH] for i in range(0, len(voice_ids), _BATCH))


def _decode(secret: bytes, tenant: str, voice_id: str, sealed: bytes) -> VoiceEntry | None:
    opened = unseal(secret, sealed, context("entry", tenant, voice_id))
    if opened is None:
        return None
    try:
        entry = msgspec.msgpack.decode(opened, type=VoiceEntry)
    except msgspec.MsgspecError:
        return None
    return entry if entry.id == voice_id else None

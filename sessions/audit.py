"""The audit chain: what was done with voices and consents, in rows that cannot be changed unnoticed.

Each row names the digest of the row before it. A row is written with the store's "only if absent" under its
number, so that two gateways never write the same one and the chain never forks; nobody needs a lock. Rows
hold ids and digests only, never text, audio or names of people.

What it shows: a changed, missing or inserted row breaks every digest after it, and a signed receipt pins the
digest of its row outside of the store. It cannot show that the last rows were cut off, unless a receipt names
one of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec

from sessions.signing import canonical
from sessions.store import Store, Wall, key
from tts_core.errors import StoreError

KEEP_S = 3 * 366 * 86_400.0
"""Audit rows are kept for three years."""
HEAD = key("", "audit", "head")
BEGUN = "chain.begun"
_ZERO = "0" * 64
_TRIES = 1000


class AuditRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that was done.

    ``at_ms`` in Unix milliseconds; ``previous`` the SHA-256 of the row before and ``previous_at_ms`` its
    time, which tells when that one may leave the store. ``tenant`` "" is the deployment. ``subject`` is the
    id it was done to. The first row begins the chain and
    has its random name in ``details``.
    """

    number: int
    at_ms: int
    event: str
    tenant: str
    subject: str
    previous: str
    previous_at_ms: int
    details: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the row as canonical JSON."""
        return hashlib.sha256(canonical(self)).hexdigest()


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What a walk over the chain found: rows ``first`` to ``last``; ``bad`` are numbers of wrong rows."""

    first: int
    last: int
    bad: tuple[int, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.bad


def row_name(number: int) -> str:
    """The store's key of a row."""
    return key("", "audit", str(number))


class AuditChain:
    """Appends and verifies.

    Args:
        store: shared by the gateways.
        wall: Unix seconds.
        keep: seconds that a row stays in the store.
        on_row: told of each row that this gateway wrote, for a copy elsewhere.
    """

    def __init__(
        self,
        store: Store,
        *,
        wall: Wall = time.time,
        keep: float = KEEP_S,
        on_row: Callable[[AuditRow], None] | None = None,
    ) -> None:
        self._store = store
        self._wall = wall
        self._keep = keep
        self._on_row = on_row
        self._lock = asyncio.Lock()

    async def append(
        self, event: str, *, tenant: str = "", subject: str = "", details: dict[str, str] | None = None
    ) -> AuditRow:
        """Write a row and return it. Raises StoreError; cancelled, it may or may not have been written."""
        async with self._lock:  # this gateway's own rows need not race each other
            last = await self._last()
            for _ in range(_TRIES):
                row = AuditRow(
                    number=last.number + 1,
                    at_ms=self._now(),
                    event=event,
                    tenant=tenant,
                    subject=subject,
                    previous=last.digest,
                    previous_at_ms=last.at_ms,
                    details=details or {},
                )
                if await self._write(row):
                    await self._store.set(HEAD, b"%d" % row.number)
                    return row
                # Another gateway was faster, or something unreadable lies there.
                last = await self._read(row.number) or await self._begin(row.number + 1)
        raise StoreError("the audit chain is too busy")

    async def head(self) -> AuditRow:
        """The newest row; begins the chain if there is none. Raises StoreError."""
        return await self._last()

    async def read(self, number: int) -> AuditRow | None:
        """A row, or None if there is none or it is damaged. Raises StoreError."""
        return await self._read(number)

    async def rows(self, *, tenant: str | None = None) -> AsyncIterator[AuditRow]:
        """Rows from the newest to the oldest that is there, of one tenant or of all. Raises StoreError."""
        number = (await self._last()).number
        while number >= 0 and (row := await self._read(number)) is not None:
            if tenant is None or row.tenant == tenant:
                yield row
            number -= 1

    async def verify(self) -> AuditCheck:
        """Walk back from the newest row. Raises StoreError.

        Bad is a row that cannot be read, one whose digest is not the one that its successor names, one
        that begins a chain in the middle, and one that is missing although rows of its age are kept.
        """
        head = await self._last()
        number, expected, newer = head.number, head.digest, head
        bad: list[int] = []
        while number >= 0:
            raw = await self._store.get(row_name(number))
            row = _decode(raw, number)
            if raw is None:
                if newer.previous_at_ms > (self._wall() - self._keep) * 1000:
                    bad.append(number)
                break
            if row is None:
                bad.append(number)
                break
            if row.digest != expected or (row.event == BEGUN and number > 0):
                bad.append(number)
            number, expected, newer = number - 1, row.previous, row
        if number < 0 and expected != _ZERO:
            bad.append(0)
        return AuditCheck(max(0, number + 1), head.number, tuple(sorted(set(bad))))

    async def _last(self) -> AuditRow:
        hint = await self._store.get(HEAD)
        number = int(hint) if hint and hint.isdigit() else 0
        row = await self._read(number)
        if row is None:
            row = await self._begin(number if hint is None else number + 1)
        while (following := await self._read(row.number + 1)) is not None:
            row = following
        return row

    async def _begin(self, number: int) -> AuditRow:
        # An emptied store begins anew under another name. A chain whose last row was lost goes on behind the
        # gap, because deletions must go on; the walk names it.
        row = AuditRow(number, self._now(), BEGUN, "", "", _ZERO, 0, {"chain": secrets.token_hex(16)})
        if not await self._write(row):
            found = await self._read(number)
            if found is None:
                raise StoreError("the audit chain cannot be read")
            return found
        await self._store.set(HEAD, b"%d" % number)
        return row

    def _now(self) -> int:
        return round(self._wall() * 1000)

    async def _write(self, row: AuditRow) -> bool:
        written = await self._store.set_if_absent(row_name(row.number), canonical(row), self._keep)
        if written and self._on_row is not None:
            self._on_row(row)
        return written

    async def _read(self, number: int) -> AuditRow | None:
        return _decode(await self._store.get(row_name(number)), number)


def _decode(raw: bytes | None, number: int) -> AuditRow | None:
    if raw is None:
        return None
    try:
        row = msgspec.json.decode(raw, type=AuditRow)
    except msgspec.MsgspecError:
        return None
    return row if row.number == number else None

"""The audit chain: never forked, never changed unnoticed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sessions.audit import BEGUN, HEAD, AuditChain, AuditRow, row_name
from sessions.memory_store import MemoryStore
from sessions.store import Store
from tests.sessions.conftest import Clock
from tts_core.errors import StoreError


async def _filled(store: Store, rows: int = 5) -> AuditChain:
    chain = AuditChain(store)
    for i in range(rows):
        await chain.append("voice.enrolled", tenant=f"t{i % 2}", subject=f"v{i}", details={"n": str(i)})
    return chain


async def test_rows_are_numbered_and_linked(store: Store) -> None:
    told: list[AuditRow] = []
    chain = AuditChain(store, wall=lambda: 12.5, on_row=told.append)
    a = await chain.append("voice.enrolled", tenant="acme", subject="v1")
    b = await chain.append("voice.deleted", tenant="acme", subject="v1", details={"why": "asked"})
    assert (a.number, b.number) == (1, 2)
    assert b.previous == a.digest
    assert b.at_ms == 12_500
    assert await chain.read(2) == b == await chain.head()
    assert [r.event for r in told] == [BEGUN, "voice.enrolled", "voice.deleted"]
    assert [r.number async for r in chain.rows()] == [2, 1, 0]
    assert [r.number async for r in chain.rows(tenant="acme")] == [2, 1]
    check = await chain.verify()
    assert (check.ok, check.first, check.last) == (True, 0, 2)


async def test_gateways_that_write_at_once_make_one_chain(store: Store) -> None:
    chains = [AuditChain(store) for _ in range(8)]
    rows = await asyncio.gather(*(c.append("e", subject=str(i)) for i in range(5) for c in chains))
    assert sorted(r.number for r in rows) == list(range(1, 41))
    assert len({r.digest for r in rows}) == 40
    check = await chains[0].verify()
    assert (check.ok, check.last) == (True, 40)
    await store.set(HEAD, b"7")  # a slow gateway's late word is only a hint
    assert (await chains[1].append("e")).number == 41
    assert (await chains[1].verify()).ok


async def test_a_changed_row_is_named(store: Store) -> None:
    chain = await _filled(store)
    raw = await store.get(row_name(3))
    assert raw is not None
    row = msgspec.json.decode(raw, type=AuditRow)
    changes: list[dict[str, object]] = [
        {"event": "x"},
        {"at_ms": row.at_ms + 1},
        {"tenant": "x"},
        {"subject": "x"},
        {"details": {}},
    ]
    for change in changes:
        changed = msgspec.structs.replace(row, **change)
        await store.set(row_name(3), msgspec.json.encode(changed))
        assert (await chain.verify()).bad == (3,)
    await store.set(row_name(3), msgspec.json.encode(msgspec.structs.replace(row, previous="0" * 64)))
    assert (await chain.verify()).bad == (2, 3)
    for damage in (b"", b"noise", raw[:-1], raw.replace(b'"number":3', b'"number":4')):
        await store.set(row_name(3), damage)
        assert (await chain.verify()).bad == (3,)
    await store.delete(row_name(3))
    assert (await chain.verify()).bad == (3,)
    await store.set(row_name(3), raw)
    assert (await chain.verify()).ok


async def test_a_receipts_digest_shows_that_the_end_was_cut_off(store: Store) -> None:
    chain = await _filled(store)
    known = await chain.head()
    await store.delete(row_name(5))
    await store.set(HEAD, b"4")
    assert (await chain.verify()).ok  # by itself the chain cannot know
    assert (await chain.append("e")).number == known.number
    found = await chain.read(known.number)
    assert found is not None
    assert found.digest != known.digest


async def test_old_rows_may_leave(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    chain = AuditChain(store, wall=clock, keep=100)
    await chain.append("e")
    clock.move(60)
    await chain.append("e")
    clock.move(60)
    check = await chain.verify()
    assert (check.ok, check.first, check.last) == (True, 2, 2)
    assert (await chain.append("e")).number == 3


async def test_an_emptied_store_begins_another_chain(store: Store) -> None:
    chain = await _filled(store)
    first = await chain.read(0)
    for i in range(6):
        await store.delete(row_name(i))
    await store.delete(HEAD)
    assert (await chain.append("e")).number == 1
    again = await chain.read(0)
    assert first is not None
    assert again is not None
    assert first.details["chain"] != again.details["chain"]
    assert (await chain.verify()).ok


async def test_work_goes_on_behind_a_gap_which_is_named(store: Store) -> None:
    chain = await _filled(store)
    await store.delete(row_name(5))
    assert (await chain.append("e")).number == 7
    assert 6 in (await chain.verify()).bad
    await store.set(row_name(8), b"noise")
    assert (await chain.append("e")).number == 10
    assert 9 in (await chain.verify()).bad


async def test_what_cannot_be_written_is_an_error(store: Store) -> None:
    chain = await _filled(store)
    reached = 0

    async def never(key: str, value: bytes, ttl: float | None) -> bool:
        nonlocal reached
        reached += 1
        return False

    store.set_if_absent = never  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await chain.append("e")
    assert reached > 1

"""Voices that may not be cloned: found again when they say other things, and never kept as they are."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sessions.audit import AuditChain
from sessions.denied import BITS, MARK, TABLE, DenyList, planes
from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from tests.sessions.conftest import Clock
from tts_core.errors import BadRequest, LimitExceeded, StoreError

SECRET = DeploymentSecret(b"a secret of the deployment, 32 or more")
OTHER = DeploymentSecret(b"a secret of another deployment, also 32")
Vector = NDArray[np.float32]


def a_list(store: Store, secret: DeploymentSecret = SECRET, *, similar: float = 0.85) -> DenyList:
    return DenyList(store, secret, audit=AuditChain(store), similar=similar, wall=Clock())


def voice(seed: int) -> Vector:
    """A direction without negative numbers, as the model's are."""
    made = np.maximum(np.random.default_rng(seed).standard_normal(256), 0).astype(np.float32)
    return (made / np.linalg.norm(made)).astype(np.float32)


def turned(vector: Vector, similarity: float, seed: int) -> Vector:
    """Another one with exactly this similarity to ``vector``."""
    aside = np.random.default_rng(seed).standard_normal(256)
    aside -= (aside @ vector) * vector
    aside /= np.linalg.norm(aside)
    made: Vector = (similarity * vector + np.sqrt(1 - similarity**2) * aside).astype(np.float32)
    return made


async def test_a_listed_voice_is_found_again_and_others_pass(store: Store) -> None:
    denied = a_list(store)
    assert not await denied.match(voice(1))
    name = await denied.add(voice(1), "case-17")
    assert await denied.match(voice(1))
    assert await denied.match(3 * turned(voice(1), 0.92, 5))
    assert not await denied.match(turned(voice(1), 0.75, 5))
    assert not await denied.match(voice(2))
    (entry,) = await denied.entries()
    assert (entry.id, entry.reason, entry.at_ms) == (name, "case-17", 1_000_000)
    assert await denied.remove(name)
    assert not await denied.match(voice(1))
    assert not await denied.remove(name)
    assert not await denied.remove("audit")
    assert await denied.entries() == ()


async def test_every_gateway_sees_a_change_at_once(store: Store) -> None:
    one, two = a_list(store), a_list(store)
    assert not await two.match(voice(1))
    name = await one.add(voice(1), "r")
    assert await two.match(voice(1))
    assert await one.match(voice(1))
    await two.remove(name)
    assert not await one.match(voice(1))
    await one.add(voice(2), "r")
    assert await two.match(voice(2))


async def test_the_same_voice_is_one_entry(store: Store) -> None:
    denied = a_list(store)
    name = await denied.add(voice(1), "first")
    assert await denied.add(2 * voice(1), "second") == name
    (entry,) = await denied.entries()
    assert entry.reason == "second"


async def test_the_store_has_neither_embedding_nor_anything_that_compares(store: Store) -> None:
    denied = a_list(store)
    name = await denied.add(voice(1), "r")
    near = await denied.add(turned(voice(1), 0.99, 3), "r")
    rows = await store.table_all(TABLE)
    assert rows.keys() == {name, near}
    first, second = (np.unpackbits(np.frombuffer(rows[n], np.uint8)) for n in (name, near))
    bits = np.packbits(planes(SECRET.derive("denied voices", "planes"), 256) @ voice(1) >= 0).tobytes()
    for row in rows.values():
        assert bits[:8] not in row
        assert voice(1).tobytes()[:8] not in row
    # Two that are nearly one voice look as unlike as any two: half of their bits differ.
    assert abs(np.mean(first != second) - 0.5) < 0.06


async def test_other_secrets_have_other_bits(store: Store) -> None:
    mine, theirs = (planes(s.derive("denied voices", "planes"), 256) for s in (SECRET, OTHER))
    differ = np.mean((mine @ voice(1) >= 0) != (theirs @ voice(1) >= 0))
    assert abs(differ - 0.5) < 0.06


async def test_what_cannot_be_read_stops_everything_but_its_removal(store: Store) -> None:
    denied = a_list(store)
    name = await denied.add(voice(1), "r")
    whole = await store.table_get(TABLE, name)
    assert whole is not None
    other = await denied.add(voice(2), "r")
    swapped = await store.table_get(TABLE, other)
    assert swapped is not None
    for bad in (whole[:-1], bytes(len(whole)), swapped, b""):
        await store.table_set(TABLE, {name: bad}, values={MARK: bad[:4] + b"x"})
        for verb in (denied.match(voice(3)), denied.entries(), denied.export(), denied.add(voice(3), "r")):
            with pytest.raises(StoreError, match="cannot be read"):
                await verb
    with pytest.raises(StoreError):
        await a_list(store, OTHER).match(voice(1))
    assert await denied.remove(name)
    assert [entry.id for entry in await denied.entries()] == [other]


async def test_an_export_goes_into_a_deployment_of_the_same_secret_alone(store: Store) -> None:
    denied = a_list(store)
    for n in range(3):
        await denied.add(voice(n), f"r{n}")
    data = await denied.export()
    fresh = a_list(MemoryStore())
    await fresh.add(voice(2), "own")
    assert await fresh.load(data) == 2
    assert await fresh.load(data) == 0
    assert await fresh.match(turned(voice(0), 0.95, 1))
    assert {entry.reason for entry in await fresh.entries()} == {"r0", "r1", "own"}
    foreign = a_list(MemoryStore(), OTHER)
    for bad in (
        data[:-1],
        data[:40] + b"x" + data[41:],
        b"",
        b"voxwire denied 1\n",
        data[1:],
        bytes(2 << 20),
    ):
        with pytest.raises(BadRequest):
            await fresh.load(bad)
    with pytest.raises(BadRequest, match="another deployment"):
        await foreign.load(data)


async def test_the_audit_chain_tells_what_was_done(store: Store) -> None:
    audit = AuditChain(store)
    denied = DenyList(store, SECRET, audit=audit)
    name = await denied.add(voice(1), "case-17")
    await denied.remove(name)
    await denied.remove(name)
    away = a_list(MemoryStore())
    await away.add(voice(3), "x")
    await denied.load(await away.export())
    rows = [row async for row in audit.rows()][::-1][1:]
    assert [(row.event, row.subject, row.details) for row in rows] == [
        ("voice.denied", name, {"reason": "case-17"}),
        ("voice.allowed", name, {}),
        ("voice.denied", "", {"imported": "1"}),
    ]


@pytest.mark.parametrize("reason", ["", "Jane Doe", "x" * 65, "a\nb", "ü"])
async def test_a_reason_is_an_id(reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        await a_list(MemoryStore()).add(voice(1), reason)
    assert refused.value.field == "reason"


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros(256, np.float32),
        np.full(256, np.nan, np.float32),
        np.ones((2, 2), np.float32),
        np.zeros(0, np.float32),
    ],
)
async def test_what_is_no_voice_is_refused(bad: Vector) -> None:
    denied = a_list(MemoryStore())
    with pytest.raises(BadRequest):
        await denied.add(bad, "r")
    await denied.add(voice(1), "r")
    with pytest.raises(BadRequest):
        await denied.match(bad)


async def test_the_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.denied.MOST", 2)
    denied = a_list(MemoryStore())
    await denied.add(voice(1), "r")
    await denied.add(voice(2), "r")
    await denied.add(voice(2), "again")
    with pytest.raises(LimitExceeded):
        await denied.add(voice(3), "r")
    away = a_list(MemoryStore())
    await away.add(voice(4), "r")
    with pytest.raises(LimitExceeded):
        await denied.load(await away.export())
    assert len(await denied.entries()) == 2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), similarity=st.floats(0.2, 0.99))
def test_the_share_of_bits_that_differ_is_the_angle(seed: int, similarity: float) -> None:
    normals = planes(b"k" * 32, 256)
    one = voice(seed)
    differ = np.mean((normals @ one >= 0) != (normals @ turned(one, similarity, seed + 1) >= 0))
    expected = np.arccos(similarity) / np.pi
    assert abs(differ - expected) < 5 * np.sqrt(expected * (1 - expected) / BITS) + 0.002


def test_planes_are_the_same_everywhere() -> None:
    normals = planes(bytes(32), 256)
    assert normals.shape == (BITS, 256)
    assert abs(float(normals.mean())) < 0.01
    assert abs(float(normals.std()) - 1) < 0.01
    # From AES-256-CTR with a key and a counter of zeros, whose first block is public (FIPS 197 by any tool).
    assert np.array_equal(normals, planes(bytes(32), 256))
    assert not np.allclose(normals, planes(b"\x01" + bytes(31), 256))


def test_an_entry_has_no_room_for_a_name() -> None:
    from sessions.denied import Denied

    assert {field.name for field in dataclasses.fields(Denied)} == {"id", "reason", "at_ms"}

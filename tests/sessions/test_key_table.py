"""Documents of keys: reading, merging, one writer at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.key_table import (
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
from sessions.principal import Limits
from sessions.store import Store
from tts_core.errors import SettingsError, StoreError

RECORDS = st.builds(
    KeyRecord,
    id=st.sampled_from("abc"),
    tenant=st.sampled_from("tu"),
    name=st.text(max_size=5),
    scopes=st.lists(st.sampled_from(["speak", "admin"]), max_size=2),
    versions=st.lists(
        st.builds(KeyVersion, digest=st.just("00" * 32), created=st.floats(0, 1e9)), max_size=2
    ),
    created=st.floats(0, 1e9),
    limits=st.builds(Limits, contexts=st.none() | st.integers(0, 9)),
    revoked=st.none() | st.floats(0, 1e9),
    revision=st.integers(1, 5),
)
DOCUMENTS = st.builds(
    KeyDocument,
    format=st.just(1),
    keys=st.lists(RECORDS, max_size=3).map(lambda rs: {r.id: r for r in rs}),
    tenants=st.dictionaries(st.sampled_from("tu"), st.builds(TenantRecord, revision=st.integers(1, 5))),
)


@given(DOCUMENTS)
def test_round_trip(document: KeyDocument) -> None:
    assert decode(encode(document)) == document


@given(st.binary(max_size=200))
def test_damage_is_a_value_error(data: bytes) -> None:
    try:
        document = decode(data)
    except ValueError:
        return
    assert decode(encode(document)) == document  # "{}" and the like


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError):
        decode(b'{"format": 2, "keys": {}, "tenants": {}}')


@given(DOCUMENTS, DOCUMENTS)
def test_merge_loses_nothing_and_no_revocation(a: KeyDocument, b: KeyDocument) -> None:
    m = merge(a, b)
    assert m.keys.keys() == a.keys.keys() | b.keys.keys()
    for name, record in m.keys.items():
        both = [d.keys[name] for d in (a, b) if name in d.keys]
        assert record in both
        assert (record.revoked is None) == all(r.revoked is None for r in both)
        if record.revoked is None:
            assert record.revision == max(r.revision for r in both)
    assert merge(a, a) == a
    assert merge(m, b) == m == merge(a, m)


def _count(document: KeyDocument) -> int:
    tenant = document.tenants.get("t", TenantRecord(revision=0))
    document.tenants["t"] = TenantRecord(revision=tenant.revision + 1)
    return tenant.revision + 1


@pytest.fixture(params=["file", "store"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[KeyTable, KeyTable]:
    """The same place seen by two processes."""
    if request.param == "file":
        return KeyFile(tmp_path / "keys.json"), KeyFile(tmp_path / "keys.json")
    store: Store = request.getfixturevalue("store")
    return KeyInStore(store), KeyInStore(store)


@pytest.mark.usefixtures("store")
async def test_load_tells_changes_only(tables: tuple[KeyTable, KeyTable]) -> None:
    one, two = tables
    assert await one.load() == KeyDocument()
    assert await one.load() is None
    document, result = await two.update(_count)
    assert result == 1
    assert await one.load() == document
    assert await one.load() is None
    assert await two.load() is None


@pytest.mark.usefixtures("store")
async def test_concurrent_updates_are_all_kept(tables: tuple[KeyTable, KeyTable]) -> None:
    await asyncio.gather(*(t.update(_count) for t in tables * 4))
    document = await tables[0].load() or (await tables[0].update(_count))[0]
    assert document.tenants["t"].revision >= 8


async def test_file_is_private_and_must_stay_so(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "keys.json"
    table = KeyFile(path)
    await table.update(_count)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(SettingsError):
        await KeyFile(path).load()


async def test_an_unwritable_place_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a file where a folder is due")
    with pytest.raises(StoreError):
        await KeyFile(tmp_path / "f" / "keys.json").update(_count)

"""The catalogue of a tenant's voices: what each may see, call and count."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from sessions.memory_store import MemoryStore
from sessions.secret import DeploymentSecret
from sessions.store import Store
from sessions.voice_catalogue import About, VoiceCatalogue, check_about, entry_name, names, table_name
from sessions.voices import VoiceStore
from tests.sessions.conftest import Clock
from tts_core.errors import BadRequest, StoreError, UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
CONSENT = "cn_" + "7" * 32
DATA = b"conditioning" * 10


@pytest.fixture
def voices(store: Store) -> VoiceStore:
    return VoiceStore(store, SECRET)


@pytest.fixture
def catalogue(voices: VoiceStore) -> VoiceCatalogue:
    return voices.catalogue


async def test_entries_say_what_was_put(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    about = About("  Ida\u0301 ", "de-DE", CONSENT, None, "clip", ("a little noise",))
    p = await voices.put("acme", None, DATA, None, revision="m1", about=about)
    s = await voices.put("acme", "s1", DATA, 30.0, revision="m1", about=About(name="Otto"))
    entry = await catalogue.find("acme", p.voice_id)
    assert (entry.id, entry.kind, entry.name, entry.language) == (p.voice_id, "permanent", "Idá", "de-DE")
    assert (entry.revision, entry.consent, entry.commitment) == ("m1", CONSENT, p.commitment)
    assert (entry.until, entry.lease, entry.notes) == (None, None, ("a little noise",))
    entry = await catalogue.find("acme", s.voice_id, session="s1")
    assert (entry.kind, entry.lease, entry.until, entry.name) == ("session", 30.0, None, "Otto")


async def test_each_sees_its_own(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    p = await voices.put("acme", None, DATA, None, about=About(consent=CONSENT))
    s1 = await voices.put("acme", "s1", DATA, about=About(consent=CONSENT))
    s2 = await voices.put("acme", "s2", DATA)
    await voices.put("other", None, DATA, None, about=About(consent=CONSENT))
    assert [e.id for e in await catalogue.list("acme")] == [p.voice_id]
    assert {e.id for e in await catalogue.list("acme", session="s1")} == {p.voice_id, s1.voice_id}
    assert {e.id for e in await catalogue.list("acme", session="s2")} == {p.voice_id, s2.voice_id}
    assert {e.id for e in await catalogue.by_consent("acme", CONSENT)} == {p.voice_id, s1.voice_id}
    assert await catalogue.by_consent("acme", "cn_" + "0" * 32) == ()
    assert await catalogue.counts("acme") == (1, 2)
    assert await catalogue.counts("nobody") == (0, 0)
    for tenant, voice_id, session in (
        ("acme", s1.voice_id, "s2"),
        ("acme", s1.voice_id, None),
        ("other", p.voice_id, None),
        ("acme", "vc_" + "0" * 32, None),
        ("acme", "x:*", None),
    ):
        with pytest.raises(UnknownVoice):
            await catalogue.find(tenant, voice_id, session=session)
        with pytest.raises(UnknownVoice):
            await catalogue.rename(tenant, voice_id, name="x")


async def test_more_than_a_batch(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    made = [await voices.put("acme", s, DATA) for s in ["s1"] * 120 + ["s2"] * 30]
    made += [await voices.put("acme", None, DATA, None) for _ in range(120)]
    mine = {v.voice_id for v in made if v.session != "s2"}
    assert {e.id for e in await catalogue.list("acme", session="s1")} == mine
    assert await catalogue.counts("acme") == (120, 150)


async def test_rename(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    p = await voices.put("acme", None, DATA, None, revision="m1", about=About("Ida", "de"))
    assert (await catalogue.rename("acme", p.voice_id, name="Otto")).name == "Otto"
    entry = await catalogue.rename("acme", p.voice_id, language="en-GB")
    assert entry == await catalogue.find("acme", p.voice_id)
    assert (entry.name, entry.language, entry.commitment) == ("Otto", "en-GB", p.commitment)
    assert (await catalogue.rename("acme", p.voice_id, name="")).name == ""
    assert await voices.get("acme", p.voice_id, revision="m1") == DATA
    with pytest.raises(BadRequest) as error:
        await catalogue.rename("acme", p.voice_id, name="two\nlines")
    assert error.value.field == "name"


async def test_renaming_never_brings_a_deleted_voice_back(
    voices: VoiceStore, catalogue: VoiceCatalogue, store: Store
) -> None:
    p = await voices.put("acme", None, DATA, None)
    swap = store.table_swap

    async def late(table: str, row: str, old: bytes, new: bytes) -> bool:
        await voices.delete("acme", p.voice_id)
        return await swap(table, row, old, new)

    store.table_swap = late  # type: ignore[method-assign]
    with pytest.raises(UnknownVoice):
        await catalogue.rename("acme", p.voice_id, name="x")
    assert await store.table_all(table_name("acme")) == {}


async def test_two_who_rename_at_once_both_succeed(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    p = await voices.put("acme", None, DATA, None)
    await asyncio.gather(
        catalogue.rename("acme", p.voice_id, name="Otto"), catalogue.rename("acme", p.voice_id, language="fr")
    )
    entry = await catalogue.find("acme", p.voice_id)
    assert (entry.name, entry.language) == ("Otto", "fr")


async def test_a_table_that_never_holds_still(
    voices: VoiceStore, catalogue: VoiceCatalogue, store: Store
) -> None:
    p = await voices.put("acme", None, DATA, None)

    async def never(table: str, row: str, old: bytes, new: bytes) -> bool:
        return False

    store.table_swap = never  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        await catalogue.rename("acme", p.voice_id, name="x")


async def test_lapsed_voices_leave_the_table(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    voices = VoiceStore(store, SECRET, clock=clock, wall=clock)
    await voices.put("acme", "s1", DATA, 60)
    p = await voices.put("acme", None, DATA, 100)
    assert await voices.catalogue.counts("acme") == (1, 1)
    clock.move(61)
    left = await voices.catalogue.find("acme", p.voice_id)
    assert await voices.catalogue.list("acme", session="s1") == (left,)
    assert await voices.catalogue.counts("acme") == (1, 0)
    clock.move(40)
    assert await voices.catalogue.list("acme") == ()
    assert await store.table_all(table_name("acme")) == {}


async def test_damaged_moved_and_half_entries_are_not_shown(
    voices: VoiceStore, catalogue: VoiceCatalogue, store: Store
) -> None:
    a, b = [await voices.put("acme", None, DATA, None, about=About(name=n)) for n in "ab"]
    s = await voices.put("acme", "s1", DATA)
    table = table_name("acme")
    rows = await store.table_all(table)

    async def unknown(voice_id: str) -> bool:
        try:
            await catalogue.find("acme", voice_id, session="s1")
        except UnknownVoice:
            return True
        return False

    for row in (b"", b"p", b"x" * 100, rows[a.voice_id][:-1], rows[b.voice_id], rows[s.voice_id]):
        await store.table_set(table, {a.voice_id: row})
        assert await unknown(a.voice_id)
        assert a.voice_id not in [e.id for e in await catalogue.list("acme", session="s1")]
    await store.table_set(table, rows)
    assert not await unknown(a.voice_id)
    await store.delete(names("acme", a.voice_id)[1])
    assert await unknown(a.voice_id)
    await store.delete(entry_name("acme", s.voice_id))
    assert await unknown(s.voice_id)


async def test_an_entry_of_another_shape_is_none(voices: VoiceStore, catalogue: VoiceCatalogue) -> None:
    p = await voices.put("acme", None, DATA, None)
    entry = await catalogue.find("acme", p.voice_id)
    strange = msgspec.structs.replace(entry, name=5)
    row, _ = catalogue.encode("acme", strange)
    await voices._store.table_set(table_name("acme"), {p.voice_id: row})
    with pytest.raises(UnknownVoice):
        await catalogue.find("acme", p.voice_id)


@pytest.mark.parametrize(
    ("about", "field"),
    [
        (About(name="x" * 101), "name"),
        (About(name="a\x00b"), "name"),
        (About(name="\u202e"), "name"),
        (About(language="english"), "language"),
        (About(language="en_US"), "language"),
        (About(notes=("x",) * 17), "notes"),
        (About(notes=("x" * 201,)), "notes"),
    ],
)
def test_bad_descriptions(about: About, field: str) -> None:
    with pytest.raises(BadRequest) as error:
        check_about(about)
    assert error.value.field == field


def test_good_descriptions() -> None:
    assert check_about(About(name=" Zoë ", language="zh-Hant-TW")).name == "Zoë"
    assert check_about(About()) == About()

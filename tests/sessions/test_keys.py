"""API keys end to end on a file and on both stores."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.key_table import DOCUMENT
from sessions.keys import KeyRing, parse_configured
from sessions.memory_store import MemoryStore
from sessions.principal import DEFAULT_SCOPES, Kind, Limits, Scope
from sessions.redis_store import RedisStore
from sessions.store import Store
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import BadRequest, SettingsError, StoreError, Unauthorised

PEPPER = b"p" * 32
Make = Callable[[], KeyRing]


@pytest.fixture(params=["file", "store"])
async def make(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, store: Store
) -> AsyncIterator[Make]:
    """Makes rings of one deployment, each as another process would."""
    made: list[KeyRing] = []
    source: Path | Store = tmp_path / "keys.json" if request.param == "file" else store

    def one() -> KeyRing:
        made.append(KeyRing(source, PEPPER, wall=clock, poll=0.01))
        return made[-1]

    yield one
    for ring in made:
        await ring.close()


def _refused(ring: KeyRing, presented: str, *, loopback: bool = False) -> bool:
    try:
        ring.authenticate(presented, loopback=loopback)
    except Unauthorised as exc:
        assert exc.message == "the API key is missing, wrong or revoked"
        return True
    return False


async def test_issue_and_use(make: Make) -> None:
    ring = make()
    await ring.start()
    limits = Limits(contexts=2, requests_per_minute=60)
    key = await ring.create("acme", name="app", scopes={Scope.SPEAK, Scope.CALL}, limits=limits)
    assert re.fullmatch(r"vx_[0-9a-f]{12}_[A-Za-z0-9_-]{32}", key.presented)
    assert key.presented not in repr(key)
    p = ring.authenticate(key.presented)
    assert (p.tenant, p.key_id, p.kind, p.limits) == ("acme", key.key_id, Kind.KEY, limits)
    assert p.scopes == {Scope.SPEAK, Scope.CALL}
    assert ring.principal(key.key_id) == p
    assert len(ring) == 1
    other = make()
    await other.start()
    assert other.authenticate(key.presented) == p


async def test_wrong_keys_are_refused_alike(make: Make) -> None:
    ring = make()
    await ring.start()
    key = (await ring.create("acme")).presented
    other = (await ring.create("acme")).presented
    head, key_id, secret = key.split("_", 2)
    swapped = f"vx_{key_id}_{other.split('_', 2)[2]}"
    wrong = ["", "vx", "vx_", "vx__", f"vx_{key_id}_", f"VX_{key_id}_{secret}", f"{head}_x_{secret}", swapped]
    wrong += [
        key + "x",
        key[:-1],
        key + " ",
        " " + key,
        key + "\0",
        "é" * 9,
        "\ud800",
        key * 40,
        f"vx_{key_id}_{'0' * 64}",
    ]
    assert all(_refused(ring, w) for w in wrong)
    assert not _refused(ring, key)


@given(st.text(st.characters(codec=None), max_size=600))
def test_any_text_is_refused_in_words(presented: str) -> None:
    assert _refused(KeyRing(None, PEPPER), presented)


async def test_rotation_has_two_live_versions(make: Make, clock: Clock) -> None:
    ring = make()
    await ring.start()
    first = await ring.create("acme")
    second = await ring.rotate(first.key_id)
    assert [_refused(ring, k.presented) for k in (first, second)] == [False, False]
    third = await ring.rotate(first.key_id, grace=30)
    assert [_refused(ring, k.presented) for k in (first, second, third)] == [True, False, False]
    clock.move(30)
    assert [_refused(ring, k.presented) for k in (second, third)] == [True, False]
    fourth = await ring.rotate(first.key_id)
    await ring.retire(first.key_id)
    assert [_refused(ring, k.presented) for k in (third, fourth)] == [True, False]
    assert ring.list()[0].versions == 1
    with pytest.raises(BadRequest):
        await ring.rotate("none")


async def test_revocation_reaches_other_processes_and_their_sockets(make: Make) -> None:
    one, two = make(), make()
    await one.start()
    key = await one.create("acme")
    keep = await one.create("acme")
    await two.start()
    assert not _refused(two, key.presented)
    closed: asyncio.Queue[str] = asyncio.Queue()
    two.on_revoked(closed.put_nowait)
    await one.revoke(key.key_id)
    assert _refused(one, key.presented)
    async with asyncio.timeout(5):
        assert await closed.get() == key.key_id
    assert _refused(two, key.presented)
    assert two.principal(key.key_id) is None
    assert not _refused(two, keep.presented)
    assert closed.empty()
    with pytest.raises(BadRequest):
        await one.revoke(key.key_id)


async def test_tenant_limits_and_phrase_cache(make: Make) -> None:
    ring = make()
    await ring.start()
    key = await ring.create("acme")
    assert not ring.authenticate(key.presented).phrase_cache
    await ring.set_tenant("acme", Limits(characters_per_minute=9), phrase_cache=True)
    p = ring.authenticate(key.presented)
    assert p.phrase_cache
    assert p.tenant_limits == Limits(characters_per_minute=9)


async def test_last_use_is_noted(make: Make, clock: Clock) -> None:
    one, two = make(), make()
    await one.start()
    key = await one.create("acme")
    assert one.list()[0].used is None
    clock.move(5)
    one.authenticate(key.presented)
    assert one.list()[0].used == clock.now
    await one.close()
    await two.start()
    assert two.list()[0].used == clock.now


async def test_secrets_are_not_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ring = KeyRing(tmp_path / "keys.json", PEPPER, configured="app:configured-secret-0001")
    await ring.start()
    key = await ring.create("acme")
    ring.authenticate(key.presented)
    _refused(ring, "vx_canary_canary")
    secret = key.presented.split("_", 2)[2]
    for text in ((tmp_path / "keys.json").read_text(), caplog.text, repr(ring.list()), repr(vars(ring))):
        assert secret not in text
        assert "configured-secret-0001" not in text
        assert "vx_canary" not in text
    await ring.close()


async def test_another_pepper_opens_nothing(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys.json", PEPPER)
    key = await ring.create("acme")
    other = KeyRing(tmp_path / "keys.json", b"q" * 32)
    await other.refresh()
    assert not _refused(ring, key.presented)
    assert _refused(other, key.presented)


async def test_local_key_is_for_loopback(tmp_path: Path) -> None:
    ring = KeyRing(tmp_path / "keys.json", PEPPER)
    await ring.start()
    path = tmp_path / "local.key"
    presented = await ring.ensure_local_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert await ring.ensure_local_key(path) == presented
    p = ring.authenticate(presented, loopback=True)
    assert p.kind is Kind.LOCAL
    assert p.scopes == set(Scope)
    assert _refused(ring, presented)
    assert len(ring) == 0
    await ring.revoke(p.key_id)
    assert await ring.ensure_local_key(path) != presented
    await ring.close()


async def test_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = KeyRing(path, PEPPER)
    key = await ring.create("acme")
    good = path.read_bytes()
    path.write_bytes(b"{")
    with pytest.raises(ValueError):
        await ring.refresh()
    assert not _refused(ring, key.presented)  # the known keys stay
    with pytest.raises(StoreError):
        await ring.create("acme")
    with pytest.raises(SettingsError):
        await KeyRing(path, PEPPER).start()
    path.write_bytes(good)
    await ring.refresh()
    assert not _refused(ring, key.presented)


async def test_a_deleted_file_ends_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ring = KeyRing(path, PEPPER)
    key = await ring.create("acme")
    path.unlink()
    await ring.refresh()
    assert _refused(ring, key.presented)


async def test_a_store_that_lost_its_data_gets_the_keys_back(store: Store, clock: Clock) -> None:
    one, two = (KeyRing(store, PEPPER, wall=clock) for _ in range(2))
    good, bad = await one.create("acme"), await one.create("acme")
    await two.refresh()
    await one.revoke(bad.key_id)
    gone: list[str] = []
    two.on_revoked(gone.append)
    await store.delete(DOCUMENT)
    await two.refresh()  # writes back what it knows, the revoked key as live
    assert gone == []
    new = await one.create("acme")  # knows better
    await two.refresh()
    assert gone == [bad.key_id]
    for ring in (one, two, KeyRing(store, PEPPER, wall=clock)):
        await ring.refresh()
        assert [_refused(ring, k.presented) for k in (good, bad, new)] == [False, True, False]


async def test_a_failed_change_changes_nothing(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    ring = KeyRing(store, PEPPER, wall=clock)
    key = await ring.create("acme")
    document = await store.get(DOCUMENT)

    async def refuse(key: str, value: bytes, ttl: float | None = None) -> None:
        raise StoreError

    store.set = refuse  # type: ignore[method-assign]
    for change in (ring.revoke(key.key_id), ring.retire(key.key_id)):
        with pytest.raises(StoreError):
            await change
    with pytest.raises(StoreError):
        await ring.rotate(key.key_id)
    assert await store.get(DOCUMENT) == document
    await ring.refresh()
    assert not _refused(ring, key.presented)
    assert ring.list()[0].versions == 1


def test_configured_keys() -> None:
    text = "app:sk_any:thing-an-sdk-sends, agent[speak+call]:vx_0123456789ab_cdefgh,"
    ring = KeyRing(None, PEPPER, configured=text)
    assert len(ring) == 2
    p = ring.authenticate("sk_any:thing-an-sdk-sends")
    assert (p.tenant, p.key_id, p.kind, p.scopes) == (
        "app",
        "configured:app",
        Kind.CONFIGURED,
        DEFAULT_SCOPES,
    )
    assert ring.authenticate("vx_0123456789ab_cdefgh").scopes == {Scope.SPEAK, Scope.CALL}
    assert ring.principal("configured:app") == p
    assert ring.principal("configured:none") is None
    assert _refused(ring, "sk_any:thing-an-sdk-send")
    assert not p.phrase_cache
    cached = KeyRing(None, PEPPER, configured=text, phrase_cache=True)
    assert cached.authenticate("sk_any:thing-an-sdk-sends").phrase_cache


@pytest.mark.parametrize(
    "text",
    [
        "0123456789abcdef0123",
        "app:short-secret",
        ":0123456789abcdef0123",
        "app[root]:0123456789abcdef0123",
        "app:0123456789abcdef0123,app:0123456789abcdef0124",
        "app:0123456789abcdef0123,two:0123456789abcdef0123",
        "app:" + "x" * 513,
    ],
)
def test_bad_configuration_is_refused_without_repeating_a_key(text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_configured(text.replace("short-secret", "shortsecret"))
    assert "0123456789" not in str(caught.value)
    assert "shortsecret" not in str(caught.value)


async def test_no_place_to_keep_keys() -> None:
    ring = KeyRing(None, PEPPER)
    await ring.start()
    with pytest.raises(StoreError):
        await ring.create("acme")
    await ring.refresh()
    await ring.close()


async def test_store_away_at_the_start_and_in_between(own_redis: RedisServer, clock: Clock) -> None:
    store = RedisStore(own_redis.url)
    await store.start()
    one = KeyRing(store, PEPPER, wall=clock, poll=0.01)
    await one.start()
    key = await one.create("acme")
    own_redis.kill()
    two = KeyRing(store, PEPPER, wall=clock, poll=0.01)
    await two.start()
    assert _refused(two, key.presented)
    assert not _refused(one, key.presented)  # known keys go on
    with pytest.raises(StoreError):
        await one.revoke(key.key_id)
    assert not _refused(one, key.presented)
    own_redis.start()  # empty: the ring that knows the keys brings them back

    async def known() -> bool:
        return not _refused(two, key.presented)

    await eventually(known)
    for ring in (one, two):
        await ring.close()
    await store.close()


async def test_last_use_is_noted_once_a_minute(tmp_path: Path, clock: Clock) -> None:
    ring = KeyRing(tmp_path / "keys.json", PEPPER, wall=clock, poll=0.01)
    await ring.start()
    key = await ring.create("acme")
    ring.authenticate(key.presented)
    clock.move(61)

    async def noted() -> bool:
        other = KeyRing(tmp_path / "keys.json", PEPPER)
        await other.refresh()
        return other.list()[0].used == 1000.0

    await eventually(noted)
    await ring.close()


async def test_a_table_that_cannot_be_read_for_a_while_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    place = tmp_path / "keys.json"
    ring = KeyRing(place, PEPPER, poll=0.001)
    await ring.create("acme")
    good = place.read_text()
    await ring.start()
    tries, refresh = 0, ring.refresh

    async def counted() -> None:
        nonlocal tries
        tries += 1
        await refresh()

    ring.refresh = counted  # type: ignore[method-assign]
    place.write_text("{")

    async def tried() -> bool:
        return tries >= 3

    await eventually(tried)
    place.write_text(good + " ")

    async def told() -> bool:
        return any(record.msg == "keys refreshed again" for record in caplog.records)

    await eventually(told)
    await ring.close()
    assert [record.msg for record in caplog.records] == ["keys not refreshed", "keys refreshed again"]


async def test_a_key_needs_a_tenant(tmp_path: Path) -> None:
    with pytest.raises(BadRequest):
        await KeyRing(tmp_path / "keys.json", PEPPER).create("")

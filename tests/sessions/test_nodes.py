"""The list of gateways: who may still hold copies."""

from __future__ import annotations

from sessions.nodes import REMEMBER_S, TABLE, NodeRegistry
from sessions.store import Store
from sessions.voice_cache import GRACE_S
from tests.sessions.conftest import Clock


async def test_who_is_expected(store: Store, clock: Clock) -> None:
    a, b, c = (NodeRegistry(store, name, wall=clock) for name in "abc")
    assert await a.expected() == ("a",)
    await a.beat()
    await b.beat()
    assert await a.expected() == ("a", "b")
    assert await c.expected() == ("a", "b", "c")
    clock.move(400)
    await a.beat()
    assert await a.expected() == ("a", "b")  # silent, but its copies may live
    await b.leave()
    assert await a.expected() == ("a",)
    await b.beat()
    clock.move(REMEMBER_S + 1)
    assert await c.expected() == ("c",)
    assert await store.table_all(TABLE) == {}
    await store.table_set(TABLE, {"x": b"noise"})
    assert await c.expected() == ("c",)


def test_a_silent_gateway_is_expected_for_longer_than_its_copies_live() -> None:
    assert REMEMBER_S > GRACE_S

"""Deletion with proof: every gateway drops its copies and answers, late ones late; the receipt lists them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from sessions.audit import AuditChain, AuditRow, row_name
from sessions.memory_store import MemoryStore
from sessions.nodes import TABLE, NodeRegistry
from sessions.receipt import verify_receipt
from sessions.receipts import OPEN, OPEN_S, Deletions
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.signing import Signer
from sessions.store import Store, key
from sessions.voice_catalogue import About, names
from sessions.voices import VoiceStore
from tests.peers.redis import RedisServer
from tests.sessions.conftest import Clock, eventually
from tts_core.errors import BadRequest, StoreError, UnknownVoice

SECRET = DeploymentSecret(b"deployment secret of these tests")
SIGNER = Signer(SECRET)
DATA = bytes(range(256)) * 64
CONSENT = "cn_" + "3" * 32


class Node:
    """One gateway."""

    def __init__(self, store: Store, name: str, clock: Clock | None = None) -> None:
        self.store = store
        wall: Callable[[], float] = clock or time.time
        self.voices = VoiceStore(store, SECRET, clock=clock or time.monotonic, wall=wall)
        self.audit = AuditChain(store, wall=wall)
        registry = NodeRegistry(store, name, wall=wall)
        self.deletions = Deletions(store, self.voices, SIGNER, audit=self.audit, nodes=registry, wall=wall)


@pytest.fixture
async def nodes(store: Store) -> AsyncIterator[list[Node]]:
    """Four gateways."""
    made = [Node(store, f"n{i}") for i in range(4)]
    for node in made:
        await node.deletions.start()
    yield made
    for node in made:
        await node.deletions.close()
        await node.voices.close()


async def test_all_answer(nodes: list[Node], store: Store) -> None:
    v = await nodes[0].voices.put("acme", None, DATA, None, revision="m1", about=About(consent=CONSENT))
    for node in nodes[:3]:
        assert await node.voices.conditioning("acme", v.voice_id, revision="m1") == DATA
    receipt = await nodes[1].deletions.delete("acme", v.voice_id, wait=20)
    assert receipt.complete
    assert [(n.node, n.state, n.copies) for n in receipt.nodes] == [
        ("n0", "answered", 1),
        ("n1", "answered", 1),
        ("n2", "answered", 1),
        ("n3", "answered", 0),
    ]
    assert (receipt.tenant, receipt.voice, receipt.kind, receipt.consent, receipt.reason) == (
        "acme",
        v.voice_id,
        "permanent",
        CONSENT,
        "asked",
    )
    assert receipt.commitment == v.commitment
    assert receipt.key_destroyed_at_ms is not None
    assert receipt.ordered_at_ms <= receipt.key_destroyed_at_ms <= receipt.issued_at_ms
    assert verify_receipt(SIGNER.public_bytes, msgspec.json.encode(receipt)) == receipt
    assert await store.exists(*names("acme", v.voice_id)) == (False, False)
    assert not any(node.voices.cache for node in nodes)
    for node in nodes:
        with pytest.raises(UnknownVoice):
            await node.voices.conditioning("acme", v.voice_id, revision="m1")
        with pytest.raises(UnknownVoice):
            await node.deletions.delete("acme", v.voice_id)

    async def closed() -> bool:
        return await store.table_all(OPEN) == {}

    await eventually(closed)


async def test_the_receipt_pins_the_audit_chain(nodes: list[Node], store: Store) -> None:
    v = await nodes[0].voices.put("acme", None, DATA, None)
    receipt = await nodes[0].deletions.delete("acme", v.voice_id, wait=20)
    row = await nodes[1].audit.read(receipt.audit_row)
    assert row is not None
    assert (row.digest, row.event, row.subject) == (receipt.audit_digest, "voice.deleted", v.voice_id)
    assert row.details["receipt"] == receipt.id
    first = await nodes[1].audit.read(0)
    assert first is not None
    assert first.details["chain"] == receipt.chain
    await nodes[2].audit.append("e")
    later = await nodes[3].deletions.receipt("acme", receipt.id)
    assert (later.head_row, later.audit_row) == (receipt.head_row + 1, receipt.audit_row)
    assert (await nodes[1].audit.verify()).ok
    await store.set(row_name(row.number), msgspec.json.encode(msgspec.structs.replace(row, subject="vc_x")))
    raw = await store.get(row_name(row.number))
    assert raw is not None
    assert msgspec.json.decode(raw, type=AuditRow).digest != receipt.audit_digest
    assert (await nodes[1].audit.verify()).bad == (row.number,)


async def test_who_has_no_right_deletes_nothing(nodes: list[Node]) -> None:
    deletions, voices = nodes[0].deletions, nodes[0].voices
    v = await voices.put("acme", "s1", DATA)
    p = await voices.put("acme", None, DATA, None)
    for tenant, voice_id, session in (
        ("other", v.voice_id, "s1"),
        ("acme", v.voice_id, "s2"),
        ("acme", v.voice_id, None),
        ("other", p.voice_id, None),
        ("acme", "vc_" + "0" * 32, None),
        ("acme", "*", None),
    ):
        with pytest.raises(UnknownVoice, match="no such voice"):
            await deletions.delete(tenant, voice_id, session=session)
    assert await voices.conditioning("acme", v.voice_id, session="s1") == DATA
    receipt = await deletions.delete("acme", v.voice_id, session="s1", wait=20)
    assert receipt.kind == "session"
    assert (await deletions.receipt("acme", receipt.id)).voice == v.voice_id
    for tenant, receipt_id in (("other", receipt.id), ("acme", "del_" + "0" * 32), ("acme", "*")):
        with pytest.raises(BadRequest, match="no such receipt"):
            await deletions.receipt(tenant, receipt_id)


async def test_a_device_that_does_not_answer_makes_its_gateway_late(nodes: list[Node], store: Store) -> None:
    free = asyncio.Event()
    dropped = 0

    async def device(tenant: str, voice: str) -> int:
        nonlocal dropped
        await free.wait()
        dropped += 1
        return 5

    nodes[3].voices.on_deleted(device)
    v = await nodes[0].voices.put("acme", None, DATA, None)
    await nodes[3].voices.conditioning("acme", v.voice_id)
    receipt = await nodes[0].deletions.delete("acme", v.voice_id, wait=0.3)

    async def three() -> bool:
        return (await nodes[0].deletions.receipt("acme", receipt.id)).answered == 3

    await eventually(three)
    receipt = await nodes[0].deletions.receipt("acme", receipt.id)
    assert [n.node for n in receipt.nodes if n.state == "late"] == ["n3"]
    assert not receipt.complete
    assert not nodes[3].voices.cache  # memory goes at once, whatever the device does
    assert list(await store.table_all(OPEN)) == [receipt.id]
    free.set()
    await nodes[3].deletions.settled()
    receipt = await nodes[0].deletions.receipt("acme", receipt.id)
    assert receipt.complete
    assert receipt.nodes[3].copies == 1 + 5
    assert dropped == 1
    assert await store.table_all(OPEN) == {}


async def test_a_device_that_fails_is_asked_again(
    nodes: list[Node], caplog: pytest.LogCaptureFixture
) -> None:
    works = False

    async def device(tenant: str, voice: str) -> int:
        if not works:
            raise RuntimeError("no device")
        return 2

    nodes[2].voices.on_deleted(device)
    v = await nodes[0].voices.put("acme", None, DATA, None)
    await nodes[2].voices.conditioning("acme", v.voice_id)
    receipt = await nodes[0].deletions.delete("acme", v.voice_id, wait=0.3)

    async def failed() -> bool:
        return "a deletion was not answered" in caplog.text

    await eventually(failed)
    works = True
    await nodes[2].deletions.look()
    await nodes[2].deletions.settled()
    receipt = await nodes[0].deletions.receipt("acme", receipt.id)
    assert receipt.nodes[2].copies == 1 + 2


async def test_a_gateway_that_heard_nothing_learns_it_at_its_next_beat(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    a, deaf = Node(store, "a", clock), Node(store, "deaf", clock)
    await a.deletions.start()
    await deaf.deletions.look()  # it beats, but it is not subscribed
    v = await a.voices.put("acme", None, DATA, None)
    await deaf.voices.conditioning("acme", v.voice_id)
    receipt = await a.deletions.delete("acme", v.voice_id, wait=0.05)
    assert (receipt.answered, receipt.expected) == (1, 2)
    assert len(deaf.voices.cache) == 1
    await deaf.deletions.look()
    await deaf.deletions.settled()
    assert not deaf.voices.cache
    assert (await a.deletions.receipt("acme", receipt.id)).complete
    await deaf.deletions.look()  # nothing is left to do
    assert not deaf.deletions._working
    await a.deletions.close()


async def test_another_gateway_finishes_what_the_first_began(clock: Clock) -> None:
    """The gateway that gave the order dies before it destroys anything."""
    store = MemoryStore(clock=clock)
    a, b = Node(store, "a", clock), Node(store, "b", clock)
    await b.deletions.look()
    v = await a.voices.put("acme", None, DATA, None)

    async def dies(tenant: str, voice_id: str) -> bool:
        raise asyncio.CancelledError

    a.voices.destroy = dies  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await a.deletions.order("acme", v.voice_id, reason="asked")
    assert await b.voices.conditioning("acme", v.voice_id) == DATA
    (order_id,) = await store.table_all(OPEN)
    assert (await b.deletions.receipt("acme", order_id)).key_destroyed_at_ms is None
    await b.deletions.look()
    await b.deletions.settled()
    assert await store.exists(*names("acme", v.voice_id)) == (False, False)
    receipt = await b.deletions.receipt("acme", order_id)
    assert receipt.key_destroyed_at_ms is not None
    assert [(n.node, n.state) for n in receipt.nodes] == [("a", "late"), ("b", "answered")]


async def test_old_and_strange_orders_are_left(clock: Clock) -> None:
    store = MemoryStore(clock=clock)
    a, gone = Node(store, "a", clock), Node(store, "gone", clock)
    await gone.deletions.look()
    v = await a.voices.put("acme", None, DATA, None)
    receipt = await a.deletions.delete("acme", v.voice_id, wait=0.01)
    await store.table_set(OPEN, {"noise": b"noise"})
    a.deletions._hear_order(b"noise")
    await a.deletions.look()
    assert list(await store.table_all(OPEN)) == [receipt.id]
    clock.move(OPEN_S + 1)
    await a.deletions.look()
    assert await store.table_all(OPEN) == {}
    later = await a.deletions.receipt("acme", receipt.id)
    assert (later.answered, later.expected) == (1, 2)


async def test_the_end_of_a_call_has_a_receipt(nodes: list[Node]) -> None:
    v = await nodes[0].voices.put("acme", "s1", DATA)
    async with nodes[0].voices.hold(v) as lease:
        await nodes[0].voices.conditioning("acme", v.voice_id, session="s1")
    assert lease.receipt is not None

    async def complete() -> bool:
        assert lease.receipt is not None
        return (await nodes[2].deletions.receipt("acme", lease.receipt)).complete

    await eventually(complete)
    receipt = await nodes[2].deletions.receipt("acme", lease.receipt)
    assert (receipt.reason, receipt.kind, receipt.nodes[0].copies) == ("session ended", "session", 1)
    assert await nodes[0].deletions.order("acme", v.voice_id, reason="again") is None


async def test_withdrawn_consent_deletes_every_voice_of_every_session(nodes: list[Node]) -> None:
    about = About(consent=CONSENT)
    voices = nodes[0].voices
    mine = [
        await voices.put("acme", session, DATA, 60.0 if session else None, about=about)
        for session in (None, "s1", "s2")
    ]
    other = await voices.put("acme", "s1", DATA, about=About(consent="cn_" + "4" * 32))
    theirs = await voices.put("other", None, DATA, None, about=about)
    receipts = await nodes[1].deletions.withdraw("acme", CONSENT)
    assert len(receipts) == 3
    for v in mine:
        with pytest.raises(UnknownVoice):
            await voices.conditioning("acme", v.voice_id, session=v.session)
    assert {(await nodes[0].deletions.receipt("acme", r)).voice for r in receipts} == {
        v.voice_id for v in mine
    }
    assert await voices.conditioning("acme", other.voice_id, session="s1") == DATA
    assert await voices.conditioning("other", theirs.voice_id) == DATA
    assert await nodes[1].deletions.withdraw("acme", CONSENT) == ()


async def test_leaving_in_good_order(nodes: list[Node], store: Store) -> None:
    assert set(await store.table_all(TABLE)) == {"n0", "n1", "n2", "n3"}
    v = await nodes[0].voices.put("acme", None, DATA, None)
    await nodes[3].voices.conditioning("acme", v.voice_id)
    await nodes[3].deletions.close()
    assert not nodes[3].voices.cache
    assert "n3" not in await store.table_all(TABLE)
    receipt = await nodes[0].deletions.delete("acme", v.voice_id, wait=20)
    assert receipt.expected == 3
    assert receipt.complete


async def test_a_store_that_is_away_and_comes_back(own_redis: RedisServer) -> None:
    store = RedisStore(own_redis.url)
    await store.start()
    node = Node(store, "a")
    await node.deletions.start()
    v = await node.voices.put("acme", "s1", DATA)
    p = await node.voices.put("acme", None, DATA, None)
    lease = node.voices.hold(v)
    await node.voices.conditioning("acme", v.voice_id, session="s1")
    own_redis.pause()
    with pytest.raises(StoreError):
        await node.deletions.delete("acme", p.voice_id)
    await lease.close()
    assert lease.receipt is None
    assert not node.voices.cache
    assert node.voices.owed == 1
    own_redis.resume()

    async def repaid() -> bool:
        return node.voices.owed == 0

    await eventually(repaid)
    receipt = await node.deletions.delete("acme", p.voice_id, wait=5)
    assert receipt.complete
    rows = [r async for r in node.audit.rows(tenant="acme")]
    assert [(r.subject, r.details["reason"]) for r in rows[-1:]] == [(v.voice_id, "session ended")]
    await node.deletions.close()
    await node.voices.close()
    await store.close()


GATEWAY = """
import asyncio, sys
from sessions.redis_store import RedisStore
from tests.sessions.test_receipts import Node

async def main():
    store = RedisStore(sys.argv[1], deadline=5.0)
    await store.start()
    node = Node(store, sys.argv[2])
    await node.voices.start()
    await node.deletions.start()
    await node.voices.conditioning("paused", sys.argv[3])
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_four_gateways_one_of_them_frozen(shared_redis: RedisServer) -> None:
    """Real processes and a real SIGSTOP: 3 of 4, then 4 of 4."""
    with shared_redis.client() as client:
        client.delete(TABLE, OPEN)
    store = RedisStore(shared_redis.url, deadline=5.0)
    await store.start()
    here = Node(store, "here")
    await here.deletions.start()
    v = await here.voices.put("paused", None, DATA, None)
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", GATEWAY, shared_redis.url, f"there{i}", v.voice_id),
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        for i in range(3)
    ]
    try:
        async with asyncio.timeout(60):
            for process in processes:
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
        processes[1].send_signal(signal.SIGSTOP)
        receipt = await here.deletions.delete("paused", v.voice_id, wait=1.0)

        async def answered(n: int) -> bool:
            return (await here.deletions.receipt("paused", receipt.id)).answered == n

        await eventually(lambda: answered(3), 30)
        three = await here.deletions.receipt("paused", receipt.id)
        assert [n.node for n in three.nodes if n.state == "late"] == ["there1"]
        assert [n.copies for n in three.nodes if n.state == "answered"] == [0, 1, 1]
        processes[1].send_signal(signal.SIGCONT)
        await eventually(lambda: answered(4), 30)
        four = await here.deletions.receipt("paused", receipt.id)
        assert four.complete
        assert {n.node: n.copies for n in four.nodes} == {"here": 0, "there0": 1, "there1": 1, "there2": 1}
        for one in (three, four):
            assert verify_receipt(SIGNER.public_bytes, msgspec.json.encode(one)) == one
    finally:
        for process in processes:
            process.kill()
            await process.wait()
        await here.deletions.close()
        await here.voices.close()
        with shared_redis.client() as client:
            client.delete(TABLE, OPEN, key("", "audit", "head"))
        await store.close()

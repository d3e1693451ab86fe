"""Deletion with proof: an order to every gateway, their answers, and the receipt that lists them.

An order is written down before anything is destroyed, in a table of open orders that every gateway also looks
through at each beat: a gateway that missed the announcement, or was frozen, still drops its copies and
answers, and the deletion is finished even if the gateway that ordered it dies half-way. Answers may come
late; a receipt can be had at any time and lists who has answered by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import OrderedDict

import msgspec

from sessions.audit import AuditChain
from sessions.nodes import BEAT_S, NodeRegistry
from sessions.receipt import DOMAIN, NodeAnswer, Receipt
from sessions.signing import Signer
from sessions.store import Store, Unsubscribe, Wall, key
from sessions.voice_catalogue import VoiceEntry
from sessions.voices import VoiceStore
from tts_core.errors import BadRequest, StoreError, UnknownVoice

log = logging.getLogger(__name__)

ORDERED = key("", "deletions", "ordered")
ANSWERED = key("", "deletions", "answered")
OPEN = key("", "deletions", "open")
OPEN_S = 3600.0
"""Seconds that an order is announced at each beat to those who have not answered."""
KEEP_SESSION_S = 86_400.0
KEEP_PERMANENT_S = 90 * 86_400.0
"""Seconds that a receipt can be had."""
WAIT_S = 1.0
_POLL_S = 0.1
_WORKING = 1024
_REMEMBERED = 10_000
_AT_ONCE = 16
_DESTROYED = ""
"""Row of the answers that says when the key was destroyed; no gateway has this name."""


class Order(msgspec.Struct, frozen=True):
    """What was ordered; written once."""

    id: str
    tenant: str
    voice: str
    kind: str
    consent: str
    reason: str
    commitment: str
    at_ms: int
    nodes: tuple[str, ...]
    audit_row: int
    audit_digest: str
    chain: str
    keep: float


class _Ack(msgspec.Struct, frozen=True):
    at_ms: int
    copies: int


class Deletions:
    """Deletes voices, answers the orders of others, gives receipts.

    Args:
        store: shared by the gateways.
        voices: of this gateway; leases and debts delete through here from now on.
        signer: of the deployment.
        audit: gets a row for each deletion.
        nodes: who is expected to answer.
        wall: Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        voices: VoiceStore,
        signer: Signer,
        *,
        audit: AuditChain,
        nodes: NodeRegistry,
        wall: Wall = time.time,
    ) -> None:
        self._store = store
        self._voices = voices
        self._signer = signer
        self._audit = audit
        self._nodes = nodes
        self._wall = wall
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._copies: dict[str, int] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._stops: list[Unsubscribe] = []
        self._task: asyncio.Task[None] | None = None
        voices.use_deleter(self._delete_at_the_end)

    async def start(self) -> None:
        """Take part: listen, say that we are here, look for open orders at each beat."""
        if self._task is not None:
            return
        self._stops.append(await self._store.subscribe(ORDERED, self._hear_order))
        self._stops.append(await self._store.subscribe(ANSWERED, self._hear_answer))
        # A store that is back may have lost the list of gateways.
        self._stops.append(self._store.on_change(lambda _: self._wake.set()))
        with contextlib.suppress(StoreError):
            await self._nodes.beat()
        self._task = asyncio.create_task(self._beats(), name="deletions")

    async def close(self) -> None:
        """Stop in good order: drop all copies, answer what is open, leave the list of gateways."""
        for stop in self._stops:
            stop()
        self._stops.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._voices.cache.clear()
            with contextlib.suppress(StoreError):
                await self.look()
                await self.settled()
                await self._nodes.leave()
        for task in list(self._working.values()):
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def delete(
        self,
        tenant: str,
        voice_id: str,
        *,
        session: str | None = None,
        reason: str = "asked",
        wait: float = WAIT_S,
    ) -> Receipt:
        """Delete a permanent voice, or one of ``session``; wait up to ``wait`` seconds for the gateways.

        Who has not answered by then is listed as late; :meth:`receipt` gives a newer receipt later. Raises
        UnknownVoice for a voice that is not there, another tenant's or another session's; StoreError when
        the store is away (then asking again finishes it).
        """
        await self._voices.catalogue.find(tenant, voice_id, session=session)
        order = await self.order(tenant, voice_id, reason=reason)
        if order is None:
            raise UnknownVoice("no such voice", field="voice")
        await self._wait(order, wait)
        return await self._issue(order)

    async def order(self, tenant: str, voice_id: str, *, reason: str) -> Order | None:
        """Destroy a voice of whatever session and tell every gateway, without waiting for answers.

        None if there was none. Copies here are dropped first of all. Raises StoreError.
        """
        entry, _, _ = await self._voices.catalogue.look(tenant, voice_id)
        if entry is None:
            await self._voices.delete(tenant, voice_id)  # whatever of it may be left
            return None
        copies = self._voices.cache.forget(tenant, voice_id)
        order = await self._write(tenant, entry, reason)
        await self._voices.destroy(tenant, voice_id)
        await self._note_destroyed(order)
        self._copies[order.id] = copies
        data = msgspec.msgpack.encode(order)
        with contextlib.suppress(StoreError):  # they look for it at their next beat
            await self._store.publish(ORDERED, data)
        self._answer(order)
        return order

    async def withdraw(self, tenant: str, consent: str) -> tuple[str, ...]:
        """Delete every voice that was made under a consent; the ids of the receipts. Raises StoreError."""
        orders = []
        for entry in await self._voices.catalogue.by_consent(tenant, consent):
            order = await self.order(tenant, entry.id, reason="consent revoked")
            if order is not None:
                orders.append(order.id)
        return tuple(orders)

    async def receipt(self, tenant: str, receipt_id: str) -> Receipt:
        """The receipt as of now. Raises BadRequest if there is none (any more), or another tenant's."""
        raw = await self._store.get(_order_name(tenant, receipt_id))
        if raw is None:
            raise BadRequest("no such receipt", field="receipt")
        order = msgspec.msgpack.decode(raw, type=Order)
        return await self._issue(order)

    async def look(self) -> None:
        """One beat: say that we are here, take up open orders, drop opened voices whose time is over.

        Raises StoreError.
        """
        self._voices.cache.sweep()
        await self._nodes.beat()
        oldest = (self._wall() - OPEN_S) * 1000
        for order_id, raw in (await self._store.table_all(OPEN)).items():
            try:
                order = msgspec.msgpack.decode(raw, type=Order)
            except msgspec.MsgspecError:
                order = None
            if order is None or order.at_ms < oldest:
                await self._store.table_drop(OPEN, order_id)
            elif self._nodes.node in order.nodes:
                self._answer(order, destroy=True)

    async def settled(self) -> None:
        """Wait until the orders that this gateway works on are answered, or have failed."""
        while self._working:
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    # Orders

    async def _delete_at_the_end(self, tenant: str, voice_id: str) -> str | None:
        order = await self.order(tenant, voice_id, reason="session ended")
        return None if order is None else order.id

    async def _write(self, tenant: str, entry: VoiceEntry, reason: str) -> Order:
        nodes = await self._nodes.expected()
        order_id = f"del_{secrets.token_hex(16)}"
        row = await self._audit.append(
            "voice.deleted",
            tenant=tenant,
            subject=entry.id,
            details={"receipt": order_id, "reason": reason, "commitment": entry.commitment},
        )
        first = await self._audit.read(0)
        keep = KEEP_PERMANENT_S if entry.session is None else KEEP_SESSION_S
        order = Order(
            id=order_id,
            tenant=tenant,
            voice=entry.id,
            kind=entry.kind,
            consent=entry.consent,
            reason=reason,
            commitment=entry.commitment,
            at_ms=self._now(),
            nodes=nodes,
            audit_row=row.number,
            audit_digest=row.digest,
            chain=first.details.get("chain", "") if first is not None else "",
            keep=keep,
        )
        data = msgspec.msgpack.encode(order)
        await self._store.table_set(
            OPEN, {order.id: data}, values={_order_name(tenant, order.id): data}, values_ttl=keep
        )
        return order

    async def _note_destroyed(self, order: Order) -> None:
        now = b"%d" % self._now()
        await self._store.table_set(_acks_name(order), {_DESTROYED: now}, ttl=order.keep)

    def _answer(self, order: Order, *, destroy: bool = False) -> None:
        if order.id in self._answered or order.id in self._working or len(self._working) >= _WORKING:
            return  # done, being done, or left to the next beat
        task = asyncio.create_task(self._work(order, destroy=destroy), name="deletion")
        self._working[order.id] = task
        task.add_done_callback(lambda _: self._working.pop(order.id, None))

    async def _work(self, order: Order, *, destroy: bool) -> None:
        async with self._limit:
            try:
                if destroy and (await self._acks(order))[0] is None:
                    await self._voices.destroy(order.tenant, order.voice)
                    await self._note_destroyed(order)
                self._count(order.id, await self._voices.forget(order.tenant, order.voice))
                if self._nodes.node in order.nodes:
                    ack = msgspec.msgpack.encode(_Ack(self._now(), self._copies.get(order.id, 0)))
                    await self._store.table_set(_acks_name(order), {self._nodes.node: ack}, ttl=order.keep)
                self._done(order.id)
                if self._complete(order, await self._acks(order)):
                    await self._store.table_drop(OPEN, order.id)
                await self._store.publish(ANSWERED, order.id.encode())
            except Exception as exc:
                # Not answered: we are late until a later beat succeeds.
                log.warning("a deletion was not answered", extra={"reason": type(exc).__name__})

    def _count(self, order_id: str, copies: int) -> None:
        self._copies[order_id] = self._copies.get(order_id, 0) + copies
        while len(self._copies) > _REMEMBERED:
            del self._copies[next(iter(self._copies))]

    def _done(self, order_id: str) -> None:
        self._copies.pop(order_id, None)
        self._answered[order_id] = None
        if len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)

    def _hear_order(self, message: bytes) -> None:
        try:
            order = msgspec.msgpack.decode(message, type=Order)
        except msgspec.MsgspecError:
            return
        if order.id not in self._answered:
            self._count(order.id, self._voices.cache.forget(order.tenant, order.voice))  # at once
            self._answer(order)

    def _hear_answer(self, _: bytes) -> None:
        self._news.set()

    # Receipts

    async def _wait(self, order: Order, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._news.clear()
                    if self._complete(order, await self._acks(order)):
                        return
                    with contextlib.suppress(TimeoutError):  # a lost message costs a moment, not the answer
                        async with asyncio.timeout(_POLL_S):
                            await self._news.wait()

    async def _acks(self, order: Order) -> tuple[int | None, dict[str, _Ack]]:
        rows = await self._store.table_all(_acks_name(order))
        destroyed = rows.pop(_DESTROYED, None)
        acks = {node: msgspec.msgpack.decode(raw, type=_Ack) for node, raw in rows.items()}
        return None if destroyed is None else int(destroyed), acks

    def _complete(self, order: Order, acks: tuple[int | None, dict[str, _Ack]]) -> bool:
        return acks[0] is not None and set(order.nodes) <= acks[1].keys()

    async def _issue(self, order: Order) -> Receipt:
        destroyed, acks = await self._acks(order)
        head = await self._audit.head()
        nodes = tuple(
            NodeAnswer(n, "answered", acks[n].at_ms, acks[n].copies) if n in acks else NodeAnswer(n, "late")
            for n in order.nodes
        )
        return self._signer.sign(
            DOMAIN,
            Receipt(
                id=order.id,
                tenant=order.tenant,
                voice=order.voice,
                kind=order.kind,
                consent=order.consent,
                reason=order.reason,
                commitment=order.commitment,
                ordered_at_ms=order.at_ms,
                key_destroyed_at_ms=destroyed,
                issued_at_ms=self._now(),
                answered=sum(n.state == "answered" for n in nodes),
                expected=len(nodes),
                nodes=nodes,
                audit_row=order.audit_row,
                audit_digest=order.audit_digest,
                chain=order.chain,
                head_row=head.number,
                head_digest=head.digest,
            ),
        )

    # Beats

    async def _beats(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._wake.wait()
            self._wake.clear()
            with contextlib.suppress(StoreError):
                await self.look()

    def _now(self) -> int:
        return round(self._wall() * 1000)


def _order_name(tenant: str, order_id: str) -> str:
    return key(tenant, "deletion", order_id)


def _acks_name(order: Order) -> str:
    return key(order.tenant, "deletion", order.id, "answers")

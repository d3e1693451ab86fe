"""What a key and its tenant may use: rates per minute, and contexts that generate at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from sessions.memory_store import MemoryStore
from sessions.principal import Principal
from sessions.store import Clock, Store, Unsubscribe, key
from tts_core.errors import LimitExceeded, StoreError

log = logging.getLogger(__name__)

MINUTE = 60.0
GATE_RETRY = 1.0
"""Seconds after which a refused context may try again: a turn of speech ends within a few."""
BEAT_S = 1.0
"""How often gateways tell each other how many contexts they run."""
SILENT_S = 3.5
"""Seconds without a word after which another gateway's contexts count no more."""
CHANNEL = key("", "gate")


class RateLimiter:
    """Requests and characters per minute, for the key and for its tenant.

    Counted in the shared store so that all gateways together keep the limit; while the store is away each
    gateway counts for itself (calls go on, the limit is then per gateway).
    """

    def __init__(self, store: Store, *, clock: Clock = time.monotonic) -> None:
        self._store = store
        self._local = MemoryStore(clock=clock, max_bytes=16 * 1024 * 1024)
        self.local_decisions = 0
        """Decisions made alone because the store was away."""

    async def use(self, principal: Principal, *, requests: int = 0, characters: int = 0) -> None:
        """Count a request or text. Raises LimitExceeded with ``retry_after``; then nothing was counted.

        Takes at most the store's deadline. A caller without limits costs nothing.
        """
        wanted = (
            ("request", "requests", requests, "requests_per_minute"),
            ("char", "characters", characters, "characters_per_minute"),
        )
        taken: list[tuple[str, int, int]] = []
        for kind, noun, amount, field in wanted:
            for who, limits, parts in (
                ("key", principal.limits, ("rate", kind, principal.key_id)),
                ("tenant", principal.tenant_limits, ("rates", kind)),
            ):
                limit: int | None = getattr(limits, field)
                if limit is None or amount <= 0:
                    continue
                name = key(principal.tenant, *parts)
                wait = await self._take(name, amount, limit)
                if wait > 0:
                    for earlier in taken:
                        await self._take(*earlier)
                    raise LimitExceeded(
                        f"this {who} may use {limit} {noun} a minute",
                        retry_after=None if wait == float("inf") else wait,
                    )
                taken.append((name, -amount, limit))

    async def _take(self, name: str, amount: int, limit: int) -> float:
        try:
            return await self._store.take_tokens(name, amount, limit, MINUTE)
        except StoreError:
            self.local_decisions += 1
        try:
            return await self._local.take_tokens(name, amount, limit, MINUTE)
        except StoreError:  # more keys than we keep books for, and no store: let them speak
            return 0.0


class Slot:
    """One generating context's place; given back exactly once however often ``release`` is called."""

    __slots__ = ("_gate", "context_key", "key_id", "tenant")

    def __init__(self, gate: ContextGate, principal: Principal, context_key: Hashable) -> None:
        self._gate = gate
        self.tenant = principal.tenant
        self.key_id = principal.key_id
        self.context_key = context_key

    def release(self) -> None:
        """Give the place back; a second call does nothing."""
        self._gate.release_slot(self)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


class _Beat(msgspec.Struct):
    node: str
    tenants: dict[str, int]
    keys: dict[str, int]


@dataclass(slots=True)
class _Peer:
    heard: float
    beat: _Beat


class ContextGate:
    """Counts contexts that generate, per key and per tenant. No I/O where contexts are let in.

    With a shared store the gateways tell each other their counts once a second and at each change, so that a
    limit holds over all of them, up to what is let in within one such message's flight. A gateway that falls
    silent counts no more after 3.5 s: nothing is left behind by one that dies.
    """

    def __init__(self, store: Store | None = None, *, clock: Clock = time.monotonic, node: str = "") -> None:
        self._store = store
        self._clock = clock
        self._node = node or secrets.token_hex(8)
        self._slots: dict[Hashable, Slot] = {}
        self._tenants: Counter[str] = Counter()
        self._keys: Counter[str] = Counter()
        self._peers: dict[str, _Peer] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: Unsubscribe | None = None

    @property
    def active(self) -> int:
        """Contexts that generate here."""
        return len(self._slots)

    async def start(self) -> None:
        """Begin to exchange counts, if there is a store."""
        if self._store is None or self._task is not None:
            return
        self._unsubscribe = await self._store.subscribe(CHANNEL, self.hear)
        self._task = asyncio.create_task(self._beats(self._store), name="context-gate")

    async def close(self) -> None:
        """Stop exchanging counts."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def acquire(self, principal: Principal, context_key: Hashable) -> Slot:
        """Let a context generate. Raises LimitExceeded with ``retry_after``.

        ``context_key`` names the context in this process (session and context id). One that already generates
        keeps its slot and is counted once.
        """
        held = self._slots.get(context_key)
        if held is not None:
            if held.key_id != principal.key_id or held.tenant != principal.tenant:
                raise LimitExceeded("this context belongs to another key")
            return held
        for who, limit, here, name in (
            ("key", principal.limits.contexts, self._keys, principal.key_id),
            ("tenant", principal.tenant_limits.contexts, self._tenants, principal.tenant),
        ):
            if limit is not None and here[name] + self._elsewhere(who, name) >= limit:
                raise LimitExceeded(
                    f"this {who} may speak in {limit} contexts at the same time", retry_after=GATE_RETRY
                )
        slot = Slot(self, principal, context_key)
        self._slots[context_key] = slot
        self._tenants[slot.tenant] += 1
        self._keys[slot.key_id] += 1
        self._changed.set()
        return slot

    def release(self, context_key: Hashable) -> bool:
        """Give a context's slot back; False if it held none."""
        slot = self._slots.get(context_key)
        return slot is not None and self.release_slot(slot)

    def release_slot(self, slot: Slot) -> bool:
        """Give this very slot back; False if it was given back before."""
        if self._slots.get(slot.context_key) is not slot:
            return False
        del self._slots[slot.context_key]
        for counter, name in ((self._tenants, slot.tenant), (self._keys, slot.key_id)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
        self._changed.set()
        return True

    def generating(self, *, tenant: str | None = None, key_id: str | None = None) -> int:
        """Contexts that generate for a tenant or key, over all gateways heard of lately."""
        if tenant is not None:
            return self._tenants[tenant] + self._elsewhere("tenant", tenant)
        return self._keys[key_id or ""] + self._elsewhere("key", key_id or "")

    # Other gateways

    def hear(self, message: bytes) -> None:
        """Take in what another gateway said; anything that is not such a message is left alone."""
        try:
            beat = msgspec.msgpack.decode(message, type=_Beat)
        except msgspec.MsgspecError:
            return
        if beat.node != self._node:
            self._peers[beat.node] = _Peer(self._clock(), beat)

    def tell(self) -> bytes:
        """What this gateway says of itself."""
        return msgspec.msgpack.encode(_Beat(self._node, dict(self._tenants), dict(self._keys)))

    def _elsewhere(self, who: str, name: str) -> int:
        if not self._peers:
            return 0
        oldest = self._clock() - SILENT_S
        for node in [n for n, p in self._peers.items() if p.heard < oldest]:
            del self._peers[node]
        counts = (p.beat.keys if who == "key" else p.beat.tenants for p in self._peers.values())
        return sum(max(0, c.get(name, 0)) for c in counts)

    async def _beats(self, store: Store) -> None:
        while True:
            self._changed.clear()
            with contextlib.suppress(StoreError):
                await store.publish(CHANNEL, self.tell())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._changed.wait()
                    # Many contexts that change together make one message.
                    await asyncio.sleep(0.02)

"""Everything about a deployment's voices on one gateway, put together."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable

from sessions.audit import AuditChain
from sessions.consent import EARS, How
from sessions.consents import PAPER, ConsentBook
from sessions.enrolment import Enrolment
from sessions.nodes import NodeRegistry
from sessions.receipts import Deletions
from sessions.secret import DeploymentSecret
from sessions.signing import Signer
from sessions.store import Clock, Store, Wall
from sessions.voice_catalogue import VoiceCatalogue
from sessions.voice_limits import VoiceGuard, VoiceLimits
from sessions.voices import VoiceStore


class VoiceDesk:
    """The parts are plain attributes; this only joins, starts and closes them.

    Args:
        store: shared by the gateways; for what ends by itself.
        secret: of the deployment.
        lasting: shared as well, for what must outlive a restart: consents, permanent voices, deletions and
            the audit chain (None: in ``store``, too).
        node: this gateway's name in receipts, new at each start (None: a random one).
        size: exact bytes of conditioning that the model makes, as float16 (None: any bytes).
        limits: of each tenant.
        verified: ways of consent that this installation can check.
        missing: what it takes for the others, in words.
        clock: monotonic seconds.
        wall: Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        secret: DeploymentSecret,
        *,
        lasting: Store | None = None,
        node: str | None = None,
        size: int | None = None,
        limits: VoiceLimits | None = None,
        verified: Iterable[How] = PAPER,
        missing: str = EARS,
        clock: Clock = time.monotonic,
        wall: Wall = time.time,
    ) -> None:
        self.signer = Signer(secret)
        lasting = lasting or store
        self.audit = AuditChain(lasting, wall=wall)
        self.nodes = NodeRegistry(lasting, node or f"node-{secrets.token_hex(6)}", wall=wall)
        self.voices = VoiceStore(store, secret, lasting=lasting, clock=clock, wall=wall)
        self.guard = VoiceGuard(store, self.voices.catalogue, limits)
        self.deletions = Deletions(
            lasting, self.voices, self.signer, audit=self.audit, nodes=self.nodes, wall=wall
        )
        self.consents = ConsentBook(
            lasting,
            secret,
            self.signer,
            audit=self.audit,
            guard=self.guard,
            withdraw=self.deletions.withdraw,
            verified=verified,
            missing=missing,
            wall=wall,
        )
        self.voices.use_consents(self.consents.valid)
        self.enrolment = Enrolment(
            store,
            secret,
            self.voices,
            consents=self.consents,
            guard=self.guard,
            audit=self.audit,
            size=size,
            clock=clock,
        )

    @property
    def catalogue(self) -> VoiceCatalogue:
        """The tenants' voices by name."""
        return self.voices.catalogue

    async def start(self) -> None:
        """Listen and take part; a store that is away is no error."""
        await self.voices.start()
        await self.consents.listener.start()
        await self.enrolment.listener.start()
        await self.deletions.start()

    async def close(self) -> None:
        """Drop all copies, answer open deletions, leave. Idempotent."""
        await self.enrolment.listener.close()
        await self.consents.listener.close()
        await self.deletions.close()
        await self.voices.close()

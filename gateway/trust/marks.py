"""The deployment's marks: laid in what is spoken, and looked for in references and recordings.

A mark says "this deployment made it". Its key is derived from the deployment's secret and the year alone, so
one pass finds it, whoever's call it was: a key for each tenant and five minutes would be as many searches,
0.06 s each on a window of twelve seconds. What tells calls apart is the payload, ten bits that are derived
from tenant and slot (five minutes): one in 1024 slots of a tenant fits by chance, so a recording leads to the
right slot and about one more in three and a half days of a tenant's log.

The price of one key: who may have much speech of one year can average the mark out of it, or copy it, for all
tenants of this deployment. A copy takes 12 s of marked speech with any key, so a key for each call would not
prevent it; that is why a hit is a reason to look, not a proof. The year limits what averaging is worth.

References are held to the higher bar of the detector, as a person's own voice must not be refused by chance:
one in 2.5 million.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from gateway.intake.clip import RATE, Clip
from gateway.intake.quality import Finding
from sessions.consent import ConsentRecord, How
from sessions.output import Marks
from sessions.secret import DeploymentSecret
from telephony.dsp.mark import PAYLOAD_BITS, Marker, Stream
from telephony.dsp.mark_detector import Detection, search

SLOT_S = 300
"""Seconds of a slot, counted from the Unix epoch."""

FIRST_YEAR: Final = 2026
"""No marks were laid before."""

CODE = "synthetic"
SYNTHETIC = "the recording carries a mark of synthetic speech: a voice is not made of it"
LICENSED = "the recording carries a mark of synthetic speech; its consent is a licence"


@lru_cache(maxsize=128)
def _marker(rate: int, key: bytes, payload: int) -> Marker:
    return Marker(rate, key, payload)


class Marking:
    """What marks are made of and found by.

    Args:
        secret: the same on every gateway of the deployment.
        wall: Unix seconds.
    """

    def __init__(self, secret: DeploymentSecret, *, wall: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._wall = wall
        self._slots = secret.derive("audio mark slots")

    def of(self, tenant: str) -> Marks:
        """For a context of ``tenant`` that begins now: makes the mark for audio of a rate.

        A mark begins anywhere in its period, as many contexts that begin alike would be easy to average. The
        first one of a slot and rate costs 1 to 3 ms.
        """
        now = self._wall()
        payload = self.payload(tenant, int(now // SLOT_S))
        key = self._key(_year(now))

        def make(rate: int) -> Stream:
            marker = _marker(rate, key, payload)
            return Stream(marker, secrets.randbelow(marker.blocks))

        return make

    def payload(self, tenant: str, slot: int) -> int:
        """The ten bits that speech of ``tenant`` carries if it began in ``slot``."""
        message = slot.to_bytes(8, "big") + tenant.encode("utf-8", "surrogatepass")
        return int.from_bytes(hmac.digest(self._slots, message, "sha256")[:4], "big") >> (32 - PAYLOAD_BITS)

    def slots(self, tenant: str, payload: int, first: float, last: float) -> Iterator[float]:
        """When (Unix seconds) the slots of ``tenant`` with this payload begin, from ``first`` to ``last``."""
        for slot in range(int(first // SLOT_S), int(last // SLOT_S) + 1):
            if self.payload(tenant, slot) == payload:
                yield float(slot * SLOT_S)

    def keys(self) -> list[bytes]:
        """All keys that were ever used, this year's first."""
        return [self._key(year) for year in range(max(FIRST_YEAR, _year(self._wall())), FIRST_YEAR - 1, -1)]

    def _key(self, year: int) -> bytes:
        return self._secret.derive("audio mark", str(year))


def _year(seconds: float) -> int:
    return max(FIRST_YEAR, datetime.fromtimestamp(seconds, UTC).year)


def verdict(marked: bool, record: ConsentRecord) -> list[Finding]:
    """What a mark in a reference means under its consent: only a licence covers synthetic voices (V6)."""
    if not marked:
        return []
    if record.how == How.LICENSED:
        return [Finding(CODE, "warn", LICENSED)]
    return [Finding(CODE, "refuse", SYNTHETIC)]


class MarkCheck:
    """Refuses references that carry this deployment's mark; a ``gateway.trust.check.Check``.

    One clip at a time: threads that search at once hold each other up, and the event loop with them.
    """

    def __init__(self, marking: Marking) -> None:
        self._marking = marking
        self._turn = asyncio.Lock()

    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        """A refusal or, for a licensed voice, a warning. Cancelled, it waits for the window it is at."""
        async with self._turn:
            found = await self._search(clip)
        return verdict(found.sure, record)

    async def _search(self, clip: Clip) -> Detection:
        stopped = threading.Event()
        running = asyncio.ensure_future(
            asyncio.to_thread(search, clip.pcm, RATE, self._marking.keys(), stopped=stopped.is_set)
        )
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stopped.set()
            await asyncio.wait({running})
            raise


__all__ = ["CODE", "FIRST_YEAR", "SLOT_S", "MarkCheck", "Marking", "verdict"]

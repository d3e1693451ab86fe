"""What a tenant may do with voices: consents and enrolments an hour, living voices, wrong consents (V15).

These limits guard people, not performance: while the store is away nothing is enrolled anyway, so unlike the
limits of speech they have no local stand-in.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions.store import Store, key
from sessions.voice_catalogue import VoiceCatalogue
from tts_core.errors import LimitExceeded, StoreError

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class VoiceLimits:
    """Per tenant.

    ``session_voices`` and ``permanent_voices`` live or are being made at the same time. After
    ``wrong_consents`` within ``consent_window`` seconds, every consent is refused for ``consent_pause``
    seconds.
    """

    enrolments_per_hour: int = 120
    consents_per_hour: int = 600
    session_voices: int = 200
    permanent_voices: int = 2000
    wrong_consents: int = 5
    consent_window: float = 900.0
    consent_pause: float = 900.0


class VoiceGuard:
    """Counts, for all gateways. Every method raises StoreError."""

    def __init__(self, store: Store, catalogue: VoiceCatalogue, limits: VoiceLimits | None = None) -> None:
        self._store = store
        self._catalogue = catalogue
        self.limits = limits or VoiceLimits()

    async def enrolment(self, tenant: str, *, session: bool) -> str:
        """Count one enrolment and take a place; the id for the voice, see :meth:`give_back`.

        However many gateways ask at once, no more than the limit get a place. Raises LimitExceeded; then
        nothing was counted. Raises StoreError, too, where the store must not hold voices.
        """
        if self._catalogue.home(session=session).faults:
            raise StoreError("the store must not hold voices now")
        most = self.limits.session_voices if session else self.limits.permanent_voices
        voice_id = await self._catalogue.reserve(tenant, session=session, most=most)
        if voice_id is None:
            what = "voices of sessions" if session else "permanent voices"
            raise LimitExceeded(f"a tenant may have {most} {what} at a time")
        limit = self.limits.enrolments_per_hour
        try:
            await self._count(key(tenant, "enrolments"), limit, f"a tenant may enrol {limit} voices an hour")
        except LimitExceeded:
            await self.give_back(tenant, voice_id, session=session)
            raise
        return voice_id

    async def consent(self, tenant: str) -> None:
        """Count one new consent or challenge; they are kept for years. Raises LimitExceeded."""
        limit = self.limits.consents_per_hour
        name = key(tenant, "consents", "recorded")
        await self._count(name, limit, f"a tenant may record {limit} consents an hour")

    async def _count(self, name: str, limit: int, words: str) -> None:
        wait = await self._store.take_tokens(name, 1, limit, HOUR)
        if wait > 0:
            raise LimitExceeded(words, retry_after=None if wait == float("inf") else wait)

    async def give_back(self, tenant: str, voice_id: str, *, session: bool) -> None:
        """Free the place of an enrolment that made no voice."""
        await self._catalogue.give_back(tenant, voice_id, session=session)

    async def consents_open(self, tenant: str) -> None:
        """Raises LimitExceeded during the pause after too many wrong consents."""
        if (await self._store.exists(key(tenant, "consents", "paused")))[0]:
            raise LimitExceeded(
                "too many consents were refused: try again later", retry_after=self.limits.consent_pause
            )

    async def wrong_consent(self, tenant: str) -> None:
        """Count one; the last one allowed begins the pause."""
        name = key(tenant, "consents", "wrong")
        if await self._store.increment(name, self.limits.consent_window) >= self.limits.wrong_consents:
            await self._store.set(key(tenant, "consents", "paused"), b"1", self.limits.consent_pause)
            await self._store.delete(name)

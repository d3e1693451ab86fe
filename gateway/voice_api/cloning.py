"""Makes voices for the routes: checks, decoder, engine and store put together, in that order.

Nothing is decoded before the consent holds, nothing is computed before the clip is judged and inspected, and
nothing is left of the clip afterwards (trust.md V1, V4, V13).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.intake.clip import RATE, Clip, decode_clip
from gateway.intake.fetch import Fetcher, FetchPolicy
from gateway.intake.quality import Finding, assess, refuse
from gateway.places import Places
from gateway.speaking import CannotClone, voice_revision
from gateway.voice_api.upload import Enrolment, Upload
from sessions.consent import Reach
from tts_core.errors import BadRequest, EngineError, EngineTimeout, VoxwireError

if TYPE_CHECKING:
    from gateway.services import Services
    from sessions.voices import StoredVoice

ENROL_S = 30.0
"""For the engine; it takes a second or two."""
AT_ONCE = 8
"""Clips on their way at once, of 10 MB at most each; one more is refused."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new voice, and what may be said against its clip."""

    voice: StoredVoice
    warnings: tuple[Finding, ...]


class Cloning:
    """Makes voices on one gateway."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.fetcher = Fetcher(FetchPolicy(hosts=services.settings.reference_hosts))
        self._places = Places(AT_ONCE, "other voices are being made", retry_after=2.0)

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """A place among those whose clips are on their way, from before the first byte to the voice.

        Raises CannotClone, Busy where there is none, and Draining: a voice takes longer to make than a
        restart should wait.
        """
        if not self._services.engine.info.can_clone:
            raise CannotClone
        self._services.refuse_if_draining()
        with self._places.one(tenant):
            yield

    async def make(self, tenant: str, upload: Upload) -> Made:
        """A voice from an upload, whose clip is overwritten whatever comes of it.

        Raises Forbidden, UnknownSession, LimitExceeded, BadRequest and its ReferenceRefused, EngineError,
        Busy, StoreError. Cancelled, it keeps nothing.
        """
        outcomes = self._services.metrics.voices_made
        try:
            made = await self._make(tenant, upload)
        except VoxwireError as error:
            outcomes.labels("refused" if error.status < 500 else "failed").inc()
            raise
        finally:
            upload.wipe()
        outcomes.labels("made").inc()
        return made

    async def _make(self, tenant: str, upload: Upload) -> Made:
        services, asked = self._services, upload.asked
        session = asked.session or None
        self._check(tenant, asked)
        kind = Reach.PERMANENT if session is None else Reach.SESSION
        consents = services.desk.consents
        record = await consents.require(tenant, asked.consent, kind=kind, language=asked.language)
        if asked.url:
            upload.clip = await self.fetcher.fetch(asked.url)
        digest = await asyncio.to_thread(_digest, upload.clip)
        clip = await decode_clip(upload.clip)
        try:
            findings = assess(clip)
            refuse(findings)
            findings += await services.inspector.inspect(clip, record)
            info = services.engine.info
            voice = await services.desk.enrolment.enrol(
                tenant,
                session,
                digest,
                voice_revision(info),
                asked.consent,
                lambda: self._compute(clip),
                name=asked.name,
                language=asked.language,
                ttl=asked.ttl,
                notes=tuple(f.code for f in findings),
            )
        finally:
            clip.wipe()
        if session is not None:
            try:
                services.holds.add(voice)
            except VoxwireError:
                await services.voices.delete_surely(tenant, voice.voice_id)
                raise
        return Made(voice, tuple(findings))

    def _check(self, tenant: str, asked: Enrolment) -> None:
        if not asked.consent:
            raise BadRequest("a voice needs a consent: POST /v1/consents makes one", field="consent")
        if asked.session:
            if asked.ttl is not None:
                raise BadRequest("a session's voice ends with the session: leave ttl out", field="ttl")
            self._services.holds.check(tenant, asked.session)

    async def _compute(self, clip: Clip) -> bytes:
        try:
            async with asyncio.timeout(ENROL_S):
                return await self._services.engine.enroll(clip.best, RATE)
        except TimeoutError:
            raise EngineTimeout("the engine did not make the voice in time") from None
        except VoxwireError:
            raise
        except Exception as error:
            raise EngineError("the engine could not make the voice") from error


def _digest(data: bytearray) -> str:
    return hashlib.sha256(data).hexdigest()


__all__ = ["Cloning", "Made"]

"""Consent that is spoken, and whose voice a clip has (trust.md V2, V3, V4, V7).

    verifier = Verifier(challenges, desk, recogniser, speakers)
    issued = await verifier.challenge("acme", company="Acme Health")      # read aloud within two minutes
    record = await verifier.record("acme", issued.id, answer, terms)      # answer: a bytearray, overwritten
    inspector.checks.append(VoiceCheck(desk.consents, desk.audit, speakers, denied))

What is recorded of an answer: a digest of text and sound, and what the speaker model made of the voice,
sealed. The sound is not. An answer that fails counts as a wrong consent; after five of them within 15 minutes
a tenant waits as long (V15).
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import numpy as np

from gateway.intake.activity import RATE
from gateway.intake.clip import Clip, decode_clip, overwrite
from gateway.intake.decoder import Limits
from gateway.intake.quality import Finding, assess, refuse
from gateway.trust.challenge import WRONG_WORDS, Challenge, ChallengeGone, Challenges, Issued
from gateway.trust.recogniser import Recogniser
from gateway.trust.speaker import (
    SEVERAL_SPEAKERS,
    THRESHOLD,
    SpeakerModel,
    Vectors,
    one_speaker,
    require_one_speaker,
)
from sessions.audit import AuditChain
from sessions.consent import ConsentRecord, ConsentTerms, How
from sessions.consents import SPOKEN, ConsentBook
from sessions.denied import DenyList
from sessions.voice_desk import VoiceDesk
from tts_core.errors import BadRequest

ANSWER = Limits(max_seconds=30.0)
"""What is listened to: the text takes some 12 s, and Whisper hears 30 s at a time."""
OTHER_SPEAKER = "other_speaker"
DENIED = "denied"


class NotRead(BadRequest):
    """What was heard is not the text of the challenge."""

    code = "challenge_not_read"
    status = 422


class Verifier:
    """Gives out challenges and judges answers.

    Args:
        challenges: given out to tenants.
        desk: where consents are recorded, and failures counted.
        recogniser: started.
        speakers: the loaded model.
    """

    def __init__(
        self, challenges: Challenges, desk: VoiceDesk, recogniser: Recogniser, speakers: SpeakerModel
    ) -> None:
        self._challenges = challenges
        self._desk = desk
        self._speakers = speakers
        self.recogniser = recogniser

    async def challenge(self, tenant: str, *, language: str = "en", company: str = "") -> Issued:
        """A text to be read aloud.

        Raises LimitExceeded after too many failures, or for too many an hour; as
        :meth:`gateway.trust.challenge.Challenges.issue`.
        """
        await self._desk.guard.consents_open(tenant)
        await self._desk.guard.consent(tenant)
        return await self._challenges.issue(tenant, language=language, company=company)

    async def record(
        self, tenant: str, challenge_id: str, answer: bytearray, terms: ConsentTerms
    ) -> ConsentRecord:
        """The record of a consent whose text was read in ``answer``, a file as :func:`decode_clip` takes it.

        ``terms.evidence`` is replaced: SHA-256 of ``SHA-256 of the text:SHA-256 of the file``, both in hex.
        ``answer`` is overwritten whatever comes of it. Bad terms, a bad file and a full queue leave the
        challenge open; whatever was listened to has used it up.

        Raises BadRequest, its ReferenceRefused for the recording, ChallengeGone and NotRead; LimitExceeded,
        Busy, EngineError, StoreError.
        """
        desk = self._desk
        try:
            await desk.guard.consents_open(tenant)
            digest = await asyncio.to_thread(lambda: hashlib.sha256(answer).hexdigest())
            desk.consents.check(replace(terms, evidence=digest))
            await self._open(tenant, challenge_id)
            clip = await decode_clip(answer, limits=ANSWER)
        finally:
            overwrite(memoryview(answer))
        try:
            refuse(assess(clip))
            voice = await asyncio.to_thread(self._voice, clip)
            challenge = await self._heard(tenant, challenge_id, clip)
        finally:
            clip.wipe()
        evidence = hashlib.sha256(f"{challenge.digest}:{digest}".encode()).hexdigest()
        return await desk.consents.create(tenant, replace(terms, evidence=evidence), voice=pack(voice))

    async def _open(self, tenant: str, challenge_id: str) -> None:
        try:
            await self._challenges.look(tenant, challenge_id)
        except ChallengeGone:
            await self._failed(tenant, "gone")
            raise

    async def _heard(self, tenant: str, challenge_id: str, clip: Clip) -> Challenge:
        try:
            challenge = await self._challenges.take(tenant, challenge_id)
        except ChallengeGone:
            await self._failed(tenant, "gone")
            raise
        wrong = challenge.wrong(await self.recogniser.hear(clip.pcm, challenge.language))
        if wrong > WRONG_WORDS:
            await self._failed(tenant, "not read")
            raise NotRead(
                "what was heard is not the text of the challenge: ask for a new one, and read all of it",
                field="file",
            )
        return challenge

    async def _failed(self, tenant: str, why: str) -> None:
        await self._desk.guard.wrong_consent(tenant)
        await self._desk.audit.append("consent.refused", tenant=tenant, details={"why": why})

    def _voice(self, clip: Clip) -> Vectors:
        windows = self._speakers.windows(clip.pcm, RATE)
        require_one_speaker(windows)
        return centre(windows)


class VoiceCheck:
    """Whose voice a clip has: one person's (V4), nobody's who is denied (V7), the consent's (V3).

    Without a model (``speakers`` None) nothing is found, but all that is made under spoken consents is
    refused, and everything while voices are denied: a safeguard must not be left out silently (S35). How
    alike consent and clip are goes into the audit chain, passed or not; the sound and what the model made of
    it do not.
    """

    def __init__(
        self,
        book: ConsentBook,
        audit: AuditChain,
        speakers: SpeakerModel | None,
        denied: DenyList | None = None,
    ) -> None:
        self._book = book
        self._audit = audit
        self._speakers = speakers
        self._denied = denied

    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        """A refusal, or nothing. Raises ReferenceRefused for too little speech; StoreError."""
        spoken = How(record.how) in SPOKEN
        if self._speakers is None and self._denied is not None and not await self._denied.empty():
            return [_refusal(DENIED, "voices are denied here, and this gateway has no model to compare by")]
        if self._speakers is None:
            return [_refusal(OTHER_SPEAKER, "this gateway has no model to compare two voices by")] * spoken
        windows = await asyncio.to_thread(self._speakers.windows, clip.pcm, RATE)
        if not one_speaker(windows):
            return [_refusal(SEVERAL_SPEAKERS, "more than one person speaks in the recording")]
        voice = centre(windows)
        if self._denied is not None and await self._denied.match(voice):
            await self._audit.append("voice.refused", tenant=record.tenant, subject=record.id)
            return [_refusal(DENIED, "no voice may be made of this recording")]
        if spoken and not await self._same(voice, record):
            return [_refusal(OTHER_SPEAKER, "the recording is not of the person who spoke the consent")]
        return []

    async def _same(self, voice: Vectors, record: ConsentRecord) -> bool:
        kept = await self._book.voice(record)
        if kept is None:  # it was revoked a moment ago
            return False
        score = SpeakerModel.similarity(voice, unpack(kept))
        await self._audit.append(
            "voice.compared",
            tenant=record.tenant,
            subject=record.id,
            details={"similarity": f"{score:.3f}", "threshold": f"{THRESHOLD:.3f}"},
        )
        return score >= THRESHOLD


def _refusal(code: str, message: str) -> Finding:
    return Finding(code, "refuse", message)


def centre(windows: Vectors) -> Vectors:
    """One voice from the windows of a recording, as :meth:`SpeakerModel.embed` makes it."""
    mean = windows.mean(axis=0)
    made: Vectors = (mean / max(float(np.linalg.norm(mean)), 1e-9)).astype(np.float32)
    return made


def pack(voice: Vectors) -> bytes:
    """As little-endian float32, nothing else."""
    return voice.astype("<f4").tobytes()


def unpack(kept: bytes) -> Vectors:
    """The opposite of :func:`pack`."""
    return np.frombuffer(kept, "<f4").astype(np.float32)


__all__ = ["NotRead", "Verifier", "VoiceCheck"]

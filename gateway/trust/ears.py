"""What this installation can hear: speech, voices, both or neither; and what follows from it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gateway.settings import Settings
from gateway.trust.challenge import Challenges, Pick, pick
from gateway.trust.recogniser import Recogniser
from gateway.trust.speaker import SpeakerModel
from gateway.trust.verifier import Verifier, VoiceCheck
from sessions.consent import How
from sessions.consents import PAPER, SPOKEN
from sessions.denied import DenyList
from sessions.store import Store
from sessions.voice_desk import VoiceDesk


@dataclass(frozen=True, slots=True)
class Ears:
    """The loaded model of speakers and the started recogniser; None for what is not configured."""

    speakers: SpeakerModel | None = None
    recogniser: Recogniser | None = None

    @property
    def verified(self) -> frozenset[How]:
        """Ways of consent that can be checked."""
        return PAPER if self.missing else PAPER | SPOKEN

    @property
    def missing(self) -> str:
        """What it takes for the others, in words."""
        lacks = (
            (self.recogniser, "speech recognition (VOXWIRE_CONSENT_ASR)"),
            (self.speakers, "a comparison of speakers (VOXWIRE_SPEAKER_MODEL)"),
        )
        return " and ".join(words for part, words in lacks if part is None)

    def verifier(self, store: Store, desk: VoiceDesk, *, choose: Pick = pick) -> Verifier | None:
        """Of spoken consents; its challenges lie in ``store``. None where something is missing."""
        if self.recogniser is None or self.speakers is None:
            return None
        return Verifier(Challenges(store, pick=choose), desk, self.recogniser, self.speakers)

    def check(self, desk: VoiceDesk, denied: DenyList) -> VoiceCheck:
        """The check of a clip, which refuses under spoken consents where there is no model."""
        return VoiceCheck(desk.consents, desk.audit, self.speakers, denied)


async def open_ears(settings: Settings, closing: AsyncExitStack) -> Ears:
    """Load and start what is configured; ``closing`` ends it.

    Raises SettingsError: a safeguard that cannot start must stop the server (trust.md S35).
    """
    speakers = None
    if settings.speaker_model is not None:
        speakers = await asyncio.to_thread(SpeakerModel.load, settings.speaker_model)
    recogniser = None
    if settings.consent_asr is not None:
        recogniser = Recogniser(settings.consent_asr, python=settings.consent_python)
        closing.push_async_callback(recogniser.close)
        await recogniser.start()
    return Ears(speakers, recogniser)


__all__ = ["Ears", "open_ears"]

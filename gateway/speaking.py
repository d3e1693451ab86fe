"""Opens contexts for the dialects: voice, tenant limits, phrase cache and metrics put together."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sessions.context import Context, ContextOptions
from sessions.events import Cancelled, Done, Event, Failed
from sessions.playback import Playback, PlaybackClock
from sessions.runner import ContextRunner, Sink, Speech
from tts_core.errors import LimitExceeded, UnknownVoice

if TYPE_CHECKING:
    from gateway.services import Services
    from sessions.limits import Slot
    from sessions.principal import Principal
    from tts_core.engine import VoiceInfo

log = logging.getLogger(__name__)

_OUTCOMES = {Done: "done", Cancelled: "cancelled", Failed: "failed"}


class Speaking:
    """One per gateway."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def voices(self, principal: Principal) -> list[VoiceInfo]:
        """The voices that this caller may ask for."""
        voices = self._services.engine.info.voices
        if principal.voice is None:
            return list(voices)
        try:
            bound = self._known(principal.voice)
        except UnknownVoice:
            return []
        return [v for v in voices if v.id == bound]

    def voice(self, principal: Principal, name: str) -> str:
        """The engine's voice for what a client asked.

        An empty name is the default voice, or the one that a token is bound to. Aliases come from the
        settings; the alias "*" takes every name that is not known otherwise. Raises UnknownVoice if there is
        none, Forbidden if a token is for another one.
        """
        voice = self._known(name or principal.voice or "")
        if principal.voice is not None and voice != self._known(principal.voice):
            principal.require_voice(voice)
        return voice

    def _known(self, name: str) -> str:
        services = self._services
        voices = services.engine.info.voices
        default = services.settings.default_voice or voices[0].id
        aliases = services.settings.voice_aliases
        wanted = name or default
        wanted = aliases.get(wanted, wanted)
        if wanted == "default":
            wanted = default
        known = {v.id for v in voices}
        if wanted not in known and "*" in aliases:
            wanted = aliases["*"]
        if wanted not in known:
            raise UnknownVoice("there is no voice of this id; GET /v1/voices lists them", field="voice")
        return wanted

    def runner(
        self,
        *,
        principal: Principal,
        allowance: Allowance,
        dialect: str,
        context_id: str,
        options: ContextOptions,
        sink: Sink,
        playback: Playback | None = None,
        finishing: bool = False,
        has_text: bool = False,
    ) -> ContextRunner:
        """A runner for a new context; the caller starts it.

        ``allowance`` is shared by all contexts of one session; ``finishing`` as in ``Session.may_open``.
        ``has_text``: it is to speak at once, so that it is refused here where there is no room; a refusal
        must cost next to nothing, or a flood of them would hold up those who were let in.

        Raises Draining when the gateway takes no new work, Busy, and BadRequest for a bad id.
        """
        services = self._services
        if not finishing:
            services.refuse_if_draining()
        if has_text:
            services.scheduler.check()
        context = Context(context_id, options, services.clock)
        if playback is None:
            playback = PlaybackClock(options.format.rate, services.clock)
        observer = _Observer(services, dialect, playback)
        speech = Speech(
            speaker=services.scheduler,
            normaliser=services.normaliser,
            info=services.engine.info,
            clock=services.clock,
            observer=observer,
            spawn=services.spawn,
        )
        runner = observer.runner = ContextRunner(
            context,
            speech,
            sink,
            playback,
            TenantAdmission(services, principal, allowance),
            services.phrases.of(principal, services.engine.info)
            if options.cache and services.phrases is not None
            else None,
        )
        return runner


class Allowance:
    """What a token narrowed to some characters may still have spoken in its session."""

    def __init__(self, principal: Principal) -> None:
        self._most = self._left = principal.max_characters

    def take(self, characters: int) -> None:
        """Count text about to be spoken; LimitExceeded beyond the token's characters."""
        if self._left is None:
            return
        if characters > self._left:
            raise LimitExceeded(f"this token is for {self._most} characters")
        self._left -= characters


class TenantAdmission:
    """A context's share of its tenant's limits; fulfils ``sessions.runner.Admission``."""

    def __init__(self, services: Services, principal: Principal, allowance: Allowance) -> None:
        self._services = services
        self._principal = principal
        self._allowance = allowance
        self._slot: Slot | None = None
        self._requests = 1  # a context is one request, counted with its first text

    async def enter(self) -> None:
        """Take a place among the generating contexts; LimitExceeded."""
        self._slot = self._services.limits.acquire(self._principal, self)

    def leave(self) -> None:
        """Give the place back; a second call does nothing."""
        if self._slot is not None:
            self._slot.release()
            self._slot = None

    async def charge(self, characters: int) -> None:
        """Count text about to be spoken; LimitExceeded."""
        self._allowance.take(characters)
        await self._services.rates.use(self._principal, requests=self._requests, characters=characters)
        self._requests = 0


class _Observer:
    """Metrics and logs of one context."""

    def __init__(self, services: Services, dialect: str, playback: Playback) -> None:
        self._services = services
        self._dialect = dialect
        self._playback = playback
        self._held = ExitStack()
        self.runner: ContextRunner

    def started(self, context: Context) -> None:
        self._services.runners.add(self.runner)
        self._held.enter_context(self._services.in_flight.one())
        self._services.playing[self] = (self._dialect, self._playback)
        self._services.metrics.context_opened(self._dialect)

    def first_audio(self, context: Context) -> None:
        return

    def underrun(self, context: Context, seconds: float) -> None:
        log.warning(
            "listener ran dry", extra={"context": context.id, "dialect": self._dialect, "seconds": seconds}
        )

    def ended(self, context: Context, event: Event) -> None:
        self._held.close()
        self._services.runners.discard(self.runner)
        self._services.playing.pop(self, None)
        stats = context.stats
        outcome = _OUTCOMES[type(event)]
        self._services.metrics.context_closed(self._dialect, outcome, stats)
        if isinstance(event, Failed):
            self._services.metrics.refused(event.error.code)
        text = {"text": context.source} if self._services.settings.log_text else {}
        log.info(
            "context ended",
            extra={
                "context": context.id,
                "dialect": self._dialect,
                "outcome": outcome,
                "code": event.error.code if isinstance(event, Failed) else None,
                "characters": stats.characters,
                "audio_s": round(stats.audio_s, 3),
                "first_audio_ms": round(stats.first_audio * 1000, 1) if stats.first_audio >= 0 else None,
                "underruns": stats.underruns,
                **text,
            },
        )

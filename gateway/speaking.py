"""Opens contexts for the dialects: voice, tenant limits, phrase cache and metrics put together."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sessions.context import Context, ContextOptions
from sessions.events import Cancelled, Done, Event, Failed
from sessions.playback import Playback, PlaybackClock
from sessions.principal import Scope
from sessions.runner import Conditioning, ContextRunner, Sink, Speech
from sessions.voice_catalogue import VOICE_ID
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest, LimitExceeded, StoreError, UnknownVoice

if TYPE_CHECKING:
    from gateway.services import Services
    from sessions.limits import Slot
    from sessions.principal import Principal
    from sessions.voice_catalogue import VoiceEntry
    from tts_core.engine import EngineInfo

log = logging.getLogger(__name__)

VoiceKind = Literal["built_in", "permanent", "session"]

LISTED = 200
"""Of a tenant's own voices in a greeting; GET /v1/voices has all."""

_OUTCOMES = {Done: "done", Cancelled: "cancelled", Failed: "failed"}


class CannotClone(BadRequest):
    """The engine has no voices but its own."""

    code = "cannot_clone"
    status = 409

    def __init__(self) -> None:
        super().__init__("this engine cannot clone voices; GET /v1/voices lists its own", field="voice")


def voice_revision(info: EngineInfo) -> str:
    """Names the model that a voice's conditioning is for; another one cannot use it."""
    return f"{info.name} {info.revision}"


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice that a caller may use now.

    ``conditioning`` is None for a built-in one. ``lasting``: what it spoke may be kept for its tenant.
    """

    id: str
    conditioning: Conditioning | None = None
    lasting: bool = True


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

    async def listed(
        self, principal: Principal, scopes: Sequence[str] = ()
    ) -> list[tuple[VoiceInfo, VoiceKind]]:
        """The voices that are shown to this caller: built-in ones, then the tenant's, the newest first.

        Of the tenant's LISTED at most, and without the scope ``voice:read`` only those of ``scopes``: who may
        speak with a voice need not know the names of all. Without the store, built-in ones alone are known.
        """
        built_in: list[tuple[VoiceInfo, VoiceKind]] = [(v, "built_in") for v in self.voices(principal)]
        if not self._services.engine.info.can_clone:
            return built_in
        found: dict[str, VoiceEntry] = {}
        with contextlib.suppress(StoreError):
            for scope in scopes or (None,):
                own = await self._services.voices.catalogue.list(principal.tenant, session=scope)
                found |= {entry.id: entry for entry in own}
        entries = sorted(found.values(), key=lambda e: -e.created)
        if principal.voice is not None:
            entries = [e for e in entries if e.id == principal.voice]
        elif not principal.may(Scope.VOICE_READ):
            entries = [e for e in entries if e.session is not None]
        return built_in + [
            (VoiceInfo(e.id, e.name, e.language), "permanent" if e.session is None else "session")
            for e in entries[:LISTED]
        ]

    async def resolve(self, principal: Principal, name: str, scopes: Sequence[str] = ()) -> Voice:
        """The voice for what a client asked, be it built in or the tenant's own.

        ``scopes`` are the session and call in which it is to speak, whose voices may be used besides the
        permanent ones. Takes one look into the store where a voice of the tenant's own has not been used here
        for a while. Raises as :meth:`voice`, CannotClone, and StoreError.
        """
        voice_id = self.voice(principal, name)
        if not VOICE_ID.fullmatch(voice_id):
            return Voice(voice_id)
        services = self._services
        info = services.engine.info
        if not info.can_clone:
            raise CannotClone
        scope = services.holds.scope(principal.tenant, voice_id)
        session = scope if scope in scopes else None

        async def conditioning() -> bytes:
            services.metrics.voice_lookups += 1
            return await services.voices.conditioning(
                principal.tenant, voice_id, session=session, revision=voice_revision(info)
            )

        await conditioning()
        held = services.voices.cache.find(principal.tenant, voice_id)
        lasting = session is None and held is not None and math.isinf(held.voice.until)
        return Voice(voice_id, conditioning, lasting)

    def voice(self, principal: Principal, name: str) -> str:
        """The id of the voice for what a client asked.

        An empty name is the default voice, or the one that a token is bound to. Aliases come from the
        settings; the alias "*" takes every name that is not known otherwise. An id of the form of a tenant's
        own voice is passed: whether there is one, ``resolve`` knows. Raises UnknownVoice if there is none,
        Forbidden if a token is for another one.
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
        if VOICE_ID.fullmatch(wanted):
            return wanted
        if wanted not in known and "*" in aliases:
            wanted = aliases["*"]
        if wanted not in known:
            raise UnknownVoice(
                "there is no voice of this id; GET /v1/voices lists them, VOXWIRE_VOICE_ALIASES maps others",
                field="voice",
            )
        return wanted

    def _reads(self, voice: str) -> bool:
        """Whether we put numbers and the like into words: we do so in English alone."""
        info = self._services.engine.info
        language = next((v.language for v in info.voices if v.id == voice), "en")
        return info.text_form == "spoken" and language.partition("-")[0].lower() == "en"

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
        voice: Voice | None = None,
    ) -> ContextRunner:
        """A runner for a new context; the caller starts it.

        ``allowance`` is shared by all contexts of one session; ``finishing`` as in ``Session.may_open``.
        ``has_text``: it is to speak at once, so that it is refused here where there is no room; a refusal
        must cost next to nothing, or a flood of them would hold up those who were let in. ``voice`` is that
        of the options, as ``resolve`` gave it.

        Raises Draining when the gateway takes no new work, Busy, and BadRequest for a bad id.
        """
        services = self._services
        if not finishing:
            services.refuse_if_draining()
        if has_text:
            services.scheduler.check()
        if not self._reads(options.voice):
            options = replace(options, text=replace(options.text, normalise=False))
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
            if options.cache and services.phrases is not None and (voice is None or voice.lasting)
            else None,
            conditioning=None if voice is None else voice.conditioning,
            salt=services.voices.salt(principal.tenant, options.voice),
            marks=services.marking.of(principal.tenant) if services.settings.mark else None,
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
        del self.runner  # which has us
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

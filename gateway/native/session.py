"""A client's session on the native protocol: messages in, context verbs; context events, messages out.

A session outlives its connection: when that drops, contexts go on into the outbox until the client resumes or
``resume_s`` has passed. The websocket itself is driven by ``gateway.dialects.native``.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from gateway import fault
from gateway.calls import Call, CallHub, Turn
from gateway.speaking import Allowance, Speaking
from sessions.context import ContextOptions
from sessions.events import (
    RATES,
    Audio,
    AudioFormat,
    Cancelled,
    ContextStats,
    Done,
    Encoding,
    Event,
    Failed,
    Flushed,
    Heard,
    Words,
)
from sessions.runner import ContextRunner, Sink
from sessions.session import Session
from tts_core.errors import BadRequest, Busy, Draining, Forbidden, LegClosed, VoxwireError
from tts_core.text.segment import TextMode, TextOptions

from . import messages as m
from .frames import Flags, Kind, pack
from .outbox import Outbox, Send

if TYPE_CHECKING:
    from gateway.services import Services
    from gateway.sockets import Socket
    from sessions.principal import Principal

_FIELDS = {"context_id": "context", "sample_rate": "format.sample_rate"}
"""What the layers below call a field, and how it is called here."""

_NO_ROOM = {Busy.status, Draining.status}


class NativeContext:
    """One context of a native session."""

    def __init__(self, context_id: str, fmt: AudioFormat, call: Call | None) -> None:
        self.id = context_id
        self.format = fmt
        self.call = call
        self.index = 0
        self.texts = 0
        self.segment = 0
        self.runner: ContextRunner


ONCE = 64 << 10
"""Bytes that may wait for a client's first connection to take them."""


class NativeSession:
    """State of one client, over one connection after another.

    Args:
        services: the gateway's.
        principal: who it is; a resume must come from the same tenant.
        agent: what the client asked for in order to serve calls, if it did.
    """

    def __init__(self, services: Services, principal: Principal, agent: m.Agent | None) -> None:
        self._services = services
        self._speaking: Speaking = services.speaking
        self._calls: CallHub = services.calls
        self.principal = principal
        self.agent = agent
        self._allowance = Allowance(principal)
        self.key = secrets.token_urlsafe(24)
        # Where nobody can come back there is nothing to send again.
        self.outbox = Outbox() if services.settings.resume_s > 0 else Outbox(keep_bytes=ONCE)
        self.contexts: Session[NativeContext] = Session(
            principal.tenant, max_contexts=services.settings.max_contexts_per_socket
        )
        self.closed = False
        self.connection: Socket | None = None
        """The connection that took the session last, open or not."""
        self._calls_served: dict[str, Call] = {}
        self._calls_over = asyncio.Event()
        self._calls_over.set()

    @property
    def id(self) -> str:
        """The session's id."""
        return self.contexts.id

    def may_resume(self, resume: m.Resume, principal: Principal) -> bool:
        """Whether this client may take the session up."""
        return principal.tenant == self.principal.tenant and hmac.compare_digest(
            resume.key.encode(), self.key.encode()
        )

    async def hello(self, *, resumed: bool) -> m.ServerHello:
        """The answer to the client's hello."""
        settings, info = self._services.settings, self._services.engine.info
        return m.ServerHello(
            version=m.VERSION,
            session=self.id,
            key=self.key,
            engine=info.name,
            native_rate=info.native_rate,
            formats=[e.value for e in Encoding],
            sample_rates=list(RATES),
            voices=[
                m.VoiceEntry(v.id, v.name, v.language, v.gender, kind)
                for v, kind in await self._speaking.listed(self.principal, (self.id,))
            ],
            limits=m.Limits(
                max_contexts=settings.max_contexts_per_socket,
                max_message_bytes=settings.max_message_bytes,
                max_context_characters=settings.max_context_chars,
                context_idle_s=settings.context_idle_s,
                run_ahead_ms=round(settings.run_ahead_s * 1000),
                resume_s=settings.resume_s,
            ),
            cloning=info.can_clone,
            spoken=info.can_clone and self._services.verifier is not None,
            resumed=resumed,
            contexts={c.id: m.ResumedContext(c.texts, c.runner.context.ending) for c in self.contexts.all()}
            if resumed
            else {},
        )

    async def attach(self, send: Send, received: int) -> None:
        """Use a connection, first sending what the client missed; see ``Outbox.attach``."""
        await self.outbox.attach(send, received)
        if self.agent is not None:
            self._calls.agent_ready(self, self.principal.tenant)

    def detached(self) -> None:
        """The connection is gone; contexts and calls go on for a resume."""
        self.outbox.detach()

    @property
    def worth_keeping(self) -> bool:
        """Whether a client that comes back would find something."""
        return self.outbox.count > 0 or bool(self._calls_served) or self._services.holds.any(self.id)

    async def close(self) -> None:
        """End everything; nothing is said to the client any more."""
        if self.closed:
            return
        self.closed = True
        self._calls.agent_gone(self, self.principal.tenant)
        self.outbox.close()
        await asyncio.gather(*(c.runner.abort() for c in self.contexts.all()))
        for call in list(self._calls_served.values()):
            await call.hang_up(after_audio=False)
        await self._services.holds.end(self.id)

    async def drain(self, deadline_s: float) -> None:
        """Tell the client that the gateway goes down."""
        self.contexts.draining = True
        await self._send(m.DrainingMessage(deadline_s))

    async def idle(self) -> None:
        """Return when no context is open and no call is served."""
        while self.contexts.all() or self._calls_served:
            await asyncio.gather(self._calls_over.wait(), *(c.runner.wait() for c in self.contexts.all()))
            await asyncio.sleep(0)

    # From the client

    async def handle(self, raw: str | bytes) -> bool | None:
        """Act on one message: True if there was no fault in it, False if there was, None for a client's bye.

        Errors go to the client and touch nothing else.
        """
        context_id: str | None = None
        try:
            if isinstance(raw, bytes):
                raise BadRequest("clients send text messages only")
            try:
                message = m.decode(raw)
            except fault.UNREADABLE as error:
                kind, context_id = fault.strings(raw, "type", "context")
                refusal = fault.bad_request(error)
                if kind == "open" and context_id not in self.contexts:
                    raise RefusedOpen.of(refusal) from None
                raise refusal from None
            context_id = getattr(message, "context", None)
            return True if await self._act(message) else None
        except VoxwireError as error:
            self._services.metrics.refused(error.code)
            await self._send(
                m.ErrorMessage(
                    error.code,
                    error.message,
                    context=context_id,
                    field=_FIELDS.get(error.field, error.field) if error.field else None,
                    retry_after=error.retry_after,
                    terminal=isinstance(error, RefusedOpen) and context_id is not None,
                )
            )
            # To ask where there is no room, or too fast, is no fault of a client's.
            return error.status in _NO_ROOM

    async def _act(self, message: m.Incoming) -> bool:
        match message:
            case m.Open():
                await self._open(message)
            case m.TextDelta():
                self._text(message)
            case m.Flush():
                self.contexts.get(message.context).runner.flush(message.flush_id)
            case m.End():
                self.contexts.get(message.context).runner.end()
            case m.Cancel():
                await self._cancel(message.context)
            case m.Played():
                if (
                    context := self.contexts.find(message.context) or self.contexts.ended(message.context)
                ) is not None:
                    context.runner.reported(message.sample)
            case m.Ping():
                await self._send(m.Pong(message.id))
            case m.CallHangup():
                await self._call(message.call).hang_up(after_audio=message.after_audio)
            case m.ClientHello():
                raise BadRequest("hello is the first message and comes once", field="type")
            case m.Bye():
                return False
        return True

    async def _open(self, message: m.Open) -> None:
        # The caller was interrupted: that holds whatever becomes of the new context.
        await self._interrupt(message)
        if message.context in self.contexts:
            self.contexts.may_open(message.context)  # refused, and the one that has the id goes on
        try:
            call = self._call(message.call) if message.call else None
            # A call that was begun before the drain is talked to its end.
            finishing = call is not None
            self.contexts.may_open(message.context, finishing=finishing)
            if message.text:
                # Before anything is made for it: a flood must not hold up those who were let in.
                self._services.scheduler.check()
            context = NativeContext(message.context, self._format(message, call), call)
            scopes = (self.id, call.id) if call else (self.id,)
            voice = await self._speaking.resolve(self.principal, message.voice, scopes)
            if self.closed:
                raise Draining("the session is over")
            options = self._options(message, context.format, voice.id)
            context.runner = self._speaking.runner(
                principal=self.principal,
                allowance=self._allowance,
                dialect="native",
                context_id=message.context,
                options=options,
                sink=self._sink(context),
                playback=call.turn() if call else None,
                finishing=finishing,
                voice=voice,
            )
            if message.text:
                context.runner.text(message.text)
                context.texts = 1
            if message.end:
                context.runner.end()
        except VoxwireError as error:
            raise RefusedOpen.of(error) from None
        context.index = self.contexts.open(context.id, context, finishing=finishing)
        await self._send(
            m.Opened(
                context.id,
                context.index,
                options.voice,
                m.Format(context.format.encoding.value, context.format.rate),
            )
        )
        context.runner.start()

    async def _interrupt(self, message: m.Open) -> None:
        if message.interrupt is False:
            return
        if message.interrupt is not True:
            await self._stop(str(message.interrupt))
            return
        for context in self.contexts.all():
            if (context.call.id if context.call else "") == message.call:
                await context.runner.cancel()

    def _format(self, message: m.Open, call: Call | None) -> AudioFormat:
        if call is not None:
            if message.format is not None and (
                message.format.encoding != call.format.encoding.value
                or message.format.sample_rate != call.format.rate
            ):
                raise BadRequest(
                    "a context that speaks to a call has the call's format: leave it out", field="format"
                )
            return call.format
        asked = message.format or m.Format()
        return AudioFormat(Encoding(asked.encoding), asked.sample_rate)

    def _options(self, message: m.Open, fmt: AudioFormat, voice: str) -> ContextOptions:
        settings = self._services.settings
        run_ahead = settings.run_ahead_s if message.run_ahead_ms is None else message.run_ahead_ms / 1000
        return ContextOptions(
            voice=voice,
            format=fmt,
            speed=message.speed,
            volume=message.volume,
            seed=message.seed,
            text=TextOptions(
                mode=TextMode(message.text_mode),
                clean=message.clean,
                tags=message.tags,
                normalise=message.normalise,
            ),
            max_buffer_delay_s=message.max_buffer_delay_ms / 1000,
            hold_s=min(ContextOptions().hold_s, message.max_buffer_delay_ms / 1000),
            idle_s=settings.context_idle_s,
            run_ahead_s=min(run_ahead, settings.run_ahead_s),
            lead_in_ms=message.lead_in_ms,
            max_characters=settings.max_context_chars,
            cache=message.cache,
        )

    def _text(self, message: m.TextDelta) -> None:
        context = self.contexts.get(message.context)
        if message.seq is not None and message.seq <= context.texts:
            return  # sent again after a resume
        if message.seq is not None and message.seq != context.texts + 1:
            raise BadRequest(f"text message {context.texts + 1} is missing", field="seq")
        context.runner.text(message.text)
        context.texts += 1
        if message.flush:
            context.runner.flush()
        if message.end:
            context.runner.end()

    async def _cancel(self, context_id: str) -> None:
        if not await self._stop(context_id):
            self.contexts.get(context_id)  # raises UnknownContext

    async def _stop(self, context_id: str) -> bool:
        """Cancel the context, or tell what was heard of it if it has ended; False if it is not known."""
        context = self.contexts.find(context_id)
        if context is not None and await context.runner.cancel() is not None:
            return True
        context = context or self.contexts.ended(context_id)
        if context is None:
            return False
        await self._send(m.HeardMessage(context_id, _heard(context.runner.heard())))
        return True

    def _call(self, call_id: str) -> Call:
        try:
            return self._calls_served[call_id]
        except KeyError:
            raise BadRequest("this session serves no such call", field="call") from None

    # To the client

    def _sink(self, context: NativeContext) -> Sink:
        async def sink(event: Event) -> None:
            match event:
                case Audio():
                    if isinstance(context.runner.playback, Turn):
                        await context.runner.playback.play(event)
                        return
                    flags = Flags.SEGMENT if event.segment != context.segment else Flags.NONE
                    context.segment = event.segment
                    await self.outbox.push(
                        pack(Kind.SPEECH, flags, context.index, event.seq, event.start_sample, event.data)
                    )
                case Words():
                    words = [
                        m.WordTiming(w.text, w.text_start, w.text_end, round(w.start, 6), round(w.end, 6))
                        for w in event.words
                    ]
                    await self._send(m.WordsMessage(context.id, words))
                case Flushed():
                    await self._send(m.FlushedMessage(context.id, event.flush_id))
                case Done():
                    self.contexts.close(context.id, context)
                    await self._send(m.DoneMessage(context.id, event.total_samples, _stats(event.stats)))
                case Cancelled():
                    self.contexts.close(context.id, context)
                    await self._send(
                        m.CancelledMessage(
                            context.id, event.last_sample, _heard(event.heard), _stats(event.stats)
                        )
                    )
                case Failed():
                    self.contexts.close(context.id, context)
                    error = event.error
                    await self._send(
                        m.ErrorMessage(
                            error.code,
                            error.message,
                            context=context.id,
                            field=error.field,
                            retry_after=error.retry_after,
                            terminal=True,
                        )
                    )

        return sink

    async def _send(self, message: m.Outgoing) -> None:
        try:
            await self.outbox.push(m.encode(message).decode())
        except LegClosed:
            if not self.closed:
                raise

    # Calls

    @property
    def free_calls(self) -> int:
        """How many more calls this agent takes."""
        if self.agent is None or self.closed or not self.outbox.attached or self.contexts.draining:
            return 0
        return self.agent.max_calls - len(self._calls_served)

    @property
    def agent_name(self) -> str:
        """The name by which calls may ask for this agent."""
        return self.agent.name if self.agent is not None else ""

    def caller_format(self) -> AudioFormat | None:
        """How this agent wants the caller's audio; None for not at all."""
        wanted = self.agent.caller_audio if self.agent is not None else None
        return AudioFormat(Encoding(wanted.encoding), wanted.sample_rate) if wanted is not None else None

    async def call_started(self, call: Call) -> None:
        """A call is this agent's from now on."""
        self._calls_served[call.id] = call
        self._calls_over.clear()
        wanted = self.agent.caller_audio if self.agent is not None else None
        await self._send(
            m.CallStarted(
                call.id,
                call.index,
                call.provider,
                call.caller,
                call.called,
                call.parameters,
                m.Format(call.format.encoding.value, call.format.rate),
                wanted,
            )
        )

    async def call_dtmf(self, call: Call, digit: str) -> None:
        """The caller pressed a key."""
        await self._send(m.CallDtmf(call.id, digit))

    async def call_audio(self, call: Call, seq: int, start: int, data: bytes) -> None:
        """The caller's audio in the agent's format."""
        await self.outbox.push_live(pack(Kind.CALLER, Flags.NONE, call.index, seq, start, data))

    async def call_ended(self, call: Call, reason: str) -> None:
        """The call is over; its contexts end as cancelled first."""
        if self._calls_served.pop(call.id, None) is None:
            return
        for context in self.contexts.all():
            if context.call is call:
                await context.runner.cancel()
        if not self._calls_served:
            self._calls_over.set()
        await self._send(m.CallEnded(call.id, reason))


class RefusedOpen(VoxwireError):
    """Why a context was not opened: ends it before it began."""

    @classmethod
    def of(cls, error: VoxwireError) -> RefusedOpen:
        """The same error, marked as terminal for the context it names."""
        made = cls(error.message, field=error.field, retry_after=error.retry_after)
        made.code, made.status = error.code, error.status
        return made


def check_agent(agent: m.Agent | None, principal: Principal) -> None:
    """Raise BadRequest or Forbidden when this client may not serve calls that way."""
    if agent is None:
        return
    if "call" not in principal.scopes and "admin" not in principal.scopes:
        raise Forbidden("this key may not serve calls: it lacks the scope 'call'", field="agent")
    audio = agent.caller_audio
    accepted = {("mulaw", 8000), ("pcm_s16le", 8000), ("pcm_s16le", 16000)}
    if audio is not None and (audio.encoding, audio.sample_rate) not in accepted:
        raise BadRequest(
            "caller_audio must be mulaw at 8000 Hz or pcm_s16le at 8000 or 16000 Hz",
            field="agent.caller_audio",
        )


def _stats(stats: ContextStats) -> m.Stats:
    return msgspec.convert(
        {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(stats).items()}, m.Stats
    )


def _heard(heard: Heard) -> m.HeardText:
    return m.HeardText(heard.samples, heard.ms, heard.text, heard.unheard)

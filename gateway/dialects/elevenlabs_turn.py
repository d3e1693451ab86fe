"""One context of the ElevenLabs protocol being spoken: schedule, flush, close, and its events as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.encoding import Encoder, encode, open_encoder
from gateway.spoken import base_options
from sessions.events import TERMINAL, Audio, Cancelled, Done, Event, Failed, Flushed, Words
from sessions.nobody import unheard
from tts_core.errors import BadRequest, TextTooLong, VoxwireError

from . import elevenlabs_wire as wire
from .elevenlabs_alignment import CharacterClock
from .elevenlabs_schedule import PAUSE_S, Schedule

if TYPE_CHECKING:
    from gateway.services import Services
    from gateway.sockets import Socket
    from gateway.speaking import Allowance, Voice
    from sessions.principal import Principal


async def encoder_for(output: wire.Output) -> Encoder:
    """An encoder for one stream, made off the event loop: a codec takes some milliseconds.

    Raises UnsupportedFormat that names ``output_format`` where this gateway has no codec for it.
    """
    try:
        if output.container == "pcm":
            return open_encoder("pcm", output.format)
        return await asyncio.to_thread(open_encoder, output.container, output.format, bitrate=output.bitrate)
    except BadRequest as error:
        error.field = "output_format"
        raise


@dataclass(frozen=True, slots=True)
class Link:
    """What all contexts of a socket share."""

    services: Services
    socket: Socket
    principal: Principal
    allowance: Allowance
    params: wire.Params
    voice: Voice

    @property
    def drain(self) -> bool:
        """Whether what was flushed is always spoken: by the connection's query, else by the setting."""
        asked = self.params.drain
        return self.services.settings.close_context_policy == "drain" if asked is None else asked


class Turn:
    """One context, opened by its first message.

    ``ended`` is called with it just before its terminal message goes out, ``told`` after that.
    Raises Busy, Draining, TextTooLong and BadRequest where it cannot be opened; nothing is held then.
    """

    def __init__(
        self,
        link: Link,
        context_id: str,
        message: wire.Message | None,
        *,
        single: bool = False,
        ended: Callable[[Turn], None],
        told: Callable[[Event], None] = unheard,
    ) -> None:
        params, services = link.params, link.services
        self.id = context_id
        self.wording = wire.Wording(None if single else context_id)
        self.closing = False
        self._link = link
        self._ended, self._told = ended, told
        self._segments = params.auto_mode
        self._schedule = Schedule()
        self._flushed = False  # the last thing said was a bare flush
        self._said = False
        self._taken = 0  # characters
        self._timer: asyncio.TimerHandle | None = None
        self._encoder: Encoder | None = None
        self._clock = CharacterClock(
            params.output.format.rate,
            filler=not params.sync_alignment,
            absolute=params.sync_alignment and services.settings.elevenlabs_absolute_alignment,
        )
        self._sent = self._made = 0  # samples in messages that went out; samples spoken
        speed = message.speed if message is not None else None
        self.runner = services.speaking.runner(
            principal=link.principal,
            allowance=link.allowance,
            dialect="elevenlabs",
            context_id=context_id,
            options=wire.options_of(
                params,
                base_options(services, link.principal),
                voice=link.voice.id,
                languages=services.engine.info.languages,
                speed=1.0 if speed is None else speed,
            ),
            sink=self._tell,
            has_text=message is not None and bool((message.text or "").strip()),
            voice=link.voice,
        )
        if message is not None:
            try:
                self.say(message)
            except BaseException:
                self._drop()
                raise

    # What the client says

    def say(self, message: wire.Message) -> None:
        """Text, a flush, settings, or a sign of life."""
        text = message.text or ""
        speed, schedule = message.speed, message.schedule
        if self.closing:
            if text.strip():
                raise BadRequest("the context is closing and takes no more text", field="context_id")
            return
        runner = self.runner
        if speed is not None and speed != runner.options.speed:
            runner.context.options = replace(runner.options, speed=speed)
        if schedule is not None:
            self._schedule.change(schedule)
        runner.text("")  # whatever it says, it is there
        if text.strip() or (text and self._said and not self._segments):
            self._add(text, trigger=bool(message.try_trigger_generation))
            self._flushed = False
        if message.flush:
            self._release()
            if self._said:
                runner.flush()
            self._flushed = self._flushed or not text.strip()

    def _add(self, text: str, *, trigger: bool) -> None:
        options = self.runner.options
        if self._taken + len(text) > options.max_characters:
            raise TextTooLong(f"a context takes at most {options.max_characters} characters", field="text")
        if not self._said:
            self._link.services.scheduler.check()
        if self._segments:
            # A blank after each phrase: they are separate words, and pipecat takes a word for said by it.
            self.runner.text(text if text[-1].isspace() else text + " ")
        else:
            due = self._schedule.add(text, trigger=trigger)
            if due:
                self.runner.text(due)
            self._watch()
        self._said = True
        self._taken += len(text)

    def _watch(self) -> None:
        """Let go of what the schedule holds when the text pauses."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._schedule.held:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._paused)

    def _paused(self) -> None:
        try:
            self._release()
        except VoxwireError as error:  # it may not be spoken after all
            self._link.services.spawn(self.fail(error), name="elevenlabs refusal")

    def _release(self) -> None:
        text = self._schedule.flush()
        self._watch()
        if text and not self.runner.context.ending:
            self.runner.text(text)

    def end(self) -> None:
        """No more text: speak what is left."""
        self.closing = True
        self._release()
        self.runner.end()

    async def close(self) -> None:
        """``close_context``: drain after a bare flush, else cut; a second one always cuts.

        Frameworks send the same message at a turn's end and at a barge-in, and only what came before tells
        which it is (protocols.md 0.10 and 1.2). Under the vendor's rule (``drain``) what was flushed is
        spoken in any case, and what was not is dropped.
        """
        if self.closing or not (self._flushed or self._link.drain):
            await self.cancel()
            return
        self._drop()
        self.closing = True
        self.runner.end()

    async def cancel(self) -> None:
        """Stop at once."""
        self.closing = True
        self._drop()
        await self.runner.cancel()

    async def fail(self, error: VoxwireError) -> None:
        """Stop at once with an error."""
        self.closing = True
        self._drop()
        await self.runner.fail(error)

    async def abort(self) -> None:
        """The client is gone."""
        self._drop()
        await self.runner.abort()
        self._forget()

    @property
    def silent(self) -> bool:
        """Whether it never got anything to say."""
        return not self._said

    def _drop(self) -> None:
        self._schedule.drop()
        self._watch()

    # What we say

    async def _tell(self, event: Event) -> None:
        match event:
            case Audio():
                if self._encoder is None:
                    self._encoder = await encoder_for(self._link.params.output)
                self._made = event.start_sample + event.samples
                await self._audio(await encode(self._encoder, event.data))
            case Words():
                self._clock.add(event.words, self.runner.context.source)
            case Flushed():
                pass
            case Done():
                if self._encoder is not None:
                    await self._audio(await encode(self._encoder, None))
                rest = self._clock.rest(self.runner.context.source, self._made)
                if rest is not None and self._made:
                    await self._link.socket.send(self.wording.chunk(b"", rest))
                await self._end(event, self.wording.final())
            case Cancelled():
                await self._end(event, self.wording.final())
            case Failed():
                await self._end(event, self.wording.error(event.error, final=True))

    async def _audio(self, data: bytes) -> None:
        """Send audio with the characters since the last message; an encoder may hold some back."""
        if not data:
            return
        start, self._sent = self._sent, self._made
        await self._link.socket.send(self.wording.chunk(data, self._clock.take(start, self._made)))

    async def _end(self, event: Event, words: str) -> None:
        assert isinstance(event, TERMINAL)
        self._drop()
        self.closing = True
        self._ended(self)
        try:
            await self._link.socket.send(words)
        finally:
            self._told(event)
            self._forget()

    def _forget(self) -> None:
        """It is over, and those who were told have us."""
        self._ended = self._told = unheard


__all__ = ["Link", "Turn"]

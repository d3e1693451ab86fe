"""The Deepgram dialect, version 2 (Flux): turns on ``/v2/speak``, which tell after a barge-in what was heard.

Sources: the vendor's SDK and its pages on the messages, the states of a turn and interruption. A turn begins
with the first text and ends with ``Flush``; text after that belongs to the next one, which waits until that
one is spoken. All audio between ``SpeechStarted`` and ``SpeechMetadata`` (or ``SpeechInterrupted``, or
``Error``) is of that turn, and there is exactly one of those three for each ``SpeechStarted``. When the
gateway drains, what was flushed before is spoken, and text that is not flushed by then begins no turn.

``Interrupt`` cuts the turn that is spoken and drops those that wait. One that comes late, when the end of its
turn has been told, is no second end (rules R2 and R13 of protocols.md) but the warning ``NO_ACTIVE_SPEECH``,
which pipecat takes for routine. As we send a few seconds ahead, that end may not have been heard: where its
offset lies within what was sent, the warning tells what ``SpeechInterrupted`` would, and the next turn counts
from there.

Where it differs from the vendor's:

* An ``Interrupt`` before the first audio of the session cuts the turn as well, instead of letting it be
  spoken.
* After ``Error`` the connection stays open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from aiohttp import WSCloseCode, web

from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.speaking import Voice
from sessions.events import Audio, Cancelled, Done, Event, Failed
from sessions.principal import Principal
from tts_core.errors import ContextIdle, LegClosed, TextTooLong, VoxwireError

from . import deepgram as v1
from . import deepgram_v2_wire as wire
from .deepgram_wire import Params
from .turns import Telling, Turn

PATH = "/v2/speak"
MOST_TURNS = 500
"""That wait, of one socket."""


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    services.error_shapes[PATH] = error_response
    return [web.get(PATH, websocket), web.post(PATH, speak)]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape; pipecat reads the header, which a refused upgrade has, too."""
    fields = wire.error_fields(error, request_id(request))
    words = f"{fields['err_code']}: {fields['err_msg']}".encode("ascii", "replace").decode()
    return web.json_response(fields, status=error.status, headers={"dg-error": " ".join(words.split())})


class Speech:
    """A turn as the client counts them: up to a flush."""

    def __init__(self) -> None:
        self.id = wire.speech_id()
        self.waiting: list[str] = []
        """Its text until it begins."""
        self.characters = 0
        self.speakable = False
        """There is more to it than white space."""
        self.flushed = False
        self.ended = False
        """It takes no more text."""
        self.accepted = False
        """It was ended before the gateway began to drain, and is spoken even so."""
        self.turn: Turn | None = None
        self.began = 0
        """Where it begins among the samples of the session."""


class Connection(v1.Connection):
    """One socket of the dialect."""

    def __init__(
        self,
        services: Services,
        socket: Socket,
        principal: Principal,
        params: Params,
        voice: Voice,
        *,
        speed_set: bool,
    ) -> None:
        super().__init__(services, socket, principal, params, voice)
        self._speed = params.speed if speed_set else None
        self._tape = wire.Tape(params.format.rate)
        self._queue: deque[Speech] = deque()
        """The turn under way and those that wait behind it."""
        self._last: Speech | None = None
        """The one before, which may still be heard."""
        self._characters = 0
        self._lock = asyncio.Lock()
        """A message of the client and the end of a turn, at which the next begins, wait for each other."""
        self._parted = False

    def _telling(self) -> Telling:
        return Telling(self._audio, self._flushed, self._failed, self._ended)

    # -- what the client says -----------------------------------------------------------------------------

    async def _take(self, raw: str | bytes) -> None:
        async with self._lock:
            if self._closing:
                return  # nothing after the end means anything
            try:
                message = wire.parse(raw)
                match message.type:
                    case "Speak":
                        await self._say(message.text or "")
                    case "Flush":
                        await self._flush()
                    case "Interrupt":
                        await self._interrupt(message.offset_ms)
                    case "Configure":
                        await self._configure(message.speed)
                    case "Close":
                        await self._close()
                self._before = message.type
            except LegClosed:
                raise
            except VoxwireError as error:
                await self._refuse(error)

    async def _say(self, text: str) -> None:
        if not text:
            return  # it opens nothing (R8)
        speech = self._queue[-1] if self._queue else None
        if speech is not None and speech.turn is not None and speech.turn is self._turns.open:
            self._turns.say(text)
        else:
            most = self._turns.options.max_characters
            waiting = sum(s.characters for s in self._queue if s.turn is None)
            if waiting + len(text) > most or len(self._queue) > MOST_TURNS:
                if speech is None or speech.ended:
                    self._turns.excuse()
                raise TextTooLong(
                    f"at most {MOST_TURNS} turns of {most} characters in all wait to be spoken", field="text"
                )
            if speech is None or speech.ended or speech.turn is not None:
                speech = Speech()
                self._queue.append(speech)
                self._turns.take_excuse()  # the next flush is of this one
            speech.waiting.append(text)
            speech.speakable = speech.speakable or bool(text.strip())
        speech.characters += len(text)
        self._characters += len(text)
        await self._advance()

    async def _flush(self) -> None:
        speech = self._queue[-1] if self._queue else None
        if speech is None or speech.ended:
            if not self._turns.take_excuse():
                await self._socket.send(wire.warning(wire.NO_ACTIVE_SPEECH))
            return
        speech.flushed = True
        self._end(speech)
        if speech.turn is None:
            await self._advance()
        else:
            await self._finalise(speech)

    async def _interrupt(self, offset: int | None) -> None:
        """Cut what is spoken; see the module for what is cut, and ``Tape`` for how offsets count."""
        tape, speech = self._tape, self._queue[0] if self._queue else None
        if late := speech is None or speech.turn is None:
            speech = self._last if offset is not None and offset < tape.ms else None
        if speech is None or speech.turn is None:
            self._turns.take_excuse()  # no flush follows
            said = wire.NO_AUDIO_GENERATED if tape.blank else wire.NO_ACTIVE_SPEECH
            await self._socket.send(wire.warning(said))
            return
        if offset is not None and not tape.advances(offset):
            await self._socket.send(wire.warning(wire.INVALID_INTERRUPT_OFFSET))
            return
        self._last = None
        if not late:
            self._queue.clear()
            await self._turns.clear()
        heard = None
        if offset is not None:
            played = min(speech.turn.sent, max(0, tape.at(offset) - speech.began))
            heard = speech.turn.runner.context.heard(played)
        position = tape.cut(offset)
        if late:
            told = wire.interrupted_late(speech.id, played_ms=position, heard=heard)
        else:
            sent_ms = self._ms(speech.turn.sent)
            told = wire.speech_interrupted(
                speech.id, sent_ms, speech.characters, played_ms=position, heard=heard
            )
        await self._socket.send(told)

    async def _configure(self, speed: float | None) -> None:
        try:
            if speed is not None:
                self._speed = wire.speed_of(speed, self._services.engine.info)
                self._turns.speed(self._speed)
        except wire.ControlRefused as error:
            await self._socket.send(wire.not_configured(error))
            return
        await self._socket.send(wire.configured(self._speed))

    async def _close(self) -> None:
        self._closing = True
        turn = self._turns.turn
        if turn is not None and self._leaving(turn):
            self._queue.clear()
            await self._turns.clear()
        if self._queue and not self._queue[-1].ended:
            speech = self._queue[-1]
            self._end(speech)
            if not speech.speakable:
                self._queue.pop()
            elif speech.turn is not None:
                self._turns.end()
        self._services.spawn(self._finish(), name="deepgram close")

    def _end(self, speech: Speech) -> None:
        speech.ended = True
        speech.accepted = not self._services.draining.is_set()

    async def _finish(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        with self._services.in_flight.one():  # a drain waits for the turns that wait, and for our last word
            await self._spoken()
            if not self._parted:
                self._parted = True
                try:
                    await self._socket.send(wire.session_metadata(self._tape.produced_ms, self._characters))
                except LegClosed:
                    return
        await self._socket.close(code, reason)

    async def _spoken(self) -> None:
        """Until no turn is under way and none is about to begin, which is with the lock held."""
        while True:
            await self._turns.wait()
            async with self._lock:
                if self._turns.turn is None:
                    return

    async def _refuse(self, error: VoxwireError) -> None:
        self._services.metrics.refused(error.code)
        await self._socket.send(wire.failure(error))

    # -- what is spoken -----------------------------------------------------------------------------------

    async def _advance(self) -> None:
        """Begin the turn that is next, where none is spoken."""
        while self._queue and (speech := self._queue[0]).turn is None:
            if speech.speakable:
                await self._begin(speech)
            elif speech.ended:
                self._queue.popleft()
                await self._report_nothing(speech)
            else:
                return

    async def _begin(self, speech: Speech) -> None:
        await self._socket.send(wire.speech_started(speech.id))
        speech.began = self._tape.samples
        text = "".join(speech.waiting)
        speech.waiting.clear()
        try:
            self._turns.say(text, finishing=speech.accepted)
        except VoxwireError as error:
            self._queue.popleft()
            if speech.ended:
                self._turns.take_excuse()  # its flush was read already: the next one is another's
            await self._refuse(error)
            return
        speech.turn = self._turns.turn
        if speech.ended:
            await self._finalise(speech)

    async def _finalise(self, speech: Speech) -> None:
        if self._turns.open is speech.turn:
            if speech.flushed:
                await self._turns.flush()
            self._turns.end()

    async def _report_nothing(self, speech: Speech) -> None:
        send = self._socket.send
        await send(wire.speech_started(speech.id))
        await send(wire.warning(wire.NO_SYNTHESIZABLE_TEXT))
        if speech.flushed:
            await send(wire.flushed(speech.id))
        await send(wire.speech_metadata(speech.id, 0, speech.characters))

    async def _audio(self, turn: Turn, event: Audio) -> None:
        self._tape.sent(event.samples)
        await self._socket.send(event.data)

    async def _flushed(self, turn: Turn | None) -> None:
        if self._queue and self._queue[0].turn is turn:
            await self._socket.send(wire.flushed(self._queue[0].id))

    async def _failed(self, turn: Turn, error: VoxwireError) -> None:
        await self._socket.send(wire.failure(error))

    async def _ended(self, turn: Turn, event: Event) -> None:
        if isinstance(event, Cancelled):
            return  # an interrupt or a close, which tell of it themselves
        async with self._lock:
            if not self._queue or self._queue[0].turn is not turn:
                return  # it was interrupted meanwhile
            self._last = speech = self._queue.popleft()
            # A turn that got no text for minutes has been spoken, too.
            if isinstance(event, Done) or (
                isinstance(event, Failed) and isinstance(event.error, ContextIdle)
            ):
                if not event.stats.segments:
                    await self._socket.send(wire.warning(wire.NO_SYNTHESIZABLE_TEXT))
                await self._socket.send(
                    wire.speech_metadata(speech.id, self._ms(turn.sent), speech.characters)
                )
            await self._advance()

    def _ms(self, samples: int) -> int:
        return round(samples * 1000 / self._turns.options.format.rate)


async def websocket(request: web.Request) -> web.StreamResponse:
    """``/v2/speak``; key, voice, format and controls are checked before the upgrade."""
    services = services_of(request)
    principal = await authenticate(request)
    info = services.engine.info
    params = wire.params_of(request.query, info)
    voice = await v1.voice_of(services, principal, params.model)
    async with accept(services, request, "deepgram", principal, protocols=v1.SUBPROTOCOLS) as socket:
        await socket.send(wire.connected(request_id(request), params.model, info))
        if wire.expressivity_of(request.query):
            await socket.send(wire.warning(wire.EXPRESSIVITY_IGNORED))
        speed_set = bool(request.query.get("speed"))
        await Connection(services, socket, principal, params, voice, speed_set=speed_set).run()
    return socket.ws


async def speak(request: web.Request) -> web.StreamResponse:
    """``POST /v2/speak``: as that of version 1, with the controls of this one."""
    return await v1.download(request, partial(wire.params_of, info=services_of(request).engine.info))

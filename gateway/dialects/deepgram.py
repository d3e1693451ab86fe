"""The Deepgram dialect, version 1: ``/v1/speak`` as a WebSocket and over HTTP.

Sources: protocols.md 1.4 and rule R3. No message carries an id, so order is all: the last audio of before,
then ``Cleared`` or ``Flushed``, then new audio; a flush that was cleared is never answered.

One context speaks a turn: it begins with the first text and is over when a flush was spoken and nothing came
after it, so that an idle connection holds no place among those who speak.

``Close`` drains: what was said is spoken, then the connection is closed. A client that is leaving (LiveKit
sends ``Flush`` and ``Close`` on the connection that it left unread when its user interrupted) is told by a
flush that comes long after the last text, in the midst of the audio, with the close on its heels; the setting
``close_context_policy = drain`` takes that for an ordinary end, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from aiohttp import WSCloseCode, web

from gateway.app import request_id
from gateway.body import read_body
from gateway.encoding import encode, open_encoder
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.speaking import Allowance, Voice
from gateway.spoken import base_options, spoken, write
from sessions.context import ContextOptions
from sessions.events import TERMINAL, Audio, Cancelled, Done, Event, Failed, Flushed
from sessions.principal import Principal
from sessions.runner import ContextRunner
from tts_core.errors import ContextIdle, LegClosed, TextTooLong, UnknownVoice, VoxwireError
from tts_core.text.segment import TextMode

from . import deepgram_wire as wire

LEAVING_S = 0.25
"""A flush this long after the last text did not end a turn that was being written."""
SUBPROTOCOLS = ("token", "bearer")


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    services.error_shapes["/v1/speak"] = error_response
    return [web.get("/v1/speak", websocket), web.post("/v1/speak", speak)]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape."""
    return web.json_response(wire.error_fields(error, request_id(request)), status=error.status)


async def voice_of(services: Services, principal: Principal, model: str) -> Voice:
    """The voice that a model name asks for. Raises UnknownVoice, CannotClone, StoreError."""
    speaking = services.speaking
    try:
        return await speaking.resolve(principal, model)
    except UnknownVoice:
        known = [v.id for v in speaking.voices(principal)]
        other = wire.voice_for(model, services.engine.info, speaking.voice(principal, ""), known)
        return await speaking.resolve(principal, other)


class Turn:
    """What is spoken between two silences of the client."""

    def __init__(self, runner: ContextRunner) -> None:
        self.runner = runner
        self.over = False
        """It takes no more text; another one begins with the next."""
        self.flushes = 0
        """Asked for and not answered."""
        self.sent = False
        """Some of its audio has left."""
        self.said_at = self.flushed_at = 0.0


class Connection:
    """One socket of the dialect."""

    def __init__(
        self, services: Services, socket: Socket, principal: Principal, params: wire.Params, voice: Voice
    ) -> None:
        self._services, self._socket, self._principal, self._voice = services, socket, principal, voice
        self._options = replace(
            base_options(services, principal),
            voice=voice.id,
            format=params.format,
            speed=params.speed,
        )
        self._ident = request_id(socket.request)
        self._allowance = Allowance(principal)
        self._turn: Turn | None = None
        self._turns = self._sequence = 0
        self._before = ""
        """Type of the message before."""
        self._closing = False

    async def run(self) -> None:
        """Serve until the client goes."""
        drain = self._services.spawn(self._drain(), name="deepgram drain")
        try:
            async for raw in self._socket.messages():
                await self._take(raw)
        except LegClosed:
            pass
        finally:
            drain.cancel()
            if self._turn is not None:
                await self._turn.runner.abort()

    async def _take(self, raw: str | bytes) -> None:
        if self._closing:
            return  # nothing after the end means anything
        try:
            message = wire.parse(raw)
        except VoxwireError as error:
            self._services.metrics.refused(error.code)
            await self._socket.send(wire.warning(error))
            return
        try:
            match message.type:
                case "Speak":
                    self._say(message.text or "")
                case "Flush":
                    await self._flush()
                case "Clear":
                    await self._clear()
                case "Close":
                    await self._close()
        except LegClosed:
            raise
        except TextTooLong as error:
            self._services.metrics.refused(error.code)
            await self._socket.send(wire.warning(error))
        except VoxwireError as error:
            self._services.metrics.refused(error.code)
            await self._socket.send(wire.failure(error, self._ident))
        self._before = message.type

    def _say(self, text: str) -> None:
        turn = self._turn
        if turn is None or turn.over:
            if not text.strip():
                return  # white space opens nothing (R8)
            turn = self._open(text)
        else:
            turn.runner.text(text)
        turn.said_at = self._services.clock()

    def _open(self, text: str) -> Turn:
        self._turns += 1

        async def sink(event: Event) -> None:
            await self._tell(turn, event)

        turn = Turn(
            self._services.speaking.runner(
                principal=self._principal,
                allowance=self._allowance,
                dialect="deepgram",
                context_id=f"turn-{self._turns}",
                options=self._options,
                sink=sink,
                has_text=True,
                voice=self._voice,
            )
        )
        turn.runner.text(text)
        self._turn = turn
        turn.runner.start()
        return turn

    async def _flush(self) -> None:
        turn = self._turn
        if turn is None or turn.over:
            await self._socket.send(wire.flushed(self._next()))  # there is nothing that it could wait for
            return
        turn.flushes += 1
        turn.flushed_at = self._services.clock()
        turn.runner.flush()

    async def _clear(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.over = True
            await turn.runner.cancel()
        await self._socket.send(wire.cleared(self._next()))

    async def _close(self) -> None:
        turn, self._closing = self._turn, True
        if turn is None or turn.over:
            self._end()
        elif self._leaving(turn):
            await turn.runner.cancel()
        else:
            turn.over = True
            turn.runner.end()

    def _leaving(self, turn: Turn) -> bool:
        return (
            self._services.settings.close_context_policy == "smart"
            and self._before == "Flush"
            and turn.sent
            and turn.flushes > 0
            and turn.flushed_at - turn.said_at > LEAVING_S
        )

    async def _tell(self, turn: Turn, event: Event) -> None:
        match event:
            case Audio():
                turn.sent = True
                await self._socket.send(event.data)
            case Flushed():
                turn.flushes -= 1
                context = turn.runner.context
                if not (turn.flushes or turn.over or context.held or context.has_work):
                    # Nothing came after it: give the place among the speaking back until something does.
                    turn.over = True
                    turn.runner.end()
                await self._socket.send(wire.flushed(self._next()))
            case Failed() if not isinstance(event.error, ContextIdle):
                await self._socket.send(wire.failure(event.error, self._ident))
        if isinstance(event, TERMINAL):
            turn.over = True
            if self._turn is turn:
                self._turn = None
            if self._closing and isinstance(event, Done | Cancelled | Failed):
                self._end()

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    def _end(self, code: int = WSCloseCode.OK) -> None:
        self._services.spawn(self._socket.close(code), name="deepgram close")

    async def _drain(self) -> None:
        await self._services.draining.wait()
        while (turn := self._turn) is not None:
            await turn.runner.wait()
            await asyncio.sleep(0)
        await self._socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


async def websocket(request: web.Request) -> web.StreamResponse:
    """``/v1/speak``; key, voice and format are checked before the upgrade."""
    services = services_of(request)
    principal = await authenticate(request)
    params = wire.params_of(request.query)
    voice = await voice_of(services, principal, params.model)
    async with accept(services, request, "deepgram", principal, protocols=SUBPROTOCOLS) as socket:
        await socket.send(wire.metadata(request_id(request), params.model, services.engine.info))
        await Connection(services, socket, principal, params, voice).run()
    return socket.ws


async def speak(request: web.Request) -> web.StreamResponse:
    """``POST /v1/speak``: the audio as the body, as it is made; errors come before the first byte."""
    services = services_of(request)
    principal = await authenticate(request)
    params = wire.params_of(request.query, file=True)
    text = wire.body_of(await read_body(request))
    if len(text) > services.settings.max_context_chars:
        raise TextTooLong(f"text has at most {services.settings.max_context_chars} characters", field="text")
    encoder = open_encoder(params.container, params.format, bitrate=params.bitrate)
    voice = await voice_of(services, principal, params.model)
    base: ContextOptions = base_options(services, principal).with_mode(TextMode.FINAL)
    options = replace(base, voice=voice.id, format=params.format, speed=params.speed)
    info = services.engine.info
    response = web.StreamResponse(
        headers={
            "dg-request-id": request_id(request),
            "dg-model-name": info.name,
            "dg-model-uuid": wire.model_uuid(info),
            "dg-char-count": str(len(text)),
        }
    )
    response.content_type = encoder.content_type.partition(";")[0]
    async with spoken(
        request, principal, dialect="deepgram", text=text, options=options, voice=voice
    ) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise event.error
            data = b""
            if isinstance(event, Audio):
                data = await encode(encoder, event.data)
            elif isinstance(event, Done):
                data = await encode(encoder, None)
            if data:
                await write(request, response, data)
    await write(request, response, None)
    return response

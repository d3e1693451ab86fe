"""The Deepgram dialect, version 1: ``/v1/speak`` as a WebSocket and over HTTP.

Sources: protocols.md 1.4 and rule R3. No message carries an id, so order is all: the last audio of before,
then ``Cleared`` or ``Flushed``, then new audio; a flush that was cleared is never answered.

``Close`` drains: what was said is spoken, then the connection is closed. A client that is leaving (LiveKit
sends ``Flush`` and ``Close`` on the connection that it left unread when its user interrupted) is told by a
flush that comes long after the last text, in the midst of the audio, with the close on its heels; the setting
``close_context_policy = drain`` takes that for an ordinary end, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aiohttp import WSCloseCode, web

from gateway.body import read_body
from gateway.encoding import open_encoder
from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.speaking import CannotClone, Voice
from gateway.spoken import base_options, encoded, spoken, write
from sessions.context import ContextOptions
from sessions.events import Audio
from sessions.principal import Principal
from tts_core.errors import Forbidden, LegClosed, TextTooLong, UnknownVoice, UnsupportedFormat, VoxwireError
from tts_core.text.segment import TextMode

from . import deepgram_wire as wire
from .turns import Telling, Turn, Turns

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
    """The voice that a model name asks for. Raises UnknownVoice, CannotClone, Forbidden, StoreError."""
    speaking = services.speaking
    try:
        return await speaking.resolve(principal, model)
    except (CannotClone, Forbidden) as error:
        error.field = "model"  # as the voice is called here
        raise
    except UnknownVoice:
        known = [v.id for v in speaking.voices(principal)]
        other = wire.voice_for(model, services.engine.info, speaking.voice(principal, ""), known)
        return await speaking.resolve(principal, other)


class Connection:
    """One socket of the dialect."""

    def __init__(
        self, services: Services, socket: Socket, principal: Principal, params: wire.Params, voice: Voice
    ) -> None:
        self._services, self._socket = services, socket
        options = replace(
            base_options(services, principal), voice=voice.id, format=params.format, speed=params.speed
        )
        self._turns = Turns(
            services, self._telling(), dialect="deepgram", principal=principal, options=options, voice=voice
        )
        self._ident = request_id(socket.request)
        self._sequence = 0
        self._before = ""
        """Type of the message before."""
        self._closing = False

    def _telling(self) -> Telling:
        return Telling(self._audio, self._flushed, self._failed)

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
            await self._turns.abort()

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
                    self._turns.say(message.text or "")
                case "Flush":
                    await self._turns.flush()
                case "Clear":
                    await self._turns.clear()
                    await self._socket.send(wire.cleared(self._next()))
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

    async def _close(self) -> None:
        self._closing = True
        turn = self._turns.open
        if turn is not None and self._leaving(turn):
            await self._turns.clear()
        self._turns.end()
        self._services.spawn(self._finish(), name="deepgram close")

    async def _finish(self, code: int = WSCloseCode.OK, reason: str = "") -> None:
        await self._turns.wait()
        await self._socket.close(code, reason)

    def _leaving(self, turn: Turn) -> bool:
        return (
            self._services.settings.close_context_policy == "smart"
            and self._before == "Flush"
            and turn.sent > 0
            and turn.flushes > 0
            and turn.flushed_at - turn.said_at > LEAVING_S
        )

    async def _audio(self, turn: Turn, event: Audio) -> None:
        await self._socket.send(event.data)

    async def _flushed(self, turn: Turn | None) -> None:
        await self._socket.send(wire.flushed(self._next()))

    async def _failed(self, turn: Turn, error: VoxwireError) -> None:
        await self._socket.send(wire.failure(error, self._ident))

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence - 1

    async def _drain(self) -> None:
        await self._services.draining.wait()
        await self._finish(WSCloseCode.SERVICE_RESTART, "restarting")


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
    return await download(request, wire.params_of)


async def download(request: web.Request, params_of: Callable[..., wire.Params]) -> web.StreamResponse:
    """Speak the text of a request; ``params_of`` reads its query."""
    services = services_of(request)
    principal = await authenticate(request)
    params = params_of(request.query, file=True)
    text = wire.body_of(await read_body(request))
    if len(text) > services.settings.max_context_chars:
        raise TextTooLong(f"text has at most {services.settings.max_context_chars} characters", field="text")
    try:
        encoder = open_encoder(params.container, params.format, bitrate=params.bitrate)
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field="encoding") from None
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
        async for data in encoded(events, encoder):
            await write(request, response, data)
    await write(request, response, None)
    return response

"""jambonz's custom speech: ``POST /webhooks/jambonz`` and the socket ``/webhooks/jambonz/stream``.

Sources: protocols.md 1.7. HTTP answers with the whole text in the container that the address names
(``?format=mp3|wav|l16&sampleRate=``; MP3 where it is left open and the extra ``compressed`` is installed,
else WAV), and the media type says which. On the socket we speak first, audio goes as binary messages of
16-bit samples, ``flush`` ends a sentence and ``stop`` is the caller's interruption. The API key comes as a
bearer, as jambonz sends it.
"""

from __future__ import annotations

from dataclasses import replace

from aiohttp import WSCloseCode, hdrs, web

from gateway.body import read_body
from gateway.encoding import Encoder, open_encoder
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.spoken import base_options, encoded, spoken, write
from sessions.events import Audio, AudioFormat
from tts_core.errors import LegClosed, TextTooLong, UnsupportedFormat, VoxwireError
from tts_core.text.segment import TextMode

from . import jambonz_wire as wire
from .turns import Telling, Turn, Turns

PATH = "/webhooks/jambonz"


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    services.error_shapes[PATH] = error_response
    return [web.post(PATH, speak), web.get(f"{PATH}/stream", websocket)]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape."""
    return web.json_response(wire.error_fields(error), status=error.status)


def _encoder(asked: str, fmt: AudioFormat) -> Encoder:
    if asked:
        return open_encoder("pcm" if asked == "l16" else asked, fmt)
    try:
        return open_encoder("mp3", fmt)
    except UnsupportedFormat:
        return open_encoder("wav", fmt)


async def speak(request: web.Request) -> web.StreamResponse:
    """Speak a text as the body, as it is made; errors come before the first byte."""
    services = services_of(request)
    principal = await authenticate(request)
    asked, fmt = wire.file_format(request.query)
    body = wire.body_of(await read_body(request))
    wire.check_language(body.language, services.engine.info.languages)
    text = wire.plain(body.text or "") if body.type == "ssml" else body.text or ""
    if len(text) > services.settings.max_context_chars:
        raise TextTooLong(f"text has at most {services.settings.max_context_chars} characters", field="text")
    encoder = _encoder(asked, fmt)
    voice = await services.speaking.resolve(principal, body.voice or "")
    options = replace(base_options(services, principal).with_mode(TextMode.FINAL), voice=voice.id, format=fmt)
    kind = f"audio/l16;rate={fmt.rate}" if asked == "l16" else encoder.content_type
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: kind})
    async with spoken(
        request, principal, dialect="jambonz", text=text, options=options, voice=voice
    ) as events:
        async for data in encoded(events, encoder):
            await write(request, response, data)
    await write(request, response, None)
    return response


async def websocket(request: web.Request) -> web.StreamResponse:
    """One socket; key, voice, language and rate are checked before the upgrade."""
    services = services_of(request)
    principal = await authenticate(request)
    fmt = wire.socket_format(request.query)
    wire.check_language(request.query.get("language"), services.engine.info.languages)
    voice = await services.speaking.resolve(principal, request.query.get("voice", ""))
    async with accept(services, request, "jambonz", principal) as socket:
        telling = _telling(socket)
        turns = Turns(
            services,
            telling,
            dialect="jambonz",
            principal=principal,
            options=replace(base_options(services, principal), voice=voice.id, format=fmt),
            voice=voice,
        )
        drain = services.spawn(_drain(services, turns, socket), name="jambonz drain")
        try:
            await socket.send(wire.connect(fmt))
            async for raw in socket.messages():
                await _take(services, turns, socket, raw)
        except LegClosed:
            pass
        finally:
            drain.cancel()
            await turns.abort()
    return socket.ws


def _telling(socket: Socket) -> Telling:
    async def audio(_: Turn, event: Audio) -> None:
        await socket.send(event.data)

    async def flushed(_: Turn | None) -> None:
        """Nothing: a flush is not acknowledged here."""

    async def failed(_: Turn, error: VoxwireError) -> None:
        await socket.send(wire.failure(error))

    return Telling(audio, flushed, failed)


async def _take(services: Services, turns: Turns, socket: Socket, raw: str | bytes) -> None:
    try:
        message = wire.parse(raw)
        match message.type:
            case "stream":
                turns.say(message.text or "")
            case "flush":
                await turns.flush()
            case _:
                await turns.clear()
    except LegClosed:
        raise
    except VoxwireError as error:
        services.metrics.refused(error.code)
        await socket.send(wire.failure(error))


async def _drain(services: Services, turns: Turns, socket: Socket) -> None:
    await services.draining.wait()
    await turns.wait()
    await socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


__all__ = ["routes"]

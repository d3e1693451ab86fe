"""The OpenAI dialect: ``POST /v1/audio/speech``, ``GET /v1/audio/voices``.

Sources: protocols.md 1.5. A request is one text; its generation ends with it: a client that drops the
connection stops the engine within one chunk. ``stream_format: "sse"`` is honoured with its own content type,
by which LiveKit chooses its parser (R29).
"""

from __future__ import annotations

from dataclasses import replace

from aiohttp import hdrs, web

from gateway.body import read_body
from gateway.encoding import encode, open_encoder
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.speaking import Voice
from gateway.spoken import base_options, spoken, write
from sessions.events import Audio, Done, Failed
from sessions.principal import Principal
from tts_core.errors import TextTooLong, UnknownVoice, VoxwireError
from tts_core.text.segment import TextMode

from . import openai_wire as wire


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    services.error_shapes["/v1/audio"] = error_response
    return [web.post("/v1/audio/speech", speech), web.get("/v1/audio/voices", voices)]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape."""
    return web.json_response(wire.error_fields(error), status=error.status)


async def _voice(services: Services, principal: Principal, name: str) -> Voice:
    try:
        return await services.speaking.resolve(principal, name)
    except UnknownVoice:
        known = services.speaking.voices(principal)
        other = wire.stand_in(name, known, services.speaking.voice(principal, ""))
        if other is None:
            raise
        return await services.speaking.resolve(principal, other)


async def speech(request: web.Request) -> web.StreamResponse:
    """Speak a text, as the body or as server-sent events; errors come before the first byte."""
    services = services_of(request)
    principal = await authenticate(request)
    asked = wire.parse(await read_body(request))
    text = asked.input or ""
    if len(text) > services.settings.max_context_chars:
        raise TextTooLong(
            f"input has at most {services.settings.max_context_chars} characters", field="input"
        )
    container, fmt = wire.format_of(asked)
    encoder = open_encoder(container, fmt)
    voice = await _voice(services, principal, wire.voice_of(asked))
    options = replace(
        base_options(services, principal).with_mode(TextMode.FINAL),
        voice=voice.id,
        format=fmt,
        speed=1.0 if asked.speed is None else asked.speed,
    )
    events = asked.stream_format == "sse"
    response = web.StreamResponse(headers={hdrs.CACHE_CONTROL: "no-cache"} if events else None)
    # Its own media type without parameters: clients compare it as a whole.
    kind = "text/event-stream" if events else encoder.content_type.partition(";")[0]
    response.content_type = kind

    async def send(data: bytes) -> None:
        if data:
            await write(request, response, _event(wire.delta(data)) if events else data)

    async with spoken(
        request, principal, dialect="openai", text=text, options=options, voice=voice, field="input"
    ) as told:
        async for event in told:
            if isinstance(event, Failed):
                if not response.prepared or not events:
                    raise event.error  # a body under way is broken off, so that nobody takes it as whole
                await write(request, response, _event(wire.failed(event.error)))
            elif isinstance(event, Audio):
                await send(await encode(encoder, event.data))
            elif isinstance(event, Done):
                await send(await encode(encoder, None))
                if events:
                    end = wire.done(len(text), event.total_samples / fmt.rate)
                    await write(request, response, _event(end))
    await write(request, response, None)
    return response


def _event(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


async def voices(request: web.Request) -> web.Response:
    """The voices by id and name, as Open WebUI and others list them: ours, then the vendor's names."""
    principal = await authenticate(request)
    known = [v for v, _ in await services_of(request).speaking.listed(principal)]
    listed = [{"id": v.id, "name": v.name} for v in known]
    if principal.voice is None:
        listed += [{"id": name, "name": name} for name in wire.VOICES if name not in {v.id for v in known}]
    return web.json_response({"voices": listed})

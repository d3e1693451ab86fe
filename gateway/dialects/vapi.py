"""Vapi's custom voice: ``POST /webhooks/vapi``, which their platform calls for every piece of an answer.

Sources: protocols.md 1.7. The answer is headerless 16-bit mono at exactly the rate that was asked for, as it
is made; dropping the request is the only way to interrupt, and stops the engine. The assistant's secret is an
API key of this gateway, sent as ``x-vapi-secret`` (or as any header that keys come in).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import web

from gateway.body import read_body
from gateway.fault import UNREADABLE, bad_request, reading, said
from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.spoken import base_options, spoken, write
from sessions.events import Audio, AudioFormat, Encoding, Failed
from tts_core.errors import BadRequest, TextTooLong, UnsupportedFormat, VoxwireError
from tts_core.text.segment import TextMode

PATH = "/webhooks/vapi"


class VoiceRequest(msgspec.Struct, kw_only=True):
    """What is to be spoken; of the call's data the assistant is looked at, for its voice alone."""

    type: str = "voice-request"
    text: str | None = None
    sample_rate: int | None = msgspec.field(default=None, name="sampleRate")
    voice_id: str | None = msgspec.field(default=None, name="voiceId")
    assistant: Any = None


class Body(msgspec.Struct, kw_only=True):
    """The body; the platform's own schema spells its one key in two ways."""

    message: VoiceRequest | None = None
    messsage: VoiceRequest | None = None


_decode = reading(msgspec.json.Decoder(Body).decode)


def parse(raw: bytes) -> VoiceRequest:
    """Read a request. Raises BadRequest that names the field."""
    try:
        body = _decode(raw)
    except UNREADABLE as error:
        raise bad_request(error) from None
    asked = body.message or body.messsage
    if asked is None:
        raise BadRequest("message is needed", field="message")
    if asked.type != "voice-request":
        raise BadRequest("only voice-request is answered here", field="message.type")
    if not asked.text:
        raise BadRequest("text is needed", field="message.text")
    if asked.sample_rate is None:
        raise BadRequest("sampleRate is needed", field="message.sampleRate")
    return asked


def voice_of(asked: VoiceRequest, query: str) -> str:
    """The voice: of the message, of its assistant, of the address (``?voice=``), or the default."""
    voice = asked.assistant.get("voice") if isinstance(asked.assistant, dict) else None
    found = voice.get("voiceId") if isinstance(voice, dict) else None
    return asked.voice_id or (found if isinstance(found, str) else "") or query


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's route."""
    services.error_shapes[PATH] = error_response
    return [web.post(PATH, speak)]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An error in words that the platform's log shows."""
    fields = {"error": said(error), "code": error.code, "requestId": request_id(request)}
    return web.json_response(fields, status=error.status)


async def speak(request: web.Request) -> web.StreamResponse:
    """Speak one piece; errors come before the first byte."""
    services = services_of(request)
    principal = await authenticate(request)
    asked = parse(await read_body(request))
    text = asked.text or ""
    if len(text) > services.settings.max_context_chars:
        raise TextTooLong(
            f"text has at most {services.settings.max_context_chars} characters", field="message.text"
        )
    try:
        fmt = AudioFormat(Encoding.PCM_S16LE, asked.sample_rate or 0)
    except UnsupportedFormat as error:
        raise UnsupportedFormat(error.message, field="message.sampleRate") from None
    voice = await services.speaking.resolve(principal, voice_of(asked, request.query.get("voice", "")))
    options = replace(base_options(services, principal).with_mode(TextMode.FINAL), voice=voice.id, format=fmt)
    response = web.StreamResponse()
    response.content_type = "application/octet-stream"
    async with spoken(request, principal, dialect="vapi", text=text, options=options, voice=voice) as events:
        async for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Audio):
                await write(request, response, event.data)
    await write(request, response, None)
    return response


__all__ = ["routes"]

"""The ElevenLabs dialect: its routes, and speech over HTTP.

Sources: protocols.md 1.1 and 1.2. All routes are below the setting ``elevenlabs_prefix`` (``/v1``, or nothing
for clients whose base address has it already). What is listed, and the rules of the sockets, are in the
modules beside this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec
from aiohttp import hdrs, web
from pybase64 import b64encode_as_string

from gateway.body import read_body
from gateway.encoding import Encoder, encode
from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.spoken import base_options, spoken, write, write_whole
from sessions.context import ContextOptions
from sessions.events import Audio, Done, Event, Failed, Words
from tts_core.errors import BadRequest, TextTooLong, VoxwireError
from tts_core.text.segment import TextMode

from . import elevenlabs_lists as lists
from . import elevenlabs_wire as wire
from .elevenlabs_alignment import CharacterClock, Slice
from .elevenlabs_sockets import multi_stream, single_stream
from .elevenlabs_turn import encoder_for

MAX_TIMED = 5000
"""Characters that may be asked for as one JSON object, which is held in memory until the end."""


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    prefix = services.settings.elevenlabs_prefix
    speech = f"{prefix}/text-to-speech"
    services.error_shapes[speech] = error_response
    services.error_shapes[f"{prefix}/text-to-dialogue"] = error_response
    one = f"{speech}/{{voice_id}}"
    return [
        web.get(f"{one}/multi-stream-input", multi_stream),
        web.get(f"{one}/stream-input", single_stream),
        web.post(one, speak),
        web.post(f"{one}/stream", speak),
        web.post(f"{one}/with-timestamps", timed),
        web.post(f"{one}/stream/with-timestamps", timed_stream),
        web.route("*", f"{prefix}/text-to-dialogue{{rest:.*}}", dialogue),
        *lists.routes(services),
    ]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape."""
    return web.json_response(wire.detail(error), status=error.status)


async def dialogue(request: web.Request) -> web.StreamResponse:
    """Where clients turn by themselves for the models ``eleven_v3``: refused in words."""
    await authenticate(request)
    raise BadRequest("dialogues are not spoken here: take a model other than eleven_v3", field="model_id")


@dataclass(slots=True)
class _Speech:
    """A whole text being spoken."""

    text: str
    output: wire.Output
    encoder: Encoder
    events: AsyncIterator[Event]

    async def audio(self) -> AsyncIterator[tuple[bytes, Slice | None]]:
        """Audio in its container, with its characters at times from the start; errors are raised."""
        clock = CharacterClock(self.output.format.rate, absolute=True)
        sent = made = 0
        async for event in self.events:
            data = b""
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Words):
                clock.add(event.words, self.text)
            elif isinstance(event, Audio):
                made = event.start_sample + event.samples
                data = await encode(self.encoder, event.data)
            elif isinstance(event, Done):
                data = await encode(self.encoder, None)
                if data:
                    yield data, clock.take(sent, made)
                data = b""
                if (rest := clock.rest(self.text, made)) is not None:
                    yield b"", rest
            if data:
                yield data, clock.take(sent, made)
                sent = made


@asynccontextmanager
async def _speaking(request: web.Request, *, most: int | None = None) -> AsyncIterator[_Speech]:
    """Speak what the request asks; leaving the block stops it."""
    services = services_of(request)
    principal = await authenticate(request)  # nobody's body is parsed before they are known
    params = wire.params_of(request.query)
    body = wire.body_of(await read_body(request))
    if body.output_format is not None and "output_format" not in request.query:
        params = replace(params, output=wire.format_of(body.output_format))
    if not body.text:
        raise BadRequest("text is needed", field="text")
    if most is not None and len(body.text) > most:
        raise TextTooLong(f"at most {most} characters are taken here; /stream takes more", field="text")
    encoder = await encoder_for(params.output)
    voice = await services.speaking.resolve(principal, request.match_info["voice_id"])
    options = _options(services, params, body, base_options(services, principal), voice.id)
    async with spoken(
        request, principal, dialect="elevenlabs", text=body.text, options=options, voice=voice
    ) as events:
        yield _Speech(body.text, params.output, encoder, events)


def _options(
    services: Services, params: wire.Params, body: wire.Body, base: ContextOptions, voice: str
) -> ContextOptions:
    speed = wire.speed_of(body.voice_settings)
    asked = replace(
        params,
        language=body.language_code or params.language,
        seed=wire.seed_of(body.seed) if body.seed is not None else params.seed,
        normalise=params.normalise and wire.normalise_of(body.apply_text_normalization),
    )
    options = wire.options_of(
        asked,
        base,
        voice=voice,
        languages=services.engine.info.languages,
        speed=1.0 if speed is None else speed,
        mode=TextMode.FINAL,
    )
    return replace(options, idle_s=base.idle_s)


def _response(request: web.Request, kind: str) -> web.StreamResponse:
    return web.StreamResponse(headers={hdrs.CONTENT_TYPE: kind, "request-id": request_id(request)})


async def speak(request: web.Request) -> web.StreamResponse:
    """Audio as the body, as it is made; errors come before the first byte."""
    async with _speaking(request) as speech:
        response = _response(request, speech.encoder.content_type)
        async for data, _ in speech.audio():
            if data:
                await write(request, response, data)
    await write(request, response, None)
    return response


async def timed(request: web.Request) -> web.StreamResponse:
    """All audio and all character times as one JSON object."""
    audio = bytearray()
    chars: list[str] = []
    starts: list[int] = []
    durations: list[int] = []
    async with _speaking(request, most=MAX_TIMED) as speech:
        async for data, found in speech.audio():
            audio += data
            if found is not None:
                chars += found.chars
                starts += found.starts
                durations += found.durations
    times = Slice(tuple(chars), tuple(starts), tuple(durations))
    response = _response(request, "application/json")
    # Minutes of audio take longer to write down than the loop may wait.
    await write_whole(request, response, await asyncio.to_thread(_timed_object, audio, times))
    return response


def _timed_object(audio: bytes | bytearray, found: Slice | None) -> bytes:
    """A JSON object of audio and the times of its characters."""
    alignment = wire.timestamps(found)
    return msgspec.json.encode(
        {
            "audio_base64": b64encode_as_string(audio),
            "alignment": alignment,
            "normalized_alignment": alignment,
        }
    )


async def timed_stream(request: web.Request) -> web.StreamResponse:
    """A JSON object a line: audio and the characters that begin in it, at times from the start."""
    response = _response(request, "application/json")
    async with _speaking(request) as speech:
        async for data, found in speech.audio():
            await write(request, response, _timed_object(data, found) + b"\n")
    await write(request, response, None)
    return response


__all__ = ["routes"]

"""The rest of the Cartesia protocol: voices, access tokens for browsers, and what is refused by name.

Sources: the vendor's API reference and its SDKs. What this gateway does not do (infill, changing a voice,
transcription) is refused in words, so that nobody takes a 404 for a wrong address. Voices are cloned by
``POST /v1/voices``, which asks for a consent.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import hdrs, web

from gateway.body import read_body
from gateway.fault import UNREADABLE, bad_request
from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from sessions.principal import Scope, parse_scopes
from sessions.tokens import MAX_LIFE_S
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest, UnknownVoice, VoxwireError

from . import cartesia_wire as wire
from . import elevenlabs_lists

NOT_OFFERED = {
    "/infill": "infill is not offered: speak the whole text by /tts/bytes",
    "/voice-changer": "changing the voice of a recording is not offered",
    "/voices/clone": "a voice is cloned by POST /v1/voices, with a consent of POST /v1/consents",
    "/voices/localize": "voices are not moved to another language here",
    "/stt": "speech is not transcribed here",
    "/pronunciation-dicts": "pronunciation dictionaries are not offered",
}
MAX_TOKEN_BODY = 4096


class NotOffered(VoxwireError):
    """A part of the protocol that this gateway does not have."""

    code = "not_offered"
    status = 501


class Grants(msgspec.Struct):
    """What a token is for."""

    tts: bool = True
    stt: bool = False
    agent: bool = False


class TokenRequest(msgspec.Struct):
    """The body of ``POST /access-token``."""

    grants: Grants = msgspec.field(default_factory=Grants)
    expires_in: Annotated[float, msgspec.Meta(gt=0)] | None = None


_decode = msgspec.json.Decoder(TokenRequest).decode


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    shapes = services.error_shapes
    for prefix in ("/voices", "/access-token", *NOT_OFFERED):
        shapes[prefix] = error_response
    return [
        web.get("/voices", elevenlabs_lists.by_key(voices, elevenlabs_lists.voices)),
        web.get("/voices/{id}", elevenlabs_lists.by_key(voice, elevenlabs_lists.voice)),
        web.post("/access-token", access_token),
        *(web.route("*", path + "{rest:(/.*)?}", refuse) for path in NOT_OFFERED),
    ]


def error_response(request: web.Request, error: VoxwireError) -> web.Response:
    """An HTTP error in the dialect's shape."""
    return web.json_response(wire.error_fields(error, request_id(request)), status=error.status)


async def refuse(request: web.Request) -> web.Response:
    """Say what is not offered, to those with a key."""
    await authenticate(request)
    raise NotOffered(next(words for path, words in NOT_OFFERED.items() if request.path.startswith(path)))


async def access_token(request: web.Request) -> web.Response:
    """``POST /access-token``: a browser token to speak with, for a server with a key.

    It lives at most MAX_LIFE_S, whatever longer time was asked for, and is taken once, at the connection.
    """
    services = services_of(request)
    principal = await authenticate(request)
    raw = await read_body(request, MAX_TOKEN_BODY)
    try:
        asked = _decode(raw) if raw else TokenRequest()
    except UNREADABLE as error:
        raise bad_request(error) from None
    if not asked.grants.tts or asked.grants.stt or asked.grants.agent:
        raise BadRequest("tokens are for tts alone", field="grants")
    life = min(asked.expires_in or MAX_LIFE_S, MAX_LIFE_S)
    made = services.tokens.mint(principal, scopes=parse_scopes([Scope.SPEAK]), ttl=life)
    return web.json_response({"token": made}, headers={hdrs.CACHE_CONTROL: "no-store"})


def _voice_entry(voice: VoiceInfo, kind: str) -> dict[str, Any]:
    return {
        "id": voice.id,
        "name": voice.name,
        "description": voice.description,
        "gender": {"female": "feminine", "male": "masculine"}.get(voice.gender, "gender_neutral"),
        "language": voice.language.split("-")[0],
        "country": voice.language.partition("-")[2] or None,
        "is_owner": kind != "built_in",
        "is_public": kind == "built_in",
        "created_at": "2026-01-01T00:00:00Z",
    }


async def voices(request: web.Request) -> web.Response:
    """``GET /voices``: paged by ``limit`` and ``starting_after``; a tenant's own voices come last."""
    principal = await authenticate(request)
    try:
        limit = int(request.query.get("limit", "100"))
    except ValueError:
        raise BadRequest("limit must be a whole number", field="limit") from None
    if not 1 <= limit <= 100:
        raise BadRequest("limit must be from 1 to 100", field="limit")
    known = await services_of(request).speaking.listed(principal)
    after = request.query.get("starting_after")
    ids = [v.id for v, _ in known]
    start = ids.index(after) + 1 if after in ids else 0
    page = [_voice_entry(*each) for each in known[start : start + limit]]
    more = start + limit < len(ids)
    return web.json_response(
        {"data": page, "has_more": more, "next_page": ids[start + limit - 1] if more else None}
    )


async def voice(request: web.Request) -> web.Response:
    """``GET /voices/{id}``."""
    principal = await authenticate(request)
    for info, kind in await services_of(request).speaking.listed(principal):
        if info.id == request.match_info["id"]:
            return web.json_response(_voice_entry(info, kind))
    raise UnknownVoice("there is no voice of this id", field="id")

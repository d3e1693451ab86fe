"""Routes for clients before they speak: what a key may use, and tokens for browsers."""

from __future__ import annotations

from typing import Annotated

import msgspec
from aiohttp import hdrs, web

from gateway.body import read_body
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.settings import origin as web_origin
from sessions.principal import Principal, parse_scopes
from sessions.tokens import MAX_LIFE_S
from tts_core.errors import BadRequest

MAX_TOKEN_BODY = 4096


class TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What may be asked of a token; everything only narrows what the key has."""

    scopes: list[str] | None = None
    voice: str | None = None
    max_characters: Annotated[int, msgspec.Meta(ge=1)] | None = None
    origin: str | None = None
    ttl: float = MAX_LIFE_S


_decode = msgspec.json.Decoder(TokenRequest).decode


async def limits(request: web.Request) -> web.Response:
    """What this key may use, and what its tenant uses now."""
    services = services_of(request)
    principal = await authenticate(request, scope=None)
    settings = services.settings
    own, shared = principal.limits, principal.tenant_limits
    return web.json_response(
        {
            "tenant": principal.tenant,
            "scopes": sorted(principal.scopes),
            "generating": services.limits.generating(tenant=principal.tenant),
            "limits": {
                "contexts": own.contexts,
                "requests_per_minute": own.requests_per_minute,
                "characters_per_minute": own.characters_per_minute,
                "tenant_contexts": shared.contexts,
                "tenant_requests_per_minute": shared.requests_per_minute,
                "tenant_characters_per_minute": shared.characters_per_minute,
                "contexts_per_socket": settings.max_contexts_per_socket,
                "message_bytes": settings.max_message_bytes,
                "messages_per_s": settings.messages_per_s,
                "context_characters": settings.max_context_chars,
                "context_idle_s": settings.context_idle_s,
                "run_ahead_s": settings.run_ahead_s,
                "resume_s": settings.resume_s,
            },
        }
    )


async def token(request: web.Request) -> web.Response:
    """A browser token: for a server with a key, or for the page that we served to this machine (S5).

    A token asked for by a page is bound to the page's own origin.
    """
    services = services_of(request)
    asked = await _asked(request)
    principal: Principal | None = services.guard.page(request)
    if principal is None:
        principal = await authenticate(request, scope=None)
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None and asked.origin is not None:
        try:
            origin = web_origin(asked.origin)
        except ValueError:
            raise BadRequest("origin must be scheme://host[:port]", field="origin") from None
    made = services.tokens.mint(
        principal,
        scopes=None if asked.scopes is None else parse_scopes(asked.scopes),
        voice=asked.voice,
        max_characters=asked.max_characters,
        origin=origin,
        ttl=asked.ttl,
    )
    return web.json_response(
        {"token": made, "expires_in": int(asked.ttl)}, headers={hdrs.CACHE_CONTROL: "no-store"}
    )


async def _asked(request: web.Request) -> TokenRequest:
    body = await read_body(request, MAX_TOKEN_BODY)
    if not body:
        return TokenRequest()
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadRequest(
            "the body must be a JSON object: scopes, voice, max_characters, origin, ttl"
        ) from None


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    return [
        web.get("/v1/limits", limits),
        web.post("/v1/token", token),
    ]

"""What ElevenLabs clients ask before they speak: voices, models, the user and the subscription.

Some paths belong to others, too: ``/v1/voices`` is our own, ``/v1/models`` OpenAI's. There the header
``xi-api-key``, which only clients of this dialect send, chooses the shape, of answers and of errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from gateway.app import error_body, request_id
from gateway.security import XI_API_KEY, authenticate
from gateway.services import Services, services_of
from gateway.speaking import VoiceKind
from sessions.principal import Principal
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest, UnknownVoice, VoxwireError

from . import elevenlabs_wire as wire

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MODELS = ("eleven_flash_v2_5", "eleven_turbo_v2_5", "eleven_multilingual_v2")
"""Names that clients know. Never one of ``eleven_v3``: for those they change to another endpoint."""
PAGE = 10
MAX_PAGE = 100
UNLIMITED = 1_000_000_000


def routes(services: Services) -> list[web.RouteDef]:
    """The routes that are not another's already; those are shared by ``by_key``."""
    prefix = services.settings.elevenlabs_prefix
    for path in ("/v2/voices", f"{prefix}/user", f"{prefix}/single-use-token"):
        services.error_shapes[path] = _shape
    for path in ("/v1/voices", f"{prefix}/voices", f"{prefix}/models"):
        _share_errors(services, path)
    own = [
        web.get("/v2/voices", voices_v2),
        web.get(f"{prefix}/user", user),
        web.get(f"{prefix}/user/subscription", subscription),
        web.post(f"{prefix}/single-use-token/{{kind}}", single_use_token),
    ]
    if prefix not in {"", "/v1"}:
        own += [web.get(f"{prefix}/voices", voices), web.get(f"{prefix}/voices/{{id}}", voice)]
    return own


def by_key(theirs: Handler, ours: Handler) -> Handler:
    """A handler for a path of two dialects: ``ours`` for who sends ``xi-api-key``, else ``theirs``."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return await (ours if XI_API_KEY in request.headers else theirs)(request)

    return handler


def _shape(request: web.Request, error: VoxwireError) -> web.Response:
    return web.json_response(wire.detail(error), status=error.status)


def _share_errors(services: Services, path: str) -> None:
    theirs = services.error_shapes.get(path)

    def shape(request: web.Request, error: VoxwireError) -> web.StreamResponse:
        if XI_API_KEY in request.headers:
            return _shape(request, error)
        if theirs is not None:
            return theirs(request, error)
        return web.json_response(error_body(error, request_id(request)), status=error.status)

    services.error_shapes[path] = shape


# Voices


def _voice(info: VoiceInfo, kind: VoiceKind) -> dict[str, Any]:
    language, _, country = info.language.partition("-")
    return {
        "voice_id": info.id,
        "name": info.name,
        "category": "premade" if kind == "built_in" else "cloned",
        "description": info.description,
        "labels": {"gender": info.gender, "language": language, "accent": country},
        "preview_url": None,
        "available_for_tiers": [],
        "settings": None,
        "samples": None,
        "is_owner": kind != "built_in",
    }


async def _listed(request: web.Request) -> list[dict[str, Any]]:
    principal = await authenticate(request)
    return [_voice(*each) for each in await services_of(request).speaking.listed(principal)]


async def voices(request: web.Request) -> web.Response:
    """``GET /v1/voices``: all of them."""
    return web.json_response({"voices": await _listed(request)})


async def voice(request: web.Request) -> web.Response:
    """``GET /v1/voices/{id}``."""
    wanted = request.match_info["id"]
    for found in await _listed(request):
        if found["voice_id"] == wanted:
            return web.json_response(found)
    raise UnknownVoice("there is no voice of this id", field="voice_id")


async def voices_v2(request: web.Request) -> web.Response:
    """``GET /v2/voices``: in pages; ``search`` looks into id, name and description."""
    found = await _listed(request)
    if search := request.query.get("search", "").lower():
        found = [v for v in found if search in f"{v['voice_id']} {v['name']} {v['description']}".lower()]
    try:
        size = int(request.query.get("page_size", str(PAGE)))
    except ValueError:
        size = 0
    if not 1 <= size <= MAX_PAGE:
        raise BadRequest(f"page_size must be from 1 to {MAX_PAGE}", field="page_size")
    ids = [v["voice_id"] for v in found]
    after = request.query.get("next_page_token", "")
    start = ids.index(after) + 1 if after in ids else 0
    page = found[start : start + size]
    more = start + size < len(found)
    return web.json_response(
        {
            "voices": page,
            "has_more": more,
            "total_count": len(found),
            "next_page_token": page[-1]["voice_id"] if more else None,
        }
    )


# Models and user


async def models(request: web.Request) -> web.Response:
    """``GET /v1/models``: our engine, then the vendor's names, which are all taken for it."""
    await authenticate(request)
    info = services_of(request).engine.info
    languages = [{"language_id": code.split("-")[0], "name": code} for code in info.languages]
    most = services_of(request).settings.max_context_chars
    return web.json_response(
        [
            {
                "model_id": model,
                "name": model,
                "description": f"spoken by {info.name}",
                "can_do_text_to_speech": True,
                "can_do_voice_conversion": False,
                "can_be_finetuned": False,
                "can_use_style": False,
                "can_use_speaker_boost": False,
                "serves_pro_voices": False,
                "token_cost_factor": 1.0,
                "requires_alpha_access": False,
                "max_characters_request_free_user": most,
                "max_characters_request_subscribed_user": most,
                "maximum_text_length_per_request": most,
                "languages": languages,
                "concurrency_group": "standard",
            }
            for model in (info.name, *MODELS)
        ]
    )


def _subscription(services: Services, principal: Principal) -> dict[str, Any]:
    """What clients look at: how many characters are left. Ours are limited by the minute, not the month."""
    cloning = services.engine.info.can_clone
    return {
        "tier": "self_hosted",
        "character_count": 0,
        "character_limit": principal.limits.characters_per_minute or UNLIMITED,
        "can_extend_character_limit": False,
        "allowed_to_extend_character_limit": False,
        "next_character_count_reset_unix": None,
        "voice_slots_used": 0,
        "professional_voice_slots_used": 0,
        "voice_limit": services.settings.permanent_voices if cloning else 0,
        "voice_add_edit_counter": 0,
        "professional_voice_limit": 0,
        "can_extend_voice_limit": False,
        "can_use_instant_voice_cloning": cloning,
        "can_use_professional_voice_cloning": False,
        "currency": None,
        "status": "active",
    }


async def subscription(request: web.Request) -> web.Response:
    """``GET /v1/user/subscription``."""
    principal = await authenticate(request)
    return web.json_response(_subscription(services_of(request), principal))


async def user(request: web.Request) -> web.Response:
    """``GET /v1/user``: the tenant, and nothing about a person."""
    principal = await authenticate(request)
    return web.json_response(
        {
            "user_id": principal.tenant,
            "workspace_id": principal.tenant,
            "subscription": _subscription(services_of(request), principal),
            "is_new_user": False,
            "can_use_delayed_payment_methods": False,
            "is_onboarding_completed": True,
            "is_onboarding_checklist_completed": True,
            "xi_api_key": None,
            "first_name": None,
            "created_at": 0,
            "seat_type": "workspace_member",
        }
    )


async def single_use_token(request: web.Request) -> web.Response:
    """``POST /v1/single-use-token/{kind}``: a browser token, for ``?single_use_token=`` on a socket."""
    principal = await authenticate(request, scope=None)
    if request.match_info["kind"] != "tts_websocket":
        raise BadRequest("tokens are made for tts_websocket only", field="token_type")
    made = services_of(request).tokens.mint(principal, origin=request.headers.get("Origin"))
    return web.json_response({"token": made}, headers={"Cache-Control": "no-store"})


__all__ = ["MODELS", "by_key", "models", "routes", "voice", "voices"]

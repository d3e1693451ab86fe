"""``/v1/voices``: list, make, look at, delete. And ``/v1/receipts``: what a deletion has proven.

Who lists sees the built-in voices; those of the tenant need the scope ``voice:read``. A session's voice is
found under its id by those who know that, and listed with ``?session=``.
"""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

import msgspec
from aiohttp import hdrs, web

from gateway.dialects import elevenlabs_lists
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.voice_api.upload import read_upload
from sessions.principal import Principal, Scope
from sessions.receipt import DOMAIN
from sessions.voice_catalogue import VoiceEntry
from tts_core.engine import VoiceInfo
from tts_core.errors import BadRequest

_BATCH = 100


class UnknownReceipt(BadRequest):
    """No such receipt of this tenant, or not any more."""

    code = "unknown_receipt"
    status = 404


def built_in(voice: VoiceInfo) -> dict[str, Any]:
    """A voice of the engine, as these routes show it."""
    return {
        "id": voice.id,
        "name": voice.name,
        "language": voice.language,
        "gender": voice.gender,
        "description": voice.description,
        "kind": "built_in",
    }


def own(entry: VoiceEntry) -> dict[str, Any]:
    """A tenant's own voice, as these routes show it; times as RFC 3339, in UTC."""
    return {
        "id": entry.id,
        "name": entry.name,
        "language": entry.language,
        "gender": "",
        "description": "",
        "kind": entry.kind,
        "session": entry.session,
        "created": when(entry.created),
        "until": when(entry.until),
        "consent": entry.consent,
        "commitment": entry.commitment,
        "notes": list(entry.notes),
    }


def when(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339; None stays None."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def voices(request: web.Request) -> web.Response:
    """The voices that may be asked for."""
    services = services_of(request)
    principal = await authenticate(request, scope=None)
    info = services.engine.info
    listed = [built_in(v) for v in info.voices]
    if info.can_clone and principal.may(Scope.VOICE_READ):
        session = request.query.get("session") or None
        for turn, entry in enumerate(await services.voices.catalogue.list(principal.tenant, session=session)):
            if turn % _BATCH == 0:
                await asyncio.sleep(0)  # thousands of voices must not hold up the audio
            listed.append(own(entry))
    default = services.settings.default_voice or (info.voices[0].id if info.voices else "")
    ways = sorted(services.desk.consents.verified) if info.can_clone else []
    answer = {"voices": listed, "default": default, "cloning": info.can_clone, "consents": ways}
    return web.json_response(body=msgspec.json.encode(answer))


async def make(request: web.Request) -> web.Response:
    """A new voice from a clip: 201 with its id and what may be said against the clip."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_ENROL)
    with services.cloning.place(principal.tenant):
        made = await services.cloning.make(principal.tenant, await read_upload(request))
    voice = made.voice
    entry = await services.voices.catalogue.find(principal.tenant, voice.voice_id, session=voice.session)
    return web.json_response(
        {
            **own(entry),
            "reused": voice.reused,
            "warnings": [{"code": f.code, "message": f.message} for f in made.warnings],
        },
        status=201,
        headers={hdrs.LOCATION: f"/v1/voices/{voice.voice_id}"},
    )


async def voice(request: web.Request) -> web.Response:
    """One voice."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_READ)
    wanted = request.match_info["id"]
    for info in services.engine.info.voices:
        if info.id == wanted:
            return web.json_response(built_in(info))
    session = _session(services, principal, request, wanted)
    entry = await services.voices.catalogue.find(principal.tenant, wanted, session=session)
    return web.json_response(own(entry))


async def delete(request: web.Request) -> web.Response:
    """Destroy a voice's key; answered with the signed receipt."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_DELETE)
    wanted = request.match_info["id"]
    if any(info.id == wanted for info in services.engine.info.voices):
        raise BadRequest("a built-in voice cannot be deleted", field="id")
    receipt = await services.desk.deletions.delete(
        principal.tenant, wanted, session=_session(services, principal, request, wanted)
    )
    services.metrics.voices_deleted.inc()
    return web.json_response({"deleted": wanted, "receipt": msgspec.to_builtins(receipt)})


def _session(services: Services, principal: Principal, request: web.Request, wanted: str) -> str | None:
    """The session that a voice is looked for in: the one named, or the one here that it lives with."""
    return request.query.get("session") or services.holds.scope(principal.tenant, wanted)


async def receipt(request: web.Request) -> web.Response:
    """A receipt as of now: gateways that were late may have answered meanwhile."""
    services = services_of(request)
    principal = await authenticate(request, scope=Scope.VOICE_READ)
    try:
        found = await services.desk.deletions.receipt(principal.tenant, request.match_info["id"])
    except BadRequest:
        raise UnknownReceipt("there is no such receipt", field="id") from None
    return web.json_response(msgspec.to_builtins(found))


async def page(request: web.Request) -> web.Response:
    """The page that describes these routes."""
    text = files("gateway.voice_api").joinpath("VOICES.md").read_text("utf-8")
    return web.Response(text=text, content_type="text/markdown", charset="utf-8")


async def key(request: web.Request) -> web.Response:
    """The public key with which receipts and consents can be checked by anybody, without us."""
    signer = services_of(request).desk.signer
    public = base64.urlsafe_b64encode(signer.public_bytes).rstrip(b"=").decode()
    return web.json_response(
        {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": public,
            "kid": signer.kid,
            "use": "sig",
            "domain": DOMAIN,
        },
        headers={hdrs.CACHE_CONTROL: "public, max-age=3600"},
    )


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    return [
        web.get("/v1/voices.md", page),
        web.get("/v1/voices", elevenlabs_lists.by_key(voices, elevenlabs_lists.voices)),
        web.post("/v1/voices", make),
        web.get("/v1/voices/{id}", elevenlabs_lists.by_key(voice, elevenlabs_lists.voice)),
        web.delete("/v1/voices/{id}", delete),
        web.get("/v1/receipts/key", key),
        web.get("/v1/receipts/{id}", receipt),
    ]


__all__ = ["UnknownReceipt", "routes"]

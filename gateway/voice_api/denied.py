"""``/v1/denied``: voices of which nobody may make a voice here (trust.md V7). For operators alone.

A recording becomes a commitment and is overwritten; what the list holds is told in ``sessions.denied``.
"""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated

import msgspec
from aiohttp import hdrs, web
from msgspec import Meta

from gateway.body import read_body
from gateway.intake.activity import RATE
from gateway.intake.clip import decode_clip
from gateway.intake.quality import assess, refuse
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.trust.speaker import Samples, SpeakerModel, Vectors, require_one_speaker
from gateway.voice_api import strict
from gateway.voice_api.upload import read_form
from sessions.principal import Scope
from tts_core.errors import BadRequest, VoxwireError

MOST_IMPORT = 1_000_000
"""Bytes of an export as JSON; one has 0.8 million at most."""


class NoSpeakerModel(VoxwireError):
    """The list compares voices, and nothing is installed that can."""

    code = "no_speaker_model"
    status = 501


class UnknownDenied(BadRequest):
    """There is no such entry."""

    code = "unknown_denied"
    status = 404


class DenialAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``reason``: why, as an id of the operator's; see :meth:`sessions.denied.DenyList.add`."""

    reason: Annotated[str, Meta(max_length=64)]


class Export(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A list as it was exported."""

    export: str


async def create(request: web.Request) -> web.Response:
    """List the voice of a recording (a form with ``file`` and ``reason``): 201 and its commitment."""
    services = await _admitted(request)
    if services.speakers is None:
        raise NoSpeakerModel("this gateway cannot compare voices: set VOXWIRE_SPEAKER_MODEL")
    data = bytearray()
    asked = await read_form(request, DenialAsked, data)
    clip = await decode_clip(data)
    try:
        refuse(assess(clip))
        voice = await asyncio.to_thread(_voice, services.speakers, clip.pcm)
    finally:
        clip.wipe()
    commitment = await services.denied.add(voice, asked.reason)
    return web.json_response(
        {"id": commitment, "reason": asked.reason},
        status=201,
        headers={hdrs.LOCATION: f"/v1/denied/{commitment}"},
    )


async def listed(request: web.Request) -> web.Response:
    """The entries, oldest first."""
    services = await _admitted(request)
    return web.json_response(body=msgspec.json.encode({"denied": await services.denied.entries()}))


async def remove(request: web.Request) -> web.Response:
    """Take a voice off the list."""
    services = await _admitted(request)
    commitment = request.match_info["id"]
    if not await services.denied.remove(commitment):
        raise UnknownDenied("no such entry among the denied voices", field="id")
    return web.json_response({"id": commitment})


async def export(request: web.Request) -> web.Response:
    """The whole list, sealed, as base64: what ``import`` takes."""
    services = await _admitted(request)
    sealed = await services.denied.export()
    return web.json_response({"export": base64.b64encode(sealed).decode()})


async def take(request: web.Request) -> web.Response:
    """Add the entries of an export."""
    services = await _admitted(request)
    asked = strict.decode(await read_body(request, MOST_IMPORT), Export)
    try:
        sealed = base64.b64decode(asked.export, validate=True)
    except ValueError:
        raise BadRequest("an export is base64", field="export") from None
    return web.json_response({"added": await services.denied.load(sealed)})


async def _admitted(request: web.Request) -> Services:
    await authenticate(request, scope=Scope.ADMIN)
    return services_of(request)


def _voice(speakers: SpeakerModel, pcm: Samples) -> Vectors:
    require_one_speaker(speakers.windows(pcm, RATE))
    return speakers.embed(pcm, RATE)


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    return [
        web.post("/v1/denied", create),
        web.get("/v1/denied", listed),
        web.get("/v1/denied/export", export),
        web.post("/v1/denied/import", take),
        web.delete("/v1/denied/{id}", remove),
    ]


__all__ = ["routes"]

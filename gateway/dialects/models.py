"""``GET /v1/models``: a path of two dialects; ``xi-api-key`` gets ElevenLabs' list, others OpenAI's."""

from __future__ import annotations

from aiohttp import web

from gateway.security import authenticate
from gateway.services import Services, services_of

from . import elevenlabs_lists
from .elevenlabs_lists import by_key

OPENAI_MODELS = ("gpt-4o-mini-tts", "tts-1", "tts-1-hd")
"""Names that clients of OpenAI know; each is taken for our engine."""


async def openai_models(request: web.Request) -> web.Response:
    """``{"object": "list", "data": [...]}``: our engine, then OpenAI's names."""
    await authenticate(request)
    info = services_of(request).engine.info
    return web.json_response(
        {
            "object": "list",
            "data": [
                {"id": name, "object": "model", "created": 0, "owned_by": "voxwire"}
                for name in (info.name, *OPENAI_MODELS)
            ],
        }
    )


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    shared = by_key(openai_models, elevenlabs_lists.models)
    paths = {"/v1/models", f"{services.settings.elevenlabs_prefix}/models"}
    return [web.get(path, shared) for path in sorted(paths)]


__all__ = ["OPENAI_MODELS", "openai_models", "routes"]

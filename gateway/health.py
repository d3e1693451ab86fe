"""Routes for operators: is it alive, is it ready, and what it measures.

``/healthz`` answers while the process can answer. ``/readyz`` says whether new work is taken: 200 or 503, and
why. A lost store is "degraded" and still 200: calls go on without it, and taking every gateway out of
rotation because Redis is away would turn a small fault into an outage.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from gateway.metrics import CONTENT_TYPE
from gateway.security import authenticate
from gateway.services import Services, services_of
from sessions.principal import Scope


def readiness(services: Services) -> tuple[bool, dict[str, Any]]:
    """Whether new work is taken, and the JSON that says why or why not."""
    capacity = services.engine.capacity()
    reasons: list[str] = []
    if services.draining.is_set():
        reasons.append("draining")
    if capacity.alive < 1:
        reasons.append("engine has no live worker")
    ready = not reasons
    stores = (services.store, services.lasting)
    healthy = all(store.healthy for store in stores)
    degraded = [] if healthy else ["store is away"]
    if any(store.faults for store in stores):
        degraded.append("store must not hold voices: no new ones are made")
    body = {
        "ready": ready,
        "status": "unready" if reasons else ("degraded" if degraded else "ready"),
        "reasons": [*reasons, *degraded],
        "engine": {
            "name": services.engine.info.name,
            "alive": capacity.alive,
            "free": capacity.free,
            "queued": capacity.queued,
            "xrt": round(capacity.xrt, 2),
        },
        "store": {"driver": services.store.state.driver, "state": "ok" if healthy else "degraded"},
        "draining": services.draining.is_set(),
        "contexts": services.in_flight.count,
        "sockets": len(services.sockets),
    }
    return ready, body


async def healthz(_: web.Request) -> web.Response:
    """Alive."""
    return web.json_response({"status": "alive"})


async def readyz(request: web.Request) -> web.Response:
    """Ready for new work, or why not."""
    ready, body = readiness(services_of(request))
    return web.json_response(body, status=200 if ready else 503, headers={"Cache-Control": "no-store"})


async def metrics(request: web.Request) -> web.Response:
    """Prometheus text; who may read it is the setting ``metrics`` (trust.md S28)."""
    services = services_of(request)
    rule = services.settings.metrics
    if rule == "off":
        raise web.HTTPNotFound
    guard = services.guard
    if not (rule == "open" or (rule == "local" and guard.near(request) and not guard.cross_site(request))):
        await authenticate(request, scope=Scope.ADMIN)
    return web.Response(body=services.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of this module."""
    return [
        web.get("/healthz", healthz),
        web.get("/health", healthz),  # where clients of the model maker's own service look (protocols.md 0.1)
        web.get("/readyz", readyz),
        web.get("/metrics", metrics),
    ]

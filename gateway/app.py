"""The application: middlewares, routes of every dialect, start and stop.

``create_app`` makes an ``aiohttp`` application around one ``Services``. A module gives its routes by a
function ``routes(services) -> list[RouteDef]``; it may word its own errors by putting an ``ErrorShape`` for a
path prefix into ``services.error_shapes`` there.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

from aiohttp import HttpVersion11, WSCloseCode, hdrs, web
from aiohttp.abc import AbstractAccessLogger

from gateway import access, health, logs, startup
from gateway.ident import REQUEST_ID, request_id
from gateway.loopwatch import LoopWatch
from gateway.services import SERVICES, Services, services_of
from gateway.settings import Settings
from tts_core.engine import Engine
from tts_core.errors import BadRequest, Draining, Forbidden, LegClosed, TextTooLong, VoxwireError

_log = logging.getLogger(__name__)

ROUTE_MODULES = (
    "gateway.native.routes",
    "gateway.dialects.native",
    "gateway.dialects.cartesia",
    "gateway.dialects.elevenlabs",
    "gateway.dialects.models",
    "gateway.dialects.openai",
    "gateway.dialects.deepgram",
    "gateway.dialects.deepgram_v2",
    "gateway.dialects.vapi",
    "gateway.dialects.jambonz",
    "gateway.media",
    "gateway.voice_api.consents",
    "gateway.voice_api.denied",
    "gateway.voice_api.voices",
    "gateway.web",
)
"""Modules with a ``routes(services)``; one that is not installed is left out."""

OPEN_PATHS = frozenset({"/healthz", "/health", "/readyz"})
"""Asked by probes, which use any host name."""

MAX_LINE = 8190
MAX_FIELD = 8190
MAX_HEADERS = 100
CUT_DEADLINE_S = 3.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the log tells of a refusal: its code, and for Origin, Host and the like the header at fault.

    Other fields may be a client's words.
    """

    code: str
    reason: str | None


ROUTE = web.RequestKey("route", str)
STARTED = web.RequestKey("started", int)
REFUSAL = web.RequestKey("refusal", Refusal)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(
    settings: Settings,
    *,
    engine: Engine | None = None,
    clock: Callable[[], float] = time.monotonic,
    warm: Awaitable[None] | None = None,
) -> web.Application:
    """Make the application.

    Args:
        settings: see ``Settings``.
        engine: the engine to use; by default the one that the settings name.
        clock: monotonic seconds.
        warm: a start of ``engine`` already under way; the application then does not wait for it (until it is
            done ``/readyz`` says no and work is refused). By default the engine is started with the
            application, and closed with it in either case.

    Raises:
        SettingsError: a setting that does not fit, such as an open bind without a key.

    """
    services = startup.build(settings, engine=engine, clock=clock)
    app = web.Application(client_max_size=settings.max_body_bytes, middlewares=[_answer, _guard])
    app[SERVICES] = services
    app.on_response_prepare.append(_headers)
    app.cleanup_ctx.append(_life(services, warm))
    app.router.add_routes([*health.routes(services), *access.routes(services)])
    for name in ROUTE_MODULES:
        if _there(name):
            app.router.add_routes(import_module(name).routes(services))
    return app


def _there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _life(
    services: Services, warm: Awaitable[None] | None
) -> Callable[[web.Application], AsyncIterator[None]]:
    async def life(_: web.Application) -> AsyncIterator[None]:
        try:
            await startup.start(services)
            if warm is None:
                await services.engine.start()
            services.spawn(LoopWatch(services.metrics.loop_lag.observe).run(), name="loop watch")
            yield
        finally:
            await cut(services)
            for session in list(services.native_sessions.values()):
                await session.close()  # also those kept for a resume that will not come here
            services.native_sessions.clear()
            await services.stop_tasks()
            await startup.close(services)

    return life


# -- drain ------------------------------------------------------------------------------------------------


async def drain(services: Services) -> bool:
    """Take no new work, let what runs finish within ``drain_s``, then close the sockets.

    What runs are open contexts and calls, which may go on speaking. Returns whether everything finished.
    Cancelling it leaves the gateway draining.
    """
    services.draining.set()
    services.metrics.draining.set(1)
    _log.info("draining", extra={"contexts": services.in_flight.count, "sockets": len(services.sockets)})
    await asyncio.sleep(0)  # those who have something to finish between two contexts hold us now
    finished = True
    try:
        async with asyncio.timeout(services.settings.drain_s):
            await services.in_flight.idle()
    except TimeoutError:
        finished = False
        _log.warning("cut at the drain deadline", extra={"contexts": services.in_flight.count})
        services.scheduler.set_draining()
        await _end_what_is_left(services)
    await cut(services)
    return finished


async def _end_what_is_left(services: Services) -> None:
    """Give every context its terminal event and every call its end, CUT_DEADLINE_S at most."""
    error = Draining("the gateway restarted before this was spoken", retry_after=1.0)
    try:
        async with asyncio.timeout(CUT_DEADLINE_S):
            await asyncio.gather(*(runner.fail(error) for runner in list(services.runners)))
            for call in list(services.calls.calls.values()):
                call.reason = "draining"
                await services.calls.end(call)
    except TimeoutError:
        _log.warning("clients did not take their end", extra={"contexts": services.in_flight.count})


async def cut(services: Services) -> None:
    """Close all sockets with 1012 (service restart), CUT_DEADLINE_S at most; clients reconnect elsewhere."""
    sockets = list(services.sockets)
    if not sockets:
        return
    closing = [asyncio.ensure_future(s.close(WSCloseCode.SERVICE_RESTART, "restarting")) for s in sockets]
    await asyncio.wait(closing, timeout=CUT_DEADLINE_S)
    for socket in list(services.sockets):
        socket.abort()


# -- middlewares ------------------------------------------------------------------------------------------


def error_body(error: VoxwireError, ident: str) -> dict[str, Any]:
    """The native shape of an error."""
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "field": error.field,
            "retry_after": error.retry_after,
            "request_id": ident,
        }
    }


def error_response(request: web.Request, error: VoxwireError) -> web.StreamResponse:
    """Word an error in the shape of the dialect that the path belongs to; native JSON by default."""
    shapes = services_of(request).error_shapes
    best = max((prefix for prefix in shapes if request.path.startswith(prefix)), key=len, default=None)
    if best is not None:
        response = shapes[best](request, error)
    else:
        response = web.json_response(error_body(error, request_id(request)), status=error.status)
    if error.retry_after is not None:
        response.headers[hdrs.RETRY_AFTER] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = 'Bearer realm="voxwire"'
    return response


class _Http(VoxwireError):
    """An HTTP error of the router in our shape."""

    def __init__(self, status: int) -> None:
        self.status, self.code = (
            status,
            {404: "not_found", 405: "method_not_allowed"}.get(status, "bad_request"),
        )
        super().__init__()


def _as_ours(error: Exception) -> VoxwireError:
    """Any failure in our words; the original goes to the log only, and there without its text."""
    if isinstance(error, VoxwireError):
        return error
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return TextTooLong("the request body is too large")
    if isinstance(error, web.HTTPException):
        return _Http(error.status)
    if isinstance(error, (UnicodeDecodeError, ValueError)) and not isinstance(error, OSError):
        return BadRequest("the request could not be read")
    return VoxwireError("something failed in the gateway")


@web.middleware
async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: request id, errors as JSON, counting."""
    services = services_of(request)
    ident = request[REQUEST_ID] = secrets.token_hex(8)
    route = request[ROUTE] = route_name(request)
    with logs.bound(request=ident):
        try:
            response = await handler(request)
        except web.HTTPException as raised:
            if raised.status < 400:
                raise
            response = _refuse(request, services, raised)
        except Exception as raised:  # the one place where everything must become an answer
            response = _refuse(request, services, raised)
    services.metrics.requests.labels(route, str(response.status)).inc()
    return response


def _refuse(request: web.Request, services: Services, raised: Exception) -> web.StreamResponse:
    error = _as_ours(raised)
    if not isinstance(raised, (VoxwireError, web.HTTPException)):
        _log.error("request failed", exc_info=raised, extra={"route": route_name(request)})
    if not isinstance(error, LegClosed):  # who hangs up was not refused
        services.metrics.refused(error.code)
    request[REFUSAL] = Refusal(error.code, error.field if isinstance(error, Forbidden) else None)
    if (status := request.get(STARTED)) is not None:
        # Break it off, so that nobody takes it as whole. It counts as what it was; our code says the rest.
        if request.transport is not None:
            if request.version < HttpVersion11:
                # Its body ends with the connection: only a reset tells a part from the whole.
                _reset(request.transport)
            request.transport.abort()
        return web.Response(status=status)
    return error_response(request, error)


def _reset(transport: asyncio.Transport) -> None:
    """Make the close of this connection a reset (RST, by ``SO_LINGER`` of 0 s); what is unsent is dropped."""
    peer = transport.get_extra_info("socket")
    if peer is not None:
        peer.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Host and Origin for every route, credentials or not; preflights of listed origins are answered here."""
    if request.path in OPEN_PATHS:
        return await handler(request)
    services_of(request).guard.check(request)
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise BadRequest("send the body uncompressed", field=hdrs.CONTENT_ENCODING)
    if request.method == hdrs.METH_OPTIONS and hdrs.ORIGIN in request.headers:
        return web.Response(status=204)
    return await handler(request)


ALLOWED_HEADERS = "Authorization, Content-Type, X-API-Key, xi-api-key, Cartesia-Version"


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    """Headers that every response has; runs when the first byte is about to leave."""
    request[STARTED] = response.status  # not the response, which has the request
    headers = response.headers
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Referrer-Policy", "no-referrer")
    headers.setdefault("X-Request-Id", request_id(request))
    headers[hdrs.SERVER] = "voxwire"
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and origin in services_of(request).settings.allowed_origins:
        headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
        headers[hdrs.VARY] = "Origin"
        if request.method == hdrs.METH_OPTIONS:
            headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = "GET, POST, DELETE"
            headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = ALLOWED_HEADERS
            headers[hdrs.ACCESS_CONTROL_MAX_AGE] = "600"


def route_name(request: web.Request) -> str:
    """The route's pattern: ours, never what a client wrote into the path; "-" where none matched."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "-"


class AccessLogger(AbstractAccessLogger):
    """One line a request from allow-listed fields: no query, no headers, no path as sent (S6)."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write the line."""
        route = request.get(ROUTE, "-")
        if route in OPEN_PATHS or route == "/metrics":
            return
        refusal: Refusal | None = request.get(REFUSAL)
        method = request.method if re.fullmatch(r"[A-Z]{1,10}", request.method) else "-"
        self.logger.info(
            "request",
            extra={
                "method": method,
                "route": route,
                "status": response.status,
                "ms": round(time * 1000, 1),
                "bytes": response.body_length or None,  # not counted of one that was broken off
                "request": request.get(REQUEST_ID, "-"),
                "code": refusal.code if refusal is not None else None,
                "reason": refusal.reason if refusal is not None else None,
            },
        )


class _Protocol(web.RequestHandler):
    """aiohttp's protocol with our words for what cannot be parsed.

    Its own answer quotes the offending bytes and names the library and its version (S16).
    """

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if isinstance(exc, ConnectionError):
            raise exc  # hung up before we answered, as while it waits for our 100 Continue
        kind = type(exc).__name__ if exc is not None else None
        _log.info("request could not be parsed", extra={"status": status, "reason": kind})
        error = BadRequest("this is not a proper HTTP request") if status < 500 else VoxwireError()
        response = web.json_response(error_body(error, ""), status=status, headers={hdrs.SERVER: "voxwire"})
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Protocol(self, loop=self._loop, **self._kwargs)


class _Runner(web.AppRunner):
    """Makes servers that speak ``_Protocol``; aiohttp has no public place for that, so a test watches it."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server
        return server


def runner(app: web.Application) -> web.AppRunner:
    """An AppRunner with our limits before parsing (S8), our access log and our words."""
    return _Runner(
        app,
        handle_signals=False,
        access_log_class=AccessLogger,
        access_log=logging.getLogger("gateway.access"),
        shutdown_timeout=CUT_DEADLINE_S,
        max_line_size=MAX_LINE,
        max_field_size=MAX_FIELD,
        max_headers=MAX_HEADERS,
        keepalive_timeout=75.0,
        lingering_time=2.0,
        auto_decompress=False,  # else 300 kB are 300 MB, also where the body is only read to be dropped
    )


__all__ = [
    "AccessLogger",
    "create_app",
    "drain",
    "error_body",
    "error_response",
    "request_id",
    "route_name",
    "runner",
]

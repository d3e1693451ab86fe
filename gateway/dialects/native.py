"""The native protocol over a WebSocket: ``/v1/stream``, its schema and its page.

The rules are in ``gateway/native/PROTOCOL.md``, which the gateway serves.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.resources import files

import msgspec
from aiohttp import WSCloseCode, web

from gateway.native import messages as m
from gateway.native.outbox import ResumeGap
from gateway.native.session import NativeSession, check_agent
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from sessions.principal import Principal
from tts_core.errors import BadRequest, LegClosed, VoxwireError

log = logging.getLogger(__name__)

HELLO_S = 5.0
"""A client that says nothing for this long after the upgrade is not one of ours (trust.md S1)."""

MAX_DETACHED = 256
"""Dropped sessions kept for a resume at once."""

MAX_FAULTS = 50
"""Bad messages in a row after which the connection is closed."""


def routes(services: Services) -> list[web.RouteDef]:
    """The routes of the native protocol."""
    return [
        web.get("/v1/stream", stream),
        web.get("/v1/stream/schema.json", schema),
        web.get("/v1/stream/protocol.md", protocol),
    ]


async def schema(request: web.Request) -> web.Response:
    """The JSON Schema of all messages."""
    return web.json_response(m.schema())


async def protocol(request: web.Request) -> web.Response:
    """The page that describes the protocol."""
    text = files("gateway.native").joinpath("PROTOCOL.md").read_text("utf-8")
    return web.Response(text=text, content_type="text/markdown", charset="utf-8")


async def stream(request: web.Request) -> web.StreamResponse:
    """One connection: hello, then messages until either side closes."""
    services = services_of(request)
    principal = await authenticate(request)
    async with accept(services, request, "native", principal) as socket:
        session = await _hello(services, principal, socket)
        if session is not None:
            await _serve(services, session, socket)
    return socket.ws


async def _hello(services: Services, principal: Principal, socket: Socket) -> NativeSession | None:
    """Read the first message; a new session, a resumed one, or None after an error was told."""
    try:
        async with asyncio.timeout(HELLO_S):
            raw = await anext(socket.messages(), None)
        if raw is None:
            return None
        hello = _decode_hello(raw)
        check_agent(hello.agent, principal)
        if hello.resume is not None:
            return await _resume(services, principal, socket, hello.resume)
    except TimeoutError:
        await _refuse(socket, BadRequest("hello must come within 5 seconds", field="type"))
        return None
    except VoxwireError as error:
        await _refuse(socket, error)
        return None
    session = NativeSession(services, principal, hello.agent)
    services.native_sessions[session.id] = session
    await socket.send(m.encode(session.hello(resumed=False)).decode())
    await session.attach(socket.send, 0)
    return session


def _decode_hello(raw: str | bytes) -> m.ClientHello:
    if isinstance(raw, bytes):
        raise BadRequest("the first message must be hello, as text", field="type")
    try:
        hello = m.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise BadRequest("the first message must be a hello", field="type") from None
    if not isinstance(hello, m.ClientHello):
        raise BadRequest("the first message must be hello", field="type")
    if hello.version != m.VERSION:
        raise BadRequest(f"protocol version {m.VERSION} is spoken here", field="version")
    return hello


async def _resume(
    services: Services, principal: Principal, socket: Socket, resume: m.Resume
) -> NativeSession | None:
    session = services.native_sessions.get(resume.session)
    if session is None or session.closed or not session.may_resume(resume, principal):
        raise ResumeGap("there is no such session to resume", field="resume.session")
    session.detached()
    await socket.send(m.encode(session.hello(resumed=True)).decode())
    await session.attach(socket.send, resume.received)
    return session


async def _refuse(socket: Socket, error: VoxwireError) -> None:
    try:
        await socket.send(
            m.encode(
                m.ErrorMessage(error.code, error.message, field=error.field, retry_after=error.retry_after)
            ).decode()
        )
    except LegClosed:
        return
    await socket.close(WSCloseCode.POLICY_VIOLATION, error.code)


async def _serve(services: Services, session: NativeSession, socket: Socket) -> None:
    holder = session.attached_as = object()
    watch = services.spawn(_drain(services, session, socket), name="native drain")
    bye = False
    try:
        faults = 0
        async for raw in socket.messages():
            outcome = await session.handle(raw)
            if outcome is None:
                bye = True
                break
            faults = 0 if outcome else faults + 1
            if faults >= MAX_FAULTS:
                await socket.close(WSCloseCode.POLICY_VIOLATION, "too many bad messages")
                bye = True
                break
    finally:
        watch.cancel()
        if session.attached_as is holder:
            # Nobody resumed over another connection meanwhile.
            session.detached()
            if bye or services.settings.resume_s <= 0 or not session.worth_keeping:
                await end(services, session)
            else:
                services.spawn(_expire(services, session, holder), name="native resume")
                await _crowd(services)


async def _drain(services: Services, session: NativeSession, socket: Socket) -> None:
    await services.draining.wait()
    await session.drain(services.settings.drain_s)
    await session.idle()
    await socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


async def _expire(services: Services, session: NativeSession, holder: object) -> None:
    await asyncio.sleep(services.settings.resume_s)
    if session.attached_as is holder:
        await end(services, session)


async def _crowd(services: Services) -> None:
    """Dropped sessions are bounded: the oldest goes first."""
    detached = [s for s in services.native_sessions.values() if not s.outbox.attached]
    for session in detached[: max(0, len(detached) - MAX_DETACHED)]:
        await end(services, session)


async def end(services: Services, session: NativeSession) -> None:
    """The session is over for good."""
    services.native_sessions.pop(session.id, None)
    await session.close()

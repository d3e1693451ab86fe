"""The native protocol over a WebSocket: ``/v1/stream``, its schema and its page.

The rules are in ``gateway/native/PROTOCOL.md``, which the gateway serves.
"""

from __future__ import annotations

import asyncio
import logging
from importlib.resources import files

from aiohttp import WSCloseCode, web

from gateway import fault
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

TAKEN_OVER = 4001
"""Close code of a connection whose session was resumed over another one."""

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
        hello = await _hello(principal, socket)
        if hello is not None:
            await _serve(services, principal, socket, hello)
    return socket.ws


async def _hello(principal: Principal, socket: Socket) -> m.ClientHello | None:
    """Read the first message; None after an error was told or the client went."""
    try:
        async with asyncio.timeout(HELLO_S):
            raw = await anext(socket.messages(), None)
        if raw is None:
            return None
        hello = _decode_hello(raw)
        check_agent(hello.agent, principal)
    except TimeoutError:
        await _refuse(socket, BadRequest("hello must come within 5 seconds", field="type"))
        return None
    except VoxwireError as error:
        await _refuse(socket, error)
        return None
    return hello


def _decode_hello(raw: str | bytes) -> m.ClientHello:
    if isinstance(raw, bytes):
        raise BadRequest("the first message must be hello, as text", field="type")
    try:
        hello = m.decode(raw)
    except fault.UNREADABLE as error:
        if fault.strings(raw, "type") == ["hello"]:
            raise fault.bad_request(error) from None
        raise BadRequest("the first message must be hello", field="type") from None
    if not isinstance(hello, m.ClientHello):
        raise BadRequest("the first message must be hello", field="type")
    if hello.version != m.VERSION:
        raise BadRequest(f"protocol version {m.VERSION} is spoken here", field="version")
    return hello


def _session(services: Services, principal: Principal, hello: m.ClientHello) -> NativeSession:
    """A new session, or the one to be resumed. Raises ResumeGap; then the old connection was not touched."""
    resume = hello.resume
    if resume is None:
        session = NativeSession(services, principal, hello.agent)
        services.native_sessions[session.id] = session
        return session
    found = services.native_sessions.get(resume.session)
    if found is None or found.closed or not found.may_resume(resume, principal):
        raise ResumeGap("there is no such session to resume", field="resume.session")
    found.outbox.check(resume.received)
    return found


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


async def _serve(services: Services, principal: Principal, socket: Socket, hello: m.ClientHello) -> None:
    try:
        session = _session(services, principal, hello)
    except ResumeGap as error:
        await _refuse(socket, error)
        return
    before, session.connection = session.connection, socket
    if before is not None:
        session.detached()
        services.spawn(before.close(TAKEN_OVER, "resumed elsewhere"), name="native taken over")
    watch = services.spawn(_drain(services, session, socket), name="native drain")
    over = False
    try:
        await socket.send(m.encode(await session.hello(resumed=hello.resume is not None)).decode())
        await session.attach(socket.send, hello.resume.received if hello.resume else 0)
        over = await _listen(session, socket)
    except LegClosed:
        pass
    finally:
        watch.cancel()
        if session.connection is socket:
            session.detached()
            if over or services.settings.resume_s <= 0 or not session.worth_keeping:
                await end(services, session)
            else:
                services.spawn(_expire(services, session, socket), name="native resume")
                await _crowd(services)


async def _listen(session: NativeSession, socket: Socket) -> bool:
    """Act on the client's messages; whether the session is over with the connection."""
    faults = 0
    async for raw in socket.messages():
        if session.connection is not socket:
            return False
        outcome = await session.handle(raw)
        if outcome is None:
            return True
        faults = 0 if outcome else faults + 1
        if faults >= MAX_FAULTS:
            await socket.close(WSCloseCode.POLICY_VIOLATION, "too many bad messages")
            return True
    return False


async def _drain(services: Services, session: NativeSession, socket: Socket) -> None:
    await services.draining.wait()
    await session.drain(services.settings.drain_s)
    await session.idle()
    await socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


async def _expire(services: Services, session: NativeSession, dropped: Socket) -> None:
    await asyncio.sleep(services.settings.resume_s)
    if session.connection is dropped:
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

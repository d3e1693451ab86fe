"""The two WebSockets of the ElevenLabs protocol: one with many contexts, one with a single text.

Who comes in is known before the upgrade, by header or query. A client that has no such credential may send it
in its first message, as the vendor allows: it has 3 s, one message and 4 KiB for that (trust.md S1).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import WSCloseCode, web

from gateway.security import authenticate, credential
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.speaking import Allowance
from gateway.spoken import base_options
from sessions.context import MAX_ID
from sessions.events import Event, Failed
from sessions.nobody import unheard
from sessions.principal import Principal
from sessions.session import Session
from tts_core.errors import BadRequest, Forbidden, LegClosed, LimitExceeded, Unauthorised, VoxwireError

from . import elevenlabs_wire as wire
from .elevenlabs_turn import Link, Turn, encoder_for

LIVE_CONTEXTS = 5
"""Contexts of a socket that take text at once; those that speak what they have do not count (R7)."""
FIRST_MESSAGE_S = 3.0
FIRST_MESSAGE_BYTES = 4096

NOBODY = Principal(tenant="", key_id="", scopes=frozenset())

Messages = AsyncIterator[str | bytes]


class TooManyContexts(LimitExceeded):
    """One more context than a socket may have."""

    code = "max_active_conversations"


class MultiStream:
    """One ``multi-stream-input`` socket."""

    def __init__(self, link: Link) -> None:
        self._link = link
        most = link.services.settings.max_contexts_per_socket
        self.contexts: Session[Turn] = Session(
            link.principal.tenant, max_contexts=max(most, LIVE_CONTEXTS), keep_ended=False
        )

    async def run(self, messages: Messages) -> None:
        """Serve until the client goes."""
        drain = self._link.services.spawn(self._drain(), name="elevenlabs drain")
        try:
            async for raw in messages:
                if not await self._take(raw):
                    break
        except LegClosed:
            pass
        finally:
            drain.cancel()
            await asyncio.gather(*(turn.abort() for turn in self.contexts.all()))

    async def _take(self, raw: str | bytes) -> bool:
        """One message; False to close."""
        context: str | None = None
        try:
            try:
                message = wire.parse(raw)
            except BadRequest:
                context = wire.context_of(raw)
                raise
            if message.close_socket:
                await asyncio.gather(*(turn.cancel() for turn in self.contexts.all()))
                return False
            context = message.context
            await self._act(context, message)
        except LegClosed:
            raise
        except VoxwireError as error:
            self._link.services.metrics.refused(error.code)
            known = context if context is not None and len(context) <= MAX_ID else None
            # One that lives on takes no harm from a bad message, and its own end is still to come.
            words = wire.Wording(known).error(error, final=known not in self.contexts)
            await self._link.socket.send(words)
        return True

    async def _act(self, context: str, message: wire.Message) -> None:
        turn = self.contexts.find(context)
        if message.close_context:
            if turn is not None:
                await turn.close()
        elif turn is not None:
            try:
                turn.say(message)
            except LimitExceeded as error:  # no room for what it was opened for
                await turn.fail(error)
        elif message.text:
            # Empty text opens nothing: a keep-alive may come before a context's first message (R8).
            self._open(context, message)

    def _open(self, context: str, message: wire.Message) -> None:
        self.contexts.may_open(context)
        if sum(not turn.closing for turn in self.contexts.all()) >= LIVE_CONTEXTS:
            raise TooManyContexts(
                f"at most {LIVE_CONTEXTS} contexts may be open on one connection", retry_after=1.0
            )
        turn = Turn(self._link, context, message, ended=lambda it: self.contexts.close(it.id, it))
        self.contexts.open(context, turn)
        turn.runner.start()

    async def _drain(self) -> None:
        await self._link.services.draining.wait()
        self.contexts.draining = True
        await asyncio.gather(*(turn.cancel() for turn in self.contexts.all() if turn.silent))
        while self.contexts.all():
            await asyncio.gather(*(turn.runner.wait() for turn in self.contexts.all()))
            await asyncio.sleep(0)
        await self._link.socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


class SingleStream:
    """One ``stream-input`` socket: a text, its audio, and the close."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._over: Event | None = None
        self._turn = Turn(link, "stream", None, single=True, ended=unheard, told=self._told)

    async def run(self, messages: Messages) -> None:
        """Serve until the text is spoken or the client goes."""
        services, turn = self._link.services, self._turn
        turn.runner.start()
        drain = services.spawn(self._drain(), name="elevenlabs drain")
        try:
            async for raw in messages:
                await self._take(raw)
        except LegClosed:
            pass
        finally:
            drain.cancel()
            await turn.abort()

    async def _take(self, raw: str | bytes) -> None:
        turn = self._turn
        if turn.closing:
            return  # nothing after the end means anything
        try:
            message = wire.parse(raw)
            if message.close_socket:
                await turn.cancel()
            elif message.text is None and not message.flush and message.voice_settings is None:
                raise BadRequest("text is needed", field="text")
            else:
                turn.say(message)
                # White space keeps the connection open, no text at all ends it, flush or not.
                if message.text == "":
                    turn.end()
        except LegClosed:
            raise
        except VoxwireError as error:
            self._link.services.metrics.refused(error.code)
            await turn.fail(error)

    def _told(self, event: Event) -> None:
        """The terminal message is out: the connection ends with it."""
        code = wire.close_code(event.error) if isinstance(event, Failed) else WSCloseCode.OK
        reason = wire.status_of(event.error) if isinstance(event, Failed) else ""
        self._link.services.spawn(self._link.socket.close(code, reason), name="elevenlabs close")

    async def _drain(self) -> None:
        await self._link.services.draining.wait()
        if self._turn.silent:
            await self._turn.cancel()


async def multi_stream(request: web.Request) -> web.StreamResponse:
    """``/v1/text-to-speech/{voice_id}/multi-stream-input``."""
    return await _serve(request, lambda link, messages: MultiStream(link).run(messages))


async def single_stream(request: web.Request) -> web.StreamResponse:
    """``/v1/text-to-speech/{voice_id}/stream-input``."""
    return await _serve(request, lambda link, messages: SingleStream(link).run(messages))


async def _serve(
    request: web.Request, run: Callable[[Link, Messages], Awaitable[None]]
) -> web.StreamResponse:
    services = services_of(request)
    principal = None
    if credential(request):
        principal = await authenticate(request)
    elif services.guard.cross_site(request):
        raise Forbidden("pages of another site may not connect", field="Origin")
    params = wire.params_of(request.query)
    await encoder_for(params.output)
    _check(services, params)
    voice = None
    if principal is not None:
        voice = await services.speaking.resolve(principal, request.match_info["voice_id"])
    async with accept(services, request, "elevenlabs", principal or NOBODY) as socket:
        messages = aiter(socket.messages())
        try:
            if principal is None or voice is None:
                principal, messages = await _introduced(request, messages)
                socket.principal = principal
                voice = await services.speaking.resolve(principal, request.match_info["voice_id"])
            link = Link(services, socket, principal, Allowance(principal), params, voice)
            await run(link, messages)
        except LegClosed:
            pass
        except VoxwireError as error:
            await _refuse(services, socket, error)
    return socket.ws


def _check(services: Services, params: wire.Params) -> None:
    """Refuse before the upgrade what no context of this socket could be: one in another language."""
    wire.options_of(
        params, base_options(services, NOBODY), voice="", languages=services.engine.info.languages
    )


async def _introduced(request: web.Request, messages: Messages) -> tuple[Principal, Messages]:
    """Who the first message says it is from, and the messages with that one in front again."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            first = await anext(messages)
    except TimeoutError:
        raise Unauthorised("a key is needed: xi-api-key as a header or in the first message") from None
    except StopAsyncIteration:
        raise LegClosed("the client went") from None
    if len(first) > FIRST_MESSAGE_BYTES:
        raise Unauthorised(f"a first message with a key has at most {FIRST_MESSAGE_BYTES} bytes")
    principal = await services_of(request).guard.authenticate(request, given=wire.parse(first).credential)

    async def with_first() -> Messages:
        yield first
        async for message in messages:
            yield message

    return principal, with_first()


async def _refuse(services: Services, socket: Socket, error: VoxwireError) -> None:
    """Say why, then close: the message comes before the code (R11)."""
    services.metrics.refused(error.code)
    try:
        await socket.send(wire.Wording(None).error(error, final=True))
    except LegClosed:
        return
    await socket.close(wire.close_code(error), wire.status_of(error))


__all__ = ["MultiStream", "SingleStream", "multi_stream", "single_stream"]

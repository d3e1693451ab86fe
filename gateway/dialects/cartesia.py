"""The Cartesia dialect: ``/tts/websocket``, ``/tts/bytes``, ``/tts/sse``; the rest is in ``cartesia_lists``.

Sources: protocols.md 0 and 1.3. What clients rely on beyond the vendor's reference:

- a context without anything to say gives a short silence, then ``done`` (the runner's doing);
- empty text never opens a context; a late message for one that ended is ignored;
- LiveKit gives a turn up after 10 s without any message: it gets a harmless ``flush_done`` every 4 s;
- sockets stay open for hours and need no pongs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import WSCloseCode, hdrs, web

from gateway.body import read_body
from gateway.ident import request_id
from gateway.security import authenticate
from gateway.services import Services, services_of
from gateway.sockets import Socket, accept
from gateway.speaking import Allowance
from gateway.spoken import base_options, encoded, spoken, write
from sessions.context import MAX_ID
from sessions.events import TERMINAL, Audio, AudioFormat, Cancelled, Done, Event, Failed, Flushed, Words
from sessions.principal import Principal
from sessions.runner import ContextRunner
from sessions.session import REMEMBERED, Session
from tts_core.errors import BadRequest, LegClosed, TextTooLong, UnknownVoice, VoxwireError

from . import cartesia_lists as lists
from . import cartesia_wire as wire

HEARTBEAT_S = 4.0
HEARTBEAT_AGENT = "LiveKit Agents"


def routes(services: Services) -> list[web.RouteDef]:
    """The dialect's routes."""
    services.error_shapes["/tts"] = lists.error_response
    return [
        web.get("/tts/websocket", websocket),
        web.post("/tts/bytes", tts_bytes),
        web.post("/tts/sse", tts_sse),
        *lists.routes(services),
    ]


class CartesiaContext:
    """One context on a socket."""

    def __init__(self, context_id: str) -> None:
        self.id = context_id
        self.wording = wire.Wording(context_id)
        self.timestamps = False
        self.format: AudioFormat
        self.voice: str
        self.runner: ContextRunner
        self.last_sent = 0.0


class Connection:
    """One websocket of the dialect."""

    def __init__(self, services: Services, socket: Socket, principal: Principal, user_agent: str) -> None:
        self._services = services
        self._socket = socket
        self._principal = principal
        self._allowance = Allowance(principal)
        self._beats = HEARTBEAT_AGENT in user_agent
        self.contexts: Session[CartesiaContext] = Session(
            principal.tenant, max_contexts=services.settings.max_contexts_per_socket, keep_ended=False
        )
        self._refused: deque[str] = deque(maxlen=REMEMBERED)
        """Told an error instead of being opened: their end, which may be under way, is no news."""

    async def run(self) -> None:
        """Serve until the client goes."""
        services = self._services
        helpers = [services.spawn(self._drain(), name="cartesia drain")]
        if self._beats:
            helpers.append(services.spawn(self._beat(), name="cartesia heartbeat"))
        try:
            async for raw in self._socket.messages():
                await self._take(raw)
        except LegClosed:
            pass
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*(c.runner.abort() for c in self.contexts.all()))

    async def _take(self, raw: str | bytes) -> None:
        context_id: str | None = None
        try:
            if isinstance(raw, bytes):
                raise BadRequest("messages are JSON text")
            try:
                request = wire.parse(raw)
            except BadRequest:
                context_id = wire.context_of(raw)
                raise
            context_id = request.context_id
            await self._act(request)
        except LegClosed:
            raise
        except VoxwireError as error:
            self._services.metrics.refused(error.code)
            known = context_id if context_id is not None and len(context_id) <= MAX_ID else None
            # One that lives on takes no harm from a bad message, and its own end is still to come.
            if known is not None and known not in self.contexts and known not in self._refused:
                self._refused.append(known)
            words = wire.Wording(known).error(
                error, request_id(self._socket.request), done=known not in self.contexts
            )
            await self._socket.send(words)

    async def _act(self, request: wire.Request) -> None:
        context_id = request.context_id
        if request.cancel:
            if context_id is not None and (context := self.contexts.find(context_id)) is not None:
                await context.runner.cancel()
            return
        if request.transcript is None:
            raise BadRequest("transcript is needed", field="transcript")
        if context_id is None:
            raise BadRequest("context_id is needed", field="context_id")
        context = self.contexts.find(context_id)
        if context is None:
            await self._open(context_id, request)
        else:
            self._check_same(context, request)
            self._say(context, request)

    def _say(self, context: CartesiaContext, request: wire.Request) -> None:
        runner = context.runner
        if request.add_timestamps is not None:
            context.timestamps = request.add_timestamps
        if request.transcript:
            try:
                runner.text(request.transcript)
            except TextTooLong as error:
                error.field = "transcript"  # as the text is called here
                raise
        if request.flush:
            runner.flush()
        if not request.continue_:
            runner.end()

    async def _open(self, context_id: str, request: wire.Request) -> None:
        """Open a context and say the message, unless it must not open one."""
        if not (request.transcript or "").strip():
            # Empty text opens nothing (protocols.md R8): a late end is ignored, a turn without text is over.
            if request.continue_ or self.contexts.knew(context_id):
                return
            if context_id in self._refused:
                self._refused.remove(context_id)
            else:
                await self._socket.send(wire.Wording(context_id).done())
            return
        self.contexts.may_open(context_id)
        context = CartesiaContext(context_id)
        context.format, _ = wire.format_of(request)
        voice = await self._services.speaking.resolve(self._principal, wire.voice_of(request))
        context.voice = voice.id
        options = wire.options_of(
            request,
            base_options(self._services, self._principal),
            fmt=context.format,
            voice=context.voice,
            languages=self._services.engine.info.languages,
        )

        async def sink(event: Event) -> None:
            await self._tell(context, event)

        context.runner = self._services.speaking.runner(
            principal=self._principal,
            allowance=self._allowance,
            dialect="cartesia",
            context_id=context_id,
            options=options,
            sink=sink,
            has_text=True,
            voice=voice,
        )
        context.last_sent = self._services.clock()
        self._say(context, request)  # before it is open: a text that is refused opens nothing
        self.contexts.open(context_id, context)
        if context_id in self._refused:
            self._refused.remove(context_id)
        context.runner.start()

    def _check_same(self, context: CartesiaContext, request: wire.Request) -> None:
        """Format and voice belong to the context; other fields may repeat or be left out."""
        if request.output_format is not None and wire.format_of(request)[0] != context.format:
            raise BadRequest("a context keeps its format", field="output_format")
        if request.voice is not None:
            try:
                same = self._services.speaking.voice(self._principal, wire.voice_of(request)) == context.voice
            except UnknownVoice:
                same = False
            if not same:
                raise BadRequest("a context keeps its voice", field="voice")

    async def _tell(self, context: CartesiaContext, event: Event) -> None:
        wording = context.wording
        now = self._services.clock()
        step_ms = (now - context.last_sent) * 1000
        match event:
            case Audio():
                text = wording.chunk(event.data, step_ms)
            case Words():
                if not context.timestamps:
                    return
                text = wording.timestamps(event.words)
            case Flushed():
                text = wording.flush_done(event.flush_id)
            case Failed():
                text = wording.error(event.error, request_id(self._socket.request))
            case Done() | Cancelled():
                text = wording.done()
        if isinstance(event, TERMINAL):
            self.contexts.close(context.id, context)
        context.last_sent = now
        await self._socket.send(text)

    async def _beat(self) -> None:
        """Keep LiveKit's open turns alive while the agent's model thinks."""
        while True:
            await asyncio.sleep(HEARTBEAT_S / 4)
            now = self._services.clock()
            for context in self.contexts.all():
                if now - context.last_sent >= HEARTBEAT_S:
                    context.last_sent = now
                    try:
                        await self._socket.send(context.wording.flush_done(0))
                    except LegClosed:
                        return

    async def _drain(self) -> None:
        await self._services.draining.wait()
        self.contexts.draining = True
        while self.contexts.all():
            await asyncio.gather(*(c.runner.wait() for c in self.contexts.all()))
            await asyncio.sleep(0)
        await self._socket.close(WSCloseCode.SERVICE_RESTART, "restarting")


async def websocket(request: web.Request) -> web.StreamResponse:
    """``/tts/websocket``; the key is checked before the upgrade."""
    services = services_of(request)
    principal = await authenticate(request)
    async with accept(services, request, "cartesia", principal) as socket:
        await Connection(services, socket, principal, request.headers.get(hdrs.USER_AGENT, "")).run()
    return socket.ws


@asynccontextmanager
async def _spoken(
    request: web.Request, principal: Principal, body: wire.Request, fmt: AudioFormat
) -> AsyncIterator[AsyncIterator[Event]]:
    """Speak a whole request; leaving the block stops it."""
    services = services_of(request)
    if not body.transcript:
        raise BadRequest("transcript is needed", field="transcript")
    voice = await services.speaking.resolve(principal, wire.voice_of(body))
    options = wire.options_of(
        body,
        base_options(services, principal),
        fmt=fmt,
        voice=voice.id,
        languages=services.engine.info.languages,
        final=True,
    )
    async with spoken(
        request,
        principal,
        dialect="cartesia",
        field="transcript",
        text=body.transcript,
        options=options,
        voice=voice,
        context_id=body.context_id or "",
    ) as events:
        yield events


async def _body(request: web.Request) -> tuple[Principal, wire.Request]:
    # Nobody's body is parsed before they are known.
    principal = await authenticate(request)
    return principal, wire.parse(await read_body(request))


async def tts_bytes(request: web.Request) -> web.StreamResponse:
    """``POST /tts/bytes``: the audio as the body, streamed; errors come before the first byte."""
    principal, body = await _body(request)
    fmt, container = wire.format_of(body, containers=("raw", "wav", "mp3"))
    encoder = wire.encoder_of(body, fmt, container)
    response = web.StreamResponse()
    response.content_type = "application/octet-stream" if container == "raw" else encoder.content_type
    async with _spoken(request, principal, body, fmt) as events:
        async for data in encoded(events, encoder):
            await write(request, response, data)
    await write(request, response, None)
    return response


async def tts_sse(request: web.Request) -> web.StreamResponse:
    """``POST /tts/sse``: the same events as on the websocket, as server-sent events."""
    principal, body = await _body(request)
    fmt, _ = wire.format_of(body)
    wording = wire.Wording(body.context_id or request_id(request))
    clock = services_of(request).clock
    response = web.StreamResponse(headers={hdrs.CACHE_CONTROL: "no-cache"})
    response.content_type = "text/event-stream"
    last = clock()
    async with _spoken(request, principal, body, fmt) as events:
        async for event in events:
            if isinstance(event, Failed) and not response.prepared:
                raise event.error
            now = clock()
            match event:
                case Audio():
                    name, text, last = "chunk", wording.chunk(event.data, (now - last) * 1000), now
                case Words() if body.add_timestamps:
                    name, text = "timestamps", wording.timestamps(event.words)
                case Failed():
                    name, text = "error", wording.error(event.error, request_id(request))
                case Done() | Cancelled():
                    name, text = "done", wording.done()
                case _:
                    continue
            await write(request, response, f"event: {name}\ndata: {text}\n\n".encode())
    await write(request, response, None)
    return response

"""A whole text spoken over one HTTP request, for every dialect that has such a route.

Generation belongs to the request: leaving :func:`spoken` stops it, and a client that goes away or does not
read ends it within one chunk (protocols.md 1.5).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.encoding import encode
from gateway.ident import request_id
from gateway.services import Services, services_of
from gateway.sockets import SEND_DEADLINE_S, takes_at_once
from gateway.speaking import Allowance
from sessions.context import ContextOptions
from sessions.events import TERMINAL, Audio, Done, Event, Failed
from tts_core.errors import LegClosed, TextTooLong
from tts_core.text.segment import TextOptions

if TYPE_CHECKING:
    from aiohttp import web

    from gateway.encoding import Encoder
    from gateway.speaking import Voice
    from sessions.principal import Principal

HTTP_RUN_AHEAD_S = 3600.0
"""A download is taken as fast as the client reads it; its socket is what holds us back."""

PIECE = 64 * 1024
"""Bytes of a complete body that are written at a time, each by SEND_DEADLINE_S."""

QUEUE = 16
"""Events between a runner and an HTTP response."""


def base_options(services: Services, principal: Principal) -> ContextOptions:
    """What all contexts of a caller have in common, whatever the dialect."""
    settings = services.settings
    return ContextOptions(
        text=TextOptions(clean=settings.clean_text),
        idle_s=settings.context_idle_s,
        run_ahead_s=settings.run_ahead_s,
        lead_in_ms=settings.lead_in_ms,
        max_characters=settings.max_context_chars,
        cache=principal.phrase_cache,
    )


@asynccontextmanager
async def spoken(
    request: web.Request,
    principal: Principal,
    *,
    dialect: str,
    text: str,
    options: ContextOptions,
    voice: Voice,
    context_id: str = "",
    field: str = "text",
) -> AsyncIterator[AsyncIterator[Event]]:
    """Speak ``text`` and give its events in order, the terminal one last; leaving the block stops it.

    The run-ahead of ``options`` is replaced: a download has no listener's clock. ``voice`` as
    ``Speaking.resolve`` gave it, its id in the options; ``field`` is what the dialect calls the text.
    Raises Draining, Busy, BadRequest and TextTooLong before anything is spoken.
    """
    services = services_of(request)
    queue: asyncio.Queue[Event] = asyncio.Queue(QUEUE)
    runner = services.speaking.runner(
        principal=principal,
        allowance=Allowance(principal),
        dialect=dialect,
        context_id=context_id or request_id(request) or "http",
        options=replace(options, run_ahead_s=HTTP_RUN_AHEAD_S),
        sink=queue.put,
        has_text=True,
        voice=voice,
    )
    try:
        runner.text(text)
    except TextTooLong as error:
        error.field = field
        raise
    runner.end()
    runner.start()

    async def events() -> AsyncIterator[Event]:
        while True:
            event = await queue.get()
            yield event
            if isinstance(event, TERMINAL):
                return

    try:
        yield events()
    finally:
        await runner.abort()


async def encoded(events: AsyncIterator[Event], encoder: Encoder) -> AsyncIterator[bytes]:
    """The audio of :func:`spoken` in its container, as it is made; never an empty piece.

    Raises the error of a context that failed: before the first byte it is told, later the body is broken off.
    """
    async for event in events:
        data = b""
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Audio):
            data = await encode(encoder, event.data)
        elif isinstance(event, Done):
            data = await encode(encoder, None)
        if data:
            yield data


async def write(request: web.Request, response: web.StreamResponse, data: bytes | None) -> None:
    """Write to the body, None to end it; LegClosed when the client is gone or does not read."""
    try:
        if data is not None and response.prepared and takes_at_once(request, len(data)):
            await response.write(data)
            return
        async with asyncio.timeout(SEND_DEADLINE_S):
            if not response.prepared:
                await response.prepare(request)
            await (response.write_eof() if data is None else response.write(data))
    except TimeoutError:
        raise LegClosed("the client does not read") from None
    except ConnectionError:
        raise LegClosed("the connection is closed") from None


async def write_whole(request: web.Request, response: web.StreamResponse, body: bytes) -> None:
    """Write a complete body by pieces, each with its own deadline; raises LegClosed as above."""
    response.content_length = len(body)
    for at in range(0, len(body), PIECE):
        await write(request, response, body[at : at + PIECE])
    await write(request, response, None)


__all__ = ["base_options", "encoded", "spoken", "write", "write_whole"]

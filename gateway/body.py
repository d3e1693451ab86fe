"""Reads the body of a request within a deadline: a client may send a part, and then nothing for hours."""

from __future__ import annotations

import asyncio

from aiohttp import web

from tts_core.errors import BadRequest, LegClosed, TextTooLong

BODY_S = 10.0
"""Bodies here are a page of text at most; a slow phone sends that in a second."""


class BodyTimeout(BadRequest):
    """The body did not come within BODY_S."""

    status = 408


async def read_body(request: web.Request, most: int | None = None) -> bytes:
    """The whole body, of ``most`` bytes where that is less than the setting ``max_body_bytes``.

    Raises BodyTimeout, TextTooLong, and LegClosed when the client goes before it has sent all.
    """
    if most is not None and (request.content_length or 0) > most:
        raise TextTooLong("the request body is too large")
    try:
        async with asyncio.timeout(BODY_S):
            body = await request.read()
    except TimeoutError:
        raise BodyTimeout("the request's body did not come in time") from None
    except ConnectionError:
        raise LegClosed("the connection is closed") from None
    except web.HTTPRequestEntityTooLarge:
        raise TextTooLong("the request body is too large") from None
    if most is not None and len(body) > most:
        raise TextTooLong("the request body is too large")
    return body


__all__ = ["BODY_S", "BodyTimeout", "read_body"]

"""The id of a request: under which it is logged, and its errors are told."""

from __future__ import annotations

from aiohttp import web

REQUEST_ID = web.RequestKey("request_id", str)


def request_id(request: web.Request) -> str:
    """The id of this request; "" before it has one."""
    ident: str = request.get(REQUEST_ID, "")
    return ident


__all__ = ["REQUEST_ID", "request_id"]

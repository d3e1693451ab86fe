"""The page at ``/``: a browser hears the gateway over the native protocol.

Static files without a build step. They are read once, sent with a strong ETag, and need nothing from anywhere
else: the content security policy allows this origin only (CSP 3: ``'self'`` in ``connect-src`` covers its
``ws:`` and ``wss:``), no inline script or style, and no framing (trust.md S7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

from aiohttp import hdrs, web

from gateway.services import Services

Handler = Callable[[web.Request], Awaitable[web.Response]]
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    hdrs.CACHE_CONTROL: "no-cache",
}


def _file(name: str, content: bytes) -> Handler:
    """A handler for one file, which stays in memory; 304 when the browser has it."""
    content_type = TYPES[name[name.rindex(".") :]]
    etag = hashlib.sha256(content).hexdigest()[:32]

    async def file(request: web.Request) -> web.Response:
        if any(tag.value in {etag, "*"} for tag in request.if_none_match or ()):
            response = web.Response(status=304, headers=HEADERS)
        else:
            response = web.Response(body=content, content_type=content_type, charset="utf-8", headers=HEADERS)
        response.etag = etag
        return response

    return file


def routes(services: Services) -> list[web.RouteDef]:
    """The page at ``/`` and its parts under ``/web/``."""
    made: list[web.RouteDef] = []
    for entry in files("gateway.web").iterdir():
        if entry.is_file() and entry.name.endswith(tuple(TYPES)):
            path = "/" if entry.name == "index.html" else f"/web/{entry.name}"
            made.append(web.get(path, _file(entry.name, entry.read_bytes())))
    return made


__all__ = ["HEADERS", "routes"]

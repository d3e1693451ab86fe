"""Twilio's request signature.

``X-Twilio-Signature`` is ``base64(HMAC-SHA1(auth token, URL + sorted POST parameters))``. A WebSocket upgrade
has no body, so the URL alone is signed, with the scheme ``wss`` exactly as in the TwiML, path, trailing slash
and query included (Twilio, "Validating requests"; reference, telephony 1.1). The URL must therefore be made
from the *configured* public origin: behind a proxy neither our own scheme nor the ``Host`` header is what
Twilio signed, and ``Host`` is the sender's to choose (twilio-aspnet#162).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from tts_core.errors import BadRequest, SettingsError

__all__ = ["HEADER", "public_url", "sign", "validate"]

HEADER = "X-Twilio-Signature"
"""Name of the header; compare names without case, some stacks send it in lower case."""

_PORTS = {"wss": 443, "https": 443, "ws": 80, "http": 80}
_SOCKET_SCHEME = {"https": "wss", "wss": "wss", "http": "ws", "ws": "ws"}


def public_url(origin: str, path_qs: str) -> str:
    """Return the URL that Twilio signed for a WebSocket.

    Args:
        origin: the configured public origin, ``wss://host[:port]``; ``https`` is taken for ``wss``.
        path_qs: the request target as received, still percent-encoded: ``/media/twilio`` with any query.

    Raises SettingsError for an origin that is not one, BadRequest for a target that is not a path.
    """
    parts = urlsplit(origin)
    if parts.scheme not in _SOCKET_SCHEME or not parts.hostname or parts.path.strip("/") or parts.query:
        raise SettingsError("the public origin must look like wss://voice.example.com")
    if not path_qs.startswith("/"):
        raise BadRequest("the request target must be a path")
    return f"{_SOCKET_SCHEME[parts.scheme]}://{parts.netloc}{path_qs}"


def sign(auth_token: str, url: str, params: Mapping[str, str] | None = None) -> str:
    """Return the signature of ``url`` and, for a webhook, its POST parameters."""
    text = url + "".join(name + value for name, value in sorted((params or {}).items()))
    return base64.b64encode(hmac.new(auth_token.encode(), text.encode(), hashlib.sha1).digest()).decode()


def validate(
    auth_token: str, url: str, signature: str | None, params: Mapping[str, str] | None = None
) -> bool:
    """Say whether Twilio signed ``url`` with ``auth_token``.

    The URL is tried with and without its scheme's own port, as Twilio's libraries do. All comparisons are
    made, each in constant time; an empty token or signature is never valid.
    """
    given = (signature or "").encode("utf-8", "replace")
    valid = False
    for candidate in _with_and_without_port(url):
        valid |= hmac.compare_digest(sign(auth_token, candidate, params).encode(), given)
    return valid and bool(auth_token) and bool(signature)


def _with_and_without_port(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    host = parts.netloc
    try:
        port, default = parts.port, _PORTS.get(parts.scheme)
    except ValueError:
        return url, url
    if default is None or port not in (None, default):
        return url, url
    other = f"{host}:{default}" if port is None else host.removesuffix(f":{default}")
    return url, url.replace(f"://{host}", f"://{other}", 1)

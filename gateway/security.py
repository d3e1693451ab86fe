"""Who may come in: Host, Origin, and the credential, all checked before anything is parsed or upgraded.

Sources: trust.md S1, S2, S6, S7; protocols.md 0 and 1.3 (clients send the key in three ways). Cookies are
never read. The order is Host (DNS rebinding), Origin (pages of others), credential.

*Local mode* is a fresh install: bound to loopback, no key configured. There any key is taken as the tenant
"default", so that a client needs nothing but the address; it must come from this machine, under a loopback
name, not through a proxy, and not from a web page. A page gets in by a browser token alone.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection
from typing import TYPE_CHECKING

from aiohttp import hdrs, web

from gateway.services import services_of
from gateway.settings import Settings, is_loopback
from sessions.principal import Kind, Principal, Scope
from tts_core.errors import Forbidden, Unauthorised

if TYPE_CHECKING:
    from sessions.keys import KeyRing
    from sessions.tokens import BrowserTokens

X_API_KEY = "x-api-key"
BEARER = "bearer"
SUBPROTOCOL = "subprotocol"
QUERY = "query"
XI_API_KEY = "xi-api-key"
X_VAPI = "x-vapi-secret"
ALL_STYLES: frozenset[str] = frozenset({X_API_KEY, BEARER, SUBPROTOCOL, QUERY, XI_API_KEY, X_VAPI})
QUERY_NAMES = ("api_key", "access_token", "token", "authorization", "single_use_token")
LONGEST_CREDENTIAL = 4096
PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


def credential(request: web.Request, styles: Collection[str] = ALL_STYLES) -> str:
    """The key or token of a request, by the first of the allowed styles that is there; "" if none is."""
    found = ""
    if X_API_KEY in styles:
        found = request.headers.get("X-API-Key", "").strip()
    for name in (XI_API_KEY, X_VAPI):
        if not found and name in styles:
            found = request.headers.get(name, "").strip()
    if not found and BEARER in styles:
        scheme, _, rest = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() in {"bearer", "token"}:
            found = rest.strip()
    if not found and SUBPROTOCOL in styles:
        # A browser can set no header: it offers the protocols "token" and the key (protocols.md 1.4).
        scheme, _, rest = request.headers.get("Sec-WebSocket-Protocol", "").partition(",")
        if scheme.strip().lower() in {"bearer", "token"}:
            found = rest.strip()
    if not found and QUERY in styles:
        found = next((value for name in QUERY_NAMES if (value := request.query.get(name, ""))), "")
        found = found.removeprefix("Bearer ").strip()
    return found if len(found) <= LONGEST_CREDENTIAL else ""


def looks_like_token(text: str) -> bool:
    """Whether this is a browser token (a JWT) rather than a key."""
    return text.startswith("ey") and text.count(".") == 2


def split_host(header: str) -> str:
    """The host of a Host header without its port, lower case, IPv6 without brackets; "" if it is not one."""
    host = header.strip().lower()
    if host.startswith("["):
        inside, bracket, rest = host[1:].partition("]")
        return inside if bracket and (not rest or rest[1:].isdigit()) else ""
    name, colon, port = host.partition(":")
    if colon and not port.isdigit():
        return ""
    return name.rstrip(".")


class Guard:
    """The checks of one gateway; ``local`` is who any key stands for in local mode, None for never."""

    def __init__(
        self,
        settings: Settings,
        keyring: KeyRing,
        tokens: BrowserTokens,
        local: Principal | None,
        local_key: str = "",
    ) -> None:
        self._settings, self._keyring, self._tokens = settings, keyring, tokens
        self._local, self._local_key = local, local_key
        names = {"localhost", settings.host.lower(), *(host.lower() for host in settings.allowed_hosts)}
        origins = set(settings.allowed_origins)
        if settings.public_origin:
            origins.add(settings.public_origin)
            names.add(split_host(settings.public_origin.partition("//")[2]))
        self._names, self._origins = frozenset(names), frozenset(origins)

    @property
    def local_mode(self) -> bool:
        """Whether any key is taken from this machine.

        Ends for good with the first key that is made: it must not come back when that one is revoked.
        """
        if self._local is None or len(self._keyring):
            return False
        return all(info.kind == Kind.LOCAL for info in self._keyring.list())

    # -- Host and Origin --------------------------------------------------------------------------------

    def host_ok(self, request: web.Request) -> bool:
        """Whether the Host header names us.

        A literal address cannot be rebound by DNS, so on a wildcard bind any literal is one of ours; on a
        loopback bind only loopback literals are.
        """
        values = request.headers.getall(hdrs.HOST, [])
        host = split_host(values[0]) if len(values) == 1 else ""
        if not host:
            return False
        if host in self._names:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return is_loopback(host) or self._settings.wildcard

    def origin_ok(self, request: web.Request) -> bool:
        """Whether the Origin, if there is one, is our own (scheme, host and port alike) or on the list."""
        values = request.headers.getall(hdrs.ORIGIN, [])
        if not values:
            return True
        if len(values) != 1:
            return False
        scheme = "https" if request.secure else "http"
        return values[0] in self._origins or values[0] == f"{scheme}://{request.headers.get(hdrs.HOST, '')}"

    def check(self, request: web.Request) -> None:
        """Raise Forbidden for a Host or Origin that is not ours."""
        if not self.host_ok(request):
            raise Forbidden("this host name is not served here; see VOXWIRE_ALLOWED_HOSTS", field="Host")
        if not self.origin_ok(request):
            raise Forbidden(
                "pages of this origin may not connect; see VOXWIRE_ALLOWED_ORIGINS", field="Origin"
            )

    def cross_site(self, request: web.Request) -> bool:
        """Whether a browser says that another site's page made this request (they may lack an Origin)."""
        if hdrs.ORIGIN in request.headers:
            return not self.origin_ok(request)
        return request.headers.get("Sec-Fetch-Site", "none") in {"cross-site", "same-site"}

    def near(self, request: web.Request) -> bool:
        """Whether the request comes straight from this machine, not through a proxy on it."""
        if any(name in request.headers for name in PROXY_HEADERS):
            return False
        peer = request.transport.get_extra_info("peername") if request.transport else None
        return bool(
            isinstance(peer, tuple)
            and is_loopback(str(peer[0]))
            and is_loopback(split_host(request.headers.get(hdrs.HOST, "")))
        )

    # -- credentials ------------------------------------------------------------------------------------

    async def authenticate(
        self,
        request: web.Request,
        *,
        styles: Collection[str] = ALL_STYLES,
        scope: Scope | None = Scope.SPEAK,
        given: str | None = None,
    ) -> Principal:
        """Find who asks.

        Args:
            request: the request, not yet upgraded.
            styles: where a credential is looked for.
            scope: what it must allow (S4); None for nothing in particular.
            given: the credential where the request itself has none: a dialect's first message (S1).

        Raises:
            Unauthorised: no credential, or a wrong one.
            Forbidden: wrong Host or Origin, or a scope that is not held.

        """
        self.check(request)
        if self.cross_site(request):
            raise Forbidden("pages of another site may not connect", field="Origin")
        if given is None:
            given = credential(request, styles)
        if not given or len(given) > LONGEST_CREDENTIAL:
            raise Unauthorised("a key is needed: X-API-Key, xi-api-key, Authorization: Bearer, or ?api_key=")
        principal = await self._principal(request, given)
        if scope is not None:
            principal.require(scope)
        return principal

    async def _principal(self, request: web.Request, given: str) -> Principal:
        if looks_like_token(given):
            return await self._tokens.verify(given, origin=request.headers.get(hdrs.ORIGIN))
        near = self.near(request)
        if near and self._local is not None and self.local_mode:
            page = hdrs.ORIGIN in request.headers or "Sec-Fetch-Site" in request.headers
            if not page or hmac.compare_digest(given.encode(), self._local_key.encode()):
                return self._local
        return self._keyring.authenticate(given, loopback=near)

    def page(self, request: web.Request) -> Principal | None:
        """Who a page is that we served ourselves to this machine in local mode; None for everyone else.

        It has no key, but its Origin is ours, which no other page can claim.
        """
        own = hdrs.ORIGIN in request.headers and self.origin_ok(request) and self.host_ok(request)
        return self._local if own and self.local_mode and self.near(request) else None


async def authenticate(
    request: web.Request, *, styles: Collection[str] = ALL_STYLES, scope: Scope | None = Scope.SPEAK
) -> Principal:
    """``Guard.authenticate`` of the gateway that got this request."""
    return await services_of(request).guard.authenticate(request, styles=styles, scope=scope)

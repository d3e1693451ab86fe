"""Fetches a reference by its URL; off unless a deployment lists the hosts (trust.md S9).

One reading of the URL (:mod:`gateway.intake.location`) serves the check and the request. The name is resolved
once, every address that it has must be public, and the connection goes to one of those that were checked,
whatever the name server would say a moment later: asked by the HTTP client's resolver, and asked again when
    its socket is made.
Redirects are answers like any other that is not 200: refused. No proxy, cookie, netrc or compression is
    heeded.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tts_core.errors import Busy, Forbidden

from .addresses import Address, Network, is_public, parse_address
from .location import HostList, Location, parse_location
from .refusal import ReferenceRefused

AT_ONCE = 4
"""Fetches under way; one more is refused as busy."""

_CHUNK = 1 << 16
_FIELD = "reference_url"
_HEADERS = {"Accept": "audio/*", "Accept-Encoding": "identity", "User-Agent": "voxwire"}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and port to its addresses, as text."""


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    """What may be fetched.

    Attributes:
        hosts: entries of :class:`gateway.intake.location.HostList`; none: nothing is fetched.
        refused: networks refused beside those that are not public, as a deployment's own or its NAT64 prefix.
        max_bytes: of the file.
        total_s: deadline from the look-up to the last byte.
    """

    hosts: tuple[str, ...] = ()
    refused: tuple[Network, ...] = ()
    max_bytes: int = 10 << 20
    total_s: float = 10.0


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Fetcher:
    """Fetches references under a policy.

    Args:
        policy: what may be fetched.
        resolve: asked once a fetch.
        permits: which addresses may be connected to; only tests ask another than :func:`is_public`.
        tls: other roots of trust than the system's.

    Raises:
        SettingsError: the policy's list of hosts is wrong.
    """

    def __init__(
        self,
        policy: FetchPolicy | None = None,
        *,
        resolve: Resolve = system_resolve,
        permits: Callable[[Address], bool] = is_public,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._policy = policy or FetchPolicy()
        self._hosts = HostList(self._policy.hosts)
        self._resolve, self._permits = resolve, permits
        self._tls: ssl.SSLContext | bool = tls or True
        self._running = 0

    @property
    def enabled(self) -> bool:
        """Whether anything may be fetched."""
        return bool(len(self._hosts))

    async def fetch(self, url: str) -> bytearray:
        """Fetch a file; the caller overwrites it after use (:func:`gateway.intake.clip.decode_clip` does).

        Cancelled, it closes its connection.

        Raises:
            Forbidden: no hosts are listed, or this one is not.
            ReferenceRefused: ``url_invalid``; ``address``: the host has an address that is not public;
                ``redirect``; ``too_large``; ``fetch_timeout``; ``fetch_failed``: anything else.
            Busy: four others are under way.
        """
        if not self.enabled:
            raise Forbidden("references by URL are not enabled on this gateway", field=_FIELD)
        location = parse_location(url)
        if location not in self._hosts:
            raise Forbidden("references may not be fetched from this host", field=_FIELD)
        if self._running >= AT_ONCE:
            raise Busy("the gateway is fetching other references", retry_after=2.0)
        self._running += 1
        try:
            async with asyncio.timeout(self._policy.total_s):
                return await self._get(location, await self._checked(location))
        except TimeoutError:
            raise _refused("fetch_timeout", "the reference did not come in time") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise _refused("fetch_failed", "the reference could not be fetched") from None
        finally:
            self._running -= 1

    async def _checked(self, location: Location) -> list[Address]:
        """The host's addresses; all of them may be connected to."""
        addresses = [parse_address(text) for text in await self._resolve(location.host, location.port)]
        if not addresses:
            raise _refused("fetch_failed", "the reference could not be fetched")
        checked = [address for address in addresses if address is not None and self._may(address)]
        if len(checked) != len(addresses):
            raise _refused("address", "references may not be fetched from this host's address")
        return list(dict.fromkeys(checked))

    def _may(self, address: Address) -> bool:
        return self._permits(address) and not any(address in network for network in self._policy.refused)

    async def _get(self, location: Location, addresses: list[Address]) -> bytearray:
        pinned = _Pinned(location.host, addresses)
        connector = aiohttp.TCPConnector(
            ssl=self._tls,
            resolver=pinned,
            use_dns_cache=False,
            force_close=True,
            socket_factory=pinned.socket,
        )
        url = URL.build(
            scheme="https",
            host=location.host,
            port=location.port,
            path=location.path,
            query_string=location.query,
            encoded=True,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                auto_decompress=False,
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=self._policy.total_s),
            ) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            return await self._body(response)

    async def _body(self, response: aiohttp.ClientResponse) -> bytearray:
        if 300 <= response.status < 400:
            raise _refused("redirect", "the reference's address leads elsewhere: give the last one")
        if response.status != 200 or response.headers.get("Content-Encoding", "identity") != "identity":
            raise _refused("fetch_failed", "the reference could not be fetched")
        if (response.content_length or 0) > self._policy.max_bytes:
            raise self._too_large()
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            if len(body) + len(chunk) > self._policy.max_bytes:
                raise self._too_large()
            body += chunk
        return body

    def _too_large(self) -> ReferenceRefused:
        return _refused("too_large", f"the reference must not exceed {self._policy.max_bytes >> 20} MiB")


class _Pinned(AbstractResolver):
    """Answers with the addresses that were checked, and makes sockets for them alone."""

    def __init__(self, host: str, addresses: Iterable[Address]) -> None:
        self._host = host
        self._addresses = [str(address) for address in addresses]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        if host != self._host:
            raise OSError("another host than the one that was checked")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""

    def socket(self, target: tuple[Any, ...]) -> socket.socket:
        family, kind, proto, _, peer = target
        if peer[0] not in self._addresses:
            raise OSError("another address than those that were checked")
        return socket.socket(family, kind, proto)


def _refused(reason: str, message: str) -> ReferenceRefused:
    return ReferenceRefused(reason, message, field=_FIELD)


__all__ = ["FetchPolicy", "Fetcher", "Resolve", "system_resolve"]

"""The one reading of a reference's URL: what was checked is what is fetched.

The rules are narrower than RFC 3986, so that no other parser can see another host in the same text: ASCII
without spaces, quotes or backslashes, the scheme ``https``, no user part, no fragment, a host of letters,
digits and hyphens whose last label is no number. That leaves out every spelling of a bare address (decimal,
octal, hexadecimal, short, IPv6): WHATWG URL, 4.1, "ends in a number".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tts_core.errors import SettingsError

from .refusal import ReferenceRefused

MOST = 2048
"""Characters of a URL."""

PORT = 443

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.(?![0-9]+\Z)(?!0x[0-9a-f]*\Z){_LABEL}")
_URL = re.compile(
    r"https://(?P<host>[A-Za-z0-9.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<path>/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)?"
    r"(?:\?(?P<query>(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*))?"
)
_ENTRY = re.compile(r"(?P<any>\*\.)?(?P<host>[a-z0-9.-]+)(?::(?P<port>[1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class Location:
    """Where a reference lies; the escapes of its path (at least ``/``) and query are untouched."""

    host: str
    port: int
    path: str
    query: str


def parse_location(url: str) -> Location:
    """Read a URL.

    Raises:
        ReferenceRefused: ``url_invalid``.
    """
    found = _URL.fullmatch(url) if len(url) <= MOST else None
    if found is None:
        raise _invalid()
    host, port = found["host"].lower(), int(found["port"] or PORT)
    if len(host) > 253 or not _HOST.fullmatch(host) or port > 65_535:
        raise _invalid()
    return Location(host, port, found["path"] or "/", found["query"] or "")


class HostList:
    """The hosts that references may be fetched from.

    Args:
        entries: ``name``, or ``*.name`` for every host below that name (not itself); with ``:port`` where it
            is not 443.

    Raises:
        SettingsError: an entry is none of these; an address cannot be listed.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._below: set[tuple[str, int]] = set()
        for entry in entries:
            found = _ENTRY.fullmatch(entry.lower())
            if found is None or not _HOST.fullmatch(found["host"]) or int(found["port"] or PORT) > 65_535:
                raise SettingsError("a host of the list for references must be a name, *.name or name:port")
            (self._below if found["any"] else self._exact).add((found["host"], int(found["port"] or PORT)))

    def __len__(self) -> int:
        return len(self._exact) + len(self._below)

    def __contains__(self, location: Location) -> bool:
        if (location.host, location.port) in self._exact:
            return True
        labels = location.host.split(".")
        return any((".".join(labels[at:]), location.port) in self._below for at in range(1, len(labels)))


def _invalid() -> ReferenceRefused:
    return ReferenceRefused(
        "url_invalid",
        "the reference's address must be a plain https URL with a host name",
        field="reference_url",
    )


__all__ = ["HostList", "Location", "parse_location"]

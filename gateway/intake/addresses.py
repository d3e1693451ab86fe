"""Which addresses on the network a fetch may reach: those of the public internet, by our own table.

``ipaddress.is_global`` has changed its mind between patch releases of Python, and answers another question:
it calls 6to4 and NAT64 addresses global though a router turns them into the IPv4 address within. Sources: the
IANA special-purpose registries of IPv4 and IPv6 (RFC 6890 and its updates), RFC 6052 (NAT64), RFC 3056
(6to4), RFC 4380 (Teredo), RFC 5214 (ISATAP).
"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_REFUSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by carriers; a cloud's metadata at 100.100.100.200
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local; metadata at 169.254.169.254
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments; metadata at 192.0.0.192
            "192.0.2.0/24",
            "192.31.196.0/24",
            "192.52.193.0/24",
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",
            "192.175.48.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",  # multicast, reserved, broadcast
            "168.63.129.16/32",  # public by its number, but a cloud's own service from within its machines
        ),
    )
)
_UNICAST_6 = IPv6Network("2000::/3")
"""All that is given out. Outside: ``::1``, mapped and compatible IPv4, NAT64, unique local, link-local,
multicast."""

_REFUSED_6 = tuple(
    map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def parse_address(text: str) -> Address | None:
    """Read an address as a resolver writes it; None for anything else, as one with a zone (``%eth0``)."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if getattr(address, "scope_id", None) else address


def is_public(address: Address) -> bool:
    """Whether the address belongs to a host of the public internet, reached as it is written."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_4)
    if address not in _UNICAST_6 or any(address in network for network in _REFUSED_6):
        return False
    return int(address) >> 32 & 0xFFFF_FFFF not in _ISATAP


__all__ = ["Address", "Network", "is_public", "parse_address"]

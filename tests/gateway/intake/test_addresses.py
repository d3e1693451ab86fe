from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.addresses import is_public, parse_address

REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.1",
    "::",
    "::1",
    "::7f00:1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:808:808::1",
    "2620:4f:8000::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fdff::1",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "2606:4700::5efe:10.0.0.1",
    "2606:4700::200:5efe:127.0.0.1",
]

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "169.253.255.255",
    "169.255.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "192.167.255.255",
    "192.169.0.1",
    "198.17.255.255",
    "198.20.0.1",
    "223.255.255.255",
    "168.63.129.15",
    "2001:4860:4860::8888",
    "2400:cb00::1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
    "3ffe::1",
]


@pytest.mark.parametrize("text", REFUSED)
def test_refuses(text: str) -> None:
    address = parse_address(text)
    assert address is not None and not is_public(address)


@pytest.mark.parametrize("text", PUBLIC)
def test_permits(text: str) -> None:
    address = parse_address(text)
    assert address is not None and is_public(address)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "fe80::1%eth0",
        "2606:4700::1%1",
        "127.1",
        "0x7f000001",
        "0177.0.0.1",
        "2130706433",
        "127.0.0.1:80",
        "[::1]",
        "1.1.1.1/8",
        " 1.1.1.1",
        "1.1.1",
        "1.1.1.256",
        "٨.8.8.8",
    ],
)
def test_reads_only_whole_addresses(text: str) -> None:
    assert parse_address(text) is None


@given(st.ip_addresses())
def test_never_permits_what_the_library_calls_local(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if is_public(address):
        assert address.is_global
        assert not (
            address.is_private or address.is_loopback or address.is_link_local or address.is_multicast
        )
        assert not (address.is_reserved or address.is_unspecified)


@given(st.ip_addresses(v=4))
def test_an_address_within_another_is_never_permitted(inner: ipaddress.IPv4Address) -> None:
    number = int(inner)
    for outer in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80, number):
        assert not is_public(ipaddress.IPv6Address(outer))
